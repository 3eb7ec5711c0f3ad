"""The picture encoder: pictures as upstream preprocesses them, then vectors of a prompt.

Two of upstream's programs differ: examples/playground.py makes pictures square with white
margins, VIST's evaluation (train_eval.py) scales the shorter side and crops.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image as Pillow
from torch import Tensor, nn

from generators.document import Image
from generators.pictures import decode

MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)
"""CLIP's, by channel."""
_LONGEST = 8192
"""Longer pictures are scaled down first: their margins would make huge squares."""


def encoder_pixels(image: Image, side: int, fit: Literal["pad", "crop"]) -> Tensor:
    """The encoder's input: (3, side, side), float32, normalised.

    Raises PictureError for a picture that cannot be decoded.
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


_LAVIS_NORM = 1e-5
"""Epsilon of `ln_vision` (blip2.py); transformers uses that of the ViT, 1e-6."""
_MAX_BATCH = 16
"""Maximum number of pictures in one pass."""


class PictureEncoder(nn.Module):
    """EVA-ViT-g and Q-Former of BLIP-2 (arXiv:2301.12597), and MiniGPT-4's projection.

    Parameters have the names of transformers' `Blip2Model`, and `llama_proj`.
    """

    def __init__(self, vision: Any, qformer: Any, queries: int, width: int) -> None:
        """Take the configurations of both parts; `width` is that of the language model."""
        super().__init__()
        from transformers import Blip2QFormerModel, Blip2VisionModel

        self.vision_model = Blip2VisionModel(vision)
        self.vision_model.post_layernorm.eps = _LAVIS_NORM
        self.query_tokens = nn.Parameter(torch.empty(1, queries, qformer.hidden_size))
        self.qformer = Blip2QFormerModel(qformer)
        self.llama_proj = nn.Linear(qformer.hidden_size, width)
        self.side: int = vision.image_size

    @torch.inference_mode()
    def forward(self, pixels: Tensor) -> Tensor:
        """Vectors (pictures, queries, width) of pixels (pictures, 3, side, side)."""
        parts = torch.split(pixels.to(self.query_tokens), _MAX_BATCH)
        return torch.cat([self._encoded(part) for part in parts])

    def _encoded(self, pixels: Tensor) -> Tensor:
        features = self.vision_model(pixel_values=pixels).last_hidden_state
        queries = self.query_tokens.expand(len(pixels), -1, -1)
        outputs = self.qformer(query_embeds=queries, encoder_hidden_states=features)
        projected: Tensor = self.llama_proj(outputs.last_hidden_state)
        return projected
