"""How many tiles each picture gets, and how long the reply may be. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scorers.internvl.settings import MmieScoreSettings
from scorers.internvl.tiles import Grid, closest_grid, count


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
