"""What pipelines return, as one array of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

Floats = npt.NDArray[np.float32]


def pictures_of(output: Any, count: int) -> Floats:
    """The pictures of a pipeline's output, (n, height, width, 3), black 0 and white 1.

    Reads `.images` (most pipelines), `.image` (Kandinsky 5) and plain tuples, of PIL
    images, arrays or tensors. ValueError for anything else, such as videos, or for
    another number of pictures than `count`.
    """
    pictures = _array(_field(output))
    if pictures.ndim == 3:
        pictures = pictures[None]
    if pictures.ndim != 4 or pictures.shape[-1] != 3:
        raise ValueError(
            f"the pipeline returned an array of shape {pictures.shape}; pictures have the "
            "shape (number, height, width, 3)"
        )
    if len(pictures) != count:
        raise ValueError(f"the pipeline returned {len(pictures)} pictures for {count}")
    return pictures


def _field(output: Any) -> Any:
    for name in ("images", "image"):
        if (pictures := getattr(output, name, None)) is not None:
            return pictures
    if isinstance(output, tuple) and not hasattr(output, "_fields") and output:
        return output[0]
    kind = type(output)
    fields = ", ".join(output.keys()) if hasattr(output, "keys") else "neither"
    raise ValueError(
        f"{kind.__name__} holds no pictures: it needs a field 'images' or 'image', and has "
        f"{fields}"
    )


def _array(pictures: Any) -> Floats:
    if isinstance(pictures, Image.Image):
        return _bytes(pictures)[None]
    if isinstance(pictures, torch.Tensor):
        # Tensors have their channels first, as in diffusers' image processors.
        tensor = pictures.detach().float().cpu()
        return np.asarray(tensor.movedim(-3, -1) if tensor.ndim >= 3 else tensor)
    if isinstance(pictures, np.ndarray):
        values = pictures.astype(np.float32, copy=False)
        return values / np.float32(255) if pictures.dtype == np.uint8 else values
    if isinstance(pictures, Sequence) and pictures and not isinstance(pictures, str):
        return np.stack([_one(p) for p in pictures])
    raise ValueError(f"a {type(pictures).__name__} holds no pictures")


def _one(picture: Any) -> Floats:
    """One entry of a list; a batch of one counts as its only picture."""
    array = _array(picture)
    return array[0] if array.ndim == 4 and len(array) == 1 else array


def _bytes(picture: Image.Image) -> Floats:
    return np.asarray(picture.convert("RGB")).astype(np.float32) / np.float32(255)
