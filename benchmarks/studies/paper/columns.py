"""What a paper's tables and figures are made of: systems by scorers, with errors.

    content = content_of([root], PaperChoice())
    content.columns[0].cells["anole"].estimate

Several runs are joined as `plait leaderboard` joins them: one column for each scorer on
each task set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import (
    Comparison,
    better_pairs,
    compare_systems,
    tied_with,
)
from plait.benchmarks.results.leaderboard import AVERAGES, MICRO, leaderboard
from plait.benchmarks.results.numbers import NumberForm, estimate_of
from plait.benchmarks.results.repeats import RepeatSpread, spread_over_repeats
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.studies.leaderboard import Benchmark, overview_of
from plait.benchmarks.tasks.controls import is_reference
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.names import unknown
from plait.scorers.base import Scorer
from plait.scorers.statistics.estimate import Estimate, Floats
from plait.scorers.statistics.multiple import Correction, rank_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperChoice:
    """What of the runs is shown."""

    systems: tuple[str, ...] = ()
    """Only these, in the order of the results; by default all."""
    scorers: tuple[str, ...] = ()
    """Only these, in this order; by default all that have a value."""
    correction: Correction = "holm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperCell:
    """What one scorer says of one system."""

    estimate: Estimate
    is_best: bool = False
    is_tied: bool = False
    """Not shown to be worse than the best."""
    ranks: tuple[int, int] | None = None
    """The best and the worst rank that it may have; None for a system without a rank."""
    spread: RepeatSpread | None = None
    """Over repeats, where there are any."""
    drawn: tuple[float, float] | None = None
    """The interval whose judge is one of many, where a pilot has measured its error."""


@dataclass(frozen=True, kw_only=True)
class PaperColumn:
    """One scorer on one task set."""

    name: str
    scorer: Scorer
    average: str
    """Which mean it is: `fixed weights`, `per query`, or `all images`."""
    cells: Mapping[str, PaperCell]
    """By system, those without a value too."""
    keys: Sequence[str] = ()
    """Of the queries."""
    values: Mapping[str, Floats]
    """By system, (queries,) scores, one mean over repeats for each; NaN for none."""
    categories: Mapping[str, Mapping[str, Estimate]]
    """By category and system, categories with a value alone."""
    comparisons: Sequence[Comparison] = ()
    """Every two systems; none of a figure of a set of images."""

    @property
    def form(self) -> NumberForm:
        """How its numbers are written."""
        return NumberForm.of(self.scorer.scale)

    @property
    def known(self) -> dict[str, PaperCell]:
        """The cells with a value."""
        cells = {}
        for system, cell in self.cells.items():
            if cell.estimate.value is not None:
                cells[system] = cell
        return cells

    @property
    def sizes(self) -> tuple[int, int]:
        """The least and the greatest number of queries behind a value."""
        numbers = [cell.estimate.n for cell in self.known.values()]
        return min(numbers, default=0), max(numbers, default=0)


@dataclass(frozen=True, kw_only=True)
class PaperContent:
    """Everything that tables, figures and text are made of."""

    runs: Sequence[AnyPath]
    boards: Sequence[Board]
    columns: Sequence[PaperColumn]
    systems: Sequence[str]
    """The best by the first column first, the ground truth and its controls last."""
    correction: Correction
    warnings: Sequence[str] = ()
    left_out: Sequence[str] = ()
    """Scorers without a value of any system."""

    @cached_property
    def repeats(self) -> int:
        """Answers per query, of the run that has most."""
        return max(board.rounds for board in self.boards)

    @property
    def remarks(self) -> list[str]:
        """The warnings in a few words, for captions."""
        # Runs of one study mostly share theirs, which is said once.
        texts = dict.fromkeys(board.brief_warning.rstrip(".") for board in self.boards)
        return [text for text in texts if text]

    @cached_property
    def models(self) -> list[str]:
        """The systems that are compared: without the ground truth and its controls."""
        return [name for name in self.systems if not is_reference(name)]

    def column(self, name: str) -> PaperColumn:
        """Return the column of a scorer; UsageError where there is none."""
        for column in self.columns:
            if name in (column.name, column.scorer.name):
                return column
        raise unknown("scorer", name, [column.name for column in self.columns])


def content_of(runs: Sequence[AnyPath], choice: PaperChoice) -> PaperContent:
    """Return what is shown of finished runs; UsageError for names that they do not have."""
    boards = [open_results(root).board for root in runs]
    # Dictionaries are sets in the order in which names first come.
    systems: dict[str, None] = {}
    scorers: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for board in boards:
        systems |= dict.fromkeys(system.name for system in board.systems)
        scorers |= dict.fromkeys(scorer.name for scorer in board.scorers)
        warnings |= dict.fromkeys(board.warnings)
    for name in choice.systems:
        if name not in systems:
            raise unknown("system", name, [*systems])
    columns = [
        *_columns_of_answers(runs, boards, choice),
        *_columns_of_sets(boards, choice),
    ]
    if choice.scorers:
        columns = _choose_columns(columns, choice.scorers)
    if not columns:
        raise UsageError(
            f"no query of {', '.join(map(str, runs))} has a score; `plait score RUN "
            "--scorer NAME` adds one"
        )
    shown: dict[str, None] = {}
    with_value = set()
    for column in columns:
        with_value.add(column.scorer.name)
        for system in column.cells:
            if not choice.systems or system in choice.systems:
                shown[system] = None
    return PaperContent(
        runs=runs,
        boards=boards,
        columns=columns,
        systems=_in_order(columns[0], [*shown]),
        correction=choice.correction,
        warnings=[*warnings],
        left_out=[name for name in scorers if name not in with_value],
    )


def _choose_columns(
    columns: Sequence[PaperColumn], names: Sequence[str]
) -> list[PaperColumn]:
    """Return the columns of some scorers, in the order of `names`.

    A scorer on several task sets has a column of each, whose names tell them apart; its own
    name stands for the first. UsageError where there is none.
    """
    by_name: dict[str, PaperColumn] = {}
    for column in columns:
        by_name.setdefault(column.name, column)
        by_name.setdefault(column.scorer.name, column)
    for name in names:
        if name not in by_name:
            raise unknown("scorer with a value", name, sorted(by_name))
    return [by_name[name] for name in names]


def _in_order(first: PaperColumn, names: Sequence[str]) -> list[str]:
    """Return systems, the best by a column first, references last."""
    sign = -1 if first.scorer.direction == "higher" else 1

    def place(name: str) -> tuple[bool, float]:
        cell = first.cells.get(name)
        value = None if cell is None else cell.estimate.value
        return is_reference(name), math.inf if value is None else sign * value

    return sorted(names, key=place)


def _columns_of_answers(
    runs: Sequence[AnyPath], boards: Sequence[Board], choice: PaperChoice
) -> list[PaperColumn]:
    """Return a column for each scorer of single answers on each task set."""
    scorers: list[Scorer] = []
    for board in boards:
        scorers += board.scorers
    if all(scorer.of_sets for scorer in scorers):
        return []  # An overview of nothing is an error.
    overview = overview_of(runs)
    columns = []
    for name, benchmark in zip(overview.names, overview.benchmarks, strict=True):
        columns.append(_column_of(name, benchmark, choice))
    return columns


def _column_of(name: str, benchmark: Benchmark, choice: PaperChoice) -> PaperColumn:
    """Return the column of one scorer on one task set: means, ranks and what ties."""
    scorer = benchmark.scorer
    shown = {}
    for system, values in benchmark.values.items():
        if not choice.systems or system in choice.systems:
            shown[system] = values
    stacked = np.stack([*shown.values()], axis=1) if shown else np.empty((0, 0))
    compared = compare_systems(scorer, [*shown], stacked, choice.correction)
    of_board = benchmark.cells
    means = {system: estimate_of(of_board[system]) for system in shown}
    cells = _cells(scorer, means, compared, _spreads(benchmark))
    for system, cell in cells.items():
        drawn = of_board[system].get("ci95_judge_drawn")
        if drawn is not None:
            cells[system] = replace(cell, drawn=(drawn[0], drawn[1]))
    return PaperColumn(
        name=name,
        scorer=scorer,
        average=AVERAGES[benchmark.average],
        cells=cells,
        keys=benchmark.parts[0].board.keys,
        values=shown,
        categories=_categories(benchmark, [*shown]),
        comparisons=compared,
    )


def _spreads(benchmark: Benchmark) -> dict[str, RepeatSpread]:
    """Return how the repeats of each system spread, in the first run that has it."""
    spreads: dict[str, RepeatSpread] = {}
    for part in benchmark.parts:
        for system, spread in spread_over_repeats(part.board, part.scorer).items():
            spreads.setdefault(system, spread)
    return spreads


def _cells(
    scorer: Scorer,
    means: Mapping[str, Estimate],
    compared: Sequence[Comparison],
    spreads: Mapping[str, RepeatSpread],
) -> dict[str, PaperCell]:
    """Return the cells with what is best among them, and what ties with it.

    The ground truth and its controls are shown and never best: nobody built them to win.
    """
    sign = -1 if scorer.direction == "higher" else 1
    places = {}
    for name, estimate in means.items():
        if estimate.value is not None and not is_reference(name):
            places[name] = sign * estimate.value
    best = min(places, key=places.__getitem__, default=None)
    tied = tied_with(best, compared) if best is not None and compared else set()
    ranks = rank_ranges(places, better_pairs(compared)) if compared else {}
    cells = {}
    for name, estimate in means.items():
        cells[name] = PaperCell(
            estimate=estimate,
            is_best=name == best and len(places) > 1,
            is_tied=name in tied and name in places,
            ranks=ranks.get(name),
            spread=spreads.get(name),
        )
    return cells


def _categories(
    benchmark: Benchmark, systems: Sequence[str]
) -> dict[str, dict[str, Estimate]]:
    """Return the means by category; nothing where all queries are of one."""
    found: dict[str, dict[str, Estimate]] = {}
    for system in systems:
        for name, cell in benchmark.scores[system]["categories"].items():
            estimate = estimate_of(cell)
            if estimate.value is not None:
                found.setdefault(name, {})[system] = estimate
    if len(found) < 2:
        return {}
    order = benchmark.parts[0].board.category_names
    return {name: found[name] for name in order if name in found}


def _columns_of_sets(boards: Sequence[Board], choice: PaperChoice) -> list[PaperColumn]:
    """Return the figures of sets of images, such as FID, which have no values by query."""
    columns: dict[str, PaperColumn] = {}
    for board in boards:
        rows = {row["system"]: row["scores"] for row in leaderboard(board)}
        for scorer in board.scorers:
            if not scorer.of_sets or scorer.name in columns:
                continue
            means = {}
            for system, scores in rows.items():
                if not choice.systems or system in choice.systems:
                    means[system] = estimate_of(scores[scorer.name][MICRO])
            column = PaperColumn(
                name=scorer.name,
                scorer=scorer,
                average="all images",
                cells=_cells(scorer, means, (), {}),
                values={},
                categories={},
            )
            if column.known:
                columns[scorer.name] = column
    return [*columns.values()]
