"""Pictures in, as upstream prepares them for the VQ encoder.

The rule of `ImageTokenizer` (image_tokenizer.py of GAIR-NLP/anole): blend on white and
truncate, shorter side to the resolution by Lanczos with both sides rounded, centre crop,
scale to [-1, 1]. Hugging Face's processor truncates the long side and scales otherwise.
"""

from __future__ import annotations

import contextlib
import io

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as Pillow
from PIL import ImageOps

from generators.document import Image
from generators.pictures import MAX_PIXELS, PictureError, decode


def prepared(image: Image, resolution: int) -> torch.Tensor:
    """What the encoder reads: (3, resolution, resolution), float32 in [-1, 1].

    Raises PictureError for what `decode` refuses, and for pictures so long that they
    would exceed MAX_PIXELS once their shorter side has `resolution` pixels.
    """
    picture = cropped(on_white(image), resolution)
    values = np.asarray(picture) / 255.0 * 2 - 1
    return torch.from_numpy(values).permute(2, 0, 1).float()


def on_white(image: Image) -> Pillow.Image:
    """The picture as RGB; transparency is blended on white and truncated to 8 bits."""
    opaque = decode(image)
    layered = _rgba(image)
    if layered is None or (layered[:, :, 3] == 255).all():
        return opaque
    alpha = layered[:, :, 3:] / 255.0
    blended = (1 - alpha) * 255 + alpha * layered[:, :, :3]
    return Pillow.fromarray(blended.astype(np.uint8))


def _rgba(image: Image) -> npt.NDArray[np.uint8] | None:
    """The upright picture with its transparency; None where it has none."""
    picture: Pillow.Image = Pillow.open(io.BytesIO(image.read()))
    layered = picture.mode in ("RGBA", "LA", "PA", "RGBa", "La")
    if not layered and (picture.mode != "P" or "transparency" not in picture.info):
        return None
    # Broken metadata says nothing of the pixels, which `decode` has read already.
    with contextlib.suppress(Exception):
        picture = ImageOps.exif_transpose(picture)
    return np.asarray(picture.convert("RGBA"))


def cropped(picture: Pillow.Image, resolution: int) -> Pillow.Image:
    """The centre square of the picture, scaled to `resolution` pixels a side."""
    scale = resolution / min(picture.size)
    width, height = (round(scale * side) for side in picture.size)
    if width * height > MAX_PIXELS:
        raise PictureError(
            f"the picture is too long for its width: {picture.width} x {picture.height} "
            f"pixels would become {width} x {height}; at most {MAX_PIXELS:,} are read"
        )
    scaled = picture.resize((width, height), Pillow.Resampling.LANCZOS)
    left, top = (width - resolution) // 2, (height - resolution) // 2
    return scaled.crop((left, top, left + resolution, top + resolution))
