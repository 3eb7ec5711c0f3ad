"""Drawings for the how-to queries of Health, Philosophy and Sports."""

from __future__ import annotations

from sample_authoring.canvas import (
    BLUE,
    GOLD,
    GREEN,
    INK,
    PALE,
    RED,
    SKY,
    Canvas,
    Point,
    polar,
)
from sample_authoring.query import Figure


def drawings() -> list[Figure]:
    """All of them."""
    return [
        *(neck(tilt) for tilt in (0, 25, -25)),
        *(argument(stage) for stage in (1, 2, 3)),
        *(ship(new) for new in (0, 3, 8)),
        *(passing(stage) for stage in (1, 2, 3)),
        *(serve(stage) for stage in (1, 2, 3)),
    ]


def neck(tilt: int) -> Figure:
    """Head and shoulders from the front, the head tilted by `tilt` degrees."""
    canvas = Canvas(320, 300)
    canvas.polygon((60, 290), (90, 215), (230, 215), (260, 290), fill=SKY, width=3)
    base = (160, 215)
    head = polar(base, 105, tilt)
    canvas.line(base, polar(base, 60, tilt), width=26, color="#f0c9a4")
    canvas.disc(head, 52, fill="#f0c9a4", width=3)
    for side in (-20, 20):
        eye = polar(polar(head, 10, tilt), abs(side), tilt + (90 if side > 0 else -90))
        canvas.disc(eye, 4, fill=INK)
    mouth = polar(head, 22, tilt + 180)
    canvas.line(polar(mouth, 14, tilt - 90), polar(mouth, 14, tilt + 90), width=3)
    if tilt:
        canvas.arc(base, 180, min(0, tilt) + 4, max(0, tilt) - 4, color=RED, width=3)
    pose = "upright" if tilt == 0 else "left" if tilt < 0 else "right"
    return canvas.figure(f"neck-{pose}")


def argument(stage: int) -> Figure:
    """1 the conclusion, 2 its reasons, 3 an objection to one of them."""
    canvas = Canvas(460, 300)
    _card(canvas, (230, 50), "We should plant trees", "along Mill Street.", SKY)
    if stage > 1:
        _card(canvas, (110, 160), "Trees cool", "the street.", "#d5ead9")
        _card(canvas, (350, 160), "They cost little", "to look after.", "#d5ead9")
        canvas.arrow((110, 130), (190, 82), GREEN)
        canvas.arrow((350, 130), (270, 82), GREEN)
    if stage > 2:
        _card(canvas, (350, 260), "Roots lift", "the pavement.", "#f6d5d9")
        canvas.arrow((350, 230), (350, 192), RED)
    return canvas.figure(f"argument-{stage}")


def _card(canvas: Canvas, middle: Point, first: str, second: str, fill: str) -> None:
    x, y = middle
    canvas.box(x - 95, y - 30, x + 95, y + 30, fill=fill)
    canvas.text((x, y - 11), first, 16)
    canvas.text((x, y + 11), second, 16)


def ship(new: int, planks: int = 8) -> Figure:
    """A ship of `planks` planks, of which the first `new` have been replaced."""
    canvas = Canvas()
    canvas.box(0, 262, 440, 320, fill=SKY, edge=None)
    canvas.line((220, 190), (220, 40), width=6)
    canvas.polygon((228, 45), (228, 165), (330, 165), fill=PALE)
    for i in range(planks):
        left, right = 80 + i * 280 / planks, 80 + (i + 1) * 280 / planks
        low = 275 if 0 < i < planks - 1 else 255
        fill = GOLD if i < new else "#9c7a52"
        canvas.polygon((left, 190), (right, 190), (right, low), (left, low), fill=fill)
    canvas.text((220, 300), f"{new} of {planks} planks are new", 17)
    return canvas.figure(f"ship-{new}")


_PITCH = "#7fb069"


def passing(stage: int) -> Figure:
    """1 the triangle of players, 2 the first pass, 3 all passes and the run."""
    canvas = Canvas(440, 320, paper=_PITCH)
    spots = {"A": (100.0, 250.0), "B": (340.0, 250.0), "C": (220.0, 70.0)}
    if stage > 1:
        canvas.arrow((125, 250), (315, 250), "white", 4)
    if stage > 2:
        canvas.arrow((326, 228), (236, 95), "white", 4)
        canvas.arrow((204, 95), (114, 228), "white", 4)
        canvas.dashed((100, 280), (330, 290), INK, 3)
        canvas.text((215, 302), "A follows the pass", 15)
    for name, spot in spots.items():
        canvas.disc(spot, 22, fill=RED if name == "A" else BLUE)
        canvas.text(spot, name, 20, "white")
    canvas.disc((132, 236), 8, fill="white")
    return canvas.figure(f"passing-{stage}")


def serve(stage: int) -> Figure:
    """1 where to stand, 2 where to aim, 3 the flight of the ball (seen from above)."""
    canvas = Canvas(440, 260, paper="#c97b4a")
    canvas.box(40, 30, 400, 230, fill="#4f86b8", edge="white", width=3)
    canvas.line((220, 20), (220, 240), color=INK, width=3)
    for x in (120, 320):
        canvas.line((x, 30), (x, 230), color="white", width=3)
    canvas.line((120, 130), (320, 130), color="white", width=3)
    if stage > 1:
        canvas.box(222, 32, 318, 128, fill="#a9d18e", edge="white", width=3)
    if stage > 2:
        canvas.arrow((45, 150), (280, 80), GOLD, 4)
    canvas.disc((30, 152), 11, fill=RED)
    return canvas.figure(f"serve-{stage}")
