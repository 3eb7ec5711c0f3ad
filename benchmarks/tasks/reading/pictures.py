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

from benchmarks.tasks.mmie.rows import Parts, PictureSource
from benchmarks.tasks.reading import checks
from benchmarks.tasks.reading.checks import PictureCheck
from benchmarks.tasks.reading.rules import RowError, Rule, TaskError, shown
from generators.document import Content, Image
from generators.errors import WriteError
from generators.files import write_whole
from generators.pictures import BombError, PictureError, decode

Progress = Callable[[int, int], None]
"""Called with how many pictures have been checked, and of how many."""

MAX_BYTES = 1 << 28
"""Larger files are not read at all."""
_BATCH = 8


@dataclass(frozen=True)
class PictureFolder:
    """The picture files under one folder, each checked once."""

    root: Path
    cache: Path
    also: tuple[Path, ...] = ()
    """Folders that links may lead to (a Hub snapshot links to its blobs)."""
    checked: dict[str, PictureCheck] = field(default_factory=dict)
    """Results by path, with links resolved."""
    _real_folders: dict[str, str] = field(default_factory=dict)

    def check_all(
        self, pictures: Iterable[PictureSource], on_progress: Progress | None = None
    ) -> None:
        """Read and decode all of `pictures` that have not been checked before."""
        known = checks.load(self.cache, self.root)
        paths = {p for p in map(self._path, pictures) if p}
        self.checked.update({p: known[p] for p in paths if _unchanged(p, known.get(p))})
        unchecked = sorted(paths - self.checked.keys())
        try:
            for done, (path, check) in enumerate(_checks_of(unchecked), start=1):
                self.checked[path] = check
                if on_progress is not None:
                    on_progress(done, len(unchecked))
        finally:
            if unchecked:
                checks.save(self.cache, self.root, known | self.checked)

    def content(self, parts: Parts) -> Content:
        """`parts` with each picture read; RowError for the first that breaks a rule."""
        return tuple(self.image(p) if isinstance(p, PictureSource) else p for p in parts)

    def image(self, picture: PictureSource) -> Image:
        """The picture by its digest and path; RowError names the rule it breaks."""
        if picture.data is not None:
            return self._inline(picture.data)
        path = self.place(picture.path)
        check = self.checked.get(path) or _check_file(path)
        if check.rule:
            raise RowError(Rule(check.rule), f"{shown(picture.path)}: {check.detail}")
        return Image(check.digest, place=path)

    def place(self, path: str) -> str:
        """The file that `path` names, with links resolved; RowError where it is outside."""
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
        """As `os.path.realpath`, but each folder is resolved only once."""
        folder, name = os.path.split(path)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(self.root / folder)
        place = os.path.join(self._real_folders[folder], name)
        return os.path.realpath(place) if os.path.islink(place) else place

    @cached_property
    def _folders(self) -> tuple[str, ...]:
        # Pictures are often on another disk than the rows: `images` may be a link.
        own = (self.root, self.root / "images", *self.also)
        return tuple(os.path.join(os.path.realpath(folder), "") for folder in own)

    def _path(self, picture: PictureSource) -> str:
        try:
            return "" if picture.data is not None else self.place(picture.path)
        except RowError:
            return ""

    def _inline(self, data: bytes) -> Image:
        check = _check_bytes(data, len(data), 0)
        if check.rule:
            raise RowError(Rule(check.rule), f"the bytes in the row: {check.detail}")
        return Image.of(data)


def _is_absolute(path: str) -> bool:
    """Whether `path` is absolute, or names a drive, here or on Windows."""
    drive, rest = ntpath.splitdrive(path)
    return bool(drive) or rest.startswith(("/", "\\"))


def _unchanged(path: str, check: PictureCheck | None) -> bool:
    try:
        stat = os.stat(path)
    except OSError:
        return False
    return check is not None and check[:2] == (stat.st_size, stat.st_mtime_ns)


def _checks_of(paths: Sequence[str]) -> Iterator[tuple[str, PictureCheck]]:
    """Checks of `paths` in threads: decoding releases the interpreter's lock."""
    batches = [paths[i : i + _BATCH] for i in range(0, len(paths), _BATCH)]
    pool = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4))
    try:
        for batch in pool.map(lambda some: [(p, _check_file(p)) for p in some], batches):
            yield from batch
    finally:
        pool.shutdown(cancel_futures=True)


def _check_file(path: str) -> PictureCheck:
    try:
        stat = os.stat(path)
        if not S_ISREG(stat.st_mode):
            return PictureCheck(0, -1, "", Rule.NOT_FOUND, "not a file")
        if stat.st_size > MAX_BYTES:
            return PictureCheck(
                0, -1, "", Rule.BOMB, f"the file has {stat.st_size:,} bytes"
            )
        return _check_bytes(Path(path).read_bytes(), stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        return PictureCheck(0, -1, "", Rule.NOT_FOUND, error.strerror or str(error))


def _check_bytes(data: bytes, size: int, mtime_ns: int) -> PictureCheck:
    digest = hashlib.sha256(data).hexdigest()
    try:
        decode(data)
    except BombError as error:
        return PictureCheck(size, mtime_ns, digest, Rule.BOMB, str(error))
    except PictureError as error:
        return PictureCheck(size, mtime_ns, digest, Rule.UNDECODABLE, str(error))
    return PictureCheck(size, mtime_ns, digest)


@dataclass(frozen=True, slots=True)
class PictureCache:
    """A folder of pictures named by the SHA-256 of their bytes."""

    folder: Path

    def add(self, data: bytes) -> Image:
        """The picture by its path; RowError for bytes that are not a picture.

        A picture that is in the cache has been decoded before and is not decoded again.
        Raises TaskError where the folder cannot be written.
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
