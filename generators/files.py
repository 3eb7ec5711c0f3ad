"""Files written whole: a reader sees the old file or the new one, never a part of it.

In a bucket, where objects are written whole anyway, and in a folder; and files that grow.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from plait.generators.buckets import AnyPath, BucketPath, Version
from plait.generators.errors import WriteError

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""How a file begins that stands for one which Git LFS has not fetched."""
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""Errors of file systems that cannot flush a folder; their renames need no flush."""
_SAVED_EVERY_S = 60.0


def write_whole(path: AnyPath, content: str | bytes, *, durable: bool = True) -> None:
    """Write `content` to `path` under another name, flush it, and rename.

    Folders are made where they are missing. Lone surrogates, as in names of files that are
    not UTF-8, are written as escapes. A file that can be made again at any time need not
    be `durable`, that is, flushed to the disk. Raises WriteError and leaves nothing behind.
    """
    write_pieces(path, [content], durable=durable)


def write_pieces(
    path: AnyPath, pieces: Iterable[str | bytes], *, durable: bool = True
) -> None:
    """Write a file as `write_whole` does, of pieces that come one after the other.

    In a folder, one of them is in memory at a time.
    """
    if not isinstance(path, Path):
        data = b"".join(map(_bytes_of, pieces))
        try:
            path.write_bytes(data)
        except OSError as error:
            raise write_error(path.parent, error) from error
        return
    temporary = path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            for piece in pieces:
                file.write(_bytes_of(piece))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync_folder(path.parent)
    except BaseException as error:  # making a piece may raise anything
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise write_error(path.parent, error) from error
        raise


def _bytes_of(piece: str | bytes) -> bytes:
    return piece.encode("utf-8", "backslashreplace") if isinstance(piece, str) else piece


def move_whole(source: Path, path: AnyPath) -> None:
    """Flush a file and rename it to `path`, in the same file system or in a bucket."""
    if not isinstance(path, Path):
        write_whole(path, source.read_bytes())
        source.unlink()
        return
    try:
        with source.open("rb") as file:
            os.fsync(file.fileno())
        source.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise write_error(path.parent, error) from error


def copy_whole(source: Path, path: AnyPath) -> None:
    """Copy a file to `path` as `write_whole` writes; of any size where it is a folder."""
    if not isinstance(path, Path):
        write_whole(path, source.read_bytes())
        return
    temporary = path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise write_error(path.parent, error) from error


def safe_name(text: str, replacement: str = "_", *, also: str = "") -> str:
    """Return `text` as part of a file's name: letters, digits, -._ and `also` stay.

    Folders of records are named with it, so a change of it would lose them.
    """
    allowed = f"-._{also}"
    letters = []
    for letter in text:
        stays = letter.isalnum() or letter in allowed
        letters.append(letter if stays else replacement)
    return "".join(letters)


def write_error(folder: AnyPath, error: OSError) -> WriteError:
    """Return `error`, raised on writing into `folder`, as a WriteError."""
    if isinstance(error, WriteError):
        return error
    number = error.errno or errno.EIO
    return WriteError(number, f"cannot write to {folder}: {error.strerror or error}")


class AppendedFile:
    """Text that grows at its end. OSError where it cannot be written.

    Objects cannot be appended to: in a bucket the text is kept in memory and written whole,
    once a minute and by `save`, until another process has written it.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path
        self._text = b""
        """In a bucket, all of it."""
        self._version: Version | None = None
        self._state: Literal["unread", "saved", "unsaved", "taken over"] = "unread"
        self._saved_s = 0.0

    def append(self, text: str) -> None:
        """Add text; in a folder it is in the file when this returns."""
        if isinstance(self.path, Path):
            with self.path.open("a") as file:
                file.write(text)
            return
        assert isinstance(self.path, BucketPath)
        if self._state == "unread":
            with contextlib.suppress(FileNotFoundError):
                self._text, self._version = self.path.read_version()
        if self._state != "taken over":
            self._text += text.encode("utf-8", "backslashreplace")
            self._state = "unsaved"
        if time.monotonic() - self._saved_s > _SAVED_EVERY_S:
            self.save()

    def save(self) -> None:
        """Write what is not written yet."""
        if isinstance(self.path, Path) or self._state != "unsaved":
            return
        assert isinstance(self.path, BucketPath)
        self._saved_s = time.monotonic()
        written = self._write()
        if not written:
            held, self._version = self.path.read_version()
            if self._text.startswith(held):  # by a request whose reply was lost
                written = self._write()
        self._state = "saved" if written else "taken over"

    def _write(self) -> bool:
        assert isinstance(self.path, BucketPath)
        if self._version is None:
            self._version = self.path.create(self._text)
        else:
            self._version = self.path.replace(self._text, self._version)
        return self._version is not None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)
