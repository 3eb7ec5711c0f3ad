"""The figures of a paper, as PDF and SVG.

    for name, figure in figures_of(content, pair=None):
        save(figure, folder, name)

Every series has a marker or a hatching of its own beside its colour, so that it is told
from the others in grey too. Equal content gives equal files.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from plait.benchmarks.results.figures import error_bar, name_rows, short
from plait.benchmarks.studies.paper.columns import PaperColumn, PaperContent
from plait.benchmarks.studies.paper.costs import AnswerCosts, frontier_of
from plait.benchmarks.studies.paper.tables import file_name
from plait.generators.buckets import AnyPath
from plait.generators.files import write_whole
from plait.scorers.base import scale_text
from plait.scorers.statistics.estimate import Estimate, Floats
from plait.scorers.statistics.judge_error import ABOUT, JudgeErrors
from plait.scorers.statistics.means import paired_differences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMS = ("pdf", "svg")
_STYLE = Path(__file__).with_name("paper.mplstyle")
_COLOURS = 8
_MARKERS = "osD^vPX*<>hp"
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++", "oooo", "----")
_COLUMN = 3.4
"""Width of one column of a paper, in inches; figures are one or two of them wide."""
_ROW = 0.22
"""Height of a row with a name, in inches."""
_MOST_PANELS = 6
_BINS = 21

Paint = Callable[["Figure"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """One figure that can be drawn."""

    name: str
    """Of its files."""
    caption: str
    width: float
    """In inches, as the next."""
    height: float
    paint: Paint


def save(figure: PaperFigure, folder: AnyPath) -> list[str]:
    """Write a figure in both forms, and return the names of the files."""
    import matplotlib
    from matplotlib.figure import Figure

    files = []
    with matplotlib.rc_context(fname=_STYLE), warnings.catch_warnings():
        # Of letters that the font lacks, and of little room.
        warnings.simplefilter("ignore", UserWarning)
        drawn = Figure(figsize=(figure.width, figure.height), layout="constrained")
        figure.paint(drawn)
        for form in FORMS:
            # What would tell when a file was made.
            dates = {"pdf": "CreationDate", "svg": "Date"}
            file = io.BytesIO()
            drawn.savefig(file, format=form, metadata={dates[form]: None})
            files.append(f"{figure.name}.{form}")
            write_whole(folder / files[-1], file.getvalue())
    return files


def figures_of(
    content: PaperContent, costs: AnswerCosts | None, pair: tuple[str, str] | None
) -> Iterator[PaperFigure]:
    """Yield the figures that the content has something to show in.

    `pair` are the systems whose differences are drawn; by default the two best.
    """
    yield forest_figure(content)
    for column in content.columns:
        if column.categories:
            yield category_figure(content, column)
    # Of two systems at least: a single point shows nothing of two scorers.
    shared = []
    for column in content.columns:
        if len(_models_in(content, column)) > 1:
            shared.append(column)
    if len(shared) > 1:
        yield scorer_figure(content, shared)
    if costs is not None:
        yield cost_figure(content, costs)
    if errors := _judgeerror_bar(content):
        yield variance_figure(errors)
    if pair is None and len(content.models) > 1:
        pair = content.models[0], content.models[1]
    if pair is not None:
        columns = []
        for column in content.columns:
            if {*pair} <= column.values.keys() and _gaps(column, pair).size:
                columns.append(column)
        if columns:
            yield difference_figure(columns, pair)


def _models_in(content: PaperContent, column: PaperColumn) -> list[str]:
    return [name for name in content.models if name in column.known]


class Look(NamedTuple):
    """How the points of one system are drawn, the same in all figures."""

    marker: str
    colour: str


def _looks(content: PaperContent) -> dict[str, Look]:
    looks = {}
    for i, system in enumerate(content.systems):
        looks[system] = Look(_MARKERS[i % len(_MARKERS)], f"C{i % _COLOURS}")
    return looks


def _draw_point(
    axes: Axes, look: Look, x: Estimate, y: Estimate, *, filled: bool = True
) -> None:
    """Draw two means with their intervals; an estimate without one has no bar."""
    axes.errorbar(
        x.value or 0.0,
        y.value or 0.0,
        xerr=error_bar(x),
        yerr=error_bar(y),
        marker=look.marker,
        color=look.colour,
        markerfacecolor=look.colour if filled else "white",
    )


def _add_legend(figure: Figure, looks: Mapping[str, Look]) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for name, look in looks.items():
        line = Line2D([], [], marker=look.marker, color=look.colour, label=short(name))
        handles.append(line)
    figure.legend(handles=handles, loc="outside lower center", ncols=2)


def _label(column: PaperColumn) -> str:
    return f"{column.name} ({scale_text(column.scorer.scale, column.scorer.direction)})"


def _grid(figure: Figure, panels: int, across: int, *, sharey: bool = False) -> list[Axes]:
    """Return so many axes, at most `across` in a row; empty places are left out."""
    rows = -(-panels // across)
    every = figure.subplots(rows, min(panels, across), squeeze=False, sharey=sharey).ravel()
    for axes in every[panels:]:
        axes.remove()
    return [*every[:panels]]


def forest_figure(content: PaperContent) -> PaperFigure:
    """Return every mean with its interval: a panel for each scorer."""
    looks = _looks(content)
    across = min(len(content.columns), 4)
    rows = -(-len(content.columns) // across)

    def paint(figure: Figure) -> None:
        panels = _grid(figure, len(content.columns), across, sharey=True)
        for axes, column in zip(panels, content.columns, strict=True):
            name_rows(axes, [*content.systems])
            axes.grid(True, axis="x")
            axes.set_xlabel(short(_label(column), 30))
            for row, system in enumerate(content.systems):
                cell = column.cells.get(system)
                if cell is None or cell.estimate.value is None:
                    continue
                filled = cell.is_best or cell.is_tied
                at = Estimate(float(row))
                if cell.drawn is not None:
                    axes.hlines(row, *cell.drawn, color="0.75", linewidth=4)
                _draw_point(axes, looks[system], cell.estimate, at, filled=filled)

    return PaperFigure(
        name="forest",
        caption=(
            "Means with 95% intervals by query. Filled: the best, and what is not shown to "
            "be worse. Grey: with the judge's own error, where it was measured"
        ),
        width=min(2 * _COLUMN + 0.2, 1.6 + 1.5 * across),
        height=rows * (0.6 + _ROW * len(content.systems)),
        paint=paint,
    )


def category_figure(content: PaperContent, column: PaperColumn) -> PaperFigure:
    """Return the means of one scorer as bars, by category."""
    known = column.known
    systems = [name for name in content.systems if name in known]
    categories = [*column.categories]
    width = 0.8 / len(systems)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.grid(True, axis="y")
        axes.set_ylabel(_label(column))
        axes.set_xticks(range(len(categories)), [short(name, 16) for name in categories])
        for i, system in enumerate(systems):
            own = []
            heights = []
            for means in column.categories.values():
                estimate = means.get(system, Estimate(None))
                own.append(estimate)
                heights.append(np.nan if estimate.value is None else estimate.value)
            # The bars of a category stand side by side, around its mark.
            places = np.arange(len(categories)) + (i - (len(systems) - 1) / 2) * width
            axes.bar(
                places,
                heights,
                0.92 * width,
                label=short(system),
                color=f"C{i % _COLOURS}",
                hatch=_HATCHES[i % len(_HATCHES)],
                edgecolor="white",
                linewidth=0,
            )
            for x, estimate in zip(places, own, strict=True):
                if (errors := error_bar(estimate)) is not None:
                    height = estimate.value or 0.0
                    axes.errorbar(x, height, yerr=errors, color="0.2", linewidth=0.8)
        figure.legend(loc="outside lower center", ncols=2)

    bars = len(categories) * len(systems)
    return PaperFigure(
        name=f"categories-{file_name(column.name)}",
        caption=f"{column.name} by category, with 95% intervals by query",
        width=_COLUMN if bars <= 12 else 2 * _COLUMN + 0.2,
        height=2.2 + 0.08 * len(systems),
        paint=paint,
    )


def scorer_figure(content: PaperContent, columns: Sequence[PaperColumn]) -> PaperFigure:
    """Return each scorer against each other, one point for each system."""
    looks = _looks(content)
    pairs = [*combinations(columns, 2)][:_MOST_PANELS]
    across = min(len(pairs), 3)
    rows = -(-len(pairs) // across)

    def paint(figure: Figure) -> None:
        for axes, (one, other) in zip(
            _grid(figure, len(pairs), across), pairs, strict=True
        ):
            axes.grid(True)
            axes.set_xlabel(short(_label(one), 30))
            axes.set_ylabel(short(_label(other), 30))
            for system in content.systems:
                if system in one.known and system in other.known:
                    x = one.known[system].estimate
                    y = other.known[system].estimate
                    _draw_point(axes, looks[system], x, y)
        _add_legend(figure, looks)

    return PaperFigure(
        name="scorers",
        caption="Systems by two scorers each, with 95% intervals by query",
        width=_COLUMN if across == 1 else 2 * _COLUMN + 0.2,
        height=rows * 2.3 + 0.1 * len(content.systems),
        paint=paint,
    )


def cost_figure(content: PaperContent, costs: AnswerCosts) -> PaperFigure:
    """Return score against cost, with the systems that nothing beats in both joined."""
    looks = _looks(content)
    columns = content.columns[:_MOST_PANELS]
    across = min(len(columns), 3)
    rows = -(-len(columns) // across)

    def paint(figure: Figure) -> None:
        for axes, column in zip(_grid(figure, len(columns), across), columns, strict=True):
            axes.grid(True)
            axes.set_xlabel(costs.label)
            axes.set_ylabel(short(_label(column), 30))
            known = column.known
            edge = frontier_of(costs, column)
            x = []
            y = []
            for name in edge:
                x.append(costs.means[name].value or 0.0)
                y.append(known[name].estimate.value or 0.0)
            axes.step(x, y, where="post", color="0.4", linestyle="--", linewidth=0.8)
            for system in content.models:
                if system in costs.means and system in known:
                    cost = costs.means[system]
                    score = known[system].estimate
                    look = looks[system]
                    _draw_point(axes, look, cost, score, filled=system in edge)
        _add_legend(figure, {name: looks[name] for name in content.models})

    return PaperFigure(
        name="cost",
        caption=(
            f"Score against {costs.label}, with 95% intervals by query. Filled and joined: "
            "no other system is as good and as cheap, by the means alone"
        ),
        width=_COLUMN if across == 1 else 2 * _COLUMN + 0.2,
        height=rows * 2.3 + 0.1 * len(content.models),
        paint=paint,
    )


def _judgeerror_bar(content: PaperContent) -> dict[str, JudgeErrors]:
    """Return by scorer what its judge's error was measured to be."""
    found: dict[str, JudgeErrors] = {}
    for board in content.boards:
        for name, errors in board.judge_errors.items():
            if errors.shares:
                found.setdefault(name, errors)
    return found


