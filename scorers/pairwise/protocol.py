"""How a pair of answers is asked about, read and counted: the contract and the walk.

Every pair is shown to the judge in both orders (dual evaluation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from plait.generators.base import (
    Failure,
    Job,
    Outcome,
    Result,
    StageSpec,
    Unread,
    Unscored,
    Walk,
)
from plait.generators.content import follow_up, space_out
from plait.generators.document import Content, Document, Draft, Query, Request, Turn
from plait.generators.keys import derived_seed
from plait.generators.thoughts import UNFINISHED
from plait.scorers.features import Style
from plait.scorers.judging.asking import ask
from plait.scorers.judging.sources import Mode
from plait.scorers.pairwise.games import (
    Aspect,
    FactualityScores,
    Game,
    GamesByPair,
    Judgement,
    PairQuestion,
    PairStanding,
    ParsedReply,
    ReplyReading,
    Standings,
    Verdict,
    by_pair,
    pair_rows,
)
from plait.scorers.pairwise.prompts import OWN, images_of, texts
from plait.scorers.statistics.estimate import Estimate

_POSITION: dict[Aspect, int] = {"preference": 0, "factuality": 1}
"""Position in `derived_seed`: the same for both orders, so that a pair named the other
way round asks for the very same records."""


class ProtocolSettings(BaseModel):
    """How a protocol counts, where its users have a choice; most have none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Pairwise:
    """A protocol: how a pair is asked about, read, and counted.

    A protocol of one's own has a name, a mode, `requests` or `turns`, `read` and
    `aggregate`.
    """

    __slots__ = ()
    OFFICIAL_ATTEMPTS: ClassVar[int] = 1
    settings_of: ClassVar[type[ProtocolSettings]] = ProtocolSettings
    """The kind of its `settings`, of a protocol that has any."""
    OFFICIAL_NEEDS: ClassVar[Mapping[str, Callable[[], Any]]] = {}
    """By option, what makes it of a package that plait does not need, for official mode."""
    FORM: ClassVar[str] = "level"
    """Name of our text about how a reply about preference must end."""
    name: str
    """As the user names it."""
    mode: Mode
    """Whose constants and quirks apply."""

    def turns(
        self, aspect: Aspect, query: Query, first: Document, second: Document
    ) -> tuple[Turn, ...]:
        """Return one question, with the answer shown first before the other."""
        raise NotImplementedError

    def question(self, query: Query) -> tuple[Content, Content]:
        """Return the question, and the images that officially stand apart from it."""
        if self.mode == "official":
            return texts(query.question), images_of(query.question)
        return space_out(query.question), ()

    def aspects(self, query: Query) -> tuple[Aspect, ...]:
        """Return what is asked about a query."""
        return ("preference",)

    def requests(
        self, query: Query, first: Document, second: Document
    ) -> tuple[PairQuestion, ...]:
        """Return what to ask, by default all aspects in both orders of showing.

        ValueError where it cannot be asked.
        """
        questions = []
        for aspect in self.aspects(query):
            for swapped, shown_first, other in both_orders(first, second):
                turns = self.turns(aspect, query, shown_first, other)
                questions.append(PairQuestion(aspect, swapped, turns))
        return tuple(questions)

    def read(self, reply: str, aspect: Aspect = "preference") -> ParsedReply:
        """Return what a reply says."""
        raise NotImplementedError

    def aggregate(self, games: Iterable[Game], baseline: str | None = None) -> Standings:
        """Return every number of the protocol, with counts of what is missing.

        By default the `values` and `counts` of each pair's second system, then what
        `rate_systems` gives.
        """
        pairs = by_pair(games, baseline)
        rows = pair_rows(pairs, self.values, self.counts)
        return self.standings([*rows, *self.rate_systems(pairs, baseline)], baseline)

    def values(self, games: Sequence[Game]) -> Mapping[str, Estimate]:
        """Return the figures of the second system in the games of one pair."""
        raise NotImplementedError

    def counts(self, games: Sequence[Game]) -> Mapping[str, int]:
        """Return what is counted of these games besides replies."""
        return {}

    def rate_systems(
        self, pairs: GamesByPair, baseline: str | None
    ) -> Iterable[PairStanding]:
        """Return a row for each system among all."""
        return ()

    @property
    def attempts(self) -> int:
        """Most times one question is asked, the first included."""
        return 2 if self.mode == "corrected" else self.OFFICIAL_ATTEMPTS

    def standings(self, rows: Iterable[PairStanding], baseline: str | None) -> Standings:
        """Return the table of `rows`."""
        return Standings(
            protocol=self.name, mode=self.mode, baseline=baseline, rows=tuple(rows)
        )

    @property
    def rounds(self) -> int:
        """Upper bound on the rounds of questions about a pair."""
        return self.attempts

    def repeats_after(self, reply: str) -> bool:
        """Return whether the released program repeats the question after this reply."""
        return False

    def form(self, aspect: Aspect) -> str:
        """Return how a reply must end, for follow-up questions."""
        return str(OWN["forms"][self.FORM if aspect == "preference" else aspect])

    def style_of(self, answer: Document, *, first: bool) -> Style | None:
        """Return the style of an answer, for a protocol that looks at it."""
        return None

    def judge(
        self,
        query: Query,
        first: Document,
        second: Document,
        chat: StageSpec,
        *,
        seed: int = 0,
        repeat: int = 0,
    ) -> Walk[Judgement]:
        """Walk to the judgement of one pair, asking the stage `chat`.

        All questions are asked at once. Every reading has its own outcome; a pair that
        cannot be asked about is a failure of the input.
        """
        try:
            questions = self.requests(query, first, second)
        except ValueError as error:
            return Failure(str(error))
        interview = _Interview(self, query, chat, seed, repeat)
        asked = yield from ask(interview, questions, attempts=self.attempts)
        readings = []
        for question, one in zip(questions, asked, strict=True):
            readings.append(
                ReplyReading(question.aspect, question.swapped, one.reading, one.jobs)
            )
        return Result(Judgement(tuple(readings)))


