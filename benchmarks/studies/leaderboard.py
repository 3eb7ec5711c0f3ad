"""`plait leaderboard`: systems of several runs and task sets, side by side.

A benchmark is one scorer on one task set. Runs of the same queries by the same scorer are
one benchmark, so that a system may be added by a run of its own. Ranks and correlations
are over the systems that have a score on every benchmark; their intervals resample the
queries of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results.board import Board
from benchmarks.results.leaderboard import (
    AVERAGES,
    FIXED,
    Cell,
    cell_of,
    headline,
    leaderboard,
)
from benchmarks.results.numbers import NumberForm
from benchmarks.results.report.page import tables_page
from benchmarks.results.table import (
    ResultTable,
    TableCell,
    TableColumn,
    json_text,
    markdown_page,
)
from benchmarks.runs.experiment import reopen
from cluster.store import Store
from generators.buckets import AnyPath
from generators.errors import UsageError
from generators.files import write_whole
from scorers.base import Scorer
from scorers.statistics.agreement import spearman
from scorers.statistics.estimate import (
    DRAWS,
    LEAST,
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)


@dataclass(frozen=True, slots=True)
class Part:
    """A scorer in one run."""

    run: AnyPath
    data: str
    digest: str
    """Of the task set."""
    board: Board
    scorer: Scorer

    @property
    def benchmark(self) -> tuple[str, ...]:
        """What makes it the same benchmark as another run's: scorer, task set, queries."""
        scorer = self.scorer.name, self.scorer.stage.digest
        return *scorer, self.digest, *self.board.keys


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
        name = self.scorer.name
        return headline([row for p in self.parts for row in leaderboard(p.board)], name)

    @cached_property
    def _columns(self) -> dict[str, tuple[Cell, Floats]]:
        """By system, its average and its values by query.

        One that several runs have, with the same average, is one system; with another
        average, the later run's carries the name of the run.
        """
        found: dict[str, tuple[Cell, Floats]] = {}
        for part in self.parts:
            values = part.board.values[self.scorer.name]
            rows = {row["system"]: row for row in leaderboard(part.board)}
            for i, system in enumerate(part.board.systems):
                name, scores = system.name, rows[system.name]["scores"]
                cell = scores[self.scorer.name][self.average]
                if name in found and found[name][0]["mean"] != cell["mean"]:
                    name = f"{name} ({part.run.name})"
                found.setdefault(name, (cell, values[:, i]))
        return found

    @property
    def cells(self) -> dict[str, Cell]:
        """The average of each system."""
        return {name: cell for name, (cell, _) in self._columns.items()}

    def draws(self, systems: Sequence[str]) -> Floats:
        """Return (1 + DRAWS, systems) averages: of the queries, and of queries drawn."""
        board = self.parts[0].board
        values = np.stack([self._columns[name][1] for name in systems], axis=1)
        drawn = bootstrap_weights(board.keys, DRAWS)
        weights = np.concatenate([np.ones((1, len(board.keys))), drawn])
        known, filled = ~np.isnan(values), np.nan_to_num(values)
        if self.average != FIXED:
            return _quotient(weights @ filled, weights @ known)
        rows = {c: board.rows_of(board.groups_of(c)) for c in board.categories}
        # A scorer does not apply to a category without any score.
        groups = {c: own for c, own in rows.items() if known[own].any()}
        shares = np.array([board.categories[c] for c in groups], float)
        means = [
            _quotient(weights[:, own] @ filled[own], weights[:, own] @ known[own])
            for own in groups.values()
        ]
        return np.tensordot(shares / shares.sum(), np.stack(means), 1)


