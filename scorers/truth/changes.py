"""What can happen to a scene: an item comes, goes, moves, grows, shrinks, turns colour."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from plait.scorers.truth.scene import COLOURS, PLACES, SHAPES, SIZES, Scene, SceneItem

ChangeKind = Literal["move", "resize", "recolour", "add", "remove"]


@dataclass(frozen=True, slots=True)
class Change:
    """One item before and after; without `before` it is new, without `after` it is gone."""

    kind: ChangeKind
    before: SceneItem | None
    after: SceneItem | None

    def of(self, scene: Scene) -> Scene:
        """Return the scene that follows; ValueError where `before` is not in `scene`."""
        items = list(scene.items)
        if self.before is not None:
            if self.before not in items:
                raise ValueError(f"{self.before} is not in the scene: {scene}")
            items.remove(self.before)
        if self.after is not None:
            items.append(self.after)
        return Scene.of(scene.background, items)


def random_change(rng: random.Random, scene: Scene, kind: ChangeKind) -> Change | None:
    """Draw a change of this kind; None where `scene` allows none.

    Items of the scene that follows differ in colour or shape, so that colour and shape
    name an item; a scene never becomes empty.
    """
    free = [place for place in PLACES if scene.at(place) is None]
    if kind == "add":
        return _random_addition(rng, scene, free)
    item = rng.choice(scene.items)
    if kind == "remove":
        return Change(kind, item, None) if len(scene.items) > 1 else None
    if kind == "move":
        after = replace(item, place=rng.choice(free)) if free else None
    elif kind == "resize":
        after = replace(item, size=next(size for size in SIZES if size != item.size))
    else:
        colours = _free_colours(scene, item.shape)
        after = replace(item, colour=rng.choice(colours)) if colours else None
    return Change(kind, item, after) if after else None


def _random_addition(rng: random.Random, scene: Scene, free: list[str]) -> Change | None:
    if not free:
        return None
    shape = rng.choice([shape for shape in SHAPES if _free_colours(scene, shape)])
    colour = rng.choice(_free_colours(scene, shape))
    place = rng.choice(free)
    size = rng.choice([*SIZES])
    return Change("add", None, SceneItem(place, size, colour, shape))


def _free_colours(scene: Scene, shape: str) -> list[str]:
    """Return the colours in which the scene has no item of this shape."""
    taken = {item.colour for item in scene.items if item.shape == shape}
    return [colour for colour in COLOURS if colour not in taken]
