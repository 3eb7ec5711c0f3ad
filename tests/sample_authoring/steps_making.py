"""Drawings for the how-to queries of Art and EECS; each says how far things have come."""

from __future__ import annotations

from sample_authoring.canvas import (
    BLUE,
    GOLD,
    GREEN,
    GREY,
    INK,
    RED,
    SAND,
    SKY,
    Canvas,
    Point,
    polar,
)
from sample_authoring.query import Figure


def drawings() -> list[Figure]:
    """All of them."""
    return [
        *(house(stage) for stage in (1, 2, 3, 4)),
        *(colour_wheel(stage) for stage in (1, 2, 3)),
        *(led_circuit(stage) for stage in (1, 2, 3, 4)),
        resistor((3,), "turn"),
        resistor((0, 1), "digits"),
        resistor((2,), "multiplier"),
        resistor((0, 1, 2, 3), "all"),
    ]


def house(stage: int) -> Figure:
    """1 the wall, 2 the roof, 3 door and windows, 4 colour."""
    canvas = Canvas()
    colour = stage > 3
    if colour:
        canvas.box(0, 0, 440, 250, fill=SKY, edge=None)
        canvas.box(0, 250, 440, 320, fill="#b9d8a6", edge=None)
        canvas.disc((380, 55), 28, fill=GOLD, edge=None)
    canvas.box(130, 140, 310, 270, fill=SAND if colour else "white", width=3)
    if stage > 1:
        roof: tuple[Point, ...] = ((110, 140), (220, 50), (330, 140))
        canvas.polygon(*roof, fill=RED if colour else "white", width=3)
    if stage > 2:
        canvas.box(198, 195, 242, 270, fill=GREEN if colour else None, width=3)
        for x in (148, 257):
            canvas.box(x, 165, x + 35, 200, fill="white", width=3)
            canvas.line((x + 17.5, 165), (x + 17.5, 200))
            canvas.line((x, 182.5), (x + 35, 182.5))
    return canvas.figure(f"house-{stage}")


_WHEEL = (
    "#f2d32c",
    "#f2ab27",
    "#ee8326",
    "#e55b28",
    "#d7302d",
    "#a32c63",
    "#6b2c86",
    "#454a9d",
    "#2465b4",
    "#25838f",
    "#2f9a55",
    "#93bd3c",
)
"""Yellow over orange, red, purple, blue and green, clockwise."""


def colour_wheel(stage: int) -> Figure:
    """1 the primaries, 2 the secondaries between them, 3 the six in between."""
    canvas = Canvas(360, 320)
    every = {1: 4, 2: 2, 3: 1}[stage]
    for i, colour in enumerate(_WHEEL):
        fill = colour if i % every == 0 else "white"
        canvas.wedge((180, 160), 140, i * 30 - 15, i * 30 + 15, fill=fill)
    canvas.disc((180, 160), 48, fill="white")
    return canvas.figure(f"colour-wheel-{stage}")


def led_circuit(stage: int) -> Figure:
    """1 the battery, 2 the resistor, 3 the light-emitting diode, 4 the closed loop."""
    canvas = Canvas()
    canvas.line((70, 140), (110, 140), width=3)
    canvas.line((80, 165), (100, 165), width=6)
    canvas.text((122, 140), "+", 22, RED)
    canvas.text((38, 152), "9 V", 19)
    if stage > 1:
        zigzag = [(160 + 10 * i, 60 + (-12 if i % 2 else 12)) for i in range(1, 8)]
        canvas.line((90, 140), (90, 60), (160, 60), *zigzag, (240, 60), width=3)
        canvas.text((200, 92), "390 ohm", 17)
    if stage > 2:
        canvas.line((240, 60), (350, 60), (350, 120), width=3)
        glow = "#ffd9dd" if stage > 3 else "white"
        canvas.polygon((328, 120), (372, 120), (350, 160), fill=glow, width=3)
        canvas.line((328, 160), (372, 160), width=3)
        canvas.text((398, 140), "LED", 17, RED)
    if stage > 3:
        canvas.line((350, 160), (350, 260), (90, 260), (90, 165), width=3)
        canvas.arrow((200, 260), (180, 260), BLUE)
        canvas.text((220, 284), "current flows round the loop", 16, BLUE)
        for angle in (60, 90, 120):
            start, end = (polar((350, 130), r, angle - 100) for r in (40, 58))
            canvas.arrow(start, end, GOLD)
    return canvas.figure(f"led-circuit-{stage}")


BANDS = {"yellow": "#efc92f", "violet": "#7d4fa3", "red": "#cc3b3b", "gold": "#b8923a"}


def resistor(marked: tuple[int, ...], name: str) -> Figure:
    """A resistor whose bands at the positions `marked` are pointed out."""
    canvas = Canvas(440, 220)
    canvas.line((20, 110), (420, 110), color=GREY, width=5)
    canvas.box(90, 70, 350, 150, fill="#e9d9b8")
    for i, (band, colour) in enumerate(BANDS.items()):
        x = (125, 175, 225, 305)[i]
        canvas.box(x, 70, x + 22, 150, fill=colour, edge=None)
        if i in marked:
            canvas.arrow((x + 11, 30), (x + 11, 62), INK)
            canvas.text((x + 11, 172), band, 16)
    return canvas.figure(f"resistor-{name}")
