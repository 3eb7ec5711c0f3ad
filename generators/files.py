"""Files written whole: a reader sees the old file or the new one, never a part of it."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path

from generators.errors import WriteError

_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""Errors of file systems that cannot flush a folder; their renames need no flush."""


def write_whole(path: Path, content: str | bytes, *, durable: bool = True) -> None:
    """Write `content` to `path` under another name, flush it, and rename.

    Folders are made where they are missing. Lone surrogates, as in names of files that are
    not UTF-8, are written as escapes. A file that can be made again at any time need not
    be `durable`, that is, flushed to the disk. Raises WriteError and leaves nothing behind.
    """
    data = (
        content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    )
    temporary = path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise write_error(path.parent, error) from error


def safe_name(text: str, replacement: str = "_") -> str:
    """Return `text` as part of a file's name: letters, digits and -._ stay.

    Folders of records are named with it, so a change of it would lose them.
    """
    return "".join(c if c.isalnum() or c in "-._" else replacement for c in text)


def write_error(folder: Path, error: OSError) -> WriteError:
    """Return `error`, raised on writing into `folder`, as a WriteError."""
    if isinstance(error, WriteError):
        return error
    number = error.errno or errno.EIO
    return WriteError(number, f"cannot write to {folder}: {error.strerror or error}")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(handle)
