"""`plait leaderboard`: systems of several runs and task sets, side by side.

A benchmark is one scorer on one task set. Runs of the same queries by the same scorer are
one benchmark, so that a system may be added by a run of its own. Ranks and correlations
are over the systems that have a score on every benchmark; their intervals resample the
queries of each. The ground truth and its controls are shown last and have no rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.leaderboard import (
    AVERAGES,
    FIXED,
    Cell,
    headline,
    leaderboard,
)
from plait.benchmarks.results.leaderboard_tables import cell_of
from plait.benchmarks.results.rankings import Rankings, Series, averages_of
from plait.benchmarks.results.report.page import tables_page
from plait.benchmarks.results.table import (
    ResultTable,
    TableCell,
    TableColumn,
    json_text,
    markdown_page,
)
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.tasks.controls import is_reference
from plait.benchmarks.wording import quantity
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.scorers.base import Scorer, scale_text
from plait.scorers.statistics.estimate import Estimate, Floats


@dataclass(frozen=True, slots=True)
class Part:
    """A scorer in one run."""

    run: AnyPath
    data: str
    board: Board
    scorer: Scorer


class Column(NamedTuple):
    """What a benchmark says of one system."""

    cell: Cell
    """Its average, the weights it ran on, and what else is said of its rows."""
    values: Floats
    """By query."""
    is_reference: bool
    scores: Mapping[str, Any]
    """All means of its row of the leaderboard by this scorer."""


@dataclass(frozen=True, eq=False)
class Benchmark:
    """One scorer's values of every system that answered the same queries."""

    parts: Sequence[Part]

    @property
    def data(self) -> str:
        """As the first run names it."""
        return self.parts[0].data

    @property
    def scorer(self) -> Scorer:
        """That of all parts."""
        return self.parts[0].scorer

    @property
    def n(self) -> int:
        """Queries asked."""
        return len(self.parts[0].board.keys)

    @cached_property
    def average(self) -> str:
        """Which average stands in the table: `avg_fixed` where any system has it."""
        rows = []
        for part in self.parts:
            rows += leaderboard(part.board)
        return headline(rows, self.scorer.name)

    @cached_property
    def _columns(self) -> dict[str, Column]:
        """By system, its average and its values by query.

        One that several runs have, with the same average, is one system; with another
        average, the later run's carries the name of the run, or its path where another
        run has that name.
        """
        found: dict[str, Column] = {}
        for part in self.parts:
            values = part.board.values[self.scorer.name]
            rows = {row["system"]: row for row in leaderboard(part.board)}
            for i, system in enumerate(part.board.systems):
                row = rows[system.name]
                scores = row["scores"][self.scorer.name]
                average = scores[self.average]
                name = _free_name(found, system.name, average, part.run)
                if name in found:
                    # The same average of another run is the same system.
                    continue
                found[name] = Column(
                    cell={
                        **average,
                        "weights": row["weights"],
                        **part.board.mark_of(system.name),
                    },
                    values=values[:, i],
                    is_reference=is_reference(system.name),
                    scores=scores,
                )
        return found

    @property
    def cells(self) -> dict[str, Cell]:
        """The average of each system."""
        return {name: column.cell for name, column in self._columns.items()}

    @property
    def values(self) -> dict[str, Floats]:
        """By system, (queries,) scores, NaN for none."""
        return {name: column.values for name, column in self._columns.items()}

    @property
    def scores(self) -> dict[str, Mapping[str, Any]]:
        """All means of each system by this scorer, as the leaderboard's rows hold them."""
        return {name: column.scores for name, column in self._columns.items()}

    @property
    def scored_systems(self) -> list[str]:
        """Those of which any query has a score."""
        return [name for name, cell in self.cells.items() if cell["mean"] is not None]

    @property
    def references(self) -> set[str]:
        """The ground truth and its controls."""
        return {name for name, column in self._columns.items() if column.is_reference}

    def draws(self, systems: Sequence[str]) -> Floats:
        """Return (1 + DRAWS, systems) averages: of the queries, and of queries drawn."""
        board = self.parts[0].board
        columns = [self._columns[name].values for name in systems]
        values = np.reshape(columns, (len(systems), len(board.keys))).T
        return averages_of(board, values, fixed=self.average == FIXED)


