"""Where a task set lies: the bundled sample, a local folder or file, or the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.tasks.reading import archive, hub
from benchmarks.tasks.reading.rules import TaskError

FILES = ("data.json", "overview.json")
"""Names of the rows' file, in the order they are looked for."""
ARCHIVE = "images.tar.gz"
SAMPLE = Path(__file__).parent / "sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A task set on this machine."""

    name: str
    rows: Path
    """The JSON file."""
    root: Path
    """Folder that the pictures' paths start from."""
    also: tuple[Path, ...] = ()
    """Folders that links under `root` may lead to."""
    revision: str | None = None
    """Commit of a Hub data set."""


def locate(data: str, cache: Path) -> Source:
    """What `sample`, `hf:ORG/NAME@REV`, a folder or a JSON file means.

    Pictures that come as `images.tar.gz` are unpacked once, under `cache`. Raises
    TaskError where there is no such data.
    """
    if data == "sample":
        return Source(name="mmie-sample", rows=SAMPLE / "data.json", root=SAMPLE)
    if data.startswith("hf:"):
        return _from_hub(data, cache)
    path = Path(data).expanduser().absolute()
    if path.is_dir():
        return Source(name="mmie", rows=_rows_in(path), root=_pictures_of(path, cache))
    if path.is_file():
        return Source(name="mmie", rows=path, root=_pictures_of(path.parent, cache))
    raise TaskError(
        f"no data at {data!r}: give a folder that holds data.json and images/, the JSON "
        "file itself, hf:ORG/NAME@REVISION, 'sample' for the bundled queries, or another "
        "form that `plait list data` shows"
    )


def _from_hub(data: str, cache: Path) -> Source:
    snapshot = hub.snapshot(data, (*FILES, ARCHIVE, "images/**"))
    return Source(
        name="mmie",
        rows=_rows_in(snapshot),
        root=_pictures_of(snapshot, cache),
        also=(snapshot.parents[1] / "blobs",),
        revision=snapshot.name,
    )


def _rows_in(folder: Path) -> Path:
    files = (folder / name for name in FILES if (folder / name).is_file())
    if (path := next(files, None)) is None:
        raise TaskError(f"{folder} holds neither {' nor '.join(FILES)}")
    return path


def _pictures_of(folder: Path, cache: Path) -> Path:
    """`folder`, or where its packed pictures have been unpacked."""
    packed = folder / ARCHIVE
    if (folder / "images").is_dir() or not packed.is_file():
        return folder
    return archive.unpacked(packed, cache)
