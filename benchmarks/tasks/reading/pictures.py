"""Pictures of a task set: confined to its folder, really decoded, identified by digest.

`PictureFolder` reads picture files that rows name; `PictureCache` keeps pictures that come
inside a file, so that every worker can read them.
"""

from __future__ import annotations

import hashlib
import ntpath
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from stat import S_ISREG

from benchmarks.tasks.mmie.rows import Parts, Picture
from benchmarks.tasks.reading import checks
from benchmarks.tasks.reading.checks import Check
from benchmarks.tasks.reading.rules import RowError, Rule, TaskError, shown
from generators.document import Content, Image
from generators.errors import WriteError
from generators.files import write_whole
from generators.pictures import BombError, PictureError, decode

Progress = Callable[[int, int], None]
"""Told how many pictures have been checked, of how many."""

MAX_BYTES = 1 << 28
"""Larger files are not read at all."""
_BATCH = 8


@dataclass(frozen=True)
class Album:
    """The picture files under one folder, each looked at once."""

    root: Path
    cache: Path
    also: tuple[Path, ...] = ()
    """Folders that links may lead to (a Hub snapshot links to its blobs)."""
    checked: dict[str, Check] = field(default_factory=dict)
    """What is known of each file, by its path free of links."""
    _real_folders: dict[str, str] = field(default_factory=dict)

    def check(
        self, pictures: Iterable[Picture], on_progress: Progress | None = None
    ) -> None:
        """Read and decode all of `pictures` that no earlier start has seen."""
        known = checks.load(self.cache, self.root)
        wanted = {p for p in map(self._path, pictures) if p}
        self.checked.update({p: known[p] for p in wanted if _unchanged(p, known.get(p))})
        unseen = sorted(wanted - self.checked.keys())
        try:
            for done, (path, check) in enumerate(_looked_at(unseen), start=1):
                self.checked[path] = check
                if on_progress is not None:
                    on_progress(done, len(unseen))
        finally:
            if unseen:
                checks.save(self.cache, self.root, known | self.checked)

    def content(self, parts: Parts) -> Content:
        """`parts` with each picture read; RowError for the first that breaks a rule."""
        return tuple(self.image(p) if isinstance(p, Picture) else p for p in parts)

    def image(self, picture: Picture) -> Image:
        """The picture by its digest and place; RowError names the rule it breaks."""
        if picture.data is not None:
            return self._inline(picture.data)
        path = self.place(picture.path)
        check = self.checked.get(path) or _look(path)
        if check.rule:
            raise RowError(Rule(check.rule), f"{shown(picture.path)}: {check.detail}")
        return Image(check.digest, place=path)

    def place(self, path: str) -> str:
        """The file that `path` names, free of links; RowError where that is outside."""
        if _is_absolute(path):
            raise RowError(Rule.OUTSIDE, f"{shown(path)} is an absolute path")
        if ".." in path.replace("\\", "/").split("/"):
            raise RowError(Rule.OUTSIDE, f"{shown(path)} contains '..'")
        if "\0" in path:
            raise RowError(Rule.NOT_FOUND, f"{shown(path)} contains a null character")
        real = self._real(path)
        if not real.startswith(self._folders):
            raise RowError(Rule.OUTSIDE, f"{shown(path)} is a link to {shown(real)}")
        return real

    def _real(self, path: str) -> str:
        """As `os.path.realpath`, but each folder is followed only once."""
        folder, name = os.path.split(path)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(self.root / folder)
        place = os.path.join(self._real_folders[folder], name)
        return os.path.realpath(place) if os.path.islink(place) else place

    @cached_property
    def _folders(self) -> tuple[str, ...]:
        # Pictures often lie on another disk than the rows: `images` may be a link.
        own = (self.root, self.root / "images", *self.also)
        return tuple(os.path.join(os.path.realpath(folder), "") for folder in own)

    def _path(self, picture: Picture) -> str:
        try:
            return "" if picture.data is not None else self.place(picture.path)
        except RowError:
            return ""

    def _inline(self, data: bytes) -> Image:
        check = _judged(data, len(data), 0)
        if check.rule:
            raise RowError(Rule(check.rule), f"the bytes in the row: {check.detail}")
        return Image.of(data)


def _is_absolute(path: str) -> bool:
    """Whether `path` is absolute, or names a drive, here or on Windows."""
    drive, rest = ntpath.splitdrive(path)
    return bool(drive) or rest.startswith(("/", "\\"))


def _unchanged(path: str, check: Check | None) -> bool:
    try:
        stat = os.stat(path)
    except OSError:
        return False
    return check is not None and check[:2] == (stat.st_size, stat.st_mtime_ns)


def _looked_at(paths: Sequence[str]) -> Iterator[tuple[str, Check]]:
    """Checks of `paths`, several files at a time: decoding leaves Python's lock free."""
    batches = [paths[i : i + _BATCH] for i in range(0, len(paths), _BATCH)]
    pool = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4))
    try:
        for batch in pool.map(lambda some: [(p, _look(p)) for p in some], batches):
            yield from batch
    finally:
        pool.shutdown(cancel_futures=True)


def _look(path: str) -> Check:
    try:
        stat = os.stat(path)
        if not S_ISREG(stat.st_mode):
            return Check(0, -1, "", Rule.NOT_FOUND, "not a file")
        if stat.st_size > MAX_BYTES:
            return Check(0, -1, "", Rule.BOMB, f"the file has {stat.st_size:,} bytes")
        return _judged(Path(path).read_bytes(), stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        return Check(0, -1, "", Rule.NOT_FOUND, error.strerror or str(error))


def _judged(data: bytes, size: int, mtime_ns: int) -> Check:
    digest = hashlib.sha256(data).hexdigest()
    try:
        decode(data)
    except BombError as error:
        return Check(size, mtime_ns, digest, Rule.BOMB, str(error))
    except PictureError as error:
        return Check(size, mtime_ns, digest, Rule.UNDECODABLE, str(error))
    return Check(size, mtime_ns, digest)


@dataclass(frozen=True, slots=True)
class Shelf:
    """A folder that holds pictures under the SHA-256 of their bytes."""

    folder: Path

    def keep(self, data: bytes) -> Image:
        """The picture, known by its place; RowError for bytes that are no picture.

        What stands on the shelf has been decoded before and is not decoded again. Raises
        TaskError where the folder cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / digest[:2] / digest
        if not path.is_file():
            _refuse_unreadable(data)
            _write(path, data)
        return Image(digest, place=str(path))


def _refuse_unreadable(data: bytes) -> None:
    try:
        decode(data)
    except BombError as error:
        raise RowError(Rule.BOMB, str(error)) from None
    except PictureError as error:
        raise RowError(Rule.UNDECODABLE, str(error)) from None


def _write(path: Path, data: bytes) -> None:
    try:
        # What a crash of the machine takes is read from its source again.
        write_whole(path, data, durable=False)
    except WriteError as error:
        raise TaskError(
            f"pictures cannot be kept: {error}; set XDG_CACHE_HOME to a folder with room"
        ) from error
