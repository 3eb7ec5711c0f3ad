"""Requests as prompts of the judge: tiles of images, token ids, and the budget of both.

Tiles follow `dynamic_preprocess` and `build_transform` (main.py, Lillianwei-h/MMIE@eb0fd6e;
the same in OpenGVLab/InternVL): the grid whose shape is closest to the image's, bicubic
resizing to it, and the whole image as a thumbnail. Images come from
`plait.generators.images`, upright and with transparency over white, where upstream drops
both silently.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

from plait.generators.base import Failure, Skip
from plait.generators.content import empty
from plait.generators.document import Image, Request, Text
from plait.generators.images import ImageError, decode
from plait.scorers.internvl.models import JudgeModel
from plait.scorers.internvl.settings import MmieScoreSettings
from plait.scorers.internvl.tokenizer import (
    IMAGE_TOKEN,
    conversation,
    find_spelled_controls,
    text_for_people,
    with_control_tokens,
)

Grid = tuple[int, int]
"""Columns and rows of tiles."""


@cache
def grids(least: int, most: int) -> tuple[Grid, ...]:
    """Return all grids of `least` to `most` tiles, the smaller ones first."""
    sides = range(1, most + 1)
    shapes = [grid for grid in product(sides, sides) if least <= math.prod(grid) <= most]
    return tuple(sorted(shapes, key=math.prod))


def closest_grid(size: tuple[int, int], least: int, most: int, side: int) -> Grid:
    """Return the grid whose shape is closest to that of an image of `size` (width, height).

    Of grids of equal shape the larger one is used while the image has more than half
    of its pixels. `side` is that of a tile, in pixels.
    """
    width, height = size
    best = (1, 1)
    least_gap = math.inf
    for grid in grids(least, most):
        gap = abs(width / height - grid[0] / grid[1])
        larger = width * height > 0.5 * side * side * math.prod(grid)
        if gap < least_gap or (gap == least_gap and larger):
            best = grid
            least_gap = gap
    return best


def count(grid: Grid, thumbnail: bool) -> int:
    """Return the number of tiles of an image in that grid, with its thumbnail."""
    tiles = math.prod(grid)
    return tiles + 1 if thumbnail and tiles > 1 else tiles


def cut(image: Pillow.Image, grid: Grid, side: int, thumbnail: bool) -> Tensor:
    """Return the tiles of an RGB image, row by row: grey levels (tiles, side, side, 3)."""
    columns, rows = grid
    scaled = image.resize((side * columns, side * rows), Pillow.Resampling.BICUBIC)
    tiles = []
    for y in range(0, side * rows, side):
        for x in range(0, side * columns, side):
            tiles.append(scaled.crop((x, y, x + side, y + side)))
    if len(tiles) < count(grid, thumbnail):
        tiles.append(image.resize((side, side), Pillow.Resampling.BICUBIC))
    return torch.from_numpy(np.stack([np.asarray(tile) for tile in tiles]))


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens of one prompt and its reply."""

    grids: tuple[Grid, ...]
    """Of each image, in order."""
    tiles: tuple[int, ...]
    """Of each image, the thumbnail included."""
    max_tiles: int
    """The most tiles an image was allowed, without its thumbnail."""
    prompt: int
    """Tokens of the prompt, images included."""
    reply: int
    """Most tokens of the reply; below 1 where the prompt fills the model."""


def budget_of(
    sizes: Sequence[tuple[int, int]],
    words: int,
    settings: MmieScoreSettings,
    *,
    new_tokens: int,
    side: int,
    tile_tokens: int,
    positions: int,
) -> Budget:
    """The budget of a prompt of `words` tokens and images of `sizes` (width, height).

    Under `fit_context` the tile maximum of all images is lowered, one by one, until the
    prompt and `reply_room` fit the context, and the reply is held within it; where even
    the fewest tiles do not fit, those are used and the context is exceeded.
    `new_tokens` is the longest reply, `side` a tile's in pixels, `positions` the most
    tokens the model can hold.
    """
    room = settings.context - settings.reply_room
    # The first maximum that fits, from the most; else the last one tried.
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


class DecodedImages:
    """The images of one batch, each decoded once."""

    def __init__(self, requests: Iterable[Request], threads: Executor) -> None:
        self._decoded: dict[str, Future[Pillow.Image]] = {}
        for request in requests:
            for image in request.images:
                if image.digest not in self._decoded:
                    self._decoded[image.digest] = threads.submit(decode, image)

    def __call__(self, image: Image) -> Pillow.Image:
        """Return the image; ImageError when it cannot be read."""
        return self._decoded[image.digest].result()


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """One request, ready to be read by the model."""

    ids: tuple[int, ...]
    """With as many image tokens for each image as its tiles take."""
    images: tuple[Image, ...]
    sizes: tuple[tuple[int, int], ...]
    """Width and height of each image, in pixels."""
    budget: Budget
    shown: str
    """For people: the template filled in, with a mark for each image."""
    spelled: tuple[str, ...]
    """Control tokens whose names the texts spell out."""


class PromptWriter:
    """Writes the prompts of a judge, for replies of at most `new_tokens`."""

    def __init__(
        self, judge: JudgeModel, settings: MmieScoreSettings, new_tokens: int
    ) -> None:
        self._judge = judge
        self._settings = settings
        self._new_tokens = new_tokens
        self._image_id = judge.tokenizer.id(IMAGE_TOKEN)

    def __call__(
        self, request: Request, decoded: DecodedImages
    ) -> JudgePrompt | Skip | Failure:
        """Return the prompt of a request, or why there is none."""
        content: list[Text | Image] = []
        for turn in request.turns:
            if turn.role != "system":
                content += turn.content
        if failure := empty(content):
            return failure
        try:
            sizes = tuple(decoded(image).size for image in request.images)
        except ImageError as error:
            return Failure(str(error))
        parts = conversation(request.turns, self._settings.system)
        ids = self._judge.tokenizer.encode(with_control_tokens(parts))
        judge = self._judge
        budget = budget_of(
            sizes,
            len(ids) - len(sizes),
            self._settings,
            new_tokens=self._new_tokens,
            side=judge.tile_side,
            tile_tokens=judge.tile_tokens,
            positions=judge.positions,
        )
        if budget.reply < 1:
            return Skip(self._too_long(budget))
        spelled = find_spelled_controls(request.turns, judge.tokenizer.names)
        return JudgePrompt(
            ids=self._repeat_image_tokens(ids, budget.tiles),
            images=request.images,
            sizes=sizes,
            budget=budget,
            shown=text_for_people(parts),
            spelled=tuple(spelled),
        )

    def _repeat_image_tokens(
        self, ids: Iterable[int], tiles: Iterable[int]
    ) -> tuple[int, ...]:
        """Return ids with each image's token once for every token of its tiles."""
        of_images = iter(tiles)
        repeated: list[int] = []
        for token in ids:
            is_image = token == self._image_id
            times = next(of_images) * self._judge.tile_tokens if is_image else 1
            repeated += [token] * times
        return tuple(repeated)

    def _too_long(self, budget: Budget) -> str:
        images = self._judge.tile_tokens * sum(budget.tiles)
        return (
            f"the prompt takes {budget.prompt} tokens ({len(budget.tiles)} images in "
            f"{sum(budget.tiles)} tiles of {self._judge.tile_tokens}, and "
            f"{budget.prompt - images} of text); the model holds "
            f"{self._judge.positions}, the reply included"
        )
