"""Unpacks `images.tar.gz` once, and nothing in it outside the folder meant for it."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path

from benchmarks.tasks.reading.rules import TaskError


def unpacked(archive: Path, cache: Path) -> Path:
    """A folder whose `images/` holds the pictures of `archive`.

    Archives with and without a leading `images/` are taken. Only files are made, no links
    and no devices. Raises TaskError for a damaged archive, one that names files outside,
    and where `cache` cannot be written.
    """
    target = cache / "unpacked" / _name(archive)
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _unpack(archive, target)
    except OSError as error:
        raise TaskError(
            f"{archive} cannot be unpacked into {target.parent}: {error}. Unpack it beside "
            "the rows, or set XDG_CACHE_HOME to a folder with room."
        ) from error
    return target


def _name(archive: Path) -> str:
    real = Path(os.path.realpath(archive))
    stat = real.stat()
    about = f"{real}\n{stat.st_size}\n{stat.st_mtime_ns}"
    return hashlib.sha256(os.fsencode(about)).hexdigest()[:16]


def _unpack(archive: Path, target: Path) -> None:
    """Unpack beside `target` and rename, so that it is there whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as made:
        folder = Path(made) / "whole"
        (folder / "images").mkdir(parents=True)
        try:
            _extract(archive, folder)
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TaskError(f"{archive} cannot be unpacked: {error}") from error
        try:
            folder.rename(target)
        except OSError:
            if not target.is_dir():  # else somebody was faster
                raise


def _extract(archive: Path, folder: Path) -> None:
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            if member.isfile():
                path = _inside(folder, member.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                assert source is not None
                with path.open("wb") as file:
                    shutil.copyfileobj(source, file)
        while stream.read(1 << 20):
            pass  # the checksum is at the very end


def _inside(folder: Path, name: str) -> Path:
    parts = [p for p in name.replace("\\", "/").split("/") if p not in ("", ".")]
    if name.startswith("/") or ".." in parts or not parts or "\0" in name:
        raise tarfile.TarError(f"it names a file outside its folder: {name!r}")
    return folder.joinpath(*(parts if parts[0] == "images" else ("images", *parts)))
