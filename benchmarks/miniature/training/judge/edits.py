"""Scenes made wrong by several random edits."""

from __future__ import annotations

import random

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
from scorers.truth.scene import COLOURS, SHAPES, SIZES, Scene, SceneItem, Split


def edited(rng: random.Random, scene: Scene, split: Split, edits: int) -> Scene:
    """Another scene of `split`, `edits` random edits away from `scene`."""
    while True:
        wrong = scene
        for _ in range(edits):
            wrong = rng.choice(_EDITS)(wrong, rng) or wrong
        if wrong != scene and wrong.split == split:
            return wrong


def _move(scene: Scene, rng: random.Random) -> Scene | None:
    return moved(scene, rng) if free_places(scene) else exchanged(scene, rng)


def _add(scene: Scene, rng: random.Random) -> Scene | None:
    if not (free := free_places(scene)):
        return None
    size, colour = rng.choice([*SIZES]), rng.choice([*COLOURS])
    new = SceneItem(rng.choice(free), size, colour, rng.choice(SHAPES))
    return Scene.of(scene.background, [*scene.items, new])


_EDITS: tuple[SceneEdit, ...] = (
    *(recoloured, recoloured, reshaped, reshaped, resized, resized, _move, _move),
    *(exchanged, _add, one_fewer, repainted),
)
"""Each as often as it is listed."""
