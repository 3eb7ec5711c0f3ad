"""Paths inside a zip file, such as run.zip/results/run.json: a run as one file.

    root = pack_path("runs/x.zip")
    (root / "manifest.json").read_text()

A PackPath has those methods of `pathlib.Path` that read. Nothing is unpacked: members that
are stored, not compressed, are read from where they are in the file, in ranges too.
"""

from __future__ import annotations

import errno
import io
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn

from plait.generators.errors import UsageError

SUFFIX = ".zip"
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
"""Of a member, before its name and its extra field (PKWARE APPNOTE.TXT, section 4.3.7)."""
_FIRST_BYTES = b"PK\x03\x04"


class PackStat(NamedTuple):
    """Size of a member and time of its pack, under the names of `os.stat_result`."""

    st_size: int
    st_mtime: float


@dataclass(frozen=True, order=True, slots=True)
class PackPath:
    """A member of a zip file, or what the members below it have in common."""

    file: Path
    key: PurePosixPath

    def __str__(self) -> str:
        return str(self.file / self.key)

    def __truediv__(self, name: str | PurePosixPath) -> PackPath:
        return PackPath(self.file, self.key / name)

    @property
    def name(self) -> str:
        """The last part of the key; of the whole pack, its name without suffix."""
        return self.key.name or self.file.stem

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return self.key.stem or self.file.stem

    @property
    def suffix(self) -> str:
        """The suffix of the name."""
        return self.key.suffix

    @property
    def parent(self) -> PackPath:
        """The path that this one is below; of the whole pack, itself."""
        return PackPath(self.file, self.key.parent)

    @property
    def parents(self) -> tuple[PackPath, ...]:
        """All paths of the pack that this one is below, the nearest first."""
        return tuple(PackPath(self.file, key) for key in self.key.parents)

    def with_suffix(self, suffix: str) -> PackPath:
        """Return the path with another suffix."""
        return PackPath(self.file, self.key.with_suffix(suffix))

    def expanduser(self) -> PackPath:
        """Return the path with the user's folder in place of ~."""
        return PackPath(self.file.expanduser(), self.key)

    def resolve(self) -> PackPath:
        """Return the path with its file's absolute path."""
        return PackPath(self.file.resolve(), self.key)

    # ------------------------------------------------------------------------ reading

    def exists(self) -> bool:
        """Return whether there is such a member."""
        return str(self.key) in _members(self.file)

    is_file = exists

    def is_dir(self) -> bool:
        """Return whether there are members below it."""
        return next(self.iterdir(), None) is not None

    def stat(self) -> PackStat:
        """Size of the member, and when the pack was written; FileNotFoundError."""
        return PackStat(self._member.file_size, self.file.stat().st_mtime)

    @property
    def _member(self) -> zipfile.ZipInfo:
        try:
            return _members(self.file)[str(self.key)]
        except KeyError:
            text = "there is no such file in the pack"
            raise FileNotFoundError(errno.ENOENT, text, str(self)) from None

    def read_bytes(self) -> bytes:
        """Return the member, whose checksum is compared; OSError where it is damaged."""
        member = self._member
        try:
            with zipfile.ZipFile(self.file) as pack:
                return pack.read(member)
        except (zipfile.BadZipFile, EOFError) as error:
            raise OSError(errno.EIO, f"it is damaged: {error}", str(self)) from error

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the member as text."""
        return self.read_bytes().decode(encoding)

    def open(self) -> io.BufferedReader:
        """Return the member to be read from, as a binary file."""
        member = self._member
        if member.compress_type != zipfile.ZIP_STORED:
            return io.BufferedReader(_Window(io.BytesIO(self.read_bytes())))
        file = self.file.open("rb", buffering=0)
        file.seek(member.header_offset)
        header = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
        start = member.header_offset + _LOCAL_HEADER.size + header[-2] + header[-1]
        return io.BufferedReader(_Window(file, start, member.file_size))

    def iterdir(self) -> Iterator[PackPath]:
        """The members and folders directly below it; none where there are none."""
        depth = len(self.key.parts)
        # A pack lists files alone: a folder is there where some file is below it.
        found = dict[tuple[str, ...], None]()
        for name in _members(self.file):
            parts = PurePosixPath(name).parts
            if parts[:depth] == self.key.parts and len(parts) > depth:
                found[parts[: depth + 1]] = None
        for parts in found:
            yield PackPath(self.file, PurePosixPath(*parts))

    def glob(self, pattern: str) -> Iterator[PackPath]:
        """The members and folders that match, name by name, as `Path.glob`."""
        name, _, rest = pattern.partition("/")
        for path in self.iterdir():
            if fnmatchcase(path.name, name):
                yield from path.glob(rest) if rest else (path,)

    def walk(self) -> Iterator[PackPath]:
        """All members below it, in the order of the file."""
        for name in _members(self.file):
            path = PackPath(self.file, PurePosixPath(name))
            if path.key.parts[: len(self.key.parts)] == self.key.parts:
                yield path

    # ------------------------------------------------------------------------ writing

    def write_bytes(self, data: bytes) -> NoReturn:
        """Refuse to write: OSError."""
        raise OSError(errno.EROFS, "a pack is only read", str(self))

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> NoReturn:
        """Refuse to write: OSError."""
        self.write_bytes(b"")

    def unlink(self, *, missing_ok: bool = False) -> NoReturn:
        """Refuse to write: OSError."""
        self.write_bytes(b"")

    def rename(self, target: Any) -> NoReturn:
        """Refuse to write: OSError."""
        self.write_bytes(b"")

    def rmdir(self) -> NoReturn:
        """Refuse to write: OSError."""
        self.write_bytes(b"")


class _Window(io.RawIOBase):
    """`size` bytes of a file from `start`, or all of it, as a file."""

    def __init__(self, file: io.IOBase, start: int = 0, size: int | None = None) -> None:
        self._file = file
        self._start = start
        self._size = file.seek(0, os.SEEK_END) if size is None else size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer)[: max(0, self._size - self._at)]
        self._file.seek(self._start + self._at)
        read: int = self._file.readinto(room)  # type: ignore[attr-defined]
        self._at += read
        return read

    def close(self) -> None:
        self._file.close()
        super().close()


def pack_path(text: str | os.PathLike[str]) -> PackPath | None:
    """Return the path in a zip file that `text` names, if one of its parts is such a file.

    So run.zip and run.zip/manifest.json; a folder with such a name is a folder.
    """
    if SUFFIX not in str(text).lower():
        return None
    path = Path(text)
    for file in (path, *path.parents):
        if file.suffix.lower() == SUFFIX and file.expanduser().is_file():
            return PackPath(file, PurePosixPath(path.relative_to(file).as_posix()))
    return None


def _members(file: Path) -> Mapping[str, zipfile.ZipInfo]:
    about = file.stat()
    return _members_of(file, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=16)
def _members_of(file: Path, size: int, time_ns: int) -> Mapping[str, zipfile.ZipInfo]:
    """The members by name; UsageError where it is no zip file, or not all of one."""
    try:
        with zipfile.ZipFile(file) as pack:
            return {m.filename: m for m in pack.infolist() if not m.is_dir()}
    except zipfile.BadZipFile as error:
        with file.open("rb") as opened:
            begun = opened.read(len(_FIRST_BYTES)) == _FIRST_BYTES
        what = "its end is missing: copy it again" if begun else "it is not a zip file"
        raise UsageError(f"{file} is no pack of a run: {what}") from error
