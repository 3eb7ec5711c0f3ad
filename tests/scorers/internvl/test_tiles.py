"""How pictures are cut into tiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from scorers.internvl.models import normalised
from scorers.internvl.prompts import closest_grid, count, cut


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
