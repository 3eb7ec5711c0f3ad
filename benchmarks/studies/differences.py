"""`plait diff`: how two runs differ, query by query.

A difference is the second run's score minus the first's, over the queries that have a
score in both. Queries are paired by id; one with another question in the other run is left
out and named, since a difference of its scores would be meaningless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results.board import Board, key_of
from benchmarks.results.table import ResultTable, TableCell, TableColumn
from benchmarks.runs.experiment import Experiment, reopen
from cluster.store import Store
from generators.document import Malformed, Sample
from generators.errors import UsageError
from generators.names import unknown
from scorers.statistics.estimate import Estimate
from scorers.statistics.means import mean, paired


@dataclass(frozen=True)
class FinishedRun:
    """A run directory as it is compared: its experiment and its scores."""

    root: Path
    experiment: Experiment
    board: Board

    @classmethod
    def at(cls, root: Path) -> "FinishedRun":
        """The run at `root`; UsageError where there is none."""
        experiment = reopen(root)
        return cls(root, experiment, experiment.board(Store(root)))

    @property
    def systems(self) -> list[str]:
        """Names of the systems."""
        return [system.name for system in self.board.systems]

    @property
    def scorers(self) -> list[str]:
        """Names of the scorers."""
        return [scorer.name for scorer in self.board.scorers]

    @cached_property
    def queries(self) -> dict[str, Sample | Malformed]:
        """By the key that distinguishes a malformed row from the valid one with its id."""
        return {key_of(sample): sample for sample in self.experiment.samples}

    def scores(self, system: str, scorer: str) -> dict[str, float]:
        """Mean over repeats, by the key of every query that has a score."""
        column = self.systems.index(system)
        values = self.board.values[scorer][:, column]
        pairs = zip(self.board.keys, values, strict=True)
        return {key: float(value) for key, value in pairs if not np.isnan(value)}


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """One scorer on one system of each run; means are over the paired queries."""

    scorer: str
    first_system: str
    second_system: str
    first: Estimate
    second: Estimate
    difference: Estimate
    """Mean of the second run's score minus the first's, with its interval."""
    only_first: tuple[str, ...]
    """Queries that have a score in the first run alone."""
    only_second: tuple[str, ...]

    @property
    def system(self) -> str:
        """`A`, or `A -> B` where the runs' systems have different names."""
        same = self.first_system == self.second_system
        return self.first_system if same else f"{self.first_system} -> {self.second_system}"

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "scorer": self.scorer,
            "systems": [self.first_system, self.second_system],
            "first": self.first.as_json("mean"),
            "second": self.second.as_json("mean"),
            "difference": self.difference.as_json("mean"),
            "n": self.difference.n,
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
        }


@dataclass(frozen=True)
class RunDifference:
    """The paired differences of two runs, and what only one of them has."""

    first: FinishedRun
    second: FinishedRun
    rows: tuple[PairedDifference, ...]
    changed: tuple[str, ...]
    """Queries with the same id and another question in the other run."""

    def only(self, what: str) -> tuple[list[str], list[str]]:
        """`systems`, `scorers` or `queries` that the first, and the second, has alone."""
        one, other = list(getattr(self.first, what)), list(getattr(self.second, what))
        return [n for n in one if n not in other], [n for n in other if n not in one]

    @property
    def table(self) -> ResultTable:
        """One line per system and scorer."""
        numbers = ("first", "second", "difference", "95% interval", "n")
        columns = [
            *(TableColumn(name, numeric=False) for name in ("system", "scorer")),
            *(TableColumn(name, numeric=True) for name in numbers),
            TableColumn("scored in one run only", numeric=False),
        ]
        title = f"{self.second.root.name} minus {self.first.root.name}"
        return ResultTable(title=title, columns=columns, rows=list(map(_line, self.rows)))

    def as_json(self) -> dict[str, Any]:
        """As plain data, as `--out` writes it."""
        kinds = ("systems", "scorers", "queries")
        alone = {kind: self.only(kind) for kind in kinds}
        return {
            "first": str(self.first.root),
            "second": str(self.second.root),
            "differences": [row.as_json() for row in self.rows],
            "only_first": {kind: alone[kind][0] for kind in kinds},
            "only_second": {kind: alone[kind][1] for kind in kinds},
            "changed_queries": list(self.changed),
        }


