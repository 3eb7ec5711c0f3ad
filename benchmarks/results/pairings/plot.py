"""Quality against cost: a point per cell, and the frontier that no other cell beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.results.axis import Axis, axis_of
from benchmarks.results.pairings.comparison import Pairings, PairingScores
from benchmarks.results.pairings.tables import amount, interval, number
from scorers.statistics.estimate import Estimate

_HEIGHT = 300
"""Of the area between the axes, in CSS pixels; the width is that of the page."""
_NARROW = 300
"""Width in pixels for which labels are kept apart: that of a phone."""
_PLACES = ((11, -7), (-11, -7), (11, 15), (-11, 15), (0, -13), (0, 21))
"""Where a label may stand beside its point, the first that is free."""


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """One cell; x in percent of the width, y in pixels from the top."""

    number: int
    name: str
    x: float
    y: float
    label: tuple[int, int]
    """Offset of the number beside the point, in pixels."""
    left: float
    right: float
    top: float
    bottom: float
    """Ends of the intervals, equal to x or y where there is none."""
    best: bool
    """On the frontier."""
    cost: str
    score: str
    interval: str


@dataclass(frozen=True, slots=True)
class CostPlot:
    """What the template draws of one scorer."""

    points: tuple[PlotPoint, ...]
    steps: tuple[tuple[float, float, float, float], ...]
    """The frontier as lines (x1, y1, x2, y2)."""
    across: tuple[tuple[float, str], ...]
    """Ticks of the cost: place in percent, and label."""
    up: tuple[tuple[float, str], ...]
    """Ticks of the score: place in pixels, and label."""
    height: int
    summary: str
    """In words, for screen readers."""


def plot_of(pairings: Pairings, scores: PairingScores, measure: str) -> CostPlot | None:
    """The plot of one scorer against one measure; None for fewer than two points."""
    assert pairings.costs is not None
    names = list(pairings.points(scores, measure))
    if len(names) < 2:
        return None
    cells = [s.name for s in pairings.matrix.cells]
    estimates = [e for row in scores.model.cells for e in row]
    values = dict(zip(cells, estimates, strict=True))
    costs = {name: pairings.costs.cells[name][measure] for name in names}
    frontier = pairings.frontier(scores, measure)
    across = _axis([costs[n] for n in names])
    up = _axis([values[n] for n in names])
    places = [(_x(across, costs[n].value), _y(up, values[n].value)) for n in names]
    labels = _labels(places)
    points = [
        PlotPoint(
            number=i + 1,
            name=name,
            x=places[i][0],
            y=places[i][1],
            label=labels[i],
            left=_x(across, _ends(costs[name])[0]),
            right=_x(across, _ends(costs[name])[1]),
            top=_y(up, _ends(values[name])[1]),
            bottom=_y(up, _ends(values[name])[0]),
            best=name in frontier,
            cost=amount(costs[name].value),
            score=number(values[name].value, scores.scale),
            interval=interval(values[name], scores.scale),
        )
        for i, name in enumerate(names)
    ]
    return CostPlot(
        points=tuple(points),
        steps=_steps([next(p for p in points if p.name == n) for n in frontier]),
        across=tuple((_x(across, t), f"{t:.6g}") for t in across.ticks),
        up=tuple((_y(up, t), f"{t:.6g}") for t in up.ticks),
        height=_HEIGHT,
        summary=f"{len(points)} cells; on the frontier: {', '.join(frontier)}",
    )


def _axis(estimates: Sequence[Estimate]) -> Axis:
    axis = axis_of([e.as_json("mean") for e in estimates])
    if axis is not None:
        return axis
    value = estimates[0].value or 0.0
    room = abs(value) or 1.0
    return Axis(value - room, value + room, (value,))


def _x(axis: Axis, value: float | None) -> float:
    return _share(axis, value, 100.0)


def _y(axis: Axis, value: float | None) -> float:
    return _HEIGHT - _share(axis, value, float(_HEIGHT))


def _share(axis: Axis, value: float | None, size: float) -> float:
    value = axis.low if value is None else value
    return round(size * (value - axis.low) / (axis.high - axis.low), 2)


def _ends(e: Estimate) -> tuple[float | None, float | None]:
    return e.ci95 or (e.value, e.value)


def _labels(places: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """Where each number stands: the first offset that hides no point or earlier number."""
    points = [(x / 100 * _NARROW, y) for x, y in places]
    taken = list(points)
    labels = []
    for x, y in points:
        free = (p for p in _PLACES if _is_free((x + p[0], y + p[1] - 4), taken))
        label = next(free, _PLACES[0])
        labels.append(label)
        taken.append((x + label[0], y + label[1] - 4))
    return labels


def _is_free(place: tuple[float, float], taken: Sequence[tuple[float, float]]) -> bool:
    return all(abs(place[0] - x) > 10 or abs(place[1] - y) > 10 for x, y in taken)


def _steps(frontier: Sequence[PlotPoint]) -> tuple[tuple[float, float, float, float], ...]:
    """From each point across at its score, then to the next one's score."""
    lines = []
    for here, there in pairwise(frontier):
        lines.append((here.x, here.y, there.x, here.y))
        lines.append((there.x, here.y, there.x, there.y))
    return tuple(lines)
