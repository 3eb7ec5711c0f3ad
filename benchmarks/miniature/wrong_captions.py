"""Captions that are wrong by exactly one thing, of pictures whose scene is known."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.miniature.scene_edits import SceneEdit, another, repainted
from scorers.truth.changes import ChangeKind, random_change
from scorers.truth.language import sentence
from scorers.truth.scene import SHAPES, Scene, SceneItem, random_scene


@dataclass(frozen=True, slots=True)
class CaptionedScene:
    """A scene, its right caption and wrong ones by what is wrong with them."""

    scene: Scene
    seed: int
    """Of the picture's jitter."""
    right: str
    wrong: Mapping[str, str]


def captioned(index: int, seed: int) -> CaptionedScene:
    """The `index`-th scene of the test split with its captions."""
    rng = random.Random(f"captions {seed} {index}")
    scene = random_scene(rng, "test")
    wording = rng.randrange(2**31)
    others = {name: make(scene, rng) for name, make in WRONG.items()}
    return CaptionedScene(
        scene,
        rng.randrange(2**31),
        _said(scene, wording),
        {n: _said(other, wording) for n, other in others.items() if other is not None},
    )


def _said(scene: Scene, wording: int) -> str:
    # One wording for right and wrong, so that they differ in what they say alone.
    return sentence(scene, random.Random(wording))


def _other_scene(scene: Scene, rng: random.Random) -> Scene:
    return another(scene, rng, "test")


def _changed(kind: ChangeKind) -> SceneEdit:
    def change(scene: Scene, rng: random.Random) -> Scene | None:
        made = random_change(rng, scene, kind)
        return None if made is None else made.of(scene)

    return change


def _other_shape(scene: Scene, rng: random.Random) -> Scene | None:
    item = rng.choice(scene.items)
    taken = {other.shape for other in scene.items if other.colour == item.colour}
    shapes = [shape for shape in SHAPES if shape not in taken]
    if not shapes:
        return None
    return _with(scene, {item: replace(item, shape=rng.choice(shapes))})


def _places_exchanged(scene: Scene, rng: random.Random) -> Scene | None:
    return _exchanged(scene, rng, "place")


def _colours_exchanged(scene: Scene, rng: random.Random) -> Scene | None:
    return _exchanged(scene, rng, "colour")


def _exchanged(scene: Scene, rng: random.Random, attribute: str) -> Scene | None:
    """Two items exchange an attribute: all words are right, only their order is not."""
    items = [*scene.items]
    rng.shuffle(items)
    for i, a in enumerate(items):
        for b in items[i + 1 :]:
            made = _with(scene, {a: _given(a, b, attribute), b: _given(b, a, attribute)})
            if _looks(made) != _looks(scene):
                return made
    return None


def _looks(scene: Scene) -> set[SceneItem]:
    return set(scene.items)


def _given(item: SceneItem, other: SceneItem, attribute: str) -> SceneItem:
    return replace(item, **{attribute: getattr(other, attribute)})


def _with(scene: Scene, changes: Mapping[SceneItem, SceneItem]) -> Scene:
    return Scene.of(scene.background, [changes.get(item, item) for item in scene.items])


RANDOM = "another scene"
WRONG: Mapping[str, SceneEdit] = {
    RANDOM: _other_scene,
    "colour": _changed("recolour"),
    "shape": _other_shape,
    "size": _changed("resize"),
    "place": _changed("move"),
    "one more": _changed("add"),
    "one fewer": _changed("remove"),
    "background": repainted,
    "places exchanged": _places_exchanged,
    "colours exchanged": _colours_exchanged,
}
"""By what is wrong."""
