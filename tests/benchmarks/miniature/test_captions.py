"""Wrong captions are wrong by exactly what their name says; the area over their scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plait.benchmarks.miniature import captions
from plait.benchmarks.miniature.captions import RANDOM, WRONG, area, caption
from plait.benchmarks.miniature.measures import BenchSettings
from plait.scorers.truth.reading import Reading
from plait.scorers.truth.text_reader import TextReading, read_text

pytestmark = pytest.mark.contract

CAPTIONED = [caption(i, seed=0) for i in range(150)]
ATTRIBUTES = ("colour", "shape", "size", "place")


def told(text: str) -> Reading:
    reading = read_text(text)
    assert isinstance(reading, TextReading)
    (scene,) = reading.scenes
    return scene


def changes(right: Reading, wrong: Reading) -> tuple[int, int, list[str]]:
    """How many items are gone, how many are new, and in what the scenes differ."""
    gone = [i for i in right.items if i not in wrong.items]
    new = [i for i in wrong.items if i not in right.items]
    differ = ["background"] * (right.background != wrong.background)
    if len(gone) == len(new) == 1:
        (a,), (b,) = gone, new
        differ += [n for n in ATTRIBUTES if getattr(a, n) != getattr(b, n)]
    return len(gone), len(new), differ


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, (1, 1, [name])) for name in ATTRIBUTES),
        ("one more", (0, 1, [])),
        ("one fewer", (1, 0, [])),
        ("background", (0, 0, ["background"])),
        ("places exchanged", (2, 2, [])),
        ("colours exchanged", (2, 2, [])),
    ],
)
def test_a_wrong_caption_is_wrong_by_one_thing(name, expected) -> None:
    pairs = [(c.right, c.wrong[name]) for c in CAPTIONED if name in c.wrong]
    assert len(pairs) > 40
    for right, wrong in pairs:
        assert changes(told(right), told(wrong)) == expected
        if name.endswith("s exchanged"):
            assert sorted(right.split()) == sorted(wrong.split())
            other = [a for a in ATTRIBUTES if a != name.removesuffix("s exchanged")]
            assert looks(told(right), other) == looks(told(wrong), other)


def looks(reading: Reading, attributes: list[str]) -> list[list[str]]:
    return sorted([getattr(item, name) for name in attributes] for item in reading.items)


def test_the_right_caption_tells_the_scene_and_all_depend_on_the_seed() -> None:
    for c in CAPTIONED:
        assert told(c.right).scene == c.scene
        assert c.scene.split == "test"
        assert RANDOM in c.wrong
    assert set().union(*(c.wrong for c in CAPTIONED)) == set(WRONG)
    assert caption(3, seed=0) == CAPTIONED[3]
    assert caption(3, seed=1) != CAPTIONED[3]


def test_the_area_is_that_of_all_pairs_of_scores() -> None:
    rng = np.random.default_rng(0)
    right, wrong = rng.normal(1, 1, 40).round(1), rng.normal(0, 1, 40).round(1)

    def by_hand(rows) -> float:
        pairs = [(right[i], wrong[j]) for i in rows for j in rows]
        return float(np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs]))

    # A scene that is drawn twice counts as if it stood there twice.
    weights = np.stack([np.ones(40), np.eye(40)[0] * 2 + np.eye(40)[1]])
    expected = [by_hand(range(40)), by_hand([0, 0, 1])]
    assert area(right, wrong, weights) == pytest.approx(expected)


def test_a_scorer_blind_to_places_is_shown_to_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(captions, "CLIP", "bench_helpers:WordCounter")
    asked = BenchSettings(weights="tiny", out=tmp_path, scenes=40)
    part = captions.measure_captions(asked, lambda line: None)
    shares = {row[0].text: row[2].text.split(" [")[0] for row in part.tables[0].rows}
    # Equal scores count half: the planted scorer reads colours and shapes alone.
    for unseen in ("size", "place", "places exchanged", "background"):
        assert shares[unseen] == "0.500"
    for seen in ("colour", "shape"):
        assert shares[seen] == "1.000"
    assert part.bars[0].state == "reached"
