"""Boxes in images, as models write them and as data have them.

A box is in thousandths of the image's width and height, whatever it was written in.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NUMBER = re.compile(r"[-+]?\d*\.?\d+")
_NAMED = re.compile(r'"bbox_2d"\s*:\s*\[([^\]]+)\]')
_LISTED = re.compile(r"[\[(]([^\[\]()]*)[\])]")
WHOLE = 1000
"""How far an image reaches, in both directions."""
_LEAST_CORNERS = 3


class Box(NamedTuple):
    """A box with its left upper and right lower corner."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def area(self) -> float:
        """Its area; 0 where the corners are the wrong way round."""
        return max(0.0, self.right - self.left) * max(0.0, self.bottom - self.top)


class Size(NamedTuple):
    """Of an image, in pixels."""

    width: int
    height: int


def numbers_in(text: str) -> list[float]:
    """Return all numbers in a text, in their order."""
    return [float(number) for number in _NUMBER.findall(text)]


def overlap(one: Box, other: Box) -> float:
    """Return the intersection of two boxes over their union, 0 to 1."""
    shared = Box(
        left=max(one.left, other.left),
        top=max(one.top, other.top),
        right=min(one.right, other.right),
        bottom=min(one.bottom, other.bottom),
    ).area
    whole = one.area + other.area - shared
    return min(1.0, max(0.0, shared / whole)) if whole > 0 else 0.0


def box_of(numbers: list[float], pixels_of: Size | None = None) -> Box | None:
    """Return the box that four numbers are; None where it has no area inside the image.

    They are pixels of an image of the size `pixels_of`; without it shares of the image
    where none of the last two is above 1, else thousandths.
    """
    if len(numbers) < 4:
        return None
    scaled = numbers[:4]
    if pixels_of is not None:
        scaled = _in_thousandths(scaled, pixels_of)
    elif max(scaled[2:]) <= 1:
        scaled = [number * WHOLE for number in scaled]
    left, top, right, bottom = scaled
    box = Box(
        left=max(0.0, left),
        top=max(0.0, top),
        right=min(right, float(WHOLE)),
        bottom=min(bottom, float(WHOLE)),
    )
    return box if box.right > box.left and box.bottom > box.top else None


def first_numbers(text: str) -> list[float]:
    """Return the numbers of `"bbox_2d"` in a text, or where it has none all in the text."""
    named = _NAMED.search(text)
    return numbers_in(named[1] if named else text)


def listed_numbers(text: str) -> list[float]:
    """Return the last four numbers that stand together in brackets, or are all there are.

    Empty where there is no such list. Corners in the wrong order are exchanged.
    """
    candidates = [numbers_in(text)]
    for bracketed in _LISTED.finditer(text):
        candidates.append(numbers_in(bracketed[1]))
    # What stands in brackets goes before all the numbers of the text.
    for numbers in reversed(candidates):
        if len(numbers) == 4:
            left, right = sorted((numbers[0], numbers[2]))
            top, bottom = sorted((numbers[1], numbers[3]))
            return [left, top, right, bottom]
    return []


def around_polygon(text: str, size: Size) -> Box | None:
    """Return the box around a polygon that is written as its corners in pixels.

    None where it has fewer than three.
    """
    numbers = numbers_in(text)
    across = numbers[0::2]
    down = numbers[1::2]
    corners = len(down)
    if corners < _LEAST_CORNERS:
        return None
    # A last number without its partner belongs to no corner.
    ends = [min(across[:corners]), min(down), max(across[:corners]), max(down)]
    return Box(*_in_thousandths(ends, size))


def _in_thousandths(pixels: list[float], size: Size) -> list[float]:
    """Return four numbers, across and down in turn, as thousandths of an image."""
    sides = (size.width, size.height) * 2
    return [pixel / side * WHOLE for pixel, side in zip(pixels, sides, strict=True)]
