"""Encoded images to RGB pixels and back.

Every stage reads images through `decode`, so that a rotated phone photo, a palette
GIF or a CMYK scan looks the same to every model and every judge.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow
from PIL import ImageOps, UnidentifiedImageError

from plait.generators.document import Image
from plait.generators.errors import PlaitError
from plait.generators.files import LFS_POINTER

MAX_PIXELS = 89_478_485
"""Larger images are refused as decompression bombs; Pillow warns from here on."""

FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are read. Pillow knows more, but passes some to other programs (EPS)."""

# `decode` refuses what Pillow warns of, with a reason that names the image.
warnings.filterwarnings("ignore", category=Pillow.DecompressionBombWarning)

_PNG = b"\x89PNG"
_SMALL = 1 << 16


class ImageError(PlaitError, ValueError):
    """Bytes that cannot be read as an image; the message says why."""


class BombError(ImageError):
    """An image of more than MAX_PIXELS pixels."""


def decode(image: Image | bytes) -> Pillow.Image:
    """Return the image as 8-bit RGB, upright, transparency over white; its first frame.

    Raises ImageError for bytes that are not an image or a truncated one, and BombError
    for images of more than MAX_PIXELS pixels. Safe to call from several threads.
    """
    data = image if isinstance(image, bytes) else image.read()
    try:
        pil_image = Pillow.open(io.BytesIO(data), formats=FORMATS)
        width, height = pil_image.size
        if width * height > MAX_PIXELS:
            raise BombError(_bomb(f"{width} x {height}"))
        pil_image.load()
        return _as_rgb(_upright(pil_image))
    except ImageError:
        raise
    except Pillow.DecompressionBombError as error:
        # Pillow's own limit is higher, and its message begins with the count.
        raise BombError(_bomb(re.findall(r"\d+", str(error))[0])) from None
    except UnidentifiedImageError:
        raise ImageError(_unknown(data)) from None
    except Exception as error:
        # Pillow's decoders raise whatever their format raises: struct.error,
        # SyntaxError, EOFError, zlib.error, OSError.
        raise ImageError(f"the image cannot be decoded: {error}") from error


def _unknown(data: bytes) -> str:
    if not data:
        return "the file is empty"
    if data.startswith(LFS_POINTER):
        return "the file is a Git LFS pointer: run git lfs pull"
    return f"the bytes are in no known image format ({', '.join(FORMATS)})"


def _bomb(size: str) -> str:
    return f"the image has {size} pixels; at most {MAX_PIXELS:,} are read"


def _upright(pil_image: Pillow.Image) -> Pillow.Image:
    """Return the image turned as its EXIF data asks; broken data do not matter."""
    with contextlib.suppress(Exception):
        # Once it has been read: Pillow would write the rest again, which may fail.
        pil_image.getexif()
        pil_image.info.pop("exif", None)
        pil_image = ImageOps.exif_transpose(pil_image)
    return pil_image


def _as_rgb(pil_image: Pillow.Image) -> Pillow.Image:
    if pil_image.mode.startswith("I") or pil_image.mode == "F":
        pil_image = _eight_bit(pil_image)
    if pil_image.mode in ("LA", "PA", "RGBA", "RGBa") or "transparency" in pil_image.info:
        pil_image = pil_image.convert("RGBA")
        white = Pillow.new("RGBA", pil_image.size, "white")
        pil_image = Pillow.alpha_composite(white, pil_image)
    return pil_image.convert("RGB")


def _eight_bit(pil_image: Pillow.Image) -> Pillow.Image:
    """16-bit grey by its scale (65535 is white), however dark the image is.

    Wider integers and floats carry no scale: those within 0..65535 or 0..1 are taken by
    that scale, all others by their own range.
    """
    values = np.nan_to_num(np.asarray(pil_image).astype(np.float64))
    low = 0.0
    top = 1.0 if pil_image.mode == "F" else 65535.0
    if values.min() < low or values.max() > top:
        low = float(values.min())
        top = float(values.max())
    scaled = (values - low) / max(top - low, 1e-12) * 255
    return Pillow.fromarray(np.rint(scaled).astype(np.uint8))


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """Drawn pixels; the worker encodes them while the next batch computes."""

    pixels: npt.NDArray[np.uint8]
    """(height, width, 3)"""

    def encoded(self) -> Image:
        """Return the image as PNG, lossless; compressed for speed, not for size."""
        file = io.BytesIO()
        Pillow.fromarray(self.pixels).save(file, "PNG", compress_level=1)
        return Image.of(file.getvalue())


