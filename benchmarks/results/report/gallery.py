"""The pictures of a report: thumbnails, and full-size copies up to a budget."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from PIL import Image as Pillow

from generators.document import Image
from generators.files import write_whole
from generators.pictures import PictureError, decode, encode

Read = Callable[[Image], bytes]

_BATCH = 64
_MAGIC = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpg", b"RIFF": "webp", b"GIF8": "gif"}
"""Formats that every browser shows."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How a picture appears on the page."""

    thumb: str | None
    """Name of its thumbnail; None where the picture cannot be read."""
    width: int = 0
    height: int = 0
    full: str | None = None
    """Name of its full-size copy."""
    problem: str | None = None


class _Prepared(NamedTuple):
    shown: Shown
    copy: Path | None = None
    """A full-size copy made for an earlier report."""
    data: bytes = b""
    """The picture's bytes where there is no copy yet."""


class Gallery:
    """Writes pictures under `folder`, named by their content, each of them once."""

    def __init__(
        self,
        folder: Path,
        read: Read,
        *,
        side: int,
        full_bytes: int,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self.read = read
        self.side = side
        self.budget = full_bytes
        self.shown: dict[str, Shown] = {}
        self._on_progress = on_progress
        # Pillow releases the interpreter's lock while it decodes, resizes and encodes.
        self._pool = ThreadPoolExecutor(os.cpu_count())
        for name in ("thumbs", "images"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._copies = {path.stem: path for path in (folder / "images").iterdir()}

    def __enter__(self) -> Gallery:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add(self, images: Iterable[Image]) -> None:
        """Write every picture to disk; of one that cannot be read, keep the reason."""
        new = list({i.digest: i for i in images if i.digest not in self.shown}.values())
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            self._keep(batch, self._pool.map(self._prepare, batch))

    def sweep(self) -> None:
        """Remove pictures that an earlier report showed and this one does not."""
        used = {name for s in self.shown.values() for name in (s.thumb, s.full)}
        for name in ("thumbs", "images"):
            for path in (self.folder / name).iterdir():
                if path.name not in used:
                    path.unlink(missing_ok=True)

    @property
    def full_size(self) -> int:
        """How many pictures have a full-size copy."""
        return sum(s.full is not None for s in self.shown.values())

    def _prepare(self, image: Image) -> _Prepared:
        """Read and shrink a picture, or reuse the files of an earlier report."""
        thumb, copy = self._thumb(image), self._copies.get(_name(image))
        if thumb.exists() and (copy or self.budget <= 0):
            return _Prepared(_shown(thumb), copy)
        try:
            data = self.read(image)
            if not thumb.exists():
                self._shrink(data, thumb)
            return _Prepared(_shown(thumb), data=data)
        except PictureError as error:
            return _Prepared(Shown(None, problem=str(error)))
        except Exception as error:
            # Whatever a store or a file system raises, the page shows the reason.
            return _Prepared(Shown(None, problem=f"cannot be read: {error}"))

    def _thumb(self, image: Image) -> Path:
        return self.folder / "thumbs" / f"{_name(image)}-{self.side}.webp"

    def _shrink(self, data: bytes, thumb: Path) -> None:
        write_whole(thumb, thumbnail(data, self.side), durable=False)

    def _keep(self, images: Sequence[Image], prepared: Iterable[_Prepared]) -> None:
        """Keep full-size copies in the order of the page, until the budget is used up."""
        for image, new in zip(images, prepared, strict=True):
            size = new.copy.stat().st_size if new.copy else len(new.data)
            shown = new.shown
            if shown.thumb is not None and 0 < size <= self.budget:
                copy = new.copy or self._copied(image, new.data)
                self.budget -= size
                shown = replace(shown, full=copy.name)
            elif shown.thumb is not None:
                self.budget = 0
            self.shown[image.digest] = shown
            self._on_progress(len(self.shown))

    def _copied(self, image: Image, data: bytes) -> Path:
        form = next((ext for magic, ext in _MAGIC.items() if data.startswith(magic)), None)
        if form is None:
            form, data = "png", encode(decode(data)).read()
        path = self.folder / "images" / f"{_name(image)}.{form}"
        write_whole(path, data, durable=False)
        return path


def thumbnail(data: bytes, side: int) -> bytes:
    """A picture as WebP, at most `side` pixels wide and high; PictureError."""
    picture = decode(data)
    picture.thumbnail((side, side), Pillow.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=80, method=2)
    return file.getvalue()


def _name(image: Image) -> str:
    return image.digest[:24]


def _shown(thumb: Path) -> Shown:
    with Pillow.open(thumb) as picture:
        return Shown(thumb.name, *picture.size)
