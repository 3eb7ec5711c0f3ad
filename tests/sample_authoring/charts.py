"""Axes and charts on a canvas: bars, lines, dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sample_authoring.canvas import BLUE, INK, PALE, Canvas, Point


@dataclass
class Axes:
    """A chart whose axes begin at 0; positions are in the units of the data."""

    x_end: float
    y_end: float
    x_step: float
    y_step: float
    x_title: str = ""
    y_title: str = ""
    canvas: Canvas = field(default_factory=lambda: Canvas(460, 330))
    left: float = 60
    bottom: float = 280
    right: float = 440
    top: float = 40

    def __post_init__(self) -> None:
        self._grid()
        self.canvas.line((self.left, self.top - 12), (self.left, self.bottom), width=3)
        self.canvas.line((self.left, self.bottom), (self.right + 12, self.bottom), width=3)
        self.canvas.text((self.right + 10, 316), self.x_title, 16, anchor="rm")
        self.canvas.text((self.left - 40, 14), self.y_title, 16, anchor="lm")

    def at(self, x: float, y: float) -> Point:
        """Where (x, y) lies on the canvas."""
        return (
            self.left + (self.right - self.left) * x / self.x_end,
            self.bottom - (self.bottom - self.top) * y / self.y_end,
        )

    def _grid(self) -> None:
        for i in range(1, round(self.y_end / self.y_step) + 1):
            y = i * self.y_step
            self.canvas.line(self.at(0, y), self.at(self.x_end, y), color=PALE, width=1.5)
            self.canvas.text((self.left - 8, self.at(0, y)[1]), f"{y:g}", 14, anchor="rm")
        for i in range(round(self.x_end / self.x_step) + 1 if self.x_step else 0):
            x, y = self.at(i * self.x_step, 0)
            self.canvas.line((x, y), (x, y + 5))
            self.canvas.text((x, y + 16), f"{i * self.x_step:g}", 14)

    def curve(self, points: Sequence[Point], color: str = BLUE, dots: bool = True) -> None:
        """Straight lines through `points`."""
        self.canvas.line(*(self.at(*p) for p in points), color=color, width=3)
        if dots:
            self.dots(points, color)

    def dots(self, points: Sequence[Point], color: str = BLUE) -> None:
        """One dot a point."""
        for point in points:
            self.canvas.disc(self.at(*point), 5, fill=color, edge=None)

    def names(self, names: Sequence[str]) -> None:
        """Names below the axis, in the middles of equal parts of it."""
        for i, name in enumerate(names):
            x, y = self.at((i + 0.5) * self.x_end / len(names), 0)
            self.canvas.text((x, y + 16), name, 15)


def bars(values: Mapping[str, float], y_end: float, y_step: float, title: str) -> Axes:
    """A bar for each of `values`."""
    axes = Axes(len(values), y_end, 0, y_step, y_title=title)
    axes.names(list(values))
    for i, value in enumerate(values.values()):
        (left, top), (right, bottom) = axes.at(i + 0.2, value), axes.at(i + 0.8, 0)
        axes.canvas.box(left, top, right, bottom, fill=BLUE, edge=INK)
        axes.canvas.text(((left + right) / 2, top - 11), f"{value:g}", 14)
    return axes
