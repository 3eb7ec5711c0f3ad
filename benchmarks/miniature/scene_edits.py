"""Single edits of a scene: another colour, shape, size, place or background; an item gone.

Unlike the changes of a story (`scorers.truth.changes`), they may leave two items that look
alike, and what cannot be done is None. Each draws from `rng` in a fixed order, on which
damaged answers depend.
"""

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
    Split,
    random_scene,
)

SceneEdit = Callable[[Scene, random.Random], Scene | None]


def another(scene: Scene, rng: random.Random, split: Split) -> Scene:
    """A scene of `split` that has nothing to do with `scene`."""
    while (other := random_scene(rng, split)) == scene:
        pass
    return other


def recoloured(scene: Scene, rng: random.Random) -> Scene:
    """An item in another colour."""
    item = rng.choice(scene.items)
    return _with(scene, item, replace(item, colour=_other([*COLOURS], item.colour, rng)))


def reshaped(scene: Scene, rng: random.Random) -> Scene:
    """An item of another shape."""
    item = rng.choice(scene.items)
    return _with(scene, item, replace(item, shape=_other(SHAPES, item.shape, rng)))


def resized(scene: Scene, rng: random.Random) -> Scene:
    """An item of the other size."""
    item = rng.choice(scene.items)
    return _with(scene, item, replace(item, size=_other([*SIZES], item.size, rng)))


def moved(scene: Scene, rng: random.Random) -> Scene | None:
    """An item at a free place; None in a full scene."""
    if not (free := free_places(scene)):
        return None
    item = rng.choice(scene.items)
    return _with(scene, item, replace(item, place=rng.choice(free)))


def exchanged(scene: Scene, rng: random.Random) -> Scene | None:
    """Two items in each other's places; None where there is one item."""
    if len(scene.items) < 2:
        return None
    a, b = rng.sample(scene.items, 2)
    others = [item for item in scene.items if item not in (a, b)]
    swapped = [replace(a, place=b.place), replace(b, place=a.place)]
    return Scene.of(scene.background, [*others, *swapped])


def one_more(scene: Scene, rng: random.Random) -> Scene | None:
    """With another item at a free place; None in a full scene."""
    if not (free := free_places(scene)):
        return None
    size, colour = rng.choice([*SIZES]), rng.choice([*COLOURS])
    new = SceneItem(rng.choice(free), size, colour, rng.choice(SHAPES))
    return Scene.of(scene.background, [*scene.items, new])


def one_fewer(scene: Scene, rng: random.Random) -> Scene | None:
    """Without one item; None where there is one item."""
    if len(scene.items) < 2:
        return None
    gone = rng.choice(scene.items)
    return Scene.of(scene.background, [i for i in scene.items if i != gone])


def repainted(scene: Scene, rng: random.Random) -> Scene:
    """On another background."""
    return replace(scene, background=_other([*BACKGROUNDS], scene.background, rng))


def free_places(scene: Scene) -> list[str]:
    """Places without an item, in the order of PLACES."""
    return [place for place in PLACES if scene.at(place) is None]


def _with(scene: Scene, old: SceneItem, new: SceneItem) -> Scene:
    items = [new if item == old else item for item in scene.items]
    return Scene.of(scene.background, items)


def _other(choices: Sequence[str], taken: str, rng: random.Random) -> str:
    return rng.choice([choice for choice in choices if choice != taken])
