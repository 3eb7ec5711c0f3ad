"""Multi-step reasoning in mathematics; every answer is computed from what is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sample_authoring.canvas import (
    BLUE,
    GOLD,
    GREEN,
    GREY,
    PALE,
    SKY,
    Canvas,
    Point,
)
from sample_authoring.photos import photo
from sample_authoring.query import Figure, Query, reasoning


def mathematics() -> list[Query]:
    """Four queries."""
    return [_triangle(), _corners(), _polygons(), _coins()]


def _triangle(leg: int = 9, hypotenuse: int = 15) -> Query:
    other = math.isqrt(hypotenuse**2 - leg**2)
    canvas = Canvas(420, 300)
    unit = 22.0
    a, b, c = (60.0, 260.0), (60 + other * unit, 260.0), (60.0, 260 - leg * unit)
    canvas.polygon(a, b, c, fill=SKY, width=3)
    canvas.line((60, 240), (80, 240), (80, 260))
    canvas.text((36, (a[1] + c[1]) / 2), str(leg), 20)
    canvas.text(((b[0] + c[0]) / 2 + 18, (b[1] + c[1]) / 2 - 14), str(hypotenuse), 20)
    text = (
        "The figure shows a right triangle. Two of its sides are given in centimetres. "
        "What is the perimeter of the triangle, in centimetres?"
    )
    answer = str(leg + other + hypotenuse)
    question = [(text, canvas.figure("triangle"))]
    return reasoning(1, "Mathematics", "Geometry", question, answer)


def _corners(side: int = 12) -> Query:
    canvas = Canvas(340, 320)
    canvas.box(50, 30, 290, 270, fill=GOLD, width=3)
    canvas.disc((170, 150), 120, fill="white", width=3)
    canvas.text((170, 296), f"{side} cm", 19)
    text = (
        "A circle touches all four sides of a square. What is the area of the coloured "
        "part, in square centimetres? Round to one decimal."
    )
    answer = f"{side**2 - math.pi * (side / 2) ** 2:.1f}"
    question = [(text, canvas.figure("corners"))]
    return reasoning(2, "Mathematics", "Geometry", question, answer)


_SHAPES: dict[str, tuple[Point, ...]] = {
    "A": ((1, 1), (5, 1), (5, 3), (3, 3), (3, 6), (1, 6)),
    "B": ((1, 1), (7, 1), (4, 6)),
}


def _polygons() -> Query:
    areas = {name: shoelace(points) for name, points in _SHAPES.items()}
    larger = max(areas, key=lambda name: areas[name])
    answer = "equal" if areas["A"] == areas["B"] else larger
    question = [
        ("Here are two images. The first image is image A.", _on_grid("A", BLUE)),
        ("The second image is image B.", _on_grid("B", GREEN)),
        (
            "Every square of the grid is one unit wide. Which image shows the shape with "
            "the larger area? The answer is either 'A', 'B' or 'equal'.",
            None,
        ),
    ]
    return reasoning(3, "Mathematics", "Measurement", question, answer)


def shoelace(points: Sequence[Point]) -> float:
    """The area of the polygon through `points`."""
    ends = [*points[1:], points[0]]
    pairs = zip(points, ends, strict=True)
    return abs(sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairs)) / 2


def _on_grid(name: str, color: str) -> Figure:
    canvas = Canvas(340, 300)
    unit = 36.0
    corners = [(26 + x * unit, 276 - y * unit) for x, y in _SHAPES[name]]
    canvas.polygon(*corners, fill=PALE, edge=None)
    for i in range(9):
        canvas.line((26 + i * unit, 24), (26 + i * unit, 276), color=GREY, width=1)
    for i in range(8):
        canvas.line(
            (26, 276 - i * unit), (26 + 8 * unit, 276 - i * unit), color=GREY, width=1
        )
    canvas.polygon(*corners, edge=color, width=4)
    return canvas.figure(f"shape-{name.lower()}")


def _coins(rows: int = 4, in_row: int = 6) -> Query:
    text = (
        "Somebody takes away the whole top row of the coins in the photograph, and then "
        "half of the coins that are left. How many coins remain?"
    )
    answer = str((rows * in_row - in_row) // 2)
    return reasoning(4, "Mathematics", "Counting", [(text, photo("coins"))], answer)
