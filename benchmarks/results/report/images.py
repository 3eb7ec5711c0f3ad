"""Images inside a page: one copy of each, of web size, as a data URL.

A report holds thousands of them: they are packed into a few files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from plait.benchmarks.results.page_files import PageFiles, image_url
from plait.generators.document import Image
from plait.generators.images import small_webp

PACK = 256
"""Images in one file: about 6 MB, read at once when one of them is shown."""
SIDE = 512
"""Largest width and height of an image in a report, in pixels."""
_FORM = "1"
"""Raise it when images are written in another way, so that no earlier file is kept."""
Read = Callable[[Image], bytes]
Progress = Callable[[int, int], None]


WebImage = tuple[str, int, int]
"""An image as a data URL, with its width and height there in pixels."""


def web_image(data: bytes, side: int) -> WebImage:
    """Return an image as WebP, at most `side` pixels wide and high; ImageError."""
    encoded, size = small_webp(data, side)
    return image_url(encoded), *size


def pack_images(
    files: PageFiles,
    images: Sequence[Image],
    read: Read,
    on_progress: Progress,
    side: int = SIDE,
) -> list[str]:
    """Write `images`, PACK to a file; return the files' names, in order.

    They are at most `side` pixels wide and high, which is one number for all
    that a page has beside it.

    A file is named by its images, and kept where an earlier report wrote it. In place of
    an image that cannot be read stands the reason; such a file is named by the reasons
    too, so that the next report tries again.
    """
    names: list[str] = []
    # Pillow releases the interpreter's lock while it decodes, resizes and encodes.
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(images), PACK):
            pack = images[start : start + PACK]
            digests = [image.digest for image in pack]
            name = _name(digests)
            if not files.has(name):
                rows: list[WebImage | tuple[None, str]] = []
                for row in pool.map(partial(_row, read, side), pack):
                    rows.append(row)
                    on_progress(start + len(rows), len(images))
                reasons = [str(row[1]) for row in rows if row[0] is None]
                name = files.write_data(_name(digests + reasons), rows)
            names.append(name)
    return names


def _row(read: Read, side: int, image: Image) -> WebImage | tuple[None, str]:
    try:
        return web_image(read(image), side)
    except Exception as error:
        # Whatever a store or a file system raises, the page shows the reason.
        return None, f"cannot be read: {error}"


def _name(parts: Iterable[str]) -> str:
    digest = hashlib.sha256(" ".join((_FORM, *parts)).encode(errors="surrogatepass"))
    return f"pictures-{digest.hexdigest()[:16]}.js"
