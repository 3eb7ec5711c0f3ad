"""Data brought to a local folder: paths, snapshots of Hub data sets, unpacked archives."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.tasks.reading.rules import TaskError

HUB = "hf:"


class Located(NamedTuple):
    """Data on this machine."""

    path: Path
    """A file or folder."""
    revision: str | None = None
    """Commit of a Hub data set."""

    @property
    def also(self) -> tuple[Path, ...]:
        """Folders that links of a Hub snapshot lead to."""
        return () if self.revision is None else (self.path.parents[1] / "blobs",)


def located(place: str, patterns: Sequence[str], hint: str = "") -> Located:
    """Return what a path or `hf:ORG/NAME@REV` means.

    Of a Hub data set the files that match `patterns` are fetched. Raises TaskError where
    there is no such data, with `hint`.
    """
    if place.startswith(HUB):
        folder = snapshot(place, patterns)
        return Located(folder, folder.name)
    path = Path(place).expanduser().absolute()
    if not path.exists():
        raise TaskError(f"no data at {place!r}{hint}")
    return Located(path)


def snapshot(data: str, patterns: Sequence[str]) -> Path:
    """Return the folder `.../snapshots/<commit>` of `hf:ORG/NAME[@REVISION]`.

    It holds the files that match `patterns`. Without a network the cached snapshot of the
    revision is used. Raises TaskError for an id that is not valid, and when neither the
    Hub nor the cache has the data.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    name, _, revision = data.removeprefix(HUB).partition("@")
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
    lines = str(error).strip().splitlines() or [type(error).__name__]
    access = (
        "MMIE/MMIE asks for access on its Hub page first; then log in"
        if name == "MMIE/MMIE"
        else "If it is private or asks for access, log in"
    )
    return (
        f"data set {name!r} (revision {revision or 'main'}) is neither on the Hub for this "
        f"account nor in the local cache: {lines[0]}. {access} with `hf auth login` or set "
        "HF_TOKEN."
    )


def unpacked(archive: Path, cache: Path) -> Path:
    """Return a folder under `cache` whose `images/` holds the images of `archive`.

    Archives with and without a leading `images/` are accepted. Only regular files are
    written, no links and no devices. Raises TaskError for an archive that is damaged or
    names files outside its folder, and where `cache` cannot be written.
    """
    stat = archive.stat()
    about = f"{os.path.realpath(archive)}\n{stat.st_size}\n{stat.st_mtime_ns}"
    target = cache / "unpacked" / hashlib.sha256(os.fsencode(about)).hexdigest()[:16]
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
            # Renamed when complete, so that it is complete or absent.
            folder = Path(temporary) / "complete"
            (folder / "images").mkdir(parents=True)
            _extract(archive, folder)
            try:
                folder.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was faster
                    raise
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TaskError(f"{archive} cannot be unpacked: {error}") from error
    except OSError as error:
        raise TaskError(
            f"{archive} cannot be unpacked into {target.parent}: {error}. Unpack it beside "
            "the rows, or set XDG_CACHE_HOME to a folder with room."
        ) from error
    return target


def _extract(archive: Path, folder: Path) -> None:
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            source = tar.extractfile(member) if member.isfile() else None
            if source is not None:
                path = _inside(folder, member.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(source, file)
        while stream.read(1 << 20):
            pass  # the checksum is at the very end


def _inside(folder: Path, name: str) -> Path:
    parts = [p for p in name.replace("\\", "/").split("/") if p not in ("", ".")]
    if name.startswith("/") or ".." in parts or not parts or "\0" in name:
        raise tarfile.TarError(f"it names a file outside its folder: {name!r}")
    return folder.joinpath(*(parts if parts[0] == "images" else ("images", *parts)))


def digest_of(paths: Iterable[Path]) -> str:
    """Return the SHA-256 over the contents of files, in the order given."""
    state = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            state.update(hashlib.file_digest(file, "sha256").digest())
    return state.hexdigest()
