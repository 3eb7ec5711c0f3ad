"""Single edits of a scene: another colour, shape, size, place or background; an item gone.

Unlike the changes of a story (`plait.scorers.truth.changes`), they may leave two items that
look alike, and what cannot be done is None. Each draws from `rng` in a fixed order, on
which damaged answers depend.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from plait.scorers.truth.scene import (
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
    """Return a scene of `split` that has nothing to do with `scene`."""
    while (other := random_scene(rng, split)) == scene:
        pass
    return other


def exchanging(scene: Scene, items: Mapping[SceneItem, SceneItem]) -> Scene:
    """Return the scene with some items in the place of others."""
    return Scene.of(scene.background, [items.get(item, item) for item in scene.items])


def _with_another(attribute: str, choices: Iterable[str]) -> SceneEdit:
    def edit(scene: Scene, rng: random.Random) -> Scene:
        item = rng.choice(scene.items)
        other = _other(choices, getattr(item, attribute), rng)
        return exchanging(scene, {item: replace(item, **{attribute: other})})

    return edit


recoloured = _with_another("colour", COLOURS)
reshaped = _with_another("shape", SHAPES)
resized = _with_another("size", SIZES)


def move(scene: Scene, rng: random.Random) -> Scene | None:
    """Return the scene with an item at a free place; None in a full scene."""
    if not (free := free_places(scene)):
        return None
    item = rng.choice(scene.items)
    return exchanging(scene, {item: replace(item, place=rng.choice(free))})


def exchange(scene: Scene, rng: random.Random) -> Scene | None:
    """Two items in each other's places; None where there is one item."""
    if len(scene.items) < 2:
        return None
    a, b = rng.sample(scene.items, 2)
    return exchanging(scene, {a: replace(a, place=b.place), b: replace(b, place=a.place)})


def one_more(scene: Scene, rng: random.Random) -> Scene | None:
    """With another item at a free place; None in a full scene."""
    if not (free := free_places(scene)):
        return None
    size = rng.choice([*SIZES])
    colour = rng.choice([*COLOURS])
    new = SceneItem(rng.choice(free), size, colour, rng.choice(SHAPES))
    return Scene.of(scene.background, [*scene.items, new])


def one_fewer(scene: Scene, rng: random.Random) -> Scene | None:
    """Without one item; None where there is one item."""
    if len(scene.items) < 2:
        return None
    gone = rng.choice(scene.items)
    return Scene.of(scene.background, [item for item in scene.items if item != gone])


def repaint(scene: Scene, rng: random.Random) -> Scene:
    """On another background."""
    return replace(scene, background=_other(BACKGROUNDS, scene.background, rng))


def free_places(scene: Scene) -> list[str]:
    """Places without an item, in the order of PLACES."""
    return [place for place in PLACES if scene.at(place) is None]


def _other(choices: Iterable[str], taken: str, rng: random.Random) -> str:
    return rng.choice([choice for choice in choices if choice != taken])
