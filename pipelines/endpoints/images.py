"""Pictures as data URLs, no larger than asked for."""

from __future__ import annotations

import base64
import io
from typing import Literal

from PIL import ExifTags
from PIL import Image as Pillow

from generators.document import Image
from generators.pictures import decode

_MIME = {"JPEG": "image/jpeg", "PNG": "image/png"}
_JPEG_QUALITY = 95


def data_url(image: Image, max_side: int, encoding: Literal["png", "jpeg"]) -> str:
    """The picture as a data URL with neither side longer than `max_side` pixels.

    JPEG and PNG bytes that every server reads alike are sent as they are; what is too
    large, rotated, transparent or in another format is encoded anew. Raises PictureError
    for bytes that are no picture.
    """
    picture = decode(image)
    mime = _sendable(image.read(), max_side)
    if mime is not None:
        return _url(image.read(), mime)
    picture.thumbnail((max_side, max_side), Pillow.Resampling.LANCZOS)
    file = io.BytesIO()
    if encoding == "jpeg":
        picture.save(file, "JPEG", quality=_JPEG_QUALITY)
    else:
        picture.save(file, "PNG")
    return _url(file.getvalue(), f"image/{encoding}")


def size_of(url: str) -> list[int]:
    """Width and height, in pixels, of the picture in a data URL of `data_url`."""
    data = base64.b64decode(url.partition(",")[2])
    with Pillow.open(io.BytesIO(data)) as picture:
        return list(picture.size)


def _sendable(data: bytes, max_side: int) -> str | None:
    """Media type of bytes that need no change."""
    with Pillow.open(io.BytesIO(data)) as picture:
        upright = picture.getexif().get(ExifTags.Base.Orientation, 1) == 1
        opaque = picture.mode in ("RGB", "L") and "transparency" not in picture.info
        if not (upright and opaque) or max(picture.size) > max_side:
            return None
        return _MIME.get(picture.format or "")


def _url(data: bytes, mime: str) -> str:
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"
