"""A judge as a scorer: request, chat stage, reading, and follow-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from generators.base import Job, Outcome, Result, Unread, Walk
from generators.document import Document, Draft, Sample, Score
from generators.keys import derived_seed
from scorers.base import Scorer
from scorers.judging.corrected import Corrected
from scorers.judging.released import Released
from scorers.judging.replies import RubricQuestion, RubricVerdict, follow_up
from scorers.judging.rubrics import TOP, Rubric

_REPEATED = (
    "input_tokens", "output_tokens", "finish", "image_sizes", "tiles", "max_tiles",
    "over_context",
)  # fmt: skip
"""What of the chat stage's usage and notes a score repeats, where present."""


Examiner = Corrected | Released
"""How to ask a judge and to read its replies."""


@dataclass(frozen=True, kw_only=True)
class ChatJudge(Scorer):
    """A scorer that asks a chat stage, and again where a reply cannot be read."""

    retries: int = 1
    seed: int = 0
    scale: str = "0-100"

    @property
    def rounds(self) -> int:
        """Most rounds of questions about one document."""
        return 1 + self.retries

    def seed_of(self, query: Sample, attempt: int) -> int | None:
        """Return the seed of the judge's own sampling; None where it decodes greedily."""
        if not self.stage.seeded:
            return None
        return derived_seed(self.seed, query.id, 0, attempt)


@dataclass(frozen=True, kw_only=True)
class RubricJudge(ChatJudge):
    """Scores documents by a rubric."""

    examiner: Examiner

    @property
    def manner(self) -> str:
        """Whose rubrics, and which mode."""
        own = all(id.startswith("own:") for id in self.texts)
        mode = "official" if isinstance(self.examiner, Released) else "corrected"
        return f"{'our' if own else 'released'} rubrics, {mode} mode"

    @property
    def texts(self) -> dict[str, str]:
        """Digest of every rubric in force, by its id."""
        rubrics = self.examiner.rubrics.values()
        return {rubric.id: rubric.sha256 for rubric in rubrics}

    def judge(self, query: Sample, document: Document) -> Walk[Score]:
        """Ask, read, and ask again where the reply cannot be read; then Unread.

        What the chat stage fails or skips is returned as it is.
        """
        question = self.examiner.ask(query, document)
        if not isinstance(question, RubricQuestion):
            return question
        request = question.request(self.seed_of(query, 0))
        # The rubric and the question come first in a prompt, the answer follows.
        group = f"{question.rubric.id} {query.id}"
        for attempt in range(1, self.rounds + 1):
            job = Job(self.stage, request, query.id, group, self._readable(question.rubric))
            outcome = (yield [job])[0]
            if not isinstance(outcome, Result):
                return outcome
            reply = outcome.value.text
            reading = self.examiner.read(reply, question.rubric)
            if isinstance(reading, RubricVerdict):
                parts = _parts(reading) | _about(question, outcome, attempt)
                return Result(Score(reading.raw / TOP * 100, parts))
            cut = outcome.notes.get("finish") == "length"
            what = "is cut at the model's maximum length" if cut else "cannot be read"
            problem = f"the reply {what}: {reading.reason}"
            seed = self.seed_of(query, attempt)
            request = follow_up(request, reply, reading.reason, question.rubric, seed)
        return Unread(problem)

    def _readable(self, rubric: Rubric) -> Callable[[Outcome[Draft]], bool]:
        def readable(outcome: Outcome[Draft]) -> bool:
            if not isinstance(outcome, Result):
                return False
            reading = self.examiner.read(outcome.value.text, rubric)
            return isinstance(reading, RubricVerdict)

        return readable


def _parts(verdict: RubricVerdict) -> dict[str, Any]:
    names = ("raw", "source", "stated", "summed", "consistent", "criteria", "penalty")
    return {name: getattr(verdict, name) for name in names}


def _about(question: RubricQuestion, reply: Result[Draft], attempts: int) -> dict[str, Any]:
    notes = {**reply.notes, **reply.usage}
    return {
        "rubric": question.rubric.id,
        "prompt_sha256": question.rubric.sha256,
        "attempts": attempts,
        "images": question.images,
        "images_left_out": question.left_out,
        "text_cut": question.cut,
        "neutralised": list(question.neutralised),
        **{name: notes[name] for name in _REPEATED if name in notes},
    }
