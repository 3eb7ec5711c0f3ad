"""A judge as a scorer: request, chat stage, reading, and asking again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from generators.base import Job, NotApplicable, Result, StageSpec, Unscored, Walk
from generators.document import Document, Draft, Sample, Score
from generators.keys import derived_seed
from scorers.base import OneStage
from scorers.judging.asking import RubricQuestion, asked_again
from scorers.judging.released import Released
from scorers.judging.replies import RubricVerdict, Unreadable
from scorers.judging.rubrics import TOP, Rubric

_NOTED = (
    "input_tokens", "output_tokens", "finish", "image_sizes", "tiles", "max_tiles",
    "over_context",
)  # fmt: skip
"""What of the chat stage's usage and notes a score repeats, where it is there."""


class Examiner(Protocol):
    """A way to ask and to read: `Corrected` or `Released`."""

    @property
    def rubrics(self) -> Mapping[str, Rubric]:
        """By category."""
        ...

    def ask(
        self, sample: Sample, document: Document
    ) -> RubricQuestion | Unscored | NotApplicable:
        """The question about one document, or why there is none."""
        ...

    def read(self, reply: str, rubric: Rubric) -> RubricVerdict | Unreadable:
        """What a reply says."""
        ...


@dataclass(frozen=True, kw_only=True)
class RubricJudge(OneStage):
    """Scores documents by a rubric, through any chat stage. Implements `Scorer`."""

    name: str
    stage: StageSpec
    examiner: Examiner
    retries: int = 1
    seed: int = 0
    scale: str = "0-100"

    @property
    def manner(self) -> str:
        """Whose rubrics, and which mode."""
        own = all(id.startswith("own:") for id in self.texts)
        mode = "official" if isinstance(self.examiner, Released) else "corrected"
        return f"{'our' if own else 'released'} rubrics, {mode} mode"

    @property
    def rounds(self) -> int:
        """Most questions about one document."""
        return 1 + self.retries

    @property
    def texts(self) -> dict[str, str]:
        """Digest of every rubric in force, by its id."""
        rubrics = self.examiner.rubrics.values()
        return {rubric.id: rubric.sha256 for rubric in rubrics}

    def judge(self, sample: Sample, document: Document) -> Walk[Score]:
        """Ask, read, and ask again where the reply cannot be read; then Unscored.

        What the chat stage fails or skips is returned as it is.
        """
        asked = self.examiner.ask(sample, document)
        if not isinstance(asked, RubricQuestion):
            return asked
        request = asked.request(self._seed(sample, 0))
        # The rubric and the question come first in a prompt, the answer follows.
        group = f"{asked.rubric.id} {sample.id}"
        attempt = 0
        while True:
            attempt += 1
            outcome = (yield [Job(self.stage, request, sample.id, group)])[0]
            if not isinstance(outcome, Result):
                return outcome
            reply = outcome.value.text
            found = self.examiner.read(reply, asked.rubric)
            if isinstance(found, RubricVerdict):
                parts = _parts(found) | _about(asked, outcome, attempt)
                return Result(Score(found.raw / TOP * 100, parts))
            if attempt > self.retries:
                return Unscored(f"{_unread(outcome)}: {found.reason}")
            seed = self._seed(sample, attempt)
            request = asked_again(request, reply, found.reason, asked.rubric, seed)

    def _seed(self, sample: Sample, attempt: int) -> int | None:
        """Of the judge's own sampling; None for one that decodes greedily."""
        if not self.stage.seeded:
            return None
        return derived_seed(self.seed, sample.id, 0, attempt)


def _unread(reply: Result[Draft]) -> str:
    cut = reply.notes.get("finish") == "length"
    return "the reply is cut at the model's longest" if cut else "the reply cannot be read"


def _parts(found: RubricVerdict) -> dict[str, Any]:
    return {
        "raw": found.raw,
        "source": found.source,
        "stated": found.stated,
        "summed": found.summed,
        "consistent": found.consistent,
        "criteria": dict(found.criteria),
        "penalty": found.penalty,
    }


def _about(asked: RubricQuestion, reply: Result[Draft], attempts: int) -> dict[str, Any]:
    said = {**reply.notes, **reply.usage}
    return {
        "rubric": asked.rubric.id,
        "prompt_sha256": asked.rubric.sha256,
        "attempts": attempts,
        "images": asked.images,
        "images_left_out": asked.left_out,
        "text_cut": asked.cut,
        "neutralised": list(asked.neutralised),
        **{name: said[name] for name in _NOTED if name in said},
    }
