"""How pictures are cut into tiles."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from scorers.internvl.models import normalised
from scorers.internvl.prompts import closest_grid, count, cut, grids

SIDES = st.integers(1, 3000)


@pytest.mark.parametrize(
    ("size", "tiles"),
    [
        ((512, 512), 1),
        ((633, 633), 1),
        ((640, 640), 5),
        ((950, 950), 5),
        ((1024, 1024), 10),
        ((460, 345), 13),
        ((640, 480), 13),
        ((500, 333), 7),
        ((1, 5000), 13),
        ((5000, 1), 13),
    ],
)
def test_tiles_of_the_usual_sizes(size, tiles):
    """256 tokens a tile: what a picture costs of a context of 4,096."""
    assert count(closest_grid(size, 1, 12, 448), thumbnail=True) == tiles


@given(SIDES, SIDES, st.integers(1, 12))
def test_no_grid_is_closer(width, height, most):
    chosen = closest_grid((width, height), 1, most, 448)
    assert 1 <= math.prod(chosen) <= most
    gap = abs(width / height - chosen[0] / chosen[1])
    assert all(abs(width / height - c / r) >= gap for c, r in grids(1, most))


@given(SIDES, SIDES, st.integers(1, 12))
def test_more_pixels_never_get_fewer_tiles(width, height, most):
    small = closest_grid((width, height), 1, most, 448)
    large = closest_grid((2 * width, 2 * height), 1, most, 448)
    assert math.prod(large) >= math.prod(small)


def test_the_larger_of_equal_shapes_needs_half_its_pixels():
    half = 448 * 448 * 4 / 2
    side = math.isqrt(int(half))
    assert closest_grid((side, side), 1, 12, 448) == (1, 1)
    assert closest_grid((side + 1, side + 1), 1, 12, 448) == (2, 2)


def test_fewest_tiles_are_kept():
    assert math.prod(closest_grid((100, 100), 4, 12, 448)) >= 4
    assert count((1, 1), thumbnail=True) == 1
    assert count((2, 1), thumbnail=True) == 3
    assert count((2, 1), thumbnail=False) == 2


def test_tiles_run_row_by_row_and_the_whole_comes_last():
    colours = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
    flat = np.repeat(np.repeat(colours, 8, 0), 8, 1)
    picture = Pillow.fromarray(np.stack([flat] * 3, axis=-1))
    tiles = cut(picture, (3, 2), 8, thumbnail=True)
    assert tiles.shape == (7, 8, 8, 3)
    red = tiles[..., 0]
    assert red[:6, 4, 4].tolist() == colours.ravel().tolist()
    assert red[6, 0, 0] < 20 < 180 < red[6, 7, 7]
    assert len(cut(picture, (3, 2), 8, thumbnail=False)) == 6


def test_values_by_the_formula_in_float64():
    pixels = np.random.RandomState(0).randint(0, 256, (2, 5, 5, 3)).astype(np.uint8)
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    exact = ((pixels / 255 - mean) / deviation).transpose(0, 3, 1, 2)
    ours = normalised(torch.from_numpy(pixels))
    np.testing.assert_allclose(ours, exact, atol=1e-6)
