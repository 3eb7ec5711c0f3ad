"""Pictures in replies: data URLs and base64, decoded under the limits of any picture."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes, urlsplit

from PIL import Image as Pillow

from generators.document import Image
from generators.pictures import PictureError, decode, encode

MAX_PICTURE_BYTES = 64 << 20
"""Longer encoded pictures are refused."""

_STORED = ("JPEG", "PNG", "WEBP")
_SHOWN = 80
_SPACE = re.compile(r"\s+")


class MediaError(ValueError):
    """A picture of a reply cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Media:
    """A picture as a reply holds it."""

    source: str = field(repr=False)
    """A data URL, an http(s) URL, or bare base64."""
    mime: str | None = None
    """Media type, where it stands beside the source."""
    sha256: str | None = None
    """Digest of the bytes, where the server gives it."""

    @property
    def is_remote(self) -> bool:
        """Whether its bytes are still to be fetched."""
        return urlsplit(self.source[:16]).scheme.lower() in ("http", "https")

    @property
    def shown(self) -> str:
        """Its start, for people; no query, which may hold a signature."""
        return repr(self.source.partition("?")[0][:_SHOWN])


def embedded(media: Media) -> bytes:
    """The bytes that a data URL or base64 holds; MediaError."""
    source, mime = media.source, media.mime
    if source[:5].lower() == "data:":
        head, comma, source = source[5:].partition(",")
        if not comma:
            raise MediaError(f"{media.shown} is not a valid data URL: it has no comma")
        mime, *parameters = head.lower().split(";")
        _refuse_other_media(mime)
        if "base64" not in parameters:
            return unquote_to_bytes(source)
    elif ":" in source[:16]:
        raise MediaError(f"{media.shown} is neither a data URL nor an http(s) URL")
    else:
        _refuse_other_media(mime)
    return _from_base64(source)


def _refuse_other_media(mime: str | None) -> None:
    # Servers that do not know better say octet-stream.
    if mime and not mime.startswith("image/") and mime != "application/octet-stream":
        raise MediaError(f"media of type {mime!r} are not a picture")


def _from_base64(text: str) -> bytes:
    if len(text) > MAX_PICTURE_BYTES * 4 // 3 + (1 << 16):
        raise MediaError(_too_long())
    text = _SPACE.sub("", text)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise MediaError(f"a picture is not valid base64: {error}") from None


def picture_of(data: bytes, sha256: str | None = None) -> Image:
    """The bytes as a picture; MediaError where they are not one.

    Formats that records and pages show are kept unchanged, all others become PNG.
    """
    if not data:
        raise MediaError("a picture has no bytes")
    if len(data) > MAX_PICTURE_BYTES:
        raise MediaError(_too_long())
    if sha256 and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise MediaError("a picture's bytes do not have the SHA-256 that the server gives")
    try:
        pixels = decode(data)
    except PictureError as error:
        raise MediaError(str(error)) from None
    with Pillow.open(io.BytesIO(data)) as picture:
        return Image.of(data) if picture.format in _STORED else encode(pixels)


def _too_long() -> str:
    return f"a picture has more than {MAX_PICTURE_BYTES >> 20} MiB"
