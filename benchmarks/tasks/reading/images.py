"""Images of a task set: confined to its folder, really decoded, identified by digest.

`ImageFolder` reads image files that rows name; `ImageCache` keeps images that come inside a
file, so that every worker can read them. Paths may have the separators of Windows, and the
accents of a name may be coded in another normal form than those of the file.

The images of twenty thousand queries take minutes to decode, so the results are kept: a
file whose path, size and modification time are unchanged is not read again. A worker still
compares the digest when it reads the bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from pathlib import Path, PureWindowsPath
from stat import S_ISREG
from typing import Any, NamedTuple

import PIL

from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, TaskError, brief
from plait.generators.document import Image
from plait.generators.errors import WriteError
from plait.generators.files import write_whole
from plait.generators.images import BombError, ImageError, decode

Progress = Callable[[int, int], None]
"""Called with how many images have been checked, and of how many."""

VERSION = f"2 Pillow {PIL.__version__}"
"""Another version of the decoder may read what this one cannot."""
MAX_BYTES = 1 << 28
"""Larger files are not read at all."""
_KEYS = ("image", "image_path", "path")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
"""A string of a row under such a key, or with such an end, is the path of an image."""
_HOLDERS = (dict, list)
_URL_SAFE = str.maketrans("-_", "+/")
"""From the alphabet of base64 for URLs."""
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


def default_folder() -> Path:
    """Return `$XDG_CACHE_HOME/plait`, by default `~/.cache/plait`."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "plait"


def image_paths(rows: Iterable[Any]) -> Iterator[str]:
    """Yield every path of an image in rows of plain JSON data, valid ones or not."""
    stack: list[tuple[str, dict[str, Any] | list[Any]]] = []
    for row in rows:
        stack.append(("", [row]))
        while stack:
            key, holder = stack.pop()
            named: Iterable[tuple[str, Any]]
            named = zip(repeat(key), holder) if isinstance(holder, list) else holder.items()
            for name, value in named:
                if isinstance(value, str):
                    # Most texts end otherwise, and are not looked at further.
                    end = value[-5:]
                    if name in _KEYS or ("." in end and _ends_as_image(end)):
                        yield value
                elif isinstance(value, _HOLDERS):
                    stack.append((name, value))


def _ends_as_image(text: str) -> bool:
    return text.lower().endswith(IMAGE_SUFFIXES)


class ImageCheck(NamedTuple):
    """The result of checking one image file."""

    size: int
    mtime_ns: int
    digest: str
    """SHA-256 of its bytes."""
    rule: str = ""
    """The rule it breaks; empty for a good image."""
    detail: str = ""


@dataclass(frozen=True)
class ImageFolder:
    """The image files under one folder, each checked once."""

    root: Path
    cache: Path
    also: tuple[Path, ...] = ()
    """Folders that links may lead to (a Hub snapshot links to its blobs)."""
    checked: dict[str, ImageCheck] = field(default_factory=dict)
    """Results by path, with links resolved."""
    places: dict[str, str] = field(default_factory=dict)
    """The file that each path names."""

    def check_all(self, paths: Iterable[str], on_progress: Progress | None = None) -> None:
        """Read and decode in threads all images that have not been checked before."""
        for path in {path for path in paths if not is_data_url(path)}:
            with contextlib.suppress(RowError, ValueError):  # ValueError: a lone surrogate
                self.places[path] = self.place(path)
        places = set(self.places.values())
        known = self._read_checks()
        kept = {p: c for p, c in known.items() if p in places and _is_of(p, c)}
        self.checked.update(kept)
        unchecked = sorted(places - self.checked.keys())
        pool = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4))
        try:
            for done, check in enumerate(pool.map(_check_file, unchecked), start=1):
                self.checked[unchecked[done - 1]] = check
                if on_progress is not None:
                    on_progress(done, len(unchecked))
        finally:
            pool.shutdown(cancel_futures=True)
            if unchecked:
                self._write_checks(known | self.checked)

    def image(self, path: str) -> Image:
        """Return the image by its digest and place; RowError names the rule it breaks.

        In place of a path there may be a data URL.
        """
        if is_data_url(path):
            return ImageCache(self.cache / "inline").add(from_base64(path, "the image"))
        place = self.places.get(path) or self.place(path)
        check = self.checked.get(place) or _check_file(place)
        if check.rule:
            raise RowError(Rule(check.rule), f"{brief(path)}: {check.detail}")
        return Image(check.digest, place=place)

    def place(self, path: str) -> str:
        """Return the file that `path` names, links resolved; RowError if outside."""
        parts = PureWindowsPath(path.strip())  # which knows the separators of both systems
        if parts.anchor:
            raise RowError(Rule.OUTSIDE, f"{brief(path)} is an absolute path")
        if ".." in parts.parts:
            raise RowError(Rule.OUTSIDE, f"{brief(path)} contains '..'")
        if "\0" in path:
            raise RowError(Rule.NOT_FOUND, f"{brief(path)} contains a null character")
        if _URL.match(path):
            raise RowError(Rule.NOT_FOUND, f"{brief(path)} is a URL, which is not fetched")
        spelled = (os.path.realpath(self.root / own) for own in _spellings(path))
        real = next(filter(os.path.exists, spelled), os.path.realpath(self.root / path))
        if not real.startswith(self._folders):
            raise RowError(Rule.OUTSIDE, f"{brief(path)} is a link to {brief(real)}")
        return real

    @cached_property
    def _folders(self) -> tuple[str, ...]:
        # Images are often on another disk than the rows: `images` may be a link.
        own = (self.root, self.root / "images", *self.also)
        return tuple(os.path.join(os.path.realpath(folder), "") for folder in own)

    @property
    def _file(self) -> Path:
        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        return self.cache / "pictures" / f"{name}.json"

    def _read_checks(self) -> dict[str, ImageCheck]:
        """Return earlier results; none where the file is corrupt, which costs only time."""
        try:
            stored = json.loads(self._file.read_bytes())
            if stored["version"] != VERSION:
                return {}
            return {path: ImageCheck(*values) for path, values in stored["checks"].items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}

    def _write_checks(self, checks: dict[str, ImageCheck]) -> None:
        content = {"version": VERSION, "root": str(self.root), "checks": checks}
        with contextlib.suppress(WriteError):
            write_whole(self._file, json.dumps(content), durable=False)


