"""Wrong captions differ from right ones by exactly what their name says."""

from __future__ import annotations

import pytest

from benchmarks.miniature.wrong_captions import RANDOM, WRONG, captioned
from scorers.truth.reading import Reading
from scorers.truth.scene import SceneItem
from scorers.truth.text_reader import TextReading, read_text

CAPTIONED = [captioned(i, seed=0) for i in range(150)]


def told(text: str) -> Reading:
    reading = read_text(text)
    assert isinstance(reading, TextReading)
    (scene,) = reading.scenes
    return scene


def items(reading: Reading) -> list[SceneItem]:
    return [item for i in reading.items if (item := i.item) is not None]


def changes(name: str) -> list[tuple[list[SceneItem], list[SceneItem], Reading, Reading]]:
    pairs = [(told(c.right), told(c.wrong[name])) for c in CAPTIONED if name in c.wrong]
    assert len(pairs) > 40
    return [
        (
            [i for i in items(a) if i not in items(b)],
            [i for i in items(b) if i not in items(a)],
            a,
            b,
        )
        for a, b in pairs
    ]


def test_the_right_caption_tells_the_scene() -> None:
    for c in CAPTIONED:
        assert told(c.right).scene == c.scene
        assert c.scene.split == "test"


@pytest.mark.parametrize("attribute", ["colour", "shape", "size", "place"])
def test_one_attribute_of_one_item_is_wrong(attribute: str) -> None:
    for gone, new, right, wrong in changes(attribute):
        ((before,), (after,)) = gone, new
        differ = [
            a
            for a in ("colour", "shape", "size", "place")
            if getattr(before, a) != getattr(after, a)
        ]
        assert differ == [attribute]
        assert right.background == wrong.background


def test_one_item_more_or_fewer() -> None:
    assert {(len(g), len(n)) for g, n, _, _ in changes("one more")} == {(0, 1)}
    assert {(len(g), len(n)) for g, n, _, _ in changes("one fewer")} == {(1, 0)}


def test_the_background_alone_is_wrong() -> None:
    for gone, new, right, wrong in changes("background"):
        assert not gone
        assert not new
        assert right.background != wrong.background


@pytest.mark.parametrize("attribute", ["place", "colour"])
def test_exchanged_captions_hold_the_same_words(attribute: str) -> None:
    name = f"{attribute}s exchanged"
    for c in CAPTIONED:
        if name in c.wrong:
            # Articles and commas aside, since items may stand in another order.
            assert sorted(c.right.split()) == sorted(c.wrong[name].split())
            assert told(c.right).scene != told(c.wrong[name]).scene
    for gone, new, _, _ in changes(name):
        assert len(gone) == len(new) == 2


def test_every_wrong_is_made_and_depends_on_the_seed() -> None:
    assert set().union(*(c.wrong for c in CAPTIONED)) == set(WRONG)
    assert all(RANDOM in c.wrong for c in CAPTIONED)
    assert captioned(3, seed=0) == CAPTIONED[3]
    assert captioned(3, seed=1) != CAPTIONED[3]
