"""Drawings for the how-to queries of Education and Finance."""

from __future__ import annotations

from sample_authoring.canvas import (
    BLUE,
    GOLD,
    GREEN,
    INK,
    PURPLE,
    RED,
    SAND,
    Canvas,
    polar,
)
from sample_authoring.query import Figure

INCOME = 2400
SHARES = {"Rent": 900, "Food": 400, "Travel": 150, "Saving": 240}
"""What the month's budget is made of."""


def drawings() -> list[Figure]:
    """All of them."""
    return [
        *(cake(parts, parts // 2) for parts in (1, 2, 4, 8)),
        *(clock(hour, minute) for hour, minute in ((3, 0), (4, 0), (3, 30), (7, 30))),
        *(budget(dict(list(SHARES.items())[:n]), INCOME) for n in (1, 3, 4)),
    ]


def cake(parts: int, taken: int) -> Figure:
    """A round cake in equal parts, of which the first `taken` are coloured."""
    canvas = Canvas(360, 300)
    if parts == 1:
        canvas.disc((180, 150), 120, fill=SAND, width=3)
    for i in range(parts if parts > 1 else 0):
        start, end = i * 360 / parts, (i + 1) * 360 / parts
        canvas.wedge((180, 150), 120, start, end, fill=RED if i < taken else SAND)
    return canvas.figure(f"cake-{taken}-of-{parts}")


def clock(hour: int, minute: int) -> Figure:
    """An analogue clock."""
    canvas = Canvas(300, 300)
    middle = (150, 150)
    canvas.disc(middle, 130, fill="white", width=5)
    for i in range(1, 13):
        canvas.text(polar(middle, 106, i * 30), str(i), 20)
    canvas.line(middle, polar(middle, 60, (hour % 12 + minute / 60) * 30), width=8)
    canvas.line(middle, polar(middle, 92, minute * 6), color=BLUE, width=5)
    canvas.disc(middle, 6, fill=INK)
    return canvas.figure(f"clock-{hour:02}{minute:02}")


def budget(shares: dict[str, int], income: int) -> Figure:
    """A bar as long as the income, filled from the left by what is spoken for."""
    canvas = Canvas(460, 220)
    left, width = 30.0, 400.0
    canvas.text((230, 26), f"Income of the month: {income}", 18)
    canvas.box(left, 90, left + width, 150, fill="white", width=3)
    colours = (BLUE, GREEN, GOLD, PURPLE)
    for i, (label, share) in enumerate(shares.items()):
        right = left + width * share / income
        canvas.box(left, 90, right, 150, fill=colours[i])
        # Above and below by turns: a narrow part is narrower than its name.
        canvas.text(((left + right) / 2, 74 if i % 2 else 168), f"{label} {share}", 15)
        left = right
    return canvas.figure(f"budget-{len(shares)}")
