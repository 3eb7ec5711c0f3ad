"""What the pairwise protocols have in common: questions, readings, judgements, games."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from generators.base import NotApplicable, Outcome, Result, StageSpec, Unscored, Walk
from generators.document import Document, Sample, Turn
from scorers.features import Style
from scorers.judging.rubric import Mode
from scorers.pairwise.table import Table

__all__ = [
    "Ask",
    "Aspect",
    "Game",
    "Judgement",
    "Marks",
    "Mode",
    "Pairwise",
    "Read",
    "Reading",
    "Verdict",
]

Aspect = Literal["preference", "factuality"]
"""What is asked: which answer is better, or how true each is to the pictures."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which of two answers a judge prefers."""

    said: str
    """The protocol's own word: `A>>B`, `Answer1`, `unable to decide: situation one`."""
    preference: int
    """From -2 to 2; positive is for the answer shown first."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Scores out of 10 of the answer shown first and of the other."""

    first: float
    second: float


Read = Verdict | Marks | Unscored | NotApplicable
"""What a reply says, or why it says nothing."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One conversation to put to the judge."""

    aspect: Aspect
    swapped: bool
    """Whether the pair's second answer is shown first."""
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of one `Ask`: a verdict or marks, or why there are none."""

    aspect: Aspect
    swapped: bool
    outcome: Outcome[Verdict | Marks]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Everything a judge said of one pair of answers."""

    readings: tuple[Reading, ...]
    styles: tuple[Style, Style] | None = None
    """Of the pair's first and second answer, where the protocol looks at style."""

    def verdict(self, swapped: bool) -> Verdict | None:
        """The verdict on one order of showing, where there is one."""
        found = self._value("preference", swapped)
        return found if isinstance(found, Verdict) else None

    def marks(self, swapped: bool) -> Marks | None:
        """The marks given in one order of showing, as shown, where there are any."""
        found = self._value("factuality", swapped)
        return found if isinstance(found, Marks) else None

    def _value(self, aspect: Aspect, swapped: bool) -> Verdict | Marks | None:
        for r in self.readings:
            if (r.aspect, r.swapped) == (aspect, swapped) and isinstance(r.outcome, Result):
                return r.outcome.value
        return None

    @property
    def flipped(self) -> "Judgement":
        """The same judgement with the pair named the other way round."""
        readings = tuple(replace(r, swapped=not r.swapped) for r in self.readings)
        styles = self.styles and (self.styles[1], self.styles[0])
        return Judgement(readings, styles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """Two systems' answers to one question, and what was made of them."""

    question: str
    """The sample's id: the unit that intervals draw again."""
    category: str
    field: str
    first: str
    second: str
    outcome: Outcome[Judgement]
    """Not a result where an answer is missing or the pair cannot be asked about."""
    tokens: tuple[int | None, int | None] = (None, None)
    """Of each answer that there is, judged or not, where the protocol looks at style."""

    @property
    def judgement(self) -> Judgement | None:
        """The judgement, where the pair was asked about."""
        return self.outcome.value if isinstance(self.outcome, Result) else None

    @property
    def flipped(self) -> "Game":
        """The same game with the pair named the other way round."""
        outcome = self.outcome
        if isinstance(outcome, Result):
            outcome = replace(outcome, value=outcome.value.flipped)
        return replace(
            self,
            first=self.second,
            second=self.first,
            outcome=outcome,
            tokens=(self.tokens[1], self.tokens[0]),
        )

    def versus(self, baseline: str | None) -> "Game":
        """The game with the baseline, if it plays, as the pair's first."""
        return self.flipped if self.second == baseline else self


class Pairwise(Protocol):
    """A protocol: how a pair is asked about, read, and counted."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """As the user names it."""
        ...

    @property
    def mode(self) -> Mode:
        """Whose constants and quirks apply."""
        ...

    @property
    def attempts(self) -> int:
        """How often at most one question is asked, the first time included."""
        ...

    def repeats_after(self, reply: str) -> bool:
        """Whether the released program asks the same again after this unread reply."""
        ...

    def requests(
        self, sample: Sample, first: Document, second: Document
    ) -> tuple[Ask, ...]:
        """What to ask, both orders of showing; ValueError where it cannot be asked."""
        ...

    def read(self, reply: str, aspect: Aspect = "preference") -> Read:
        """What a reply says."""
        ...

    def style_of(self, answer: Document, *, first: bool) -> Style | None:
        """Style of the pair's first or second answer, where the protocol looks at it."""
        ...

    def judge(
        self,
        sample: Sample,
        first: Document,
        second: Document,
        chat: StageSpec,
        *,
        seed: int = 0,
        repeat: int = 0,
    ) -> Walk[Judgement]:
        """Walk to the judgement of one pair, asking the stage `chat`."""
        ...

    def aggregate(self, games: Iterable[Game], baseline: str | None = None) -> Table:
        """Every number of the protocol, with counts of what is missing."""
        ...
