"""Two systems, or two runs, on the same queries: means of both and of the differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import ResultTable, TableColumn
from plait.generators.errors import UsageError
from plait.generators.names import unknown
from plait.scorers.base import Direction, ends_of
from plait.scorers.statistics.estimate import Estimate, Floats
from plait.scorers.statistics.means import mean, of_differences, paired_differences


def mean_difference(first: Floats, second: Floats, scale: str) -> Estimate:
    """Return the mean of `first - second`, of queries in one order; NaN for no score."""
    return mean(paired_differences(first, second), of_differences(ends_of(scale)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedMeans:
    """Scores of the queries that both have a score of, one mean over repeats for each.

    Examples:
        >>> run = plait.open_run("runs/quickstart")
        >>> means = run.compare("anole", "gt")["truth:match"]
        >>> round(means.first.value, 2), means.second.value, means.difference.n
        (96.19, 100.0, 8)
        >>> means.higher, means.equal, means.lower
        (0, 4, 4)
    """

    scale: str
    first: Estimate
    second: Estimate
    difference: Estimate
    """The mean of first minus second, with its 95% interval."""
    higher: int
    """Queries that the first has the higher score on."""
    equal: int
    lower: int

    @classmethod
    def of(cls, first: Floats, second: Floats, scale: str) -> PairedMeans:
        """Return the means of (queries,) scores in one order; NaN for no score."""
        both = ~np.isnan(first) & ~np.isnan(second)
        differences = paired_differences(first[both], second[both])
        ends = ends_of(scale)
        return cls(
            scale=scale,
            first=mean(first[both], ends),
            second=mean(second[both], ends),
            difference=mean_difference(first[both], second[both], scale),
            higher=int((differences > 0).sum()),
            equal=int((differences == 0).sum()),
            lower=int((differences < 0).sum()),
        )


@dataclass(frozen=True, eq=False, repr=False)
class SystemComparison(Mapping[str, PairedMeans]):
    """How two systems differ by each scorer, on the queries that both have a score of.

    Examples:
        >>> run = plait.open_run("runs/quickstart")
        >>> compared = run.compare("anole", "gt")
        >>> round(compared["truth:match"].difference.value, 2)  # the first minus the second
        -3.81
        >>> [round(end, 2) for end in compared["truth:match"].difference.ci95]
        [-7.88, 0.27]
        >>> print(compared)         # a notebook shows the table by itself
        anole and gt, query by query
         scorer               anole      gt  difference      95% interval  better on ...
         clipscore (0-2.5)    1.869   1.919      -0.050  [-0.153, +0.054]          3 ...
         truth:match (0-100)  96.19  100.00       -3.81    [-7.88, +0.27]          0 ...
        ...
    """

    first: str
    second: str
    means: Mapping[str, PairedMeans]
    """By scorer."""
    directions: Mapping[str, Direction]
    """By scorer, which values are better."""

    @classmethod
    def of(
        cls, board: Board, first: str, second: str, scorers: Sequence[str] | None = None
    ) -> SystemComparison:
        """Return how two systems of a board differ by these scorers, or by all.

        UsageError for names that it does not have, and for a scorer of sets of images,
        which has no score of a single query.
        """
        place = board.place_of_system
        for name in (first, second):
            if name not in place:
                raise unknown("system", name, place)
        single = board.scorers_of_answers
        for name in scorers or ():
            if name in board.scorer_names and name not in single:
                raise UsageError(
                    f"{name} has no score of a single query, but one figure of all images"
                )
            if name not in single:
                raise unknown("scorer", name, single)
        means = {}
        directions = {}
        for name in scorers or single:
            values = board.values[name]
            of_first = values[:, place[first]]
            of_second = values[:, place[second]]
            means[name] = PairedMeans.of(of_first, of_second, single[name].scale)
            directions[name] = single[name].direction
        return cls(first, second, means, directions)

    def __getitem__(self, scorer: str) -> PairedMeans:
        if scorer not in self.means:
            raise KeyError(str(unknown("scorer", scorer, self.means)))
        return self.means[scorer]

    def __iter__(self) -> Iterator[str]:
        return iter(self.means)

    def __len__(self) -> int:
        return len(self.means)

    @property
    def table(self) -> ResultTable:
        """One row per scorer."""
        numbers = ("difference", "95% interval", "better on", "equal", "worse on", "n")
        columns = []
        for name in (self.first, self.second, *numbers):
            columns.append(TableColumn(name, numeric=True))
        notes = [
            f"Of the queries that both have a score of. Difference: {self.first} minus "
            f"{self.second}. Better, worse: queries on which {self.first} is."
        ]
        for name, means in self.means.items():
            if means.difference.reason:
                notes.append(f"{name}: {means.difference.reason}.")
        title = f"{self.first} and {self.second}, query by query"
        rows = [self._row(name, means) for name, means in self.means.items()]
        return ResultTable.of(title, ["scorer", *columns], rows, notes)

    def _row(self, scorer: str, means: PairedMeans) -> list[str]:
        form = NumberForm.of(means.scale)
        signed = NumberForm.of(means.scale, signed=True)
        # Where less is better, the first is better on the queries on which it is lower.
        counts = [means.higher, means.equal, means.lower]
        if self.directions[scorer] == "lower":
            counts.reverse()
        counts.append(means.difference.n)
        row = [
            f"{scorer} ({means.scale})",
            form.number(means.first.value),
            form.number(means.second.value),
            signed.number(means.difference.value),
            signed.interval(means.difference.ci95) or "-",
        ]
        for count in counts:
            row.append(f"{count:,}")
        return row

    def __repr__(self) -> str:
        return f"SystemComparison({self.first!r}, {self.second!r}: {', '.join(self)})"

    def __str__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table.html
