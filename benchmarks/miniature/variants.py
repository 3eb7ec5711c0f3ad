"""Scenes that differ from another in one attribute: hard negatives, and tests of scores."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from scorers.truth.scene import (
    BACKGROUNDS,
    COLOURS,
    PLACES,
    SHAPES,
    SIZES,
    Scene,
    SceneItem,
)


def variant(scene: Scene, attribute: str, rng: random.Random) -> Scene | None:
    """`scene` with one attribute changed; None where the scene does not permit it.

    `attribute` is one of ATTRIBUTES. A variant may belong to the other split, and its items
    still differ in colour or shape.
    """
    changed = _CHANGES[attribute](scene, rng)
    if changed is None or changed == scene:
        return None
    looks = {(item.colour, item.shape) for item in changed.items}
    return changed if len(looks) == len(changed.items) else None


def _with(scene: Scene, old: SceneItem, new: SceneItem) -> Scene:
    items = [new if item == old else item for item in scene.items]
    return Scene.of(scene.background, items)


def _other(choices: Sequence[str], taken: str, rng: random.Random) -> str:
    return rng.choice([choice for choice in choices if choice != taken])


def _colour(scene: Scene, rng: random.Random) -> Scene:
    item = rng.choice(scene.items)
    return _with(scene, item, replace(item, colour=_other([*COLOURS], item.colour, rng)))


def _shape(scene: Scene, rng: random.Random) -> Scene:
    item = rng.choice(scene.items)
    return _with(scene, item, replace(item, shape=_other(SHAPES, item.shape, rng)))


def _size(scene: Scene, rng: random.Random) -> Scene:
    item = rng.choice(scene.items)
    return _with(scene, item, replace(item, size=_other([*SIZES], item.size, rng)))


def _free(scene: Scene) -> list[str]:
    return [place for place in PLACES if scene.at(place) is None]


def _place(scene: Scene, rng: random.Random) -> Scene | None:
    if not (free := _free(scene)):
        return None
    item = rng.choice(scene.items)
    return _with(scene, item, replace(item, place=rng.choice(free)))


def _swap(scene: Scene, rng: random.Random) -> Scene | None:
    """Two items change places: the same words, bound otherwise."""
    if len(scene.items) < 2:
        return None
    one, two = rng.sample(scene.items, 2)
    kept = [item for item in scene.items if item not in (one, two)]
    swapped = [replace(one, place=two.place), replace(two, place=one.place)]
    return Scene.of(scene.background, [*kept, *swapped])


def _count(scene: Scene, rng: random.Random) -> Scene | None:
    """One item more or one less."""
    free = _free(scene)
    if len(scene.items) > 1 and (not free or rng.random() < 0.5):
        gone = rng.choice(scene.items)
        return Scene.of(scene.background, [i for i in scene.items if i != gone])
    item = SceneItem(
        rng.choice(free),
        rng.choice([*SIZES]),
        rng.choice([*COLOURS]),
        rng.choice(SHAPES),
    )
    return Scene.of(scene.background, [*scene.items, item])


def _background(scene: Scene, rng: random.Random) -> Scene:
    return replace(scene, background=_other([*BACKGROUNDS], scene.background, rng))


_CHANGES: dict[str, Callable[[Scene, random.Random], Scene | None]] = {
    "colour": _colour,
    "shape": _shape,
    "size": _size,
    "place": _place,
    "swap": _swap,
    "count": _count,
    "background": _background,
}
ATTRIBUTES = tuple(_CHANGES)
"""What `variant` changes; `swap` exchanges the places of two items."""
