"""Two systems' answers to one query, and a judge's comparison of them as part of a plan.

A plan holds comparisons beside systems: each is its own walk, and its requests are records
like any others, so that nothing is asked twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from plait.generators.base import Failure, Fault, Outcome, Result, Skip, StageSpec, Walk
from plait.generators.document import Document, Malformed, Query
from plait.scorers.pairwise.games import Game, Judgement, preferences
from plait.scorers.pairwise.protocol import Pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Matchup:
    """Two systems' answers to one query, or why an answer is missing."""

    query: Query | Malformed
    repeat: int
    """Of the answers."""
    first: str
    second: str
    answers: tuple[Outcome[Document], Outcome[Document]]

    @property
    def pair(self) -> Outcome[tuple[Document, Document]]:
        """Both documents, or why an answer is missing."""
        named = tuple(zip((self.first, self.second), self.answers, strict=True))
        for name, answer in named:
            if isinstance(answer, Failure):
                return Failure(f"{name}: {answer.reason}", answer.fault)
        for name, answer in named:
            if not isinstance(answer, Result):
                return Skip(f"{name}: {answer.reason}")
        first, second = (a.value for a in self.answers if isinstance(a, Result))
        return Result((first, second))

    def game(self, outcome: Outcome[Judgement], protocol: Pairwise) -> Game:
        """Return the game that a judge's `outcome` makes of it."""
        one, other = (
            protocol.style_of(a.value, first=first) if isinstance(a, Result) else None
            for a, first in zip(self.answers, (True, False), strict=True)
        )
        return Game(
            question=self.query.id,
            category=self.query.category,
            field=self.query.field,
            first=self.first,
            second=self.second,
            outcome=outcome,
            styles=(one, other),
        )


@dataclass(frozen=True, kw_only=True)
class PairComparison:
    """One match-up judged by one judge. Implements `plait.scorers.base.PlanItem`."""

    matchup: Matchup
    protocol: Pairwise
    chat: StageSpec
    """The judge."""
    seed: int = 0
    draw: int = 0
    """Numbers what the judge draws about the same query: its seeds are derived from it."""

    @property
    def stages(self) -> tuple[StageSpec, ...]:
        """The chat stage alone."""
        return (self.chat,)

    @property
    def rounds(self) -> int:
        """How often the walk may go through the stages."""
        return self.protocol.rounds

    def walk(self) -> Walk[ComparedPair]:
        """Walk to the judgement; the result also says why there is none."""
        return Result(ComparedPair(self.matchup.pair, (yield from self._judgement())))

    def _judgement(self) -> Walk[Judgement]:
        query = self.matchup.query
        pair = self.matchup.pair
        if not isinstance(query, Query):
            return Failure(query.reason, Fault.BAD_INPUT)
        if not isinstance(pair, Result):
            return pair
        return (
            yield from self.protocol.judge(
                query, *pair.value, self.chat, seed=self.seed, repeat=self.draw
            )
        )


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """A match-up and its judgement. Implements `plait.scorers.base.ItemOutcome`."""

    pair: Outcome[tuple[Document, Document]]
    judgement: Outcome[Judgement]

    @property
    def subject(self) -> Outcome[tuple[Document, Document]]:
        """What is judged: the pair. A missing answer failed elsewhere, and is skipped."""
        return self.pair if isinstance(self.pair, Result) else Skip(self.pair.reason)

    @property
    def verdicts(self) -> tuple[Outcome[float], ...]:
        """The judgement for a run's counts; none where there was nothing to judge.

        Its value is the mean preference for the second in levels, -2 to 2. A failed reply
        makes the whole a failure; Unscored where no order can be read.
        """
        if not isinstance(self.pair, Result):
            return ()
        if not isinstance(self.judgement, Result):
            return (self.judgement,)
        unread: list[Outcome[float]] = []
        for reading in self.judgement.value.readings:
            if isinstance(reading.outcome, Failure):
                return (reading.outcome,)
            if not isinstance(reading.outcome, Result):
                unread.append(reading.outcome)
        if values := preferences(self.judgement.value):
            return (Result(sum(values) / len(values)),)
        return (unread[0],)
