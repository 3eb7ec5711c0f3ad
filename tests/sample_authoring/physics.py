"""Multi-step reasoning in physics; every answer is computed from what is drawn."""

from __future__ import annotations

from itertools import pairwise

from sample_authoring.canvas import (
    BLUE,
    GREEN,
    GREY,
    RED,
    SAND,
    SKY,
    Canvas,
    Point,
)
from sample_authoring.charts import Axes
from sample_authoring.query import Figure, Query, reasoning


def physics() -> list[Query]:
    """Four queries."""
    return [_block(), _circuit(), _journey(), _seesaws()]


def _block(pull: int = 20, friction: int = 8, mass: int = 4) -> Query:
    canvas = Canvas(440, 260)
    canvas.box(0, 200, 440, 260, fill="#ddd3c2", edge=None)
    canvas.line((0, 200), (440, 200), width=3)
    canvas.box(170, 120, 270, 200, fill=SAND, width=3)
    canvas.text((220, 160), f"{mass} kg", 20)
    canvas.arrow((270, 150), (390, 150), BLUE, 4)
    canvas.text((335, 128), f"{pull} N", 19, BLUE)
    canvas.arrow((170, 185), (110, 185), RED, 4)
    canvas.text((120, 165), f"{friction} N", 19, RED)
    canvas.arrow((220, 200), (220, 245), GREY)
    canvas.arrow((220, 120), (220, 75), GREY)
    text = (
        "A block is pulled to the right over a rough floor, as the diagram shows. "
        "What is its acceleration, in metres per second squared?"
    )
    answer = f"{(pull - friction) / mass:g}"
    question = [(text, canvas.figure("block"))]
    return reasoning(5, "Physics", "Mechanics", question, answer)


def _circuit(volt: int = 12, upper: int = 6, lower: int = 3, series: int = 4) -> Query:
    canvas = Canvas(440, 300)
    canvas.line((60, 150), (60, 60), (150, 60), width=3)
    canvas.line((60, 165), (60, 250), (380, 250), (380, 100), (320, 100), width=3)
    canvas.line((40, 150), (80, 150), width=3)
    canvas.line((50, 165), (70, 165), width=6)
    canvas.text((112, 158), f"{volt} V", 18)
    canvas.line((150, 60), (150, 140), (320, 140), (320, 60), (150, 60), width=3)
    _part(canvas, (235, 60), f"{upper} ohm")
    _part(canvas, (235, 140), f"{lower} ohm")
    _part(canvas, (220, 250), f"{series} ohm")
    current = volt / (upper * lower / (upper + lower) + series)
    text = "Which current does the battery in the circuit deliver?"
    options = dict(zip("ABCD", ("0.9 A", "1.5 A", "2 A", "3 A"), strict=True))
    question = [(text, canvas.figure("circuit"))]
    return reasoning(6, "Physics", "Electricity", question, f"{current:g} A", options)


def _part(canvas: Canvas, middle: Point, label: str) -> None:
    x, y = middle
    canvas.box(x - 45, y - 17, x + 45, y + 17, fill="white", width=3)
    canvas.text(middle, label, 16)


_SPEEDS: tuple[Point, ...] = ((0, 0), (4, 8), (10, 8), (14, 0))
"""Time in seconds and speed in metres per second."""


def _journey() -> Query:
    axes = Axes(16, 10, 2, 2, "time in s", "speed in m/s")
    axes.curve(_SPEEDS)
    metres = sum((t2 - t1) * (v1 + v2) / 2 for (t1, v1), (t2, v2) in pairwise(_SPEEDS))
    text = (
        "The chart shows the speed of a tram between two stops. How far apart are the "
        "stops, in metres?"
    )
    question = [(text, axes.canvas.figure("tram"))]
    return reasoning(7, "Physics", "Kinematics", question, f"{metres:g}")


_SEESAWS = {"A": ((30, 2.0), (20, 3.0)), "B": ((25, 2.0), (20, 3.0))}
"""Mass in kilograms and distance in metres, left and right."""


def _seesaws() -> Query:
    torques = {name: [m * d for m, d in sides] for name, sides in _SEESAWS.items()}
    balanced = [name for name, (left, right) in torques.items() if left == right]
    question = [
        ("Two children sit on a light seesaw. This is picture A:", _seesaw("A")),
        ("And this is picture B:", _seesaw("B")),
        ("In which of the pictures does the seesaw stay level when it is let go?", None),
    ]
    options = {"A": "only in A", "B": "only in B", "C": "in both", "D": "in neither"}
    said = {0: "in neither", 1: f"only in {balanced[0]}", 2: "in both"}[len(balanced)]
    return reasoning(8, "Physics", "Mechanics", question, said, options)


def _seesaw(name: str) -> Figure:
    canvas = Canvas(440, 220)
    (left, left_m), (right, right_m) = _SEESAWS[name]
    metre, middle = 58.0, 220.0
    canvas.polygon((middle, 130), (195, 190), (245, 190), fill=SAND)
    canvas.box(middle - 3.3 * metre, 122, middle + 3.3 * metre, 132, fill=GREY)
    for mass, x in ((left, middle - left_m * metre), (right, middle + right_m * metre)):
        canvas.box(x - 28, 82, x + 28, 122, fill=SKY)
        canvas.text((x, 102), f"{mass} kg", 15)
    for start, end, metres in (
        (middle, middle - left_m * metre, left_m),
        (middle, middle + right_m * metre, right_m),
    ):
        canvas.arrow((start, 205), (end, 205), GREEN, 2)
        canvas.text(((start + 2 * end) / 3, 188), f"{metres:g} m", 15, GREEN)
    return canvas.figure(f"seesaw-{name.lower()}")
