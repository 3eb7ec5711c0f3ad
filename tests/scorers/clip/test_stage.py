"""The stage's numbers: a float64 formula, batches, memory, and broken documents."""

from __future__ import annotations

import functools
import json
import math

import numpy as np
import pytest
import torch
from clipscore_helpers import (
    LONG,
    ClipScore,
    candidate,
    cosines,
    picture,
    pixels,
    png,
    reference_cosine,
    score,
    tiny,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from open_clip.transform import image_transform

from plait.generators.base import Result
from plait.generators.document import Image
from plait.scorers.clip.text import ClipText

pytestmark = pytest.mark.models

TOLERANCE = 2e-6
"""Of cosines: float32 towers against float64 ones, or other batch shapes."""

TEXTS = ["a cat on a table", "The QUICK brown fox; jumps.", "rain over the hills", LONG]
PREFIX = "A photo depicts "


def test_scores_are_hessels_formula_in_float64():
    segments = [s for i, text in enumerate(TEXTS) for s in (text, picture(i, (64, 48)))]
    result = tiny()([candidate(*segments)])[0]
    expected = [
        reference_cosine(tiny(), PREFIX + text, pixels(i, (64, 48)))
        for i, text in enumerate(TEXTS)
    ]
    assert np.ptp(expected) > 0.05
    np.testing.assert_allclose(cosines(result), expected, atol=TOLERANCE)
    hessel = np.mean([2.5 * max(e, 0) for e in expected])
    assert result.value.value == pytest.approx(hessel, abs=1e-5)
    parts = result.value.parts
    assert parts["clipscore_hessel"] == result.value.value
    assert parts["cosine_100"] == pytest.approx(100 * np.mean(expected), abs=1e-3)
    assert (parts["scored_pairs"], parts["unscored_pairs"]) == (4, 0)
    assert json.loads(json.dumps(parts, allow_nan=False)) == parts
    *_, pair = parts["pairs"]
    assert pair["clipscore_hessel"] == 2.5 * max(pair["cos"], 0)
    assert pair["cosine_100"] == 100 * pair["cos"]
    assert LONG.startswith(pair["text"])
    assert len(pair["text"]) <= 100
    assert (pair["image"], pair["windows"]) == (3, 1)


def negative_pair() -> tuple[str, Image]:
    """A text and an image whose cosine is below zero."""
    for i in range(200):
        text, image = f"{i} dogs and {2 * i} cats", picture(i)
        if score(tiny(), text, image).parts["pairs"][0]["cos"] < -0.01:
            return text, image
    raise AssertionError("the toy has no negative pair")


def test_negative_cosines_are_clamped_pair_by_pair_in_hessels_scale_only():
    text, image = negative_pair()
    mixed = score(tiny(), text, image, TEXTS[0], picture(0))
    below, above = (p["cos"] for p in mixed.parts["pairs"])
    assert below < 0 < above
    assert mixed.value == pytest.approx(2.5 * above / 2)
    assert mixed.parts["cosine_100"] == pytest.approx(50 * (below + above))


def test_windows_of_long_text_are_averaged_or_the_best_counts():
    windows = ClipText().read(LONG, PREFIX).windows
    batch = torch.zeros(len(windows), 77, dtype=torch.long)
    for row, window in zip(batch, windows, strict=True):
        row[: len(window)] = torch.tensor(window)
    transform = image_transform(32, is_train=False)
    with torch.no_grad():
        texts = tiny().model.encode_text(batch, normalize=True).numpy()
        vector = tiny().model.encode_image(transform(pixels(1))[None], normalize=True)[0]
    mean = score(tiny(long_text="mean"), LONG, picture(1)).parts["pairs"][0]
    best = score(tiny(long_text="max"), LONG, picture(1)).parts["pairs"][0]
    total = texts.sum(0)
    expected = total @ vector.numpy() / math.hypot(*total)
    assert mean["cos"] == pytest.approx(expected, abs=TOLERANCE)
    assert best["cos"] == pytest.approx(max(texts @ vector.numpy()), abs=TOLERANCE)
    assert best["cos"] > mean["cos"]
    assert mean["windows"] == best["windows"] == len(windows) > 4


CANDIDATES = [
    candidate("a cat", picture(1), "two dogs", picture(2)),
    candidate(picture(3), "a red lamp on the table"),
    candidate(LONG, picture(1)),
    candidate("nothing to see"),
    candidate(picture(4)),
    candidate("broken", Image.of(b"no picture")),
    candidate("a cat", picture(5, (90, 20)), picture(1)),
]


@functools.cache
def alone(i: int):
    """The outcome of a document by itself, with nothing remembered."""
    stage = tiny(forward_size=1, remembered=0, long_text="mean")
    return stage([CANDIDATES[i]])[0]


def assert_same(outcome, expected) -> None:
    assert type(outcome) is type(expected)
    if not isinstance(outcome, Result):
        assert outcome == expected
        return
    assert outcome.value.value == pytest.approx(expected.value.value, abs=1e-5)
    np.testing.assert_allclose(cosines(outcome), cosines(expected), atol=TOLERANCE)


@settings(max_examples=8)
@given(
    st.lists(st.integers(0, len(CANDIDATES) - 1), max_size=9),
    st.sampled_from([1, 2, 64]),
    st.sampled_from([0, 3]),
)
def test_outcomes_depend_on_no_neighbour_order_or_batch_size(order, forward, remembered):
    stage = tiny(forward_size=forward, remembered=remembered, long_text="mean")
    for outcome, i in zip(stage([CANDIDATES[i] for i in order]), order, strict=True):
        assert_same(outcome, alone(i))


def test_forward_passes_are_bounded_and_memory_forgets_the_oldest():
    stage = ClipScore(forward_size=4, remembered=2)
    sizes: list[int] = []
    stage.model.visual.register_forward_pre_hook(
        lambda _, given: sizes.append(len(given[0]))
    )
    stage([candidate("a", *(picture(i) for i in range(10)))])
    assert sizes == [4, 4, 2]
    stage([candidate("a", picture(9), picture(8))])
    assert sizes == [4, 4, 2]
    stage([candidate("a", picture(0))])
    stage([candidate("a", picture(8)), candidate("a", picture(9))])
    assert sizes == [4, 4, 2, 1, 1]


@pytest.mark.parametrize(
    "size", [(1, 1), (1, 40), (3, 2), (700, 5), (5, 700), (400, 25), (32, 33)]
)
def test_tiny_and_elongated_pictures(size):
    """The middle is cut out of elongated ones; it is what open_clip's crop would keep."""
    value = score(tiny(), "a cat", png(pixels(7, size))).parts["pairs"][0]["cos"]
    expected = reference_cosine(tiny(), PREFIX + "a cat", pixels(7, size))
    assert value == pytest.approx(expected, abs=2e-3 if max(size) >= 40 else TOLERANCE)
