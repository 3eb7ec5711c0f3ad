"""From a scene to its image."""

from __future__ import annotations

import math
import random
from itertools import chain
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from plait.scorers.truth.scene import BACKGROUNDS, COLOURS, SIZES, Scene, SceneItem

if TYPE_CHECKING:
    from PIL.Image import Image as Pillow

SIDE = 64
"""Pixels of an image's side."""
JITTER = 1.5
"""How far an item's centre may move, in pixels: images of one scene differ."""
_FINER = 8
"""Pixels are drawn so many times finer, then averaged, for smooth edges."""
_SQUARE = 0.86
_TRIANGLE = 1.12
_STAR = 1.15
_WAIST = 0.42


def draw(scene: Scene, seed: int, side: int = SIDE) -> Pillow:
    """Return the RGB image of `scene`, `side` pixels square; `seed` jitters the items."""
    rng = random.Random(seed)
    finer = _FINER * math.ceil(side / SIDE)
    canvas = Image.new("RGB", (SIDE * finer, SIDE * finer), BACKGROUNDS[scene.background])
    pen = ImageDraw.Draw(canvas)
    for item in scene.items:
        x, y = centre(item.place)
        x = x + rng.uniform(-JITTER, JITTER)
        y = y + rng.uniform(-JITTER, JITTER)
        corners: list[tuple[float, float]] = []
        for right, down in _outline(item):
            corners.append((finer * (x + right), finer * (y + down)))
        pen.polygon(corners, fill=COLOURS[item.colour])
    return canvas.resize((side, side), Image.Resampling.BOX)


def centre(place: str) -> tuple[float, float]:
    """Return the middle of a place in pixels from the image's top left corner."""
    row, column = place.split()
    return (
        SIDE * (0.75 if column == "right" else 0.25),
        SIDE * (0.75 if row == "bottom" else 0.25),
    )


def _outline(item: SceneItem) -> list[tuple[float, float]]:
    """Return the corners of an item around its centre, in pixels."""
    radius = SIZES[item.size]
    if item.shape == "circle":
        return _ring(radius, 64)
    if item.shape == "square":
        half = radius * _SQUARE
        return [(-half, -half), (half, -half), (half, half), (-half, half)]
    if item.shape == "triangle":
        # Moved down so that the triangle fills its place as the other shapes do.
        return [(x, y + 0.15 * radius) for x, y in _ring(_TRIANGLE * radius, 3)]
    outer = _ring(_STAR * radius, 5)
    inner = _ring(_STAR * _WAIST * radius, 5, 0.5)
    return [*chain.from_iterable(zip(outer, inner, strict=True))]


def _ring(radius: float, corners: int, offset: float = 0.0) -> list[tuple[float, float]]:
    """Return a regular polygon, its first corner on top, turned by `offset` of a corner."""
    ring: list[tuple[float, float]] = []
    for number in range(corners):
        angle = 2 * math.pi * (number + offset) / corners
        ring.append((radius * math.sin(angle), -radius * math.cos(angle)))
    return ring
