"""Data brought to a local folder: snapshots of Hub data sets, unpacked archives."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.tasks.reading.rules import TaskError


def snapshot(data: str, patterns: Sequence[str]) -> Path:
    """Folder `.../snapshots/<commit>` of `hf:ORG/NAME[@REVISION]`.

    It holds the files that match `patterns`. Without a network the cached snapshot of the
    revision is used. Raises TaskError for an id that is not valid, and when neither the
    Hub nor the cache has the data.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    name, _, revision = data.removeprefix("hf:").partition("@")
    if name.count("/") != 1 or not all(name.split("/")):
        raise TaskError(f"{data!r} is not of the form hf:ORG/NAME@REVISION")
    try:
        path = snapshot_download(
            name,
            repo_type="dataset",
            revision=revision or None,
            allow_patterns=list(patterns),
        )
    except HFValidationError as error:
        raise TaskError(f"{data!r} is not the name of a data set: {error}") from None
    except Exception as error:
        # The Hub's client raises its own errors, those of its HTTP library, and OSErrors.
        raise TaskError(_explained(name, revision, error)) from error
    return Path(path)


def _explained(name: str, revision: str, error: Exception) -> str:
    lines = str(error).strip().splitlines()
    access = (
        "MMIE/MMIE asks for access on its Hub page first; then log in"
        if name == "MMIE/MMIE"
        else "If it is private or asks for access, log in"
    )
    return (
        f"data set {name!r} (revision {revision or 'main'}) is neither on the Hub for this "
        f"account nor in the local cache: {lines[0] if lines else type(error).__name__}. "
        f"{access} with `hf auth login` or set HF_TOKEN."
    )


def unpacked(archive: Path, cache: Path) -> Path:
    """A folder whose `images/` holds the pictures of `archive`.

    Archives with and without a leading `images/` are accepted. Only regular files are
    written, no links and no devices. Raises TaskError for an archive that is damaged or
    names files outside its folder, and where `cache` cannot be written.
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
    """Unpack beside `target` and rename, so that it is complete or absent."""
    with tempfile.TemporaryDirectory(
        dir=target.parent, ignore_cleanup_errors=True
    ) as temporary:
        folder = Path(temporary) / "complete"
        (folder / "images").mkdir(parents=True)
        try:
            _extract(archive, folder)
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise TaskError(f"{archive} cannot be unpacked: {error}") from error
        try:
            folder.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster
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
