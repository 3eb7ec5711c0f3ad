"""Marks of an artist that draws exactly what it is asked for, and of worse ones."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.miniature.training.artist.marks import marks
from scorers.truth.drawing import draw
from scorers.truth.language import statement
from scorers.truth.scene import PLACES, Scene, SceneItem, random_scene

COUNT = 24


def artist_drawing(change):
    """An artist that draws `change` of the scene that a prompt describes."""
    rng = random.Random(41)
    scenes = [random_scene(rng, "test") for _ in range(COUNT)]
    asked = {statement(scene): scene for scene in scenes}

    def drawn(prompts, **_):
        pictures = [np.asarray(draw(change(asked[p]), seed=5)) / 255 for p in prompts]
        return SimpleNamespace(images=np.stack(pictures))

    return drawn


def mirrored(scene):
    items = [
        SceneItem(PLACES[PLACES.index(i.place) ^ 1], i.size, i.colour, i.shape)
        for i in scene.items
    ]
    return Scene.of(scene.background, items)


def resized(scene):
    items = [SceneItem(i.place, "large", i.colour, i.shape) for i in scene.items]
    return Scene.of(scene.background, items)


def with_more(scene):
    free = [p for p in PLACES if scene.at(p) is None]
    more = [SceneItem(p, "large", "red", "circle") for p in free[:1]]
    return Scene.of(scene.background, [*scene.items, *more])


@pytest.mark.parametrize(
    ("change", "placed", "whole"),
    [
        (lambda scene: scene, (0.99, 1.0), (0.99, 1.0)),
        (mirrored, (0.0, 0.3), (0.0, 0.1)),
        (resized, (0.99, 1.0), (0.0, 0.5)),
        (with_more, (0.99, 1.0), (0.0, 0.5)),
    ],
)
def test_marks_tell_what_is_wrong(tmp_path, change, placed, whole):
    measured = marks(artist_drawing(change), COUNT, tmp_path / "sheet.png")
    assert placed[0] <= measured.placed <= placed[1]
    assert whole[0] <= measured.whole <= whole[1]
    assert (tmp_path / "sheet.png").exists()
    assert [*measured.whole_by_items] == [1, 2, 3, 4]
