"""Changes of scenes: what follows is a scene whose items colour and shape name."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import get_args

import pytest

from plait.scorers.truth.changes import Change, ChangeKind, random_change
from plait.scorers.truth.language import event, instruction
from plait.scorers.truth.scene import Scene, SceneItem, random_scene

CIRCLE = SceneItem("top left", "small", "red", "circle")
STAR = SceneItem("bottom right", "large", "blue", "star")


@pytest.mark.parametrize("kind", get_args(ChangeKind))
def test_one_thing_changes_and_names_stay_unique(kind) -> None:
    rng = random.Random(1)
    happened = 0
    for _ in range(120):
        scene = random_scene(rng, "train")
        if (change := random_change(rng, scene, kind)) is None:
            continue
        happened += 1
        after = change.of(scene)
        assert after != scene
        assert after.items
        assert len({(i.colour, i.shape) for i in after.items}) == len(after.items)
        grown = {"add": 1, "remove": -1}.get(kind, 0)
        assert len(after.items) == len(scene.items) + grown
        assert len({*scene.items} ^ {*after.items}) == (1 if grown else 2)
    assert happened > 70


def test_a_change_of_an_item_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="is not in the scene"):
        Change("remove", CIRCLE, None).of(Scene.of("white", [STAR]))
    with pytest.raises(ValueError, match="share a place"):
        Change("add", None, CIRCLE).of(Scene.of("white", [CIRCLE]))


REMOVED = Change("remove", STAR, None)


def changed(kind: ChangeKind, item: SceneItem, **new: str) -> Change:
    return Change(kind, item, replace(item, **new))


@pytest.mark.parametrize(
    ("change", "told", "asked"),
    [
        (
            changed("move", CIRCLE, place="top right"),
            "the red circle moves to the top right",
            "move the red circle to the top right",
        ),
        (
            Change("add", None, STAR),
            "a large blue star at the bottom right appears",
            "add a large blue star at the bottom right",
        ),
        (REMOVED, "the blue star goes away", "take away the blue star"),
        (
            changed("recolour", STAR, colour="green"),
            "the blue star turns green",
            "make the blue star green",
        ),
        *(
            (
                changed("resize", item, size=size),
                f"the {name} {verb}",
                f"make the {name} {size}",
            )
            for item, name, size, verb in (
                (CIRCLE, "red circle", "large", "grows"),
                (STAR, "blue star", "small", "shrinks"),
            )
        ),
    ],
)
def test_how_changes_are_told_and_asked_for(change, told, asked) -> None:
    assert event(change) == told
    assert instruction(change) == asked
