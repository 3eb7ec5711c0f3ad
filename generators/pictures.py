"""Encoded pictures in, RGB pixels out, and back.

Every stage reads pictures through `decode`, so that a rotated phone photo, a palette
GIF or a CMYK scan looks the same to every model and every judge.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow
from PIL import ImageOps, UnidentifiedImageError

from generators.document import Image

MAX_PIXELS = 100_000_000
"""Larger pictures are refused as decompression bombs."""


class PictureError(ValueError):
    """Bytes that cannot be read as a picture; the message says why."""


def decode(image: Image | bytes) -> Pillow.Image:
    """The picture as 8-bit RGB, upright, transparency over white.

    Raises PictureError for bytes that are no picture, truncated ones, and pictures of
    more than MAX_PIXELS pixels.
    """
    data = image if isinstance(image, bytes) else image.read()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            picture = Pillow.open(io.BytesIO(data))
            _refuse_bombs(picture.size)
            return _as_rgb(ImageOps.exif_transpose(picture))
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError("the bytes are in no known picture format") from None
    except Exception as error:
        # Pillow's decoders raise whatever their format raises: struct.error,
        # SyntaxError, EOFError, zlib.error, OSError.
        raise PictureError(f"the picture cannot be decoded: {error}") from error


def _refuse_bombs(size: tuple[int, int]) -> None:
    width, height = size
    if width * height > MAX_PIXELS:
        raise PictureError(
            f"the picture has {width} x {height} pixels; at most "
            f"{MAX_PIXELS // 10**6} million are read (decompression bomb)"
        )


def _as_rgb(picture: Pillow.Image) -> Pillow.Image:
    if picture.mode.startswith("I") or picture.mode == "F":
        picture = _eight_bit(picture)
    if picture.mode in ("LA", "PA", "RGBA", "RGBa", "La") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Pillow.new("RGBA", picture.size, "white")
        picture = Pillow.alpha_composite(white, picture)
    return picture.convert("RGB")


def _eight_bit(picture: Pillow.Image) -> Pillow.Image:
    """16-bit grey to 8 bits; wider integers and floats are scaled to their own range."""
    values = np.asarray(picture).astype(np.float64)
    top = 65535.0 if values.min() >= 0 and 255 < values.max() <= 65535 else 255.0
    if values.min() < 0 or values.max() > 65535:
        low = values.min()
        values, top = values - low, max(values.max() - low, 1.0)
    return Pillow.fromarray(np.rint(values / top * 255).astype(np.uint8))


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """Drawn pixels; the worker encodes them while the next batch computes."""

    pixels: npt.NDArray[np.uint8]
    """(height, width, 3)"""

    def encoded(self) -> Image:
        """The picture as PNG, lossless; compressed for speed, not for size."""
        file = io.BytesIO()
        Pillow.fromarray(self.pixels).save(file, "PNG", compress_level=1)
        return Image.of(file.getvalue())


def encode(picture: Pillow.Image) -> Image:
    """`picture` as PNG."""
    return Drawing(np.asarray(picture.convert("RGB"))).encoded()
