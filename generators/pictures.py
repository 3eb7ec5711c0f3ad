"""Encoded images to RGB pixels and back.

Every stage reads images through `decode`, so that a rotated phone photo, a palette
GIF or a CMYK scan looks the same to every model and every judge.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image as Pillow
from PIL import ImageOps, UnidentifiedImageError

from generators.document import Image
from generators.errors import PlaitError

MAX_PIXELS = 89_478_485
"""Larger images are refused as decompression bombs; Pillow warns from here on."""

FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are read. Pillow knows more, but passes some to other programs (EPS)."""


class PictureError(PlaitError, ValueError):
    """Bytes that cannot be read as an image; the message says why."""


class BombError(PictureError):
    """An image of more than MAX_PIXELS pixels."""


def decode(image: Image | bytes) -> Pillow.Image:
    """Return the image as 8-bit RGB, upright, transparency over white; its first frame.

    Raises PictureError for bytes that are not an image or a truncated one, and BombError
    for images of more than MAX_PIXELS pixels. Safe to call from several threads.
    """
    data = image if isinstance(image, bytes) else image.read()
    try:
        picture = Pillow.open(io.BytesIO(data), formats=FORMATS)
        width, height = picture.size
        if width * height > MAX_PIXELS:
            raise BombError(_bomb(f"{width} x {height}"))
        picture.load()
        return _as_rgb(_upright(picture))
    except PictureError:
        raise
    except Pillow.DecompressionBombError as error:
        # Pillow's own limit is higher, and its message begins with the count.
        raise BombError(_bomb(re.findall(r"\d+", str(error))[0])) from None
    except UnidentifiedImageError:
        known = ", ".join(FORMATS)
        raise PictureError(f"the bytes are in no known picture format ({known})") from None
    except Exception as error:
        # Pillow's decoders raise whatever their format raises: struct.error,
        # SyntaxError, EOFError, zlib.error, OSError.
        raise PictureError(f"the picture cannot be decoded: {error}") from error


def _bomb(size: str) -> str:
    return f"the picture has {size} pixels; at most {MAX_PIXELS:,} are read"


def _upright(picture: Pillow.Image) -> Pillow.Image:
    """Return the image turned as its EXIF data asks; broken data do not matter."""
    with contextlib.suppress(Exception):
        # Once it has been read: Pillow would write the rest again, which may fail.
        picture.getexif()
        picture.info.pop("exif", None)
        picture = ImageOps.exif_transpose(picture)
    return picture


def _as_rgb(picture: Pillow.Image) -> Pillow.Image:
    if picture.mode.startswith("I") or picture.mode == "F":
        picture = _eight_bit(picture)
    if picture.mode in ("LA", "PA", "RGBA", "RGBa") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Pillow.new("RGBA", picture.size, "white")
        picture = Pillow.alpha_composite(white, picture)
    return picture.convert("RGB")


def _eight_bit(picture: Pillow.Image) -> Pillow.Image:
    """16-bit grey by its scale (65535 is white), however dark the image is.

    Wider integers and floats carry no scale: those within 0..65535 or 0..1 are taken by
    that scale, all others by their own range.
    """
    values = np.nan_to_num(np.asarray(picture).astype(np.float64))
    low, top = 0.0, 1.0 if picture.mode == "F" else 65535.0
    if values.min() < low or values.max() > top:
        low, top = float(values.min()), float(values.max())
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


def encode(picture: Pillow.Image) -> Image:
    """Return `picture` as PNG."""
    return Drawing(np.asarray(picture.convert("RGB"))).encoded()
