"""Images as BAGEL reads them: sizes that its patches divide, and patches in rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

MOST_PIXELS = 14 * 14 * 9 * 1024
"""Of a resized image (`ImageTransform`, data/transforms.py of ByteDance-Seed/Bagel)."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The sides that a resized image may have, in pixels."""

    longest: int
    shortest: int
    """Where the longest allows it."""
    stride: int
    """Divides both sides."""

    @property
    def across(self) -> int:
        """Patches along the longest side, and so in a row of the table of places."""
        return self.longest // self.stride

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """Return width and height of an image that is resized to these sides.

        As `MaxLongEdgeMinShortEdgeResize` of upstream's data/transforms.py rounds.
        """
        scale = min(self.longest / max(width, height), 1.0)
        scale = max(scale, self.shortest / min(width, height))
        width, height = self._scale(width, height, scale)
        if width * height > MOST_PIXELS:
            # As there: by the ratio of areas, not by its root.
            width, height = self._scale(width, height, MOST_PIXELS / (width * height))
        if max(width, height) > self.longest:
            scale = self.longest / max(width, height)
            width, height = self._scale(width, height, scale)
        return width, height

    def resize(self, image: Pillow.Image) -> Pillow.Image:
        """Return the image at these sides."""
        return image.resize(self.fit(*image.size), Pillow.Resampling.BICUBIC)

    def _scale(self, width: int, height: int, scale: float) -> tuple[int, int]:
        return self._round(round(width * scale)), self._round(round(height * scale))

    def _round(self, side: int) -> int:
        """Return the nearest multiple of the stride, of one at least."""
        return max(self.stride, round(side / self.stride) * self.stride)


def to_tensor(image: Pillow.Image) -> Tensor:
    """Return pixels (3, height, width) in [-1, 1], float32."""
    values = torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1)
    return (values.float() / 255 - 0.5) / 0.5


def to_patches(image: Tensor, patch: int) -> Tensor:
    """Return (channels, height, width) as patches (patches, values), by row and column.

    The values of a patch are by row, column, then channel.
    """
    channels, height, width = image.shape
    squares = image.reshape(channels, height // patch, patch, width // patch, patch)
    # (rows of patches, patches of a row, rows, columns, channels).
    by_patch = squares.permute(1, 3, 2, 4, 0)
    return by_patch.reshape(-1, patch * patch * channels)


def from_patches(patches: Tensor, rows: int, patch: int) -> Tensor:
    """Return the (channels, height, width) that `to_patches` was given."""
    grid = patches.view(rows, -1, patch, patch, patches.shape[1] // patch**2)
    # (channels, rows of patches, rows, patches of a row, columns).
    by_channel = grid.permute(4, 0, 2, 1, 3)
    return by_channel.flatten(3, 4).flatten(1, 2)


def places_of(rows: int, columns: int, across: int) -> Tensor:
    """Return the place of each patch in a table of `across` places a row."""
    return (torch.arange(rows)[:, None] * across + torch.arange(columns)).flatten()