@dataclass(frozen=True)
class _Interview:
    """How a pair is asked about; implements `plait.scorers.judging.asking.Interview`."""

    protocol: Pairwise
    query: Query
    chat: StageSpec
    seed: int
    repeat: int

    def job(self, question: PairQuestion, attempt: int) -> Job:
        """Return the request, whose reply a stage may try again where it is unreadable."""
        seed = None
        if self.chat.seeded:
            position = _POSITION[question.aspect] + attempt * len(_POSITION)
            seed = derived_seed(self.seed, self.query.id, self.repeat, position)
        about = f"{question.aspect} {self.query.id}"
        readable = partial(self._is_readable, question)
        request = Request(question.turns, seed)
        return Job(self.chat, request, self.query.id, about, readable)

    def read(
        self, question: PairQuestion, reply: Outcome[Draft]
    ) -> Outcome[Verdict | FactualityScores]:
        """Return what a reply says; its thought says nothing."""
        if not isinstance(reply, Result):
            return reply
        words = reply.value.reply
        if words.unfinished:
            return Unread(f"the reply {UNFINISHED}")
        reading = self.protocol.read(words.text, question.aspect)
        if isinstance(reading, Verdict | FactualityScores):
            return Result(reading)
        return reading

    def ask_again(
        self,
        question: PairQuestion,
        reply: Result[Draft],
        reading: Outcome[Verdict | FactualityScores],
    ) -> PairQuestion | None:
        """Return the question after an unreadable reply; None where nothing more is asked.

        In corrected mode a turn asks for the judgement in its form; in official mode the
        question itself is repeated as the released program does, with another seed. A stage
        that decodes greedily would give the same reply and is not asked again.
        """
        if not isinstance(reading, Unscored):
            return None
        text = reply.value.reply.text
        if self.protocol.mode == "official":
            repeats = self.chat.seeded and self.protocol.repeats_after(text)
            return question if repeats else None
        form = self.protocol.form(question.aspect)
        message = OWN["again"].format(problem=reading.reason, form=form)
        return replace(question, turns=follow_up(question.turns, text, message))

    def _is_readable(self, question: PairQuestion, reply: Outcome[Draft]) -> bool:
        return not isinstance(self.read(question, reply), Unscored)


def both_orders(
    first: Document, second: Document
) -> tuple[tuple[bool, Document, Document], ...]:
    """Return (whether swapped, the answer shown first, the other) in both orders."""
    return (False, first, second), (True, second, first)
