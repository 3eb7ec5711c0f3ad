"""Encoded images for the tests, right ones and broken ones."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image as Pillow

from plait.generators.document import Image

NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)


def saved(picture: Pillow.Image, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def png(picture: Pillow.Image) -> Image:
    return Image.of(saved(picture, "PNG"))


def flat(colour: str = "red", size: tuple[int, int] = (12, 8), form: str = "PNG") -> bytes:
    """One colour."""
    return saved(Pillow.new("RGB", size, colour), form)


def smooth(seed: int = 0, width: int = 70, height: int = 50) -> Image:
    """Smooth random colours."""
    small = np.random.RandomState(seed).randint(0, 256, (5, 7, 3)).astype(np.uint8)
    return png(Pillow.fromarray(small).resize((width, height), Pillow.Resampling.BICUBIC))


def png_header(width: int, height: int) -> bytes:
    """A PNG of one chunk that claims these sizes and holds almost nothing."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1000))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", body)
        + chunk(b"IEND", b"")
    )
