"""From a scene to English, and back: one small grammar, written once."""

from __future__ import annotations

import random
from collections.abc import Sequence

from scorers.truth.scene import Item, Scene

LEADS = ("The picture shows", "There is", "Now there is")
NUMBERS = ("zero", "one", "two", "three", "four")


def noun(item: Item) -> str:
    """What the item looks like: `large red circle`."""
    return f"{item.size} {item.colour} {item.shape}"


def phrase(item: Item) -> str:
    """The item with its place: `a large red circle at the top left`."""
    return f"a {noun(item)} at the {item.place}"


def listed(parts: Sequence[str]) -> str:
    """Parts as English lists them: `a, b and c`."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def description(scene: Scene, rng: random.Random | None = None) -> str:
    """The scene without a sentence around it; `rng` shuffles the items."""
    items = list(scene.items)
    if rng is not None:
        rng.shuffle(items)
    return f"{listed([phrase(i) for i in items])} on a {scene.background} background"


def sentence(scene: Scene, rng: random.Random) -> str:
    """One sentence that describes the scene in full."""
    return f"{rng.choice(LEADS)} {description(scene, rng)}."
