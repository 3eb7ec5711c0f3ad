"""The pairings' section of the page: its tables, and quality against cost as a plot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from benchmarks.results.board import Board
from benchmarks.results.costs import MEASURES
from benchmarks.results.figures import ACCENT, INK, MUTED, SURFACE, drawn
from benchmarks.results.pairings.comparison import Pairings, PairingScores, pairings_of
from benchmarks.results.pairings.tables import (
    AMOUNT,
    cost_table,
    needed_tables,
    score_tables,
)
from benchmarks.results.table import ResultTable, TableCell
from scorers.statistics.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 620, 340


Block = Sequence[ResultTable | Markup]
"""What stands below one another."""


def pairings_section(board: Board) -> list[dict[str, Any]]:
    """Return what the template shows of each matrix; empty where there is none.

    The blocks of a scorer stand side by side.
    """
    return [
        {
            "shape": f"{one.matrix.shape}, protocol {one.matrix.protocol}",
            "scorers": [[*_blocks(one, scores)] for scores in one.scored],
            "cost": cost_table(one) if one.costs else None,
            "folded": [*needed_tables(one)],
        }
        for one in pairings_of(board)
    ]


def _blocks(pairings: Pairings, scores: PairingScores) -> Iterator[Block]:
    yield from ([table] for table in score_tables(pairings, scores))
    points, frontier = pairings.points(scores), pairings.frontier(scores)
    if len(points) > 1:
        name, measure = scores.scorer.name, MEASURES[pairings.measure or ""]
        rows = [
            [
                *(pairing, str(number), TableCell.of(score, scores.form)),
                *(TableCell.of(cost, AMOUNT), "frontier" if pairing in frontier else ""),
            ]
            for number, (pairing, (cost, score)) in enumerate(points.items(), 1)
        ]
        head = ["pairing", "point", name, measure, ""]
        table = ResultTable.of(f"{name} against {measure}", head, rows)
        yield [table, plot_of(points, frontier, measure)]


def plot_of(
    points: Mapping[str, tuple[Estimate, Estimate]], frontier: Sequence[str], measure: str
) -> Markup:
    """Draw cost and score of each cell, numbered, and the frontier that nothing beats."""
    words = f"{len(points)} cells; on the frontier: {', '.join(frontier)}"
    places = {name: (c.value or 0.0, s.value or 0.0) for name, (c, s) in points.items()}

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.grid(True)
        axes.set_xlabel(f"{measure} per document")
        axes.margins(0.08, 0.1)
        steps = zip(*(places[name] for name in frontier), strict=True)
        axes.step(*steps, where="post", color=ACCENT, linestyle="--")
        for number, (name, (cost, score)) in enumerate(points.items(), 1):
            fill, ink = (ACCENT, SURFACE) if name in frontier else (SURFACE, INK)
            axes.errorbar(
                *places[name],
                xerr=_error(cost),
                yerr=_error(score),
                color=ACCENT,
                ecolor=MUTED,
                elinewidth=1,
                marker="o",
                markersize=17,
                markerfacecolor=fill,
            )
            axes.text(
                *places[name], str(number), color=ink, ha="center", va="center", zorder=9
            )

    return drawn(_WIDTH, _HEIGHT, words, paint)


def _error(e: Estimate) -> list[list[float]] | None:
    """Return the distances from the value to the ends of its interval."""
    if e.ci95 is None or e.value is None:
        return None
    return [[max(0.0, e.value - e.ci95[0])], [max(0.0, e.ci95[1] - e.value)]]
