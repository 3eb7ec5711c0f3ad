"""Which systems a scorer tells apart, in words, for the first screen of the page.

for one in told_apart(board):
    print(one.scorer, one.text)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import Comparison, better_pairs, comparisons
from plait.benchmarks.results.leaderboard import leaderboard, placing
from plait.benchmarks.tasks.controls import is_reference
from plait.scorers.base import Scorer
from plait.scorers.statistics.multiple import CORRECTIONS, Correction

_ALL_PAIRS = 3
"""Systems of which every pair is told; of more, only what is shown of the best one."""
_MOST_NAMES = 4


Pair = tuple[str, str]
"""Two systems, the better one first."""


class Better(NamedTuple):
    """Each of the first systems is better than each of the others."""

    systems: tuple[str, ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldApart:
    """What one scorer shows of the systems that it has a value of, and what it does not.

    Of more than three systems this is about the best one alone.
    """

    scorer: str
    number: int
    """Of the scorer among those of the board, from 0."""
    systems: Sequence[str]
    """The best first, without the ground truth and its controls."""
    better: Sequence[Better]
    alike: Sequence[tuple[str, ...]]
    """Systems that cannot be told apart: no two of a group, or the best and each other."""
    pairs: int
    """How many pairs of systems are compared, for which p-values are corrected."""
    correction: Correction

    @property
    def text(self) -> str:
        """One sentence, without the name of the scorer."""
        whole = len(self.systems) <= _ALL_PAIRS
        said = self._about_all() if whole else self._about_best()
        pairs = f"{self.pairs:,} {'pair' if self.pairs == 1 else 'pairs'}"
        return f"{said} ({CORRECTIONS[self.correction]}, {pairs})"

    def _about_all(self) -> str:
        followed = [*combinations(self.systems, 2)]
        shown = set(_pairs_of(self.better))
        if len(self.systems) > 2 and shown.issuperset(followed):
            return f"each is better than all that follow: {', '.join(self.systems)}"
        parts = []
        for systems, others in self.better:
            verb = "is" if len(systems) == 1 else "are"
            parts.append(f"{_join_names(systems)} {verb} better than {_join_names(others)}")
        for group in self.alike:
            if len(group) == 2:
                parts.append(f"{_join_names(group)} cannot be told apart")
            else:
                parts.append(f"no two of {_join_names(group)} can be told apart")
        return "; ".join(parts)

    def _about_best(self) -> str:
        best, *others = self.systems
        if not self.better:
            return (
                f"{best} has the best mean, but cannot be told apart from any of the "
                f"{len(others)} others"
            )
        if not self.alike:
            return f"{best} is better than all {len(others)} others"
        worse = _join_names(self.better[0].others)
        tied = _join_names(self.alike[0][1:])
        return f"{best} is better than {worse}; it cannot be told apart from {tied}"


def told_apart(board: Board) -> list[ToldApart]:
    """Return what each scorer shows of the systems of a board.

    By the corrected paired differences of all pairs (`comparisons`). A scorer of sets of
    images compares nothing, and one with values of fewer than two systems has no pair:
    both are left out, as are the ground truth and its controls.
    """
    found = []
    for number, scorer in enumerate(board.scorers):
        systems = _systems_in_order(board, scorer)
        if scorer.of_sets or len(systems) < 2:
            continue
        compared = comparisons(board)[scorer.name]
        better = better_pairs(compared)
        if len(systems) <= _ALL_PAIRS:
            winners = systems
            alike = _alike(systems, better)
        else:
            winners = systems[:1]
            alike = _like_best(systems, better)
        told = ToldApart(
            scorer=scorer.name,
            number=number,
            systems=systems,
            better=_groups_of_better(winners, systems, better),
            alike=alike,
            pairs=_count_pairs(compared),
            correction=board.correction,
        )
        found.append(told)
    return found


def _count_pairs(compared: Iterable[Comparison]) -> int:
    """Return how many pairs share a correction: those with a p-value and no reference."""
    count = 0
    for one in compared:
        has_reference = is_reference(one.a) or is_reference(one.b)
        count += one.p is not None and not has_reference
    return count


def by_text(told: Iterable[ToldApart]) -> dict[str, list[ToldApart]]:
    """Return by sentence the scorers of which it is said, in their order."""
    groups: dict[str, list[ToldApart]] = {}
    for one in told:
        groups.setdefault(one.text, []).append(one)
    return groups


def _systems_in_order(board: Board, scorer: Scorer) -> list[str]:
    """Return the systems with a mean by a scorer, the best first, without references."""
    rows = leaderboard(board)
    place = placing(rows, scorer)
    names = []
    for row in sorted(rows, key=place):
        if place(row) < math.inf and not is_reference(row["system"]):
            names.append(row["system"])
    return names


def _groups_of_better(
    winners: Iterable[str], systems: Sequence[str], better: Collection[Pair]
) -> list[Better]:
    """Return the winners that are better than the same systems together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in winners:
        others = tuple(other for other in systems if (name, other) in better)
        if others:
            groups.setdefault(others, []).append(name)
    return [Better(tuple(names), others) for others, names in groups.items()]


def _alike(systems: Sequence[str], better: Collection[Pair]) -> list[tuple[str, ...]]:
    """Return the largest groups of which no two systems can be told apart."""
    groups: list[tuple[str, ...]] = []
    # The largest come first, so that a part of one of them is seen to be one.
    for size in range(len(systems), 1, -1):
        for group in combinations(systems, size):
            within = any(set(group) <= set(larger) for larger in groups)
            # The better one may come second: the order is by means over all queries of a
            # system, a comparison over those that both have a score of.
            pairs = {*combinations(group, 2), *combinations(reversed(group), 2)}
            if not within and pairs.isdisjoint(better):
                groups.append(group)
    return groups


def _like_best(systems: Sequence[str], better: Collection[Pair]) -> list[tuple[str, ...]]:
    """Return the best system and those that it is not shown to be better than."""
    best, *others = systems
    tied = [name for name in others if (best, name) not in better]
    return [(best, *tied)] if tied else []


def _pairs_of(better: Iterable[Better]) -> Iterator[Pair]:
    for one in better:
        yield from product(one.systems, one.others)


def _join_names(names: Sequence[str]) -> str:
    """Return `A, B and C`; of many names the first ones, and how many more there are."""
    if len(names) == 1:
        return names[0]
    shown = [*names]
    if len(shown) > _MOST_NAMES:
        more = len(shown) - _MOST_NAMES + 1
        shown = [*shown[: _MOST_NAMES - 1], f"{more} more"]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"
