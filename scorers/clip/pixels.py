"""Pictures as a CLIP checkpoint was trained to see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict
from PIL import Image as Pillow

Transform = Callable[[Pillow.Image], torch.Tensor]
"""An RGB picture to float32 (3, height, width), normalised."""

MAX_ASPECT = 16
"""Of a longer picture only the middle is resized: the centre crop keeps no more."""


def transform_of(size: tuple[int, int], about: Mapping[str, Any]) -> Transform:
    """open_clip's evaluation transform for towers of `size` (height, width).

    `about` holds those fields of open_clip's `PreprocessCfg` that differ from OpenAI's:
    shorter side resized with Pillow's bicubic filter, centre cropped.
    """
    merged = {**merge_preprocess_dict(PreprocessCfg(), dict(about)), "size": size}
    transform = image_transform_v2(PreprocessCfg(**merged), is_train=False)
    if merged["resize_mode"] == "shortest":
        transform.transforms.insert(0, middle)
    return transform  # type: ignore[no-any-return]


def middle(picture: Pillow.Image) -> Pillow.Image:
    """`picture`, cut to MAX_ASPECT around its centre.

    Resizing the shorter side of a 10 x 10,000,000 picture to 224 would take 150 GB.
    """
    width, height = picture.size
    longest = MAX_ASPECT * min(width, height)
    left, top = max(0, width - longest) // 2, max(0, height - longest) // 2
    if not left and not top:
        return picture
    return picture.crop((left, top, width - left, height - top))
