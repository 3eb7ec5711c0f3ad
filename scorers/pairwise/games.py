"""Games: a judge's verdicts on two answers to one query, and the table made from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar

from plait.generators.base import (
    Job,
    NotApplicable,
    Outcome,
    Result,
    Unscored,
    outcome_name,
)
from plait.generators.document import Turn
from plait.generators.former import former_names
from plait.scorers.features import Style
from plait.scorers.statistics.estimate import Estimate

T = TypeVar("T")
Aspect = Literal["preference", "factuality"]
"""What is asked: which answer is better, or how true each is to the images."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which of two answers a judge prefers."""

    word: str
    """The protocol's own word: `A>>B`, `Answer1`, `unable to decide: situation one`."""
    preference: int
    """From -2 to 2; positive is for the answer shown first."""


@dataclass(frozen=True, slots=True)
class FactualityScores:
    """Scores out of 10 of the answer shown first and of the other."""

    first: float
    second: float


ParsedReply = Verdict | FactualityScores | Unscored | NotApplicable
"""What a reply says, or why it cannot be read."""


@dataclass(frozen=True, slots=True)
class PairQuestion:
    """One conversation to put to the judge."""

    aspect: Aspect
    swapped: bool
    """Whether the pair's second answer is shown first."""
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class ReplyReading:
    """The outcome of one `PairQuestion`: a verdict or scores, or why there are none."""

    aspect: Aspect
    swapped: bool
    outcome: Outcome[Verdict | FactualityScores]
    jobs: tuple[Job, ...] = field(default=(), compare=False)
    """What was asked for it, the last time last."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A judge's readings of one pair of answers."""

    readings: tuple[ReplyReading, ...]

    def verdict(self, swapped: bool) -> Verdict | None:
        """Return the verdict on one order of showing, where there is one."""
        return self._read(Verdict, swapped)

    def marks(self, swapped: bool) -> FactualityScores | None:
        """Return the scores given in one order of showing, where there are any."""
        return self._read(FactualityScores, swapped)

    def _read(self, kind: type[T], swapped: bool) -> T | None:
        for reading in self.readings:
            outcome = reading.outcome
            if reading.swapped != swapped or not isinstance(outcome, Result):
                continue
            if isinstance(outcome.value, kind):
                return outcome.value
        return None

    @property
    def flipped(self) -> "Judgement":
        """The same judgement with the pair named the other way round."""
        readings = []
        for reading in self.readings:
            readings.append(replace(reading, swapped=not reading.swapped))
        return Judgement(tuple(readings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """Two systems' answers to one question, and the judgement of them."""

    question: str
    """The query's id: the unit that intervals draw again."""
    category: str
    field: str
    first: str
    second: str
    outcome: Outcome[Judgement]
    """Not a result where an answer is missing or the pair cannot be asked about."""
    styles: tuple[Style | None, Style | None] = (None, None)
    """Of each answer that exists, judged or not, where the protocol looks at style."""

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
        first = self.second
        second = self.first
        styles = (self.styles[1], self.styles[0])
        return replace(self, first=first, second=second, outcome=outcome, styles=styles)

    def versus(self, baseline: str | None) -> "Game":
        """Return the game with the baseline, if it plays, as the pair's first."""
        return self.flipped if self.second == baseline else self


GamesByPair = Mapping[tuple[str, str], Sequence[Game]]


def by_pair(games: Iterable[Game], baseline: str | None) -> GamesByPair:
    """Games by (first, second), named so that the baseline is always the first."""
    pairs: dict[tuple[str, str], list[Game]] = {}
    for game in games:
        named = game.versus(baseline)
        # Whichever name of a pair comes first in the games is the one of all of them.
        if (named.second, named.first) in pairs:
            named = named.flipped
        pairs.setdefault((named.first, named.second), []).append(named)
    return pairs


_COUNTS = (
    *("questions", "unjudged", "both_orders", "one_order", "no_order", "read"),
    *("unread", "not_applicable", "skipped", "failed"),
)


def count_games(games: Sequence[Game], aspect: Aspect = "preference") -> dict[str, int]:
    """Questions, pairs of answers and replies by their outcomes.

    `questions` counts a repeated question once. `unjudged` are pairs lacking one of the
    two answers; of the judged pairs, `both_orders`, `one_order` and `no_order` say in how
    many orders of showing the reply could be read; `read`, `unread`, `failed`, ... count
    the replies themselves.
    """
    counts = dict.fromkeys(_COUNTS, 0)
    counts["questions"] = len({game.question for game in games})
    for game in games:
        if game.judgement is None:
            counts["unjudged"] += 1
            continue
        read = 0
        for reading in game.judgement.readings:
            if reading.aspect != aspect:
                continue
            name = outcome_name(reading.outcome)
            counts[_NAMES[name]] += 1
            read += _NAMES[name] == "read"
        counts[_ORDERS[min(read, 2)]] += 1
    return counts


_NAMES: Mapping[str, str] = {
    "done": "read",
    "unscored": "unread",
    "not_applicable": "not_applicable",
    "skipped": "skipped",
    "failed": "failed",
}
"""What replies are counted as, by the names of their outcomes."""
_ORDERS = ("no_order", "one_order", "both_orders")
"""By the number of orders that were read."""


def preferences(judgement: Judgement) -> list[int]:
    """Preference for the pair's second, from -2 to 2, per order that was read."""
    found = []
    # In the order as named the second answer is shown second, so that signs change.
    for swapped, sign in ((False, -1), (True, 1)):
        verdict = judgement.verdict(swapped)
        if verdict is not None:
            found.append(sign * verdict.preference)
    return found


def in_both_orders(games: Iterable[Game]) -> list[tuple[str, list[int]]]:
    """Return (question, preferences for the second) of the games read in both orders.

    One order alone would let the judge's position bias into the mean.
    """
    read = []
    for game in games:
        if game.judgement is not None:
            values = preferences(game.judgement)
            if len(values) == 2:
                read.append((game.question, values))
    return read


TablePart = Literal["overall", "category", "field"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStanding:
    """One system against another, or rated among all, on one group of questions."""

    system: str
    """Empty for what belongs to the group as a whole, as the effect of order."""
    opponent: str = ""
    """Empty where the system is rated among all."""
    part: TablePart = "overall"
    group: str = ""
    """Name of the category or field."""
    values: Mapping[str, Estimate]
    counts: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        values = {name: value.as_json() for name, value in self.values.items()}
        return asdict(self) | {"values": values}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """The results of a protocol over its games."""

    protocol: str
    mode: str
    baseline: str | None
    rows: tuple[PairStanding, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        about = {"protocol": self.protocol, "mode": self.mode, "baseline": self.baseline}
        return about | {"rows": [row.as_json() for row in self.rows]}


def groups(games: Sequence[Game]) -> Iterator[tuple[TablePart, str, list[Game]]]:
    """Yield all games, then those of each category, then those of each field."""
    yield "overall", "", list(games)
    by_category: dict[str, list[Game]] = {}
    by_field: dict[str, list[Game]] = {}
    for game in games:
        by_category.setdefault(game.category, []).append(game)
        by_field.setdefault(game.field, []).append(game)
    for name, own in sorted(by_category.items()):
        if name:
            yield "category", name, own
    for name, own in sorted(by_field.items()):
        if name:
            yield "field", name, own


def plain_mean(values: Sequence[float], none: str) -> Estimate:
    """Return a mean as released programs give it; `none` says why there is no value."""
    n = len(values)
    return Estimate(sum(values) / n, None, n) if n else Estimate(None, None, 0, none)


def rank(estimate: Estimate) -> float:
    """Return what sorts an estimate among others: best first, those without value last."""
    return math.inf if estimate.value is None else -estimate.value


def pair_rows(
    pairs: GamesByPair,
    values: Callable[[Sequence[Game]], Mapping[str, Estimate]],
    counts: Callable[[Sequence[Game]], Mapping[str, int]],
) -> list[PairStanding]:
    """Return a row for each pair's second system on each group of questions."""
    rows = []
    for (first, second), games in pairs.items():
        for part, group, members in groups(games):
            row = PairStanding(
                system=second,
                opponent=first,
                part=part,
                group=group,
                values=values(members),
                counts={**count_games(members), **counts(members)},
            )
            rows.append(row)
    return rows


__getattr__ = former_names(__name__, {"counted": "count_games"})
