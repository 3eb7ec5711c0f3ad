"""Quality against cost: a point per cell, and the frontier that no other cell beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from benchmarks.results.figures import ACCENT, INK, MUTED, SURFACE, drawn
from benchmarks.results.numbers import NumberForm
from benchmarks.results.pairings.comparison import Pairings, PairingScores
from benchmarks.results.pairings.tables import amount
from scorers.statistics.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 620, 340
_OFFSETS = ((12, 8), (-12, 8), (12, -16), (-12, -16), (0, 12), (0, -22))
"""Where a label may stand beside its point, in points; the first that is free."""


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """One cell: what its documents cost on average, and its mean score."""

    name: str
    cost: Estimate
    score: Estimate
    best: bool
    """On the frontier."""

    @property
    def place(self) -> tuple[float, float]:
        """Both means."""
        return self.cost.value or 0.0, self.score.value or 0.0

    def words(self, scale: str, measure: str) -> str:
        """`3.12 [2.90, 3.34], 12.5 seconds`."""
        score = NumberForm.of(scale).estimate(self.score)
        return f"{score}, {amount(self.cost.value)} {measure}"


def points_of(pairings: Pairings, scores: PairingScores, measure: str) -> list[PlotPoint]:
    """The cells whose score and cost are both known."""
    assert pairings.costs is not None
    names = [s.name for s in pairings.matrix.cells]
    estimates = [e for row in scores.model.cells for e in row]
    values = dict(zip(names, estimates, strict=True))
    frontier = pairings.frontier(scores, measure)
    return [
        PlotPoint(name, pairings.costs.cells[name][measure], values[name], name in frontier)
        for name in pairings.points(scores, measure)
    ]


def plot_of(points: Sequence[PlotPoint], measure: str) -> Markup:
    """The points, numbered in their order; empty for fewer than two of them."""
    if len(points) < 2:
        return Markup("")
    best = sorted((p for p in points if p.best), key=lambda p: p.place)
    words = f"{len(points)} cells; on the frontier: {', '.join(p.name for p in best)}"

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.grid(True)
        axes.set_xlabel(f"{measure} per document")
        axes.margins(0.08, 0.1)
        axes.step(
            *zip(*(p.place for p in best), strict=True),
            where="post",
            color=ACCENT,
            linestyle="--",
        )
        for point in points:
            axes.errorbar(
                *point.place,
                xerr=_error(point.cost),
                yerr=_error(point.score),
                color=ACCENT,
                ecolor=MUTED,
                elinewidth=1,
                marker="o",
                markersize=8,
                markeredgewidth=2,
                markerfacecolor=ACCENT if point.best else SURFACE,
            )
        figure.draw_without_rendering()
        _number(axes, [p.place for p in points])

    return drawn(_WIDTH, _HEIGHT, words, paint)


def _error(e: Estimate) -> list[list[float]] | None:
    """The distances from the value to the ends of its interval."""
    if e.ci95 is None or e.value is None:
        return None
    return [[max(0.0, e.value - e.ci95[0])], [max(0.0, e.ci95[1] - e.value)]]


def _number(axes: Axes, places: Sequence[tuple[float, float]]) -> None:
    """Put a number beside each point, where it hides no other if there is room."""
    taken = [(float(x), float(y)) for x, y in axes.transData.transform(places)]
    for number, (place, (x, y)) in enumerate(zip(places, list(taken), strict=True), 1):
        free = (o for o in _OFFSETS if _is_free((x + o[0], y + o[1] + 4), taken))
        offset = next(free, _OFFSETS[0])
        taken.append((x + offset[0], y + offset[1] + 4))
        axes.annotate(
            str(number),
            place,
            offset,
            textcoords="offset points",
            ha="center",
            color=INK,
            weight="bold",
        )


def _is_free(place: tuple[float, float], taken: Sequence[tuple[float, float]]) -> bool:
    return all(abs(place[0] - x) > 11 or abs(place[1] - y) > 11 for x, y in taken)
