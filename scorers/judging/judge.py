"""A judge as a scorer: request, chat stage, reading, and follow-up."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from plait.generators.base import Job, Outcome, Result, Unread, Walk
from plait.generators.buckets import AnyPath
from plait.generators.content import follow_up
from plait.generators.document import Content, Document, Draft, Query, Request, Score, Turn
from plait.generators.keys import derived_seed
from plait.generators.thoughts import UNFINISHED
from plait.scorers.base import NoScore, ReleasedSummary, Scorer
from plait.scorers.judging.asking import ask
from plait.scorers.judging.mmie import Corrected, Released
from plait.scorers.judging.replies import RubricQuestion, RubricVerdict, Unreadable
from plait.scorers.judging.rubrics import TOP, Rubric
from plait.scorers.judging.sources import Mode
from plait.scorers.parts import PartScale, PartTable

R = TypeVar("R")
_REPEATED = (
    "input_tokens", "output_tokens", "finish", "image_sizes", "tiles", "max_tiles",
    "over_context",
)  # fmt: skip
"""What of the chat stage's usage and notes a score repeats, where present."""


Examiner = Corrected | Released
"""How to ask a judge and to read its replies."""


class Question(NamedTuple):
    """One question of several about an answer."""

    about: str
    """What it is about; questions about the same begin alike."""
    turns: tuple[Turn, ...]
    criteria: tuple[Any, ...] = ()
    """On what it is to be ruled, where questions differ in that."""

    @classmethod
    def of(cls, about: str, content: Content) -> Question:
        """Return a question of one turn."""
        return cls(about, (Turn("user", content),))


class Readings(NamedTuple, Generic[R]):
    """What the replies to questions say, by the question's position."""

    values: Mapping[int, R]
    reasons: Mapping[int, str]
    """Why a reply cannot be read, of those without a value."""
    last: Mapping[int, tuple[Result[Draft], int]]
    """The last reply to each, and how often it was asked."""

    def reason_of(self, question: int) -> str:
        """Return why there is no value of a question."""
        cut = self.last[question][0].notes.get("finish") == "length"
        what = "is cut at the model's maximum length" if cut else "cannot be read"
        return f"the reply {what}: {self.reasons[question]}"


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

    @property
    def texts(self) -> dict[str, str]:
        """Digest of every rubric in force, by its id; empty where there are questions."""
        return {}

    def seed_of(self, query: Query, attempt: int) -> int | None:
        """Return the seed of the judge's own sampling; None where it decodes greedily."""
        if not self.stage.seeded:
            return None
        return derived_seed(self.seed, query.id, 0, attempt)

    def ask_all(
        self,
        query: Query,
        questions: Sequence[Question],
        read: Callable[[Question, str], R | Unreadable],
        wanted: Callable[[Question], str],
    ) -> Generator[list[Job], list[Outcome[Any]], Readings[R] | Outcome[Score]]:
        """Ask all questions at once, and again for what is `wanted` of unread replies.

        What the chat stage fails or skips is returned as it is.
        """
        interview = _Interview(self, query, read, wanted)
        asked = yield from ask(interview, questions, attempts=self.rounds, all_needed=True)
        values: dict[int, R] = {}
        reasons: dict[int, str] = {}
        last: dict[int, tuple[Result[Draft], int]] = {}
        for i, one in enumerate(asked):
            if not isinstance(one.reply, Result):
                return one.reply
            last[i] = one.reply, len(one.jobs)
            if isinstance(one.reading, Unreadable):
                reasons[i] = one.reading.told
            else:
                values[i] = one.reading
        return Readings(values, reasons, last)


@dataclass(frozen=True)
class _Interview(Generic[R]):
    """How a judge of one answer asks; implements `plait.scorers.judging.asking.Interview`.

    A reading is a value, or why there is none; it is Unreadable, too, where there is no
    reply, which is then the outcome of the whole.
    """

    judge: ChatJudge
    query: Query
    reader: Callable[[Question, str], R | Unreadable]
    wanted: Callable[[Question], str]

    def job(self, question: Question, attempt: int) -> Job:
        """Return the request, whose reply a stage may try again where it is unreadable."""
        seed = self.judge.seed_of(self.query, attempt)
        return Job(
            self.judge.stage,
            Request(question.turns, seed),
            self.query.id,
            question.about,
            partial(self._is_readable, question),
        )

    def read(self, question: Question, reply: Outcome[Draft]) -> R | Unreadable:
        """Return what a reply says; its thought says nothing."""
        if not isinstance(reply, Result):
            return Unreadable("there is no reply")
        words = reply.value.reply
        if words.unfinished:
            return Unreadable(f"it {UNFINISHED}")
        return self.reader(question, words.text)

    def ask_again(
        self, question: Question, reply: Result[Draft], reading: R | Unreadable
    ) -> Question | None:
        """Return the question with the unreadable reply and what is wanted after it."""
        if not isinstance(reading, Unreadable):
            return None
        message = f"This cannot be read: {reading.reason}. {self.wanted(question)}"
        turns = follow_up(question.turns, reply.value.reply.text, message)
        return question._replace(turns=turns)

    def _is_readable(self, question: Question, reply: Outcome[Draft]) -> bool:
        return not isinstance(self.read(question, reply), Unreadable)


