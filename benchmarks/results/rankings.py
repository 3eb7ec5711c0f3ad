"""Systems in the order of several scorers, and how far these agree on it.

    series = [Series(name, direction, n, means_of(weights_of(keys), values)), ...]
    rankings = Rankings(systems, series)
    rankings.mean_ranks["anole"]        # Estimate
    rankings.correlations[0, 1]         # Spearman's, of the first two series

The systems are taken as they are; intervals resample the queries, the same ones in every
series that has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn
from plait.benchmarks.wording import quantity
from plait.scorers.base import Direction
from plait.scorers.statistics.estimate import (
    DRAWS,
    LEAST,
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)

_AT_ONCE = 4096
"""Queries that are drawn at a time."""
_LEAST_FOR_TAU = 3
"""Systems: of two there is one pair, which both order alike or not."""
_STRONGEST = 40
"""Share of colour behind a correlation of 1 on the page, in percent."""
ABOUT_CORRELATIONS = (
    "1: both rank the systems in the same order; -1: in the opposite order. 95% "
    "intervals by query, for these systems."
)


def weights_of(keys: Sequence[str]) -> Floats:
    """Return (1 + DRAWS, queries) how often each query counts: once, then as drawn."""
    return np.concatenate([np.ones((1, len(keys))), bootstrap_weights(keys, DRAWS)])


def means_of(weights: Floats, values: Floats) -> Floats:
    """Return (draws, systems) means of `values` (queries, systems), NaN for no value."""
    known = ~np.isnan(values)
    filled = np.nan_to_num(values)
    # A draw may hold no query with a value: 0 / 0 is its NaN.
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Floats = (weights @ filled) / (weights @ known)
    return means


def drawn_means(keys: Sequence[str], values: Floats) -> Floats:
    """Return (1 + DRAWS, columns) means of `values` (queries, columns), NaN for no value.

    `keys` name the queries. Few queries are drawn at a time, so that memory does not grow
    with their number.
    """
    sums = np.zeros((1 + DRAWS, values.shape[1]))
    counts = np.zeros_like(sums)
    for start in range(0, len(keys), _AT_ONCE):
        weights = weights_of(keys[start : start + _AT_ONCE])
        own = values[start : start + _AT_ONCE]
        sums += weights @ np.nan_to_num(own)
        counts += weights @ ~np.isnan(own)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Floats = sums / counts
    return means


def averages_of(board: Board, values: Floats, *, fixed: bool) -> Floats:
    """Return (1 + DRAWS, columns) averages of `values` (queries, columns).

    The rows are those of the board's queries. With `fixed`, means of categories under the
    published weights, without those that have no value at all; else means over queries.
    """
    if not fixed or not values.shape[1]:
        return drawn_means(board.keys, values)
    weights = []
    means = []
    for category, weight in board.categories.items():
        rows = board.rows_of(board.groups_of_category(category))
        # A scorer does not apply to a category without any score.
        if np.isnan(values[rows]).all():
            continue
        weights.append(weight)
        means.append(drawn_means([board.keys[row] for row in rows], values[rows]))
    if not means:
        return np.full((1 + DRAWS, values.shape[1]), np.nan)
    shares = np.array(weights, float) / sum(weights)
    # (categories,) by (categories, draws, columns): the sum over categories.
    drawn: Floats = np.tensordot(shares, np.stack(means), 1)
    return drawn


def _estimate(draws: Floats, n: int, undefined: str) -> Estimate:
    if np.isnan(draws[0]):
        return Estimate(None, None, n, f"undefined: {undefined}")
    return bootstrap_estimate(float(draws[0]), draws[1:], n)


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """What one scorer says of every system."""

    name: str
    direction: Direction
    n: int
    """Queries."""
    draws: Floats
    """(1 + DRAWS, systems) averages: of the queries, and of queries drawn."""
    is_reference: bool = False
    """Whether others are set beside it, so that no mean rank counts it."""


@dataclass(frozen=True, eq=False)
class Rankings:
    """The ranks of the same systems in several series."""

    systems: Sequence[str]
    series: Sequence[Series]

    @cached_property
    def _ranks(self) -> Floats:
        """(series, 1 + DRAWS, systems), the best being 1 and equal ones sharing."""
        from scipy.stats import rankdata

        ranks = []
        for series in self.series:
            # `rankdata` gives 1 to the lowest.
            draws = -series.draws if series.direction == "higher" else series.draws
            ranks.append(rankdata(draws, axis=1, nan_policy="propagate"))
        return np.stack(ranks)

    def _estimates(self, draws: Floats, n: int) -> dict[str, Estimate]:
        """Return by system the estimate of what it has in each draw (draws, systems)."""
        estimates = {}
        for system, of_system in zip(self.systems, draws.T, strict=True):
            estimates[system] = _estimate(of_system, n, "no score of every system")
        return estimates

    @cached_property
    def ranks(self) -> list[dict[str, Estimate]]:
        """By series, the rank of each system."""
        if not self.systems:
            return [{} for _ in self.series]
        estimates = []
        for ranks, series in zip(self._ranks, self.series, strict=True):
            estimates.append(self._estimates(ranks, series.n))
        return estimates

    @cached_property
    def mean_ranks(self) -> dict[str, Estimate]:
        """The mean rank over all series of each system."""
        if not self.systems:
            return {}
        counted = []
        sizes = []
        for i, series in enumerate(self.series):
            if not series.is_reference:
                counted.append(i)
                sizes.append(series.n)
        return self._estimates(self._ranks[counted].mean(axis=0), min(sizes))

    def by_mean_rank(self) -> list[str]:
        """Return the systems, that of the best mean rank first."""
        return sorted(self.systems, key=lambda name: self.mean_ranks[name].value or 0.0)

    @cached_property
    def _sizes(self) -> dict[tuple[int, int], int]:
        """By two series, the number of queries of the one that has fewer."""
        sizes = {}
        for i, j in combinations(range(len(self.series)), 2):
            sizes[i, j] = min(self.series[i].n, self.series[j].n)
        return sizes

    @cached_property
    def correlations(self) -> dict[tuple[int, int], Estimate]:
        """Spearman's correlation of the systems' averages, by two series.

        Positive where both call the same systems good.
        """
        found = {}
        if (many := len(self.systems)) < LEAST:
            reason = (
                f"too few systems with a score from every scorer ({many}, fewer than "
                f"{LEAST})"
            )
            for pair, n in self._sizes.items():
                found[pair] = Estimate(None, None, n, reason)
            return found
        # Spearman's rho is Pearson's correlation of ranks.
        centred = self._ranks - self._ranks.mean(axis=2, keepdims=True)
        spread = np.sqrt((centred**2).sum(axis=2))
        for (i, j), n in self._sizes.items():
            with np.errstate(invalid="ignore", divide="ignore"):
                rho = (centred[i] * centred[j]).sum(axis=1) / (spread[i] * spread[j])
            found[i, j] = _estimate(
                rho, n, "one of the two gives all systems the same rank"
            )
        return found

    @cached_property
    def taus(self) -> dict[tuple[int, int], Estimate]:
        """Kendall's tau-b of the systems' averages, by two series (Kendall 1945).

        Of all pairs of systems the share that both order alike less the share that they
        order oppositely, corrected for ties.
        """
        if (many := len(self.systems)) < _LEAST_FOR_TAU:
            reason = f"too few systems with a score from every scorer ({many})"
            none = Estimate(None, None, 0, reason)
            return dict.fromkeys(self._sizes, none)
        first, second = np.triu_indices(many, 1)
        signs = np.sign(self._ranks[:, :, first] - self._ranks[:, :, second])
        untied = (signs**2).sum(axis=2)
        found = {}
        for (i, j), n in self._sizes.items():
            with np.errstate(invalid="ignore", divide="ignore"):
                alike = (signs[i] * signs[j]).sum(axis=1)
                tau = alike / np.sqrt(untied[i] * untied[j])
            found[i, j] = _estimate(
                tau, n, "one of the two gives all systems the same rank"
            )
        return found

    def tables(self) -> Iterator[ResultTable]:
        """Yield ranks, and correlations where there are several series."""
        if self.systems:
            yield self._rank_table()
        if self.systems and len(self.series) > 1:
            yield self._correlation_table()

    def _rank_table(self) -> ResultTable:
        whole = NumberForm(0)
        mean = NumberForm(1)
        names = ["mean rank", *self._names]
        rows = []
        for system in self.by_mean_rank():
            ranks = [TableCell.of(by_system[system], whole) for by_system in self.ranks]
            mean_rank = TableCell.of(self.mean_ranks[system], mean)
            rows.append([TableCell(system), mean_rank, *ranks])
        notes = [
            "Among the systems with a score from every scorer; 1 is the best. No "
            "interval: the rank is the same whichever queries are drawn."
        ]
        columns = [TableColumn(name, numeric=True) for name in names]
        return ResultTable.of("Ranks", ["system", *columns], rows, notes)

    def _correlation_table(self) -> ResultTable:
        systems = quantity(len(self.systems), "system")
        title = f"Rank correlation (Spearman's rho) over {systems}"
        return table_between(title, self._names, self.correlations)

    @property
    def _names(self) -> list[str]:
        return [series.name for series in self.series]


def table_between(
    title: str, names: Sequence[str], found: Mapping[tuple[int, int], Estimate]
) -> ResultTable:
    """Return a coefficient between each two series; on the page, tinted by its size."""
    form = NumberForm(2)
    rows = []
    for i, name in enumerate(names):
        row = [TableCell(name)]
        for j in range(len(names)):
            if i == j:
                row.append(TableCell(""))
                continue
            # Each pair is there once, the first of the two before the other.
            between = found[min(i, j), max(i, j)]
            tint = round(_STRONGEST * (between.value or 0.0))
            row.append(TableCell.of(between, form, tint=tint))
        rows.append(row)
    notes = [ABOUT_CORRELATIONS]
    for reason in dict.fromkeys(between.reason for between in found.values()):
        if reason:
            notes.append(f"{reason[0].upper()}{reason[1:]}.")
    columns = [TableColumn(name, numeric=True) for name in names]
    return ResultTable.of(title, ["", *columns], rows, notes)
