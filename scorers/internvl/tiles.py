"""Pictures as InternVL reads them: cut into square tiles, with the whole as a thumbnail.

The rule of `dynamic_preprocess` and `build_transform` (main.py, Lillianwei-h/MMIE@eb0fd6e;
the same in OpenGVLab/InternVL): the grid whose shape is closest to the picture's, bicubic
resizing to it, ImageNet's mean and deviation. Pictures come from `generators.pictures`,
upright and with transparency over white, where upstream drops both silently.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)

Grid = tuple[int, int]
"""Columns and rows of tiles."""


@cache
def grids(least: int, most: int) -> tuple[Grid, ...]:
    """All grids of `least` to `most` tiles, the smaller ones first."""
    sides = range(1, most + 1)
    found = [(c, r) for c in sides for r in sides if least <= c * r <= most]
    return tuple(sorted(found, key=math.prod))


def closest_grid(size: tuple[int, int], least: int, most: int, side: int) -> Grid:
    """The grid whose shape is closest to that of a picture of `size` (width, height).

    Of grids of equal shape the larger one is taken while the picture has more than half
    of its pixels. `side` is that of a tile, in pixels.
    """
    width, height = size
    best, least_gap = (1, 1), math.inf
    for grid in grids(least, most):
        gap = abs(width / height - grid[0] / grid[1])
        larger = width * height > 0.5 * side * side * math.prod(grid)
        if gap < least_gap or (gap == least_gap and larger):
            best, least_gap = grid, gap
    return best


def count(grid: Grid, thumbnail: bool) -> int:
    """Tiles of a picture in that grid."""
    tiles = math.prod(grid)
    return tiles + 1 if thumbnail and tiles > 1 else tiles


def cut(picture: Pillow.Image, grid: Grid, side: int, thumbnail: bool) -> Tensor:
    """The tiles of an RGB picture, row by row: grey levels (tiles, side, side, 3)."""
    columns, rows = grid
    scaled = picture.resize((side * columns, side * rows), Pillow.Resampling.BICUBIC)
    corners = [(c * side, r * side) for r in range(rows) for c in range(columns)]
    tiles = [scaled.crop((x, y, x + side, y + side)) for x, y in corners]
    if len(tiles) < count(grid, thumbnail):
        tiles.append(picture.resize((side, side), Pillow.Resampling.BICUBIC))
    return torch.from_numpy(np.stack([np.asarray(tile) for tile in tiles]))


def normalised(tiles: Tensor) -> Tensor:
    """Grey levels as float32 (tiles, 3, side, side) with ImageNet's mean and deviation."""
    shares = tiles.permute(0, 3, 1, 2).float() / 255
    mean, deviation = (shares.new_tensor(v).view(1, 3, 1, 1) for v in (MEAN, DEVIATION))
    return (shares - mean) / deviation
