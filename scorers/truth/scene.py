"""Scenes of the miniature world: one to four coloured shapes on a plain background.

A scene is the exact truth behind an image and a sentence. Standard library only.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "test"]

Rgb = tuple[int, int, int]

COLOURS: dict[str, Rgb] = {
    "red": (214, 30, 36),
    "green": (24, 150, 60),
    "blue": (35, 80, 215),
    "yellow": (246, 206, 30),
    "purple": (140, 45, 165),
    "black": (20, 20, 22),
}
BACKGROUNDS: dict[str, Rgb] = {
    "white": (250, 250, 250),
    "grey": (170, 172, 175),
    "pink": (250, 196, 205),
}
SHAPES = ("circle", "square", "triangle", "star")
SIZES = {"small": 8.0, "large": 13.0}
"""Radius of the circle that a shape is drawn in, in pixels of a 64-pixel image."""
PLACES = ("top left", "top right", "bottom left", "bottom right")
MOST_ITEMS = len(PLACES)
TEST_SHARE = 10
"""One scene in so many belongs to the test split."""


@dataclass(frozen=True, slots=True, order=True)
class SceneItem:
    """One shape of a scene; a place holds at most one."""

    place: str
    size: str
    colour: str
    shape: str


@dataclass(frozen=True, slots=True)
class Scene:
    """A plain background and the items on it, in the order of `PLACES`."""

    background: str
    items: tuple[SceneItem, ...]

    @classmethod
    def of(cls, background: str, items: Iterable[SceneItem]) -> "Scene":
        """Return the scene of these items; ValueError where two share a place."""
        ordered = tuple(sorted(items, key=lambda item: PLACES.index(item.place)))
        if len({item.place for item in ordered}) < len(ordered):
            raise ValueError(f"two items of a scene share a place: {ordered}")
        return cls(background, ordered)

    @property
    def split(self) -> Split:
        """The split that the scene belongs to, decided by what it holds alone."""
        items = [(item.place, item.size, item.colour, item.shape) for item in self.items]
        content = repr((self.background, items))
        lot = hashlib.sha256(content.encode()).digest()[0:4]
        return "test" if int.from_bytes(lot, "big") % TEST_SHARE == 0 else "train"

    def at(self, place: str) -> SceneItem | None:
        """Return the item at `place`, if there is one."""
        return next((item for item in self.items if item.place == place), None)


def random_scene(
    rng: random.Random, split: Split, least: int = 1, most: int = MOST_ITEMS
) -> Scene:
    """Draw a scene of `split`, of `least` to `most` items unlike in colour or shape."""
    while True:
        places = rng.sample(PLACES, rng.randint(least, most))
        looks: set[tuple[str, str]] = set()
        items = []
        for place in places:
            size = rng.choice([*SIZES])
            look = rng.choice([*COLOURS]), rng.choice(SHAPES)
            while look in looks:
                look = rng.choice([*COLOURS]), rng.choice(SHAPES)
            looks.add(look)
            items.append(SceneItem(place, size, *look))
        scene = Scene.of(rng.choice([*BACKGROUNDS]), items)
        if scene.split == split:
            return scene
