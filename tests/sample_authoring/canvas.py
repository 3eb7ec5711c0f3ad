"""A small drawing board: smooth lines and plain labels, on Pillow alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sample_authoring.query import Figure

Point = tuple[float, float]

INK = "#22303c"
GREY = "#8a97a3"
PALE = "#e6ebef"
BLUE = "#2f6fb3"
RED = "#d1495b"
GREEN = "#3f8f5b"
GOLD = "#e0a526"
PURPLE = "#7a5aa6"
SKY = "#cfe3f5"
SAND = "#f3e3c3"

_SCALE = 3
"""Drawn so many times larger, then made smaller, which smooths all edges."""
_COLOURS = 64


class Canvas:
    """A white sheet, measured in pixels from its top left corner."""

    def __init__(self, width: int = 440, height: int = 320, paper: str = "white") -> None:
        self.width, self.height = width, height
        self._sheet = Pillow.new("RGB", (width * _SCALE, height * _SCALE), paper)
        self._pen = ImageDraw.Draw(self._sheet)

    def line(self, *points: Point, color: str = INK, width: float = 2) -> None:
        """A line through `points`."""
        self._pen.line(_up(points), fill=color, width=round(width * _SCALE), joint="curve")

    def dashed(self, start: Point, end: Point, color: str = GREY, width: float = 2) -> None:
        """A dashed line."""
        length = math.dist(start, end)
        for i in range(0, math.ceil(length), 12):
            a, b = i / length, min((i + 7) / length, 1.0)
            self.line(
                _between(start, end, a), _between(start, end, b), color=color, width=width
            )

    def arrow(self, start: Point, end: Point, color: str = INK, width: float = 3) -> None:
        """A line with a head at `end`."""
        angle = math.atan2(end[1] - start[1], end[0] - start[0])
        neck = (end[0] - 9 * math.cos(angle), end[1] - 9 * math.sin(angle))
        self.line(start, neck, color=color, width=width)
        wings = [_around(end, 14, angle + math.pi + turn) for turn in (0.45, -0.45)]
        self.polygon(end, *wings, fill=color, edge=None)

    def polygon(
        self,
        *points: Point,
        fill: str | None = None,
        edge: str | None = INK,
        width: float = 2,
    ) -> None:
        """A closed shape."""
        if fill is not None:
            self._pen.polygon(_up(points), fill=fill)
        if edge is not None:
            self.line(*points, points[0], points[1], color=edge, width=width)

    def box(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        fill: str | None = None,
        edge: str | None = INK,
        width: float = 2,
    ) -> None:
        """A rectangle."""
        corners = ((left, top), (right, top), (right, bottom), (left, bottom))
        self.polygon(*corners, fill=fill, edge=edge, width=width)

    def disc(
        self,
        centre: Point,
        radius: float,
        fill: str | None = None,
        edge: str | None = INK,
        width: float = 2,
    ) -> None:
        """A circle."""
        box = self._around(centre, radius)
        self._pen.ellipse(box, fill=fill, outline=edge, width=round(width * _SCALE))

    def wedge(
        self,
        centre: Point,
        radius: float,
        start: float,
        end: float,
        fill: str | None = None,
    ) -> None:
        """A slice of a circle between two angles in degrees, clockwise from the top."""
        box = self._around(centre, radius)
        self._pen.pieslice(box, start - 90, end - 90, fill, INK, 2 * _SCALE)

    def arc(
        self,
        centre: Point,
        radius: float,
        start: float,
        end: float,
        color: str = INK,
        width: float = 2,
    ) -> None:
        """A part of a circle's edge, angles as for `wedge`."""
        box = self._around(centre, radius)
        self._pen.arc(box, start - 90, end - 90, fill=color, width=round(width * _SCALE))

    def text(
        self, at: Point, text: str, size: int = 17, color: str = INK, anchor: str = "mm"
    ) -> None:
        """A line of ASCII text; `anchor` as in Pillow (`mm`: the middle is at `at`)."""
        self._pen.text(_up([at])[0], text, fill=color, font=_font(size), anchor=anchor)

    def code(self, at: Point, lines: Sequence[str], size: int = 17) -> None:
        """Lines of program text, every character as wide as any other."""
        advance, step = size * 0.58, size * 1.45
        for row, line in enumerate(lines):
            for column, char in enumerate(line):
                middle = (at[0] + (column + 0.5) * advance, at[1] + (row + 0.7) * step)
                self.text(middle, char, size, anchor="ms")

    def figure(self, name: str) -> Figure:
        """What has been drawn, as `name`.png."""
        size = (self.width, self.height)
        small = self._sheet.resize(size, Pillow.Resampling.LANCZOS)
        return Figure(f"{name}.png", small.quantize(_COLOURS, dither=Pillow.Dither.NONE))

    def _around(self, centre: Point, radius: float) -> tuple[float, float, float, float]:
        (x, y), r = _up([centre])[0], radius * _SCALE
        return (x - r, y - r, x + r, y + r)


def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size * _SCALE)
    assert isinstance(font, ImageFont.FreeTypeFont)
    # The basic layout is the same in every build of Pillow.
    return font.font_variant(layout_engine=ImageFont.Layout.BASIC)


def _up(points: Sequence[Point]) -> list[Point]:
    return [(x * _SCALE, y * _SCALE) for x, y in points]


def _between(start: Point, end: Point, part: float) -> Point:
    return (
        start[0] + (end[0] - start[0]) * part,
        start[1] + (end[1] - start[1]) * part,
    )


def _around(centre: Point, radius: float, angle: float) -> Point:
    return (centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle))


def polar(centre: Point, radius: float, degrees: float) -> Point:
    """The point at `degrees` clockwise from the top of a circle."""
    return _around(centre, radius, math.radians(degrees - 90))