def variance_figure(errors: Mapping[str, JudgeErrors]) -> PaperFigure:
    """Return what scores depend on: a bar for each judge, in parts that add up to all."""
    measured = set[str]()
    for own in errors.values():
        measured.update(own.shares)
    terms = [term for term in ABOUT if term in measured]

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        name_rows(axes, [*errors])
        axes.set_xlabel("share of the variance of a score")
        axes.set_xlim(0, 1)
        starts = np.zeros(len(errors))
        for i, term in enumerate(terms):
            widths = np.array([own.shares.get(term, 0.0) for own in errors.values()])
            axes.barh(
                range(len(errors)),
                widths,
                0.7,
                left=starts,
                label=term,
                color=f"C{i % _COLOURS}",
                hatch=_HATCHES[i % len(_HATCHES)],
                edgecolor="white",
                linewidth=0,
            )
            starts += widths
        figure.legend(loc="outside lower center", ncols=3)

    return PaperFigure(
        name="variance",
        caption=(
            "What a score depends on, as shares of its variance (pilot of `plait "
            "uncertainty`)"
        ),
        width=2 * _COLUMN,
        height=1.1 + 0.3 * len(errors) + 0.12 * len(terms),
        paint=paint,
    )


def _gaps(column: PaperColumn, pair: tuple[str, str]) -> Floats:
    """Return the differences of two systems on the queries that both have a score of."""
    gaps = paired_differences(column.values[pair[0]], column.values[pair[1]])
    return gaps[~np.isnan(gaps)]


def difference_figure(columns: Sequence[PaperColumn], pair: tuple[str, str]) -> PaperFigure:
    """Return histograms of the differences of two systems, a panel for each scorer."""
    shown = columns[:_MOST_PANELS]
    across = min(len(shown), 3)
    rows = -(-len(shown) // across)

    def paint(figure: Figure) -> None:
        for axes, column in zip(_grid(figure, len(shown), across), shown, strict=True):
            gaps = _gaps(column, pair)
            reach = float(np.abs(gaps).max()) or 1.0
            edges = np.linspace(-reach, reach, _BINS + 1).tolist()
            axes.hist(gaps, edges, color="C0")
            axes.axvline(0, color="0.2", linewidth=0.8)
            axes.axvline(float(gaps.mean()), color="C1", linestyle="--")
            axes.set_xlabel(short(column.name, 30))
            axes.set_ylabel("queries")

    return PaperFigure(
        name="differences",
        caption=(
            f"Differences {pair[0]} minus {pair[1]}, query by query; dashed: their mean"
        ),
        width=_COLUMN if across == 1 else 2 * _COLUMN + 0.2,
        height=rows * 1.9,
        paint=paint,
    )
