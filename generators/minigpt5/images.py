"""Pictures in, as upstream prepares them for EVA-ViT-g.

Two programs of upstream differ: examples/playground.py makes pictures square with white
margins, VIST's evaluation (train_eval.py) scales the shorter side and cuts the rest off.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor

from generators.document import Image
from generators.pictures import decode

MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)
"""CLIP's, by channel."""
_LONGEST = 8192
"""Longer pictures are averaged down first, lest margins make squares of gigabytes."""


def prepared(image: Image, side: int, fit: Literal["pad", "crop"]) -> Tensor:
    """What the encoder reads: (3, side, side), float32, normalised.

    Raises PictureError for what `decode` refuses.
    """
    picture = _shrunk(decode(image))
    square = padded(picture, side) if fit == "pad" else cropped(picture, side)
    values = torch.from_numpy(np.asarray(square).copy()).permute(2, 0, 1).float() / 255
    mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in (MEAN, DEVIATION))
    return (values - mean) / deviation


def padded(picture: Pillow.Image, side: int) -> Pillow.Image:
    """The whole picture in the middle of a white square, scaled to `side` pixels."""
    longest = max(picture.size)
    square = Pillow.new("RGB", (longest, longest), (255, 255, 255))
    left, top = ((longest - length) // 2 for length in picture.size)
    square.paste(picture, (left, top))
    return square.resize((side, side), Pillow.Resampling.BILINEAR)


def cropped(picture: Pillow.Image, side: int) -> Pillow.Image:
    """The centre square, the shorter side scaled to `side` pixels.

    The long side is truncated and the margin rounded, as torchvision does.
    """
    shortest = min(picture.size)
    width, height = (side * length // shortest for length in picture.size)
    scaled = picture.resize((width, height), Pillow.Resampling.BILINEAR)
    left, top = (round((length - side) / 2) for length in (width, height))
    return scaled.crop((left, top, left + side, top + side))


def _shrunk(picture: Pillow.Image) -> Pillow.Image:
    factor = math.ceil(max(picture.size) / _LONGEST)
    return picture if factor == 1 else picture.reduce(factor)
