"""Scenes that differ in one attribute."""

import random

import pytest

from benchmarks.miniature.variants import ATTRIBUTES, variant
from scorers.truth.scene import Scene, random_scene


def _differences(one: Scene, other: Scene) -> set[str]:
    names = ("colour", "shape", "size", "place")
    values = {
        n: [sorted(getattr(i, n) for i in s.items) for s in (one, other)] for n in names
    }
    changed = {name for name, (a, b) in values.items() if a != b}
    if len(one.items) != len(other.items):
        changed = {"count"}
    return changed | ({"background"} if one.background != other.background else set())


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_one_attribute_changes(attribute: str) -> None:
    """The other attributes hold the same values; a swap holds all of them."""
    rng = random.Random(1)
    scenes = [random_scene(rng, "train") for _ in range(200)]
    pairs = [(s, v) for s in scenes if (v := variant(s, attribute, rng)) is not None]
    assert len(pairs) > 80
    expected = set() if attribute == "swap" else {attribute}
    assert all(_differences(s, v) == expected for s, v in pairs)
    assert all(s != v for s, v in pairs)


def test_a_full_scene_has_no_other_place() -> None:
    """Four items leave no place free, and one has nothing to change places with."""
    rng = random.Random(2)
    assert variant(random_scene(rng, "train", least=4), "place", rng) is None
    assert variant(random_scene(rng, "train", most=1), "swap", rng) is None
