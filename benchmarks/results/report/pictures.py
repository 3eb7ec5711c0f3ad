"""Pictures inside a page: one copy of each, of web size, as a data URL.

A report holds thousands of them: they are packed into a few files.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image as Pillow

from benchmarks.results.report.scripts import write_script
from generators.document import Image
from generators.pictures import PictureError, decode

PACK = 256
"""Pictures in one file: about 6 MB, read at once when one of them is shown."""
SIDE = 512
"""Largest width and height of a picture in a report, in pixels."""
_FORM = "1"
"""Raise it when pictures are written in another way, so that no earlier file is kept."""
_PNG, _SMALL = b"\x89PNG", 1 << 16
Read = Callable[[Image], bytes]
Progress = Callable[[int, int], None]
"""Called with how many pictures are done, and of how many."""


class WebPicture(NamedTuple):
    """A picture as a data URL, with its size there in pixels."""

    url: str
    width: int
    height: int


def web_picture(data: bytes, side: int) -> WebPicture:
    """A picture as WebP, at most `side` pixels wide and high; PictureError."""
    picture = decode(data)
    picture.thumbnail((side, side), Pillow.Resampling.LANCZOS, reducing_gap=1.0)
    # A PNG of few bytes is a drawing, whose edges lossy compression would blur.
    lossless = data.startswith(_PNG) and len(data) <= _SMALL
    file = io.BytesIO()
    picture.save(file, "WEBP", lossless=lossless, quality=75, method=2)
    encoded = base64.b64encode(file.getvalue()).decode()
    return WebPicture(f"data:image/webp;base64,{encoded}", *picture.size)


def pack_pictures(
    folder: Path, images: Sequence[Image], read: Read, on_progress: Progress
) -> list[str]:
    """Write `images` under `folder`, PACK to a file; the names of the files, in order.

    A file is named by its pictures, and kept where an earlier report wrote it. In place of
    a picture that cannot be read stands the reason.
    """
    packs = [images[i : i + PACK] for i in range(0, len(images), PACK)]
    names: list[str] = []
    # Pillow releases the interpreter's lock while it decodes, resizes and encodes.
    with ThreadPoolExecutor() as pool:
        for number, pack in enumerate(packs):
            name = _name(image.digest for image in pack)
            if not (folder / name).exists():
                rows = []
                for row in pool.map(partial(_row, read), pack):
                    rows.append(row)
                    on_progress(number * PACK + len(rows), len(images))
                name = _written(folder, pack, rows)
            names.append(name)
    return names


def _row(read: Read, image: Image) -> WebPicture | tuple[None, str]:
    try:
        return web_picture(read(image), SIDE)
    except PictureError as error:
        return None, str(error)
    except Exception as error:
        # Whatever a store or a file system raises, the page shows the reason.
        return None, f"cannot be read: {error}"


def _written(folder: Path, pack: Sequence[Image], rows: Sequence[Sequence[Any]]) -> str:
    # Under another name than is looked for where reasons are among the rows: the next
    # report tries again.
    name = _name([*(i.digest for i in pack), *(r[1] for r in rows if r[0] is None)])
    return write_script(folder, name, rows)


def _name(parts: Iterable[str]) -> str:
    digest = hashlib.sha256(" ".join((_FORM, *parts)).encode(errors="surrogatepass"))
    return f"pictures-{digest.hexdigest()[:16]}.js"
