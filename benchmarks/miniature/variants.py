"""Scenes that differ from another in one attribute: hard negatives, and tests of scores."""

from __future__ import annotations

import random
from collections.abc import Mapping

from benchmarks.miniature.scene_edits import (
    SceneEdit,
    exchanged,
    free_places,
    moved,
    one_fewer,
    recoloured,
    repainted,
    reshaped,
    resized,
)
from scorers.truth.scene import COLOURS, SHAPES, SIZES, Scene, SceneItem


def variant(scene: Scene, attribute: str, rng: random.Random) -> Scene | None:
    """`scene` with one attribute changed; None where the scene does not permit it.

    `attribute` is one of ATTRIBUTES. A variant may belong to the other split, and its items
    still differ in colour or shape.
    """
    changed = _EDITS[attribute](scene, rng)
    if changed is None or changed == scene:
        return None
    looks = {(item.colour, item.shape) for item in changed.items}
    return changed if len(looks) == len(changed.items) else None


def _count(scene: Scene, rng: random.Random) -> Scene | None:
    """One item more or one less."""
    free = free_places(scene)
    if len(scene.items) > 1 and (not free or rng.random() < 0.5):
        return one_fewer(scene, rng)
    item = SceneItem(
        rng.choice(free),
        rng.choice([*SIZES]),
        rng.choice([*COLOURS]),
        rng.choice(SHAPES),
    )
    return Scene.of(scene.background, [*scene.items, item])


_EDITS: Mapping[str, SceneEdit] = {
    "colour": recoloured,
    "shape": reshaped,
    "size": resized,
    "place": moved,
    "swap": exchanged,
    "count": _count,
    "background": repainted,
}
ATTRIBUTES = tuple(_EDITS)
"""What `variant` changes; `swap` exchanges the places of two items."""
