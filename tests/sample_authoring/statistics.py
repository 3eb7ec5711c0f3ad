"""Multi-step reasoning in statistics; every answer is computed from what is drawn."""

from __future__ import annotations

from collections import Counter
from random import Random
from statistics import correlation, mode

from sample_authoring.canvas import BLUE, GREEN, RED, Canvas, Point
from sample_authoring.charts import Axes, bars
from sample_authoring.query import Figure, Query, reasoning


def statistics() -> list[Query]:
    """Four queries."""
    return [_visitors(), _scatters(), _dots(), _lines()]


_VISITORS = {"Mo": 120, "Tu": 90, "We": 140, "Th": 110, "Fr": 160, "Sa": 310, "Su": 280}


def _visitors() -> Query:
    weekend = _VISITORS["Sa"] + _VISITORS["Su"]
    answer = "Yes" if weekend > sum(_VISITORS.values()) - weekend else "No"
    chart = bars(_VISITORS, 350, 50, "visitors of the museum").canvas.figure("visitors")
    text = (
        "Did the museum have more visitors on Saturday and Sunday together than on the "
        "other five days together? Answer 'Yes' or 'No'."
    )
    return reasoning(13, "Statistics", "Bar charts", [(text, chart)], answer)


def _cloud(slope: float, noise: float, seed: int) -> list[Point]:
    """Twenty-four points along a line, scattered by `noise`."""
    random = Random(seed)
    points = []
    for i in range(24):
        x = 0.6 + i * 8.8 / 23
        y = 5 + slope * (x - 5) + random.uniform(-noise, noise)
        points.append((x, min(9.6, max(0.4, y))))
    return points


_CLOUDS = {"A": _cloud(0.75, 3.2, seed=1), "B": _cloud(-0.85, 0.8, seed=2)}


def _scatters() -> Query:
    strength = {name: abs(_correlation(points)) for name, points in _CLOUDS.items()}
    answer = max(strength, key=lambda name: strength[name])
    question = [
        ("Here are two scatter plots. The first one is plot A.", _scatter("A", BLUE)),
        ("The second one is plot B.", _scatter("B", RED)),
        (
            "In which plot are x and y more strongly correlated, whatever the sign of the "
            "correlation? Answer 'A' or 'B'.",
            None,
        ),
    ]
    return reasoning(14, "Statistics", "Correlation", question, answer)


def _correlation(points: list[Point]) -> float:
    return correlation([x for x, _ in points], [y for _, y in points])


def _scatter(name: str, color: str) -> Figure:
    axes = Axes(10, 10, 2, 2, "x", "y")
    axes.dots(_CLOUDS[name], color)
    return axes.canvas.figure(f"scatter-{name.lower()}")


_GOALS = (0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 6)


def _dots() -> Query:
    canvas = Canvas(460, 260)
    canvas.line((40, 200), (440, 200), width=3)
    for value in range(8):
        x = 60 + 50 * value
        canvas.line((x, 200), (x, 207))
        canvas.text((x, 222), str(value), 16)
        for height in range(Counter(_GOALS)[value]):
            canvas.disc((x, 184 - 26 * height), 10, fill=GREEN, edge=None)
    canvas.text((250, 246), "goals in one match (each dot is a match)", 16)
    # A single word is a question, too.
    question = [("Mode?", canvas.figure("goals"))]
    return reasoning(15, "Statistics", "Averages", question, str(mode(_GOALS)))


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun")
_SALES = {"tea": (42, 38, 35, 30, 22, 18), "ice cream": (8, 12, 20, 26, 37, 48)}


def _lines() -> Query:
    axes = Axes(len(_MONTHS), 60, 0, 10, y_title="sales of a kiosk, in hundreds")
    axes.names(_MONTHS)
    for (label, values), color, above in zip(
        _SALES.items(), (GREEN, RED), (18, -18), strict=True
    ):
        axes.curve([(i + 0.5, v) for i, v in enumerate(values)], color)
        x, y = axes.at(0.5, values[0])
        axes.canvas.text((x + 8, y - above), label, 15, color, anchor="lm")
    gaps = [abs(tea - ice) for tea, ice in zip(*_SALES.values(), strict=True)]
    answer = _MONTHS[gaps.index(max(gaps))]
    options = dict(zip("ABCD", ("Jan", "Feb", "Apr", "Jun"), strict=True))
    text = "In which month do the sales of tea and ice cream differ most?"
    question = [(text, axes.canvas.figure("kiosk"))]
    return reasoning(16, "Statistics", "Line charts", question, answer, options)