Picture = Image | Pillow.Image | npt.NDArray[Any] | Path | bytes
"""The forms in which people's own code has an image."""
PICTURE_FORMS = "PIL.Image, numpy array, pathlib.Path, bytes of a file"


def is_picture(value: object) -> TypeGuard[Picture]:
    """Return whether `value` is meant as an image; a text is none, not even a path's."""
    return isinstance(value, Image | Pillow.Image | np.ndarray | Path | bytes)


def image_of(picture: Picture) -> Image:
    """Return the image that a person's own code gives; ImageError says what is wrong.

    PIL images are upright afterwards, with transparency over white. Arrays are (height,
    width) or (height, width, 1, 3 or 4 channels), as uint8 from 0 to 255 or as floats from
    0 to 1. Files and bytes stay as they are.
    """
    if isinstance(picture, Image):
        return picture
    if isinstance(picture, Pillow.Image):
        return _encode(picture)
    if isinstance(picture, np.ndarray):
        return _encode(Pillow.fromarray(_as_bytes(picture)))
    if isinstance(picture, bytes):
        decode(picture)
        return Image.of(picture)
    try:
        return image_of(picture.read_bytes())
    except OSError as error:
        raise ImageError(f"the image {picture} cannot be read: {error.strerror}") from None
    except ImageError as error:
        raise ImageError(f"the image {picture}: {error}") from None


def _encode(pil_image: Pillow.Image) -> Image:
    """Return an image of a user's as PNG, upright and without transparency; ImageError."""
    try:
        upright = _as_rgb(_upright(pil_image.copy()))
    except Exception as error:  # as of `decode`: a file that PIL had not read yet
        raise ImageError(f"the image cannot be decoded: {error}") from error
    return Drawing(np.asarray(upright)).encoded()


def _as_bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return pixels from 0 to 255, (height, width) or with 3 or 4 channels; ImageError."""
    shape = values.shape
    flat = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
    if not flat or 0 in shape:
        raise ImageError(
            f"an array of shape {shape} is no image; valid: (height, width), or (height, "
            "width, channels) with 1, 3 or 4 channels"
        )
    values = values[:, :, 0] if shape[2:] == (1,) else values
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind != "f":
        raise ImageError(
            f"an array of {values.dtype} is no image; valid: uint8, and floats from 0 to 1"
        )
    low = float(values.min())
    high = float(values.max())
    # Written so that NaN, which is in no order, is refused too.
    if not (low >= 0 and high <= 1):
        raise ImageError(
            f"an array of floats from {low:g} to {high:g} is no image; valid: from 0 to 1"
        )
    scaled: npt.NDArray[np.uint8] = np.rint(values * 255).astype(np.uint8)
    return scaled


def encode(pil_image: Pillow.Image) -> Image:
    """Return `image` as PNG."""
    return Drawing(np.asarray(pil_image.convert("RGB"))).encoded()


def small_webp(data: bytes, side: int) -> tuple[bytes, tuple[int, int]]:
    """Return an image as WebP, at most `side` pixels wide and high, with its size.

    Raises ImageError.
    """
    image = decode(data)
    image.thumbnail((side, side), Pillow.Resampling.LANCZOS, reducing_gap=1.0)
    # A PNG of few bytes is a drawing, whose edges lossy compression would blur.
    lossless = data.startswith(_PNG) and len(data) <= _SMALL
    file = io.BytesIO()
    image.save(file, "WEBP", lossless=lossless, quality=75, method=2)
    return file.getvalue(), image.size