def is_data_url(path: str) -> bool:
    """Return whether a text holds an image, or other media, and names none."""
    return path[:5].lower() == "data:"


def _spellings(path: str) -> Iterator[str]:
    """Yield a path as it is, then as other systems spell it."""
    yield path
    own = path.strip().replace("\\", "/")
    yield own
    yield from (unicodedata.normalize(form, own) for form in ("NFC", "NFD"))


def file_name(path: str) -> str:
    """Return the last part of a path of either system; a data URL as it is."""
    return path if is_data_url(path) else re.split(r"[\\/]", path)[-1]


def _is_of(path: str, check: ImageCheck) -> bool:
    """Return whether the file at `path` is still the one that was checked."""
    try:
        stat = os.stat(path)
    except OSError:
        return False
    return check[:2] == (stat.st_size, stat.st_mtime_ns)


def _check_file(path: str) -> ImageCheck:
    about = (0, -1, "")
    try:
        stat = os.stat(path)
        if not S_ISREG(stat.st_mode):
            raise RowError(Rule.NOT_FOUND, "not a file")
        if stat.st_size > MAX_BYTES:
            raise RowError(Rule.BOMB, f"the file has {stat.st_size:,} bytes")
        data = Path(path).read_bytes()
        about = (stat.st_size, stat.st_mtime_ns, hashlib.sha256(data).hexdigest())
        inline(data)
    except OSError as error:
        return ImageCheck(*about, Rule.NOT_FOUND, error.strerror or str(error))
    except RowError as error:
        return ImageCheck(*about, error.rule, error.detail)
    return ImageCheck(*about)


def inline(data: bytes) -> Image:
    """Return the image whose bytes a row holds; RowError where they are not an image."""
    try:
        decode(data)
    except ImageError as error:
        rule = Rule.BOMB if isinstance(error, BombError) else Rule.UNDECODABLE
        raise RowError(rule, str(error)) from None
    return Image.of(data)


def from_base64(text: str, what: str) -> bytes:
    """Return the bytes that `what` holds as base64, in any form, or as a data URL.

    Raises RowError where it is neither.
    """
    from plait.pipelines.endpoints.media import Media, MediaError, decode_embedded

    try:
        return decode_embedded(
            Media(text if is_data_url(text) else text.translate(_URL_SAFE))
        )
    except MediaError as error:
        detail = f"{what} is not base64: {brief(text, 40)} ({error})"
        raise RowError(Rule.UNDECODABLE, detail) from None


@dataclass(frozen=True, slots=True)
class ImageCache:
    """A folder of images named by the SHA-256 of their bytes."""

    folder: Path

    def add(self, data: bytes) -> Image:
        """Return the image by its place; RowError for bytes that are not an image.

        What is in the cache has been decoded before and is not decoded again. Raises
        TaskError where the folder cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / digest[:2] / digest
        if not path.is_file():
            inline(data)
            try:
                # What a crash of the machine takes is read from its source again.
                write_whole(path, data, durable=False)
            except WriteError as error:
                hint = "set XDG_CACHE_HOME to a folder with room"
                raise TaskError(f"images cannot be kept: {error}; {hint}") from error
        return Image(digest, place=str(path))


def images_of(
    value: Any, files: ImageFolder, kept: ImageCache, what: str = "image"
) -> Iterator[Image]:
    """Yield one image or several: `{"bytes": ..., "path": ...}` each, or paths.

    Bytes, in JSON as base64, are kept in `kept`, paths are those of `files`. RowError for
    anything else.
    """
    items = value if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, str):
            yield files.image(item)
            continue
        image = Row.of(item, what)
        if isinstance(image.values.get("bytes"), str):
            yield kept.add(from_base64(image.text("bytes"), image.path("bytes")))
        elif image.values.get("bytes") is not None:
            yield kept.add(image.get("bytes", bytes))
        else:
            yield files.image(image.text("path"))
