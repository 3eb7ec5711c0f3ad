"""Every two systems by each scorer: their difference, and whether it is one.

    for one in compare_systems(scorer, names, values):
        print(one.a, one.b, one.difference, one.adjusted, one.better)

All pairs of one scorer are one family, of which not even one is to be shown by chance
(`scorers/statistics/multiple.py`); those with the ground truth or one of its controls,
which nobody wants ranked, are a family of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.paired import mean_difference
from plait.benchmarks.tasks.controls import is_reference
from plait.scorers.base import Direction, Scorer, ends_of
from plait.scorers.statistics.estimate import Estimate, Floats
from plait.scorers.statistics.means import of_differences, paired_differences
from plait.scorers.statistics.multiple import (
    CORRECTIONS,
    LEVEL,
    Correction,
    correct,
    paired_p_value,
    rank_ranges,
)

_DIGITS = 4
"""Significant digits of a p-value in files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two systems on the queries that one scorer has a score of both for."""

    a: str
    b: str
    direction: Direction
    difference: Estimate
    """The mean of a - b."""
    p: float | None
    """Of this pair alone; None where no query has both scores."""
    adjusted: float | None
    """Corrected for all pairs of the family."""

    @property
    def better(self) -> tuple[str, str] | None:
        """The better and the worse one; None where they cannot be told apart."""
        value = self.difference.value
        if self.adjusted is None or self.adjusted >= LEVEL or not value:
            return None
        first_wins = (value > 0) == (self.direction == "higher")
        return (self.a, self.b) if first_wins else (self.b, self.a)


def compare_systems(
    scorer: Scorer,
    names: Sequence[str],
    values: Floats,
    correction: Correction = "holm",
) -> list[Comparison]:
    """Return every pair of systems, in the order of `names`.

    `values` are (queries, systems), NaN for no score, one mean over repeats for each query.
    """
    ends = of_differences(ends_of(scorer.scale))
    columns = dict(zip(names, values.T, strict=True))
    pairs = [*combinations(names, 2)]
    alone = []
    for a, b in pairs:
        differences_of_pair = paired_differences(columns[a], columns[b])
        alone.append(paired_p_value(differences_of_pair, ends))
    adjusted = _correct_by_family(pairs, alone, correction)
    found = []
    for (a, b), p, own in zip(pairs, alone, adjusted, strict=True):
        one = Comparison(
            a=a,
            b=b,
            direction=scorer.direction,
            difference=mean_difference(columns[a], columns[b], scorer.scale),
            p=p,
            adjusted=own,
        )
        found.append(one)
    return found


def _correct_by_family(
    pairs: Sequence[tuple[str, str]],
    alone: Sequence[float | None],
    correction: Correction,
) -> list[float | None]:
    """Return the p-values of pairs corrected, those with a reference by themselves."""
    of_models: list[int] = []
    of_references: list[int] = []
    for place, pair in enumerate(pairs):
        family = of_references if any(map(is_reference, pair)) else of_models
        family.append(place)
    adjusted: list[float | None] = [None] * len(pairs)
    for places in (of_models, of_references):
        corrected = correct([alone[place] for place in places], correction)
        for place, p in zip(places, corrected, strict=True):
            adjusted[place] = p
    return adjusted


@lru_cache(maxsize=2)
def comparisons(board: Board) -> Mapping[str, Sequence[Comparison]]:
    """Return all pairs of a board by scorer; none of scorers of sets of images."""
    by_scorer = {}
    for scorer in board.scorers:
        if scorer.of_sets:
            continue
        values = board.values[scorer.name]
        by_scorer[scorer.name] = compare_systems(
            scorer, board.system_names, values, board.correction
        )
    return by_scorer


@lru_cache(maxsize=2)
def differences(board: Board) -> list[dict[str, Any]]:
    """Return the same as plain data: the mean of `a` - `b`, its p-value, and corrected."""
    rows = []
    for scorer in board.scorers:
        for one in comparisons(board).get(scorer.name, ()):
            row: dict[str, Any] = {"scorer": scorer.name, "a": one.a, "b": one.b}
            row |= one.difference.as_json("mean")
            row |= {"p": round_p(one.p), "p_adjusted": round_p(one.adjusted)}
            row |= {"correction": board.correction}
            row |= {"scale": scorer.scale, "direction": scorer.direction, **board.mark}
            rows.append(row)
    return rows


def round_p(p: float | None) -> float | None:
    """Return a p-value as files hold it."""
    return None if p is None else float(f"{p:.{_DIGITS}g}")


def better_pairs(compared: Sequence[Comparison]) -> set[tuple[str, str]]:
    """Return the pairs that can be told apart, the better one first."""
    return {one.better for one in compared if one.better is not None}


def tied_with(best: str, compared: Sequence[Comparison]) -> set[str]:
    """Return the systems that are not shown to be worse than `best`, without it."""
    names = set[str]()
    for one in compared:
        names |= {one.a, one.b}
    worse = {loser for winner, loser in better_pairs(compared) if winner == best}
    return {name for name in names - worse - {best} if not is_reference(name)}


def ranges_of_ranks(
    places: Mapping[str, float], compared: Sequence[Comparison]
) -> dict[str, tuple[int, int]]:
    """Return the best and worst rank of each system with a place: all hold at once.

    `places` are by system, infinite for one without a value; the ground truth and its
    controls have no rank.
    """
    ranked = [n for n, at in places.items() if at < math.inf and not is_reference(n)]
    return rank_ranges(ranked, better_pairs(compared))


def p_text(p: float | None) -> str:
    """Return a p-value as tables show it: `0.013`, `<0.001`, or a dash."""
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def about_correction(correction: Correction, names: Iterable[str]) -> str:
    """Say for how many pairs of systems p-values are corrected, and how."""
    models = sum(not is_reference(name) for name in names)
    pairs = f"{math.comb(models, 2):,} {'pair' if models == 2 else 'pairs'} of systems"
    if correction == "none":
        return f"p-values of {pairs}, each seen alone ({CORRECTIONS[correction]})"
    return f"p-values corrected for {pairs} ({CORRECTIONS[correction]})"