def _free_name(taken: Mapping[str, Column], system: str, cell: Cell, run: AnyPath) -> str:
    """Return the shortest name of a run's system that no other average has."""
    for name in (system, f"{system} ({run.name})"):
        if name not in taken or taken[name].cell["mean"] == cell["mean"]:
            return name
    return f"{system} ({run})"


def overview_of(runs: Iterable[AnyPath]) -> Overview:
    """Return what finished runs say of their systems; UsageError where that is nothing.

    Figures of sets are none: they have no values to draw ranks from. Nor is a scorer that
    gave no system a score, beside which no system would have one on every benchmark.
    """
    found: dict[Any, list[Part]] = {}
    sets: dict[str, None] = {}
    for root in runs:
        results = open_results(root)
        board = results.board
        for scorer in board.scorers:
            if scorer.of_sets:
                sets[scorer.name] = None
                continue
            # The same scorer, task set and queries are the same benchmark.
            digests = scorer.stage.digest, str(results.about.data["digest"])
            part = Part(root, results.about.config["data"], board, scorer)
            found.setdefault((scorer.name, *digests, *board.keys), []).append(part)
    benchmarks = [Benchmark(parts) for parts in found.values()]
    if not benchmarks:
        only = f" but those of sets of images ({', '.join(sets)})" if sets else ""
        raise UsageError(
            f"these runs have no scorer{only}; `plait score RUN --scorer NAME` adds one"
        )
    scored = [benchmark for benchmark in benchmarks if benchmark.scored_systems]
    if not scored:
        names = dict.fromkeys(benchmark.scorer.name for benchmark in benchmarks)
        raise UsageError(f"no query of these runs has a score of {', '.join(names)}")
    return Overview(scored, tuple(sets))


