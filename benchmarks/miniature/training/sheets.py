"""Sheets of pictures, to be looked at while a model learns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor, uint8

Pictures = npt.NDArray[np.uint8]
"""(pictures, side, side, 3)."""


def sheet(rows: Sequence[Pictures], place: Path) -> None:
    """Pictures in rows as one PNG, twice as large; shorter rows are left out."""
    lines = [np.concatenate([*row], axis=1) for row in rows if len(row) == len(rows[0])]
    whole = Image.fromarray(np.concatenate(lines))
    place.parent.mkdir(parents=True, exist_ok=True)
    size = (2 * whole.width, 2 * whole.height)
    whole.resize(size, Image.Resampling.NEAREST).save(place)


def as_pictures(values: Tensor) -> Pictures:
    """Pictures of values (pictures, 3, side, side) from -1 to 1."""
    numbers = ((values + 1) * 127.5).round().clamp(0, 255).to(uint8)
    pictures: Pictures = numbers.permute(0, 2, 3, 1).numpy()
    return pictures