def _quotient(above: Floats, below: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return above / below


def benchmarks_of(runs: Iterable[AnyPath]) -> list[Benchmark]:
    """Return the benchmarks of finished runs; UsageError where there is none.

    Metrics of sets are none: they have no values to draw ranks from. Nor is a scorer that
    gave no system a score, beside which no system would have one on every benchmark.
    """
    found: dict[Any, list[Part]] = {}
    for root in runs:
        experiment = reopen(root)
        board = experiment.board(Store(root, strict=True))
        for scorer in (s for s in board.scorers if not s.of_sets):
            about = experiment.config.data, str(dict(experiment.task.about)["digest"])
            part = Part(root, *about, board, scorer)
            found.setdefault(part.benchmark, []).append(part)
    benchmarks = [Benchmark(parts) for parts in found.values()]
    if not benchmarks:
        raise UsageError(
            "these runs have no scorer; `plait score RUN --scorer NAME` adds one"
        )
    scored = [b for b in benchmarks if any(c["mean"] is not None for c in b.cells.values())]
    if not scored:
        names = ", ".join(dict.fromkeys(b.scorer.name for b in benchmarks))
        raise UsageError(f"no query of these runs has a score of {names}")
    return scored


@dataclass(frozen=True)
class Overview:
    """What several benchmarks say of the same systems."""

    benchmarks: Sequence[Benchmark]

    @property
    def names(self) -> list[str]:
        """Of the benchmarks: the scorer, behind the task set where there are several."""
        several = len({b.data for b in self.benchmarks}) > 1
        before = (f"{b.data}, " if several else "" for b in self.benchmarks)
        return [d + b.scorer.name for d, b in zip(before, self.benchmarks, strict=True)]

    @cached_property
    def systems(self) -> list[str]:
        """All systems: by mean rank, and then those without a score somewhere."""
        named = dict.fromkeys(name for b in self.benchmarks for name in b.cells)
        order = {name: rank.value or 0.0 for name, rank in self.mean_ranks.items()}
        return sorted(named, key=lambda name: order.get(name, np.inf))

    @cached_property
    def common(self) -> list[str]:
        """Systems with a score on every benchmark."""
        first, *others = (
            [name for name, cell in b.cells.items() if cell["mean"] is not None]
            for b in self.benchmarks
        )
        return [name for name in first if all(name in other for other in others)]

    @cached_property
    def _draws(self) -> list[Floats]:
        """(1 + DRAWS, systems) by benchmark."""
        return [b.draws(self.common) for b in self.benchmarks]

    @cached_property
    def _ranks(self) -> Floats:
        """(benchmarks, 1 + DRAWS, systems), the best being 1 and equal ones sharing."""
        from scipy.stats import rankdata

        signs = [-1 if b.scorer.direction == "higher" else 1 for b in self.benchmarks]
        signed = [s * d for s, d in zip(signs, self._draws, strict=True)]
        return np.stack([rankdata(d, axis=1, nan_policy="propagate") for d in signed])

    def _estimates(self, of: Floats, n: int) -> dict[str, Estimate]:
        pairs = zip(self.common, of.T, strict=True)
        return {s: bootstrap_estimate(float(own[0]), own[1:], n) for s, own in pairs}

    @cached_property
    def ranks(self) -> list[dict[str, Estimate]]:
        """By benchmark, the rank of each common system."""
        if not self.common:
            return [{} for _ in self.benchmarks]
        pairs = zip(self._ranks, self.benchmarks, strict=True)
        return [self._estimates(own, b.n) for own, b in pairs]

    @cached_property
    def mean_ranks(self) -> dict[str, Estimate]:
        """The mean rank over all benchmarks of each common system."""
        if not self.common:
            return {}
        return self._estimates(self._ranks.mean(axis=0), min(b.n for b in self.benchmarks))

    @cached_property
    def correlations(self) -> dict[tuple[int, int], Estimate]:
        """Spearman's correlation of the common systems' averages, by two benchmarks.

        Positive where both call the same systems good.
        """
        found = {}
        for i, j in combinations(range(len(self.benchmarks)), 2):
            n = min(self.benchmarks[i].n, self.benchmarks[j].n)
            if len(self.common) < LEAST:
                reason = f"{len(self.common)} common systems, fewer than {LEAST}"
                found[i, j] = Estimate(None, None, n, reason)
                continue
            one = np.ones((1, len(self.common)))
            pairs = zip(self._ranks[i], self._ranks[j], strict=True)
            drawn = np.array([float(spearman(x, y, one)[0]) for x, y in pairs])
            found[i, j] = bootstrap_estimate(float(drawn[0]), drawn[1:], n)
        return found

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "benchmarks": [
                {
                    "data": b.data,
                    "scorer": b.scorer.name,
                    "direction": b.scorer.direction,
                    "average": b.average,
                    "n": b.n,
                    "runs": [str(part.run) for part in b.parts],
                    "systems": b.cells,
                    "ranks": {s: e.as_json("rank") for s, e in ranks.items()},
                }
                for b, ranks in zip(self.benchmarks, self.ranks, strict=True)
            ],
            "mean_ranks": {s: e.as_json("rank") for s, e in self.mean_ranks.items()},
            "correlations": [
                {"benchmarks": [i, j], **e.as_json()}
                for (i, j), e in self.correlations.items()
            ],
        }

    def tables(self) -> Iterator[ResultTable]:
        """Yield averages, ranks, and correlations between benchmarks."""
        names, bests = self.names, [b.cells for b in self.benchmarks]
        named = [*zip(names, self.benchmarks, strict=True)]
        heads = [
            TableColumn(f"{name} ({b.scorer.scale})", b.scorer.direction, numeric=True)
            for name, b in named
        ]
        rows = [
            [
                TableCell(s),
                *(cell_of(own[s]) if s in own else TableCell("-") for own in bests),
            ]
            for s in self.systems
        ]
        about = [f"{name}: {AVERAGES[b.average]}, {b.n:,} queries." for name, b in named]
        yield ResultTable.of("Systems by benchmark", ["system", *heads], rows, about)
        if self.common:
            yield self._rank_table(names)
        if len(names) > 1 and self.common:
            yield self._correlation_table(names)

    def _rank_table(self, names: Sequence[str]) -> ResultTable:
        whole, mean = NumberForm(0), NumberForm(1)
        columns = [TableColumn(name, numeric=True) for name in ("mean rank", *names)]
        rows = [
            [TableCell(s), TableCell.of(self.mean_ranks[s], mean)]
            + [TableCell.of(own[s], whole) for own in self.ranks]
            for s in self.systems
            if s in self.mean_ranks
        ]
        notes = [
            "Over the systems that have a score on every benchmark; 1 is the best. No "
            "interval: the rank is the same whichever queries are drawn."
        ]
        return ResultTable.of("Ranks", ["system", *columns], rows, notes)

    def _correlation_table(self, names: Sequence[str]) -> ResultTable:
        form = NumberForm(2)
        rows = [
            [names[i], names[j], form.estimate(estimate)]
            for (i, j), estimate in self.correlations.items()
        ]
        title = f"Rank correlation between benchmarks, {len(self.common)} systems"
        return ResultTable.of(title, ["benchmark", "and", "Spearman's rho"], rows)


def write_leaderboard(runs: Sequence[AnyPath], out: Path) -> Sequence[ResultTable]:
    """Write `index.html`, `leaderboard.json` and `.md` of finished runs into `out`.

    UsageError where a run cannot be read, and where none has a scorer.
    """
    overview = Overview(benchmarks_of(runs))
    tables = [*overview.tables()]
    title = "Leaderboard"
    remarks = [f"Runs: {', '.join(map(str, runs))}."]
    write_whole(out / "leaderboard.json", json_text(overview.as_json()))
    write_whole(out / "leaderboard.md", markdown_page(title, remarks, tables))
    write_whole(out / "index.html", tables_page(title, remarks, tables))
    return tables
