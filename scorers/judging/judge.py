"""A judge as a scorer: request, chat stage, reading, and follow-up."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from generators.base import Job, Outcome, Result, Unread, Walk
from generators.content import followed_up
from generators.document import Document, Draft, Request, Sample, Score
from generators.keys import derived_seed
from scorers.base import Scorer
from scorers.judging.corrected import Corrected
from scorers.judging.released import Released
from scorers.judging.replies import RubricQuestion, RubricVerdict, Unreadable, follow_up
from scorers.judging.rubrics import TOP, Rubric

R = TypeVar("R")
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


class Question(NamedTuple):
    """One question of several about an answer."""

    about: str
    """What it is about; questions about the same begin alike."""
    request: Request


class Readings(NamedTuple, Generic[R]):
    """What the replies to questions say, by the question's position."""

    values: Mapping[int, R]
    reasons: Mapping[int, str]
    """Why a reply cannot be read, of those without a value."""


@dataclass(frozen=True, kw_only=True)
class QuestionsJudge(ChatJudge, Generic[R]):
    """A judge that asks several questions about an answer, each by itself."""

    max_images: int | None = None

    @property
    def form(self) -> str:
        """How a reply must look, for follow-up questions."""
        raise NotImplementedError

    def read_reply(self, reply: str) -> R | Unreadable:
        """Return what one reply says."""
        raise NotImplementedError

    def readings(
        self, query: Sample, questions: Sequence[Question]
    ) -> Generator[list[Job], list[Outcome[Any]], Readings[R] | Outcome[Score]]:
        """Ask all questions at once, and again where a reply cannot be read.

        What the chat stage fails or skips is returned as it is.
        """
        values: dict[int, R] = {}
        reasons: dict[int, str] = {}
        open_ = dict(enumerate(questions))
        for attempt in range(1, self.rounds + 1):
            outcomes = (
                (yield [self._job(query, q) for q in open_.values()]) if open_ else []
            )
            unread: dict[int, Question] = {}
            for (i, question), outcome in zip(open_.items(), outcomes, strict=True):
                if not isinstance(outcome, Result):
                    return outcome
                reading = self.read_reply(outcome.value.text)
                if isinstance(reading, Unreadable):
                    reasons[i] = reading.reason
                    again = self._again(query, question.request, outcome, reading, attempt)
                    unread[i] = question._replace(request=again)
                else:
                    values[i] = reading
            if not (open_ := unread):
                break
        return Readings(values, {i: r for i, r in reasons.items() if i not in values})

    def _job(self, query: Sample, question: Question) -> Job:
        group = f"{query.id} {question.about}"
        return Job(self.stage, question.request, query.id, group, self._readable)

    def _readable(self, outcome: Outcome[Any]) -> bool:
        if not isinstance(outcome, Result):
            return False
        return not isinstance(self.read_reply(outcome.value.text), Unreadable)

    def _again(
        self,
        query: Sample,
        request: Request,
        reply: Result[Draft],
        unreadable: Unreadable,
        attempt: int,
    ) -> Request:
        message = (
            f"This cannot be read: {unreadable.reason}. Reply with one JSON object and "
            f"nothing else: {self.form}."
        )
        turns = followed_up(request.turns, reply.value.text, message)
        return Request(turns, self.seed_of(query, attempt))


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