@dataclass(frozen=True, kw_only=True)
class QuestionsJudge(ChatJudge, Generic[R]):
    """A judge that asks several questions about an answer, each by itself."""

    own: ClassVar[Any]
    """Our wording."""
    wording: Any
    mode: Mode = "corrected"
    max_images: int | None = None

    @classmethod
    def wording_in(cls, file: AnyPath) -> Any:
        """Return the wording of the user's released file; UsageError for other files."""
        raise NotImplementedError

    @classmethod
    def scale_of(cls, name: str, mode: Mode) -> str:
        """Return the scale of the judge `name`."""
        return "0-100"

    @classmethod
    def schema_of(cls, name: str) -> Mapping[str, Any]:
        """Return the JSON schema of the form in which the judge `name` replies."""
        raise NotImplementedError

    @property
    def manner(self) -> str:
        """Whose wording, which mode, and what is judged."""
        whose = "our" if self.wording is self.own else "released"
        return f"{whose} wording, {self.mode} mode, {self.judges}"

    @property
    def judges(self) -> str:
        """What it judges, for people."""
        raise NotImplementedError

    @property
    def official(self) -> bool:
        """Whether to ask and count as the released program."""
        return self.mode == "official"

    @property
    def form(self) -> str:
        """How a reply must look, for follow-up questions."""
        raise NotImplementedError

    def read_reply(self, reply: str) -> R | Unreadable:
        """Return what one reply says."""
        raise NotImplementedError

    def readings(
        self, query: Query, questions: Sequence[Question]
    ) -> Generator[list[Job], list[Outcome[Any]], Readings[R] | Outcome[Score]]:
        """Ask about parts of an answer; what is about the same is sent together."""
        own = [q._replace(about=f"{query.id} {q.about}") for q in questions]
        wanted = f"Reply with one JSON object and nothing else: {self.form}."

        def read(_: Question, reply: str) -> R | Unreadable:
            return self.read_reply(reply)

        return (yield from self.ask_all(query, own, read, lambda _: wanted))


@dataclass(frozen=True, kw_only=True)
class RubricJudge(ChatJudge):
    """Scores documents by a rubric."""

    examiner: Examiner
    declared_parts: ClassVar[PartTable] = PartTable.of(
        PartScale("criteria/*", "ruling", "0-1", "criterion"),
        PartScale("penalty", "ruling", "0-1", "penalty"),
        PartScale("raw", "points", f"0-{TOP}", "raw"),
        PartScale("stated", "points", f"0-{TOP}"),
        PartScale("summed", "points", f"0-{TOP}"),
        PartScale("consistent", "boolean", "0-1"),
        PartScale("attempts", "replies"),
        PartScale("images", "images"),
        PartScale("images_left_out", "images"),
        PartScale("text_cut", "boolean", "0-1"),
        PartScale("input_tokens", "tokens"),
        PartScale("output_tokens", "tokens"),
        PartScale("image_sizes/*/*", "pixels"),
        PartScale("tiles/*", "tiles"),
        PartScale("max_tiles", "tiles"),
        PartScale("over_context", "boolean", "0-1"),
    )

    @property
    def manner(self) -> str:
        """Whose rubrics, and which mode."""
        own = all(id.startswith("own:") for id in self.texts)
        mode = "official" if isinstance(self.examiner, Released) else "corrected"
        return f"{'our' if own else 'released'} rubrics, {mode} mode"

    @property
    def released_summary(self) -> ReleasedSummary:
        """MMIE's in official mode."""
        return "mmie" if isinstance(self.examiner, Released) else ""

    @property
    def texts(self) -> dict[str, str]:
        """Digest of every rubric in force, by its id."""
        rubrics = self.examiner.rubrics.values()
        return {rubric.id: rubric.sha256 for rubric in rubrics}

    def query_refusal(self, query: Query) -> NoScore | None:
        """It needs a rubric for the query."""
        rubric = self.examiner.rubric_of(query)
        return None if isinstance(rubric, Rubric) else rubric

    def walk(self, query: Query, document: Document) -> Walk[Score]:
        """Ask, read, and ask again where the reply cannot be read; then Unread."""
        question = self.examiner.ask(query, document)
        if not isinstance(question, RubricQuestion):
            return question
        rubric = question.rubric
        wanted = (
            "Give your judgement again, in exactly this form and with nothing before or "
            f"after it:\n{rubric.form}"
        )

        def read(_: Question, reply: str) -> RubricVerdict | Unreadable:
            return self.examiner.read(reply, rubric)

        # The rubric and the question come first in a prompt, the answer follows.
        asked = Question.of(f"{rubric.id} {query.id}", question.content)
        replies = yield from self.ask_all(query, [asked], read, lambda _: wanted)
        if not isinstance(replies, Readings):
            return replies
        reply, attempts = replies.last[0]
        if (verdict := replies.values.get(0)) is None:
            return Unread(replies.reason_of(0))
        notes = {**reply.notes, **reply.usage}
        parts: dict[str, Any] = {
            "raw": verdict.raw,
            "source": verdict.source,
            "stated": verdict.stated,
            "summed": verdict.summed,
            "consistent": verdict.consistent,
            "criteria": verdict.criteria,
            "penalty": verdict.penalty,
            "rubric": rubric.id,
            "prompt_sha256": rubric.sha256,
            "attempts": attempts,
            "images": question.images,
            "images_left_out": question.left_out,
            "text_cut": question.cut,
            "neutralised": list(question.neutralised),
        }
        for name in _REPEATED:
            if name in notes:
                parts[name] = notes[name]
        return Result(Score(verdict.raw / TOP * 100, parts))