def run_difference(
    first: Path, second: Path, system: str | None = None, against: str | None = None
) -> RunDifference:
    """The paired differences between the runs at `first` and `second`.

    Systems are paired by name, or `system` of the first run with `against` of the second.
    UsageError for names that a run does not have, and where nothing can be paired.
    """
    one, other = FinishedRun.at(first), FinishedRun.at(second)
    pairs = _system_pairs(one, other, system, against)
    scorers = [name for name in one.scorers if name in other.scorers]
    if not scorers:
        raise UsageError(
            f"the runs share no scorer: {first} has {', '.join(one.scorers) or 'none'}, "
            f"{second} has {', '.join(other.scorers) or 'none'}; `plait score` adds one"
        )
    common = [key for key in one.queries if key in other.queries]
    same = {key for key in common if _asks_the_same(one.queries[key], other.queries[key])}
    rows = (_paired(one, other, s, pair, same) for pair in pairs for s in scorers)
    changed = tuple(key for key in common if key not in same)
    return RunDifference(one, other, tuple(rows), changed)


def _system_pairs(
    one: FinishedRun, other: FinishedRun, system: str | None, against: str | None
) -> list[tuple[str, str]]:
    if system is None:
        if against is not None:
            raise UsageError("--against names a system of the second run; add --system")
        pairs = [(name, name) for name in one.systems if name in other.systems]
        if not pairs:
            raise UsageError(
                f"the runs share no system: {one.root} has {', '.join(one.systems)}; "
                f"{other.root} has {', '.join(other.systems)}. "
                "Pair two by --system A --against B"
            )
        return pairs
    pair = (system, against or system)
    for run, name in zip((one, other), pair, strict=True):
        if name not in run.systems:
            raise unknown(f"system of {run.root}", name, run.systems)
    return [pair]


def _asks_the_same(one: Sample | Malformed, other: Sample | Malformed) -> bool:
    both = isinstance(one, Sample) and isinstance(other, Sample)
    return not both or one.question == other.question  # type: ignore[union-attr]


def _paired(
    one: FinishedRun,
    other: FinishedRun,
    scorer: str,
    systems: tuple[str, str],
    same: set[str],
) -> PairedDifference:
    first = one.scores(systems[0], scorer)
    second = other.scores(systems[1], scorer)
    keys = sorted(key for key in first if key in second and key in same)
    before, after = (np.array([run[k] for k in keys]) for run in (first, second))
    return PairedDifference(
        scorer=scorer,
        first_system=systems[0],
        second_system=systems[1],
        first=mean(before),
        second=mean(after),
        difference=mean(paired(after, before)),
        only_first=tuple(sorted(first.keys() - second.keys())),
        only_second=tuple(sorted(second.keys() - first.keys())),
    )


def _line(row: PairedDifference) -> list[TableCell]:
    alone = f"{len(row.only_first):,} first, {len(row.only_second):,} second"
    cells = (
        row.system,
        row.scorer,
        *(_number(e.value) for e in (row.first, row.second)),
        _number(row.difference.value, "+"),
        _interval(row.difference),
        f"{row.difference.n:,}",
        alone if row.only_first or row.only_second else "-",
    )
    return [TableCell(text) for text in cells]


def _number(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.2f}"


def _interval(estimate: Estimate) -> str:
    if estimate.ci95 is None:
        return estimate.reason or "-"
    return f"{estimate.ci95[0]:+.2f} to {estimate.ci95[1]:+.2f}"


def remarks(difference: RunDifference, limit: int = 5) -> Iterator[str]:
    """What only one run has, in lines for the terminal; `--out` holds all names."""
    for what in ("systems", "scorers", "queries"):
        for place, names in zip(("first", "second"), difference.only(what), strict=True):
            if names:
                yield f"only in the {place} run: {_some(what, names, limit)}"
    if difference.changed:
        changed = _some("queries", difference.changed, limit)
        yield f"left out, since their question differs in the other run: {changed}"


def _some(what: str, names: Sequence[str], limit: int) -> str:
    rest = f", ... ({len(names):,} in all)" if len(names) > limit else ""
    return f"{what} {', '.join(names[:limit])}{rest}"