@dataclass(frozen=True)
class Overview:
    """What several benchmarks say of the same systems."""

    benchmarks: Sequence[Benchmark]
    sets: Sequence[str] = ()
    """Scorers of sets, which are left out."""

    @property
    def names(self) -> list[str]:
        """Of the benchmarks: the scorer, behind the task set where there are several."""
        data = {benchmark.data for benchmark in self.benchmarks}
        names = []
        for benchmark in self.benchmarks:
            name = benchmark.scorer.name
            names.append(f"{benchmark.data}, {name}" if len(data) > 1 else name)
        return names

    @cached_property
    def references(self) -> set[str]:
        """The ground truth and its controls, on any benchmark."""
        found = set[str]()
        for benchmark in self.benchmarks:
            found |= benchmark.references
        return found

    @cached_property
    def systems(self) -> list[str]:
        """By mean rank, then those without a score somewhere; references come last."""
        names: dict[str, None] = {}
        for benchmark in self.benchmarks:
            names |= dict.fromkeys(benchmark.cells)
        mean_ranks = self.rankings.mean_ranks

        def place(name: str) -> tuple[bool, float]:
            rank = math.inf
            if name in mean_ranks:
                rank = mean_ranks[name].value or 0.0
            # False sorts before True, so that references come last.
            return name in self.references, rank

        return sorted(names, key=place)

    @cached_property
    def common(self) -> list[str]:
        """Systems with a score on every benchmark, which have a rank."""
        first, *others = (benchmark.scored_systems for benchmark in self.benchmarks)
        shared = set(first).intersection(*others) - self.references
        return [name for name in first if name in shared]

    @cached_property
    def warnings(self) -> list[str]:
        """What readers must know of the runs before any number, each once."""
        every = set()
        # Of each warning the runs that it is of, as the keys of a dict that keeps order.
        runs: dict[str, dict[str, None]] = {}
        for benchmark in self.benchmarks:
            for part in benchmark.parts:
                every.add(str(part.run))
                for warning in part.board.warnings:
                    runs.setdefault(warning, {})[str(part.run)] = None
        lines = []
        for warning, own in runs.items():
            is_of_all = len(own) == len(every)
            lines.append(warning if is_of_all else f"{', '.join(own)}: {warning}")
        return lines

    @cached_property
    def rankings(self) -> Rankings:
        """Ranks of the common systems on every benchmark."""
        series = []
        for name, benchmark in zip(self.names, self.benchmarks, strict=True):
            direction = benchmark.scorer.direction
            draws = benchmark.draws(self.common)
            series.append(Series(name, direction, benchmark.n, draws))
        return Rankings(self.common, series)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        benchmarks = []
        for benchmark, ranks in zip(self.benchmarks, self.rankings.ranks, strict=True):
            plain = {
                "data": benchmark.data,
                "scorer": benchmark.scorer.name,
                "direction": benchmark.scorer.direction,
                "average": benchmark.average,
                "n": benchmark.n,
                "runs": [str(part.run) for part in benchmark.parts],
                "systems": benchmark.cells,
                "ranks": _ranks_as_json(ranks),
            }
            benchmarks.append(plain)
        correlations = []
        for pair, estimate in self.rankings.correlations.items():
            correlations.append({"benchmarks": [*pair], **estimate.as_json()})
        return {
            "warnings": self.warnings,
            "benchmarks": benchmarks,
            "mean_ranks": _ranks_as_json(self.rankings.mean_ranks),
            "correlations": correlations,
        }

    def tables(self) -> Iterator[ResultTable]:
        """Yield averages, ranks, and correlations between benchmarks."""
        heads: list[str | TableColumn] = ["system"]
        lines = {name: [TableCell(name)] for name in self.systems}
        notes = []
        for name, benchmark in zip(self.names, self.benchmarks, strict=True):
            direction = benchmark.scorer.direction
            heading = f"{name} ({scale_text(benchmark.scorer.scale, direction)})"
            heads.append(TableColumn(heading, direction, numeric=True))
            cells = benchmark.cells
            for system, line in lines.items():
                line.append(self._table_cell(cells.get(system), system))
            average = AVERAGES[benchmark.average]
            notes.append(f"{name}: {average}, {quantity(benchmark.n, 'query')}.")
        if self.sets:
            notes.append(
                f"Without {', '.join(self.sets)}: a figure of a set has no values by query "
                "to rank systems by; it stands on each run's own leaderboard."
            )
        if self.references:
            notes.append("The ground truth and its controls come last and have no rank.")
        yield ResultTable.of("Systems by benchmark", heads, lines.values(), notes)
        yield from self.rankings.tables()

    def _table_cell(self, cell: Cell | None, system: str) -> TableCell:
        if cell is None:
            return TableCell("-")
        return cell_of(cell, reference=system in self.references)


def _ranks_as_json(ranks: Mapping[str, Estimate]) -> dict[str, Any]:
    return {system: estimate.as_json("rank") for system, estimate in ranks.items()}


def write_leaderboard(runs: Sequence[AnyPath], out: Path) -> Overview:
    """Write `index.html`, `leaderboard.json` and `.md` of finished runs into `out`.

    UsageError where a run cannot be read, and where none has a scorer.
    """
    overview = overview_of(runs)
    remarks = [f"Warning: {warning}." for warning in overview.warnings]
    remarks.append(f"Runs: {', '.join(map(str, runs))}.")
    title = "Leaderboard"
    tables = [*overview.tables()]
    write_whole(out / "leaderboard.json", json_text(overview.as_json()))
    write_whole(out / "leaderboard.md", markdown_page(title, remarks, tables))
    write_whole(out / "index.html", tables_page(title, remarks, tables))
    return overview
