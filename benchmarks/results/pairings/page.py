"""The pairings' section of the page: its tables, and quality against cost as a plot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.contact_sheet import Read
from plait.benchmarks.results.costs import MEASURES
from plait.benchmarks.results.figures import ACCENT, INK, MUTED, SURFACE, draw, error_bar
from plait.benchmarks.results.page_files import PageFiles
from plait.benchmarks.results.pairings.comparison import (
    Pairings,
    PairingScores,
    pairings_of,
)
from plait.benchmarks.results.pairings.sheet import sheet_markup, sheet_of, write_images
from plait.benchmarks.results.pairings.tables import (
    agreement_tables,
    cost_table,
    score_tables,
)
from plait.benchmarks.results.table import ResultTable
from plait.scorers.statistics.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 620
_HEIGHT = 340
"""Of the plot, in CSS pixels."""
Block = Sequence[ResultTable | Markup]


def pairings_section(
    board: Board, shown: Collection[str], files: PageFiles, read: Read
) -> list[dict[str, Any]]:
    """Return what the template shows of each matrix; empty where there is none.

    The blocks of a scorer stand side by side. The contact sheet is of queries that are
    `shown` on the page; its images are written to `files`.
    """
    pairings = pairings_of(board)
    sheets = [sheet_of(board, one, shown) for one in pairings]
    images = write_images([sheet for sheet in sheets if sheet], files, read)
    sections = []
    for one, sheet in zip(pairings, sheets, strict=True):
        section = {
            "shape": f"{one.matrix.shape}, protocol {one.matrix.protocol}",
            "scorers": [[*_blocks(one, scores)] for scores in one.scored],
            "cost": cost_table(one) if one.costs else None,
            "agreement": [*agreement_tables(one)],
            "sheet": sheet and sheet_markup(sheet, images),
        }
        sections.append(section)
    return sections


def _blocks(pairings: Pairings, scores: PairingScores) -> Iterator[Block]:
    tables = [*score_tables(pairings, scores)]
    points = pairings.points(scores)
    if len(points) < 2:
        for table in tables:
            yield [table]
        return
    *others, ranking = tables
    for table in others:
        yield [table]
    ordered = {name: points[name] for name in scores.ranked}
    measure = MEASURES[pairings.measure or ""]
    yield [ranking, plot_of(ordered, pairings.frontier(scores), measure)]


def plot_of(
    points: Mapping[str, tuple[Estimate, Estimate]], frontier: Sequence[str], measure: str
) -> Markup:
    """Draw cost and score of each cell, numbered, and the frontier that nothing beats."""
    words = f"{len(points)} cells; on the frontier: {', '.join(frontier)}"
    places = {}
    numbers = {}
    for number, (name, (cost, score)) in enumerate(points.items(), start=1):
        places[name] = cost.value or 0.0, score.value or 0.0
        numbers[name] = number

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.grid(True)
        axes.set_xlabel(f"{measure} per document")
        axes.margins(0.08, 0.1)
        steps = zip(*(places[name] for name in frontier), strict=True)
        axes.step(*steps, where="post", color=ACCENT, linestyle="--")
        # What lies on the frontier is never hidden.
        order = sorted(points, key=frontier.__contains__)
        for above, name in enumerate(order, 3):
            cost, score = points[name]
            fill, ink = (ACCENT, SURFACE) if name in frontier else (SURFACE, INK)
            axes.errorbar(
                *places[name],
                xerr=error_bar(cost),
                yerr=error_bar(score),
                color=ACCENT,
                ecolor=MUTED,
                elinewidth=1,
                marker="o",
                markersize=17,
                markerfacecolor=fill,
                zorder=above,
            )
            axes.text(
                *places[name],
                str(numbers[name]),
                color=ink,
                ha="center",
                va="center",
                zorder=above + 0.5,
            )

    return draw(_WIDTH, _HEIGHT, words, paint)
