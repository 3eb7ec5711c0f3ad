"""Scenes made wrong: one attribute, one item, or everything."""

from __future__ import annotations

import random
from collections.abc import Callable
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

Edit = Callable[[random.Random, Scene], Scene]


def edited(rng: random.Random, scene: Scene, split: Split, edits: int) -> Scene:
    """Another scene of `split`, `edits` random edits away from `scene`."""
    while True:
        wrong = scene
        for _ in range(edits):
            wrong = rng.choice(_EDITS)(rng, wrong)
        if wrong != scene and wrong.split == split:
            return wrong


def another(rng: random.Random, scene: Scene, split: Split) -> Scene:
    """A scene of `split` that has nothing to do with `scene`."""
    while (other := random_scene(rng, split)) == scene:
        pass
    return other


def _other(rng: random.Random, value: str, values: "list[str]") -> str:
    return rng.choice([v for v in values if v != value])


def _changed(
    rng: random.Random, scene: Scene, change: Callable[[SceneItem], SceneItem]
) -> Scene:
    position = rng.randrange(len(scene.items))
    items = list(scene.items)
    items[position] = change(items[position])
    return Scene.of(scene.background, items)


def _recolour(rng: random.Random, scene: Scene) -> Scene:
    new = lambda i: replace(i, colour=_other(rng, i.colour, [*COLOURS]))  # noqa: E731
    return _changed(rng, scene, new)


def _reshape(rng: random.Random, scene: Scene) -> Scene:
    new = lambda i: replace(i, shape=_other(rng, i.shape, [*SHAPES]))  # noqa: E731
    return _changed(rng, scene, new)


def _resize(rng: random.Random, scene: Scene) -> Scene:
    return _changed(rng, scene, lambda i: replace(i, size=_other(rng, i.size, [*SIZES])))


def _move(rng: random.Random, scene: Scene) -> Scene:
    free = _free(scene)
    if not free:
        return _exchange(rng, scene)
    return _changed(rng, scene, lambda i: replace(i, place=rng.choice(free)))


def _exchange(rng: random.Random, scene: Scene) -> Scene:
    """Two items in each other's places."""
    if len(scene.items) < 2:
        return scene
    a, b = rng.sample(scene.items, 2)
    others = [i for i in scene.items if i not in (a, b)]
    moved = [replace(a, place=b.place), replace(b, place=a.place)]
    return Scene.of(scene.background, [*others, *moved])


def _add(rng: random.Random, scene: Scene) -> Scene:
    if not (free := _free(scene)):
        return scene
    size, colour = rng.choice([*SIZES]), rng.choice([*COLOURS])
    new = SceneItem(rng.choice(free), size, colour, rng.choice(SHAPES))
    return Scene.of(scene.background, [*scene.items, new])


def _remove(rng: random.Random, scene: Scene) -> Scene:
    if len(scene.items) < 2:
        return scene
    gone = rng.choice(scene.items)
    return Scene.of(scene.background, [i for i in scene.items if i != gone])


def _repaint(rng: random.Random, scene: Scene) -> Scene:
    return Scene(_other(rng, scene.background, [*BACKGROUNDS]), scene.items)


def _free(scene: Scene) -> list[str]:
    return [place for place in PLACES if scene.at(place) is None]


_EDITS: tuple[Edit, ...] = (
    *(_recolour, _recolour, _reshape, _reshape, _resize, _resize, _move, _move),
    *(_exchange, _add, _remove, _repaint),
)
"""Each as often as it is listed."""
