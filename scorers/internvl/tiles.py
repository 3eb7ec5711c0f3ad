"""Pictures as InternVL reads them: how many square tiles each gets, and their pixels.

The rule of `dynamic_preprocess` and `build_transform` (main.py, Lillianwei-h/MMIE@eb0fd6e;
the same in OpenGVLab/InternVL): the grid whose shape is closest to the picture's, bicubic
resizing to it, ImageNet's mean and deviation, with the whole picture as a thumbnail.
Pictures come from `generators.pictures`, upright and with transparency over white, where
upstream drops both silently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

from scorers.internvl.settings import MmieScoreSettings

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


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens of one prompt and its reply."""

    grids: tuple[Grid, ...]
    """Of each picture, in order."""
    tiles: tuple[int, ...]
    """Of each picture, the thumbnail included."""
    max_tiles: int
    """The most tiles a picture was allowed, without its thumbnail."""
    prompt: int
    """Tokens of the prompt, pictures included."""
    reply: int
    """Most tokens of the reply; below 1 where the prompt fills the model."""


def budgeted(
    sizes: Sequence[tuple[int, int]],
    words: int,
    settings: MmieScoreSettings,
    *,
    new_tokens: int,
    side: int,
    tile_tokens: int,
    positions: int,
) -> Budget:
    """The budget of a prompt of `words` tokens and pictures of `sizes` (width, height).

    Under `fit_context` the tile maximum of all pictures is lowered, one by one, until the
    prompt and `reply_room` fit the context, and the reply is held within it; where even
    the fewest tiles do not fit, those are taken and the context is exceeded.
    `new_tokens` is the longest reply, `side` a tile's in pixels, `positions` the most
    tokens the model can hold.
    """
    room = settings.context - settings.reply_room
    for most in range(settings.max_tiles, settings.min_tiles - 1, -1):
        grids = [closest_grid(size, settings.min_tiles, most, side) for size in sizes]
        tiles = tuple(count(grid, settings.thumbnail) for grid in grids)
        prompt = words + tile_tokens * sum(tiles)
        if not settings.fit_context or prompt <= room:
            break
    fits = settings.fit_context and prompt <= room
    longest = min(settings.context, positions) if fits else positions
    reply = min(new_tokens, longest - prompt)
    return Budget(tuple(grids), tiles, most, prompt, reply)
