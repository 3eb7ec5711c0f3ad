"""MMIE's data: located (the bundled sample, a folder or file, the Hub), and its rows read.

Rows that break a rule become named failures; the others become samples.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tasks.mmie.categories import category_of, field_of
from benchmarks.tasks.mmie.rows import MmieRow, Overlong, id_of, parse, says_nothing
from benchmarks.tasks.reading import sources
from benchmarks.tasks.reading.pictures import PictureFolder, Progress
from benchmarks.tasks.reading.rules import RowError, Rule, TaskError, malformed, shown
from generators.document import Document, Malformed, Sample, Turn

FILES = ("data.json", "overview.json")
"""Names of the file of rows, in the order in which they are tried."""
ARCHIVE = "images.tar.gz"
SAMPLE = Path(__file__).parent / "sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A task set on this machine."""

    name: str
    rows: Path
    """The JSON file."""
    root: Path
    """Folder that the paths of pictures are relative to."""
    also: tuple[Path, ...] = ()
    """Folders that links under `root` may point to."""
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
    snapshot = sources.snapshot(data, (*FILES, ARCHIVE, "images/**"))
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
    """`folder`, or the folder into which its archive of pictures is unpacked."""
    packed = folder / ARCHIVE
    if (folder / "images").is_dir() or not packed.is_file():
        return folder
    return sources.unpacked(packed, cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class MmieRows:
    """The contents of an MMIE file."""

    samples: tuple[Sample | Malformed, ...]
    """In file order."""
    broken: Mapping[str, int]
    """Malformed rows by the rule they break."""
    digest: str
    """SHA-256 of the file."""


def read(path: Path, album: PictureFolder, on_progress: Progress | None = None) -> MmieRows:
    """All rows of the MMIE file at `path`, whose pictures are in `album`.

    Raises TaskError when the file is missing, is not JSON or holds no list; everything
    else that can be wrong concerns one row only.
    """
    values, digest = load_rows(path)
    parsed = [_parsed(value) for value in values]
    _refuse_repeated(parsed, values)
    album.check_all(
        (p for r in parsed if isinstance(r, MmieRow) for p in r.pictures), on_progress
    )
    results = [_sample(row, album) if isinstance(row, MmieRow) else row for row in parsed]
    broken = Counter(r.rule.value for r in results if isinstance(r, RowError))
    samples = tuple(
        failure(i, values[i], r) if isinstance(r, RowError) else r
        for i, r in enumerate(results)
    )
    return MmieRows(samples=samples, broken=dict(sorted(broken.items())), digest=digest)


def load_rows(path: Path) -> tuple[list[Any], str]:
    """The list that the JSON file at `path` holds, and the file's SHA-256."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        rows = json.loads(data.decode("utf-8-sig"), parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path} is not JSON: {error}") from None
    if not isinstance(rows, list):
        raise TaskError(f"{path} must hold a list of rows, not {shown(rows)}")
    return rows, hashlib.sha256(data).hexdigest()


def _whole_number(digits: str) -> int | Overlong:
    """By default Python reads at most 4,300 digits; only that row is malformed."""
    try:
        return int(digits)
    except ValueError:
        return Overlong(len(digits.lstrip("-")))


def _parsed(value: Any) -> MmieRow | RowError:
    try:
        return parse(value)
    except RowError as error:
        return error


def _refuse_repeated(parsed: list[MmieRow | RowError], values: list[Any]) -> None:
    """Turn every row but the first of an id into a failure, in place."""
    first: dict[str, int] = {}
    for i, value in enumerate(values):
        if (id := _id(value)) is None:
            continue
        if first.setdefault(id, i) != i:
            parsed[i] = RowError(Rule.DUPLICATE, f"row {first[id]} has it already")


def _sample(row: MmieRow, album: PictureFolder) -> Sample | RowError:
    try:
        turns = tuple(Turn(role, album.content(parts)) for role, parts in row.turns)
        reference = album.content(row.reference)
    except RowError as error:
        return error
    return Sample(
        id=row.id,
        category=row.category,
        field=row.field,
        turns=turns,
        reference=None if says_nothing(reference) else Document(reference),
        wants_images=row.category != "MSR",
        metadata=row.metadata,
        criteria=row.criteria,
    )


def failure(position: int, value: Any, error: RowError) -> Malformed:
    """The failure in place of the row `value` at `position` (from 0)."""
    row = value if isinstance(value, dict) else {}
    id, field = _id(value), row.get("field")
    try:
        category = category_of(id or "", ())
    except RowError:
        category = "unknown"
    known = field_of(field) if isinstance(field, str) and field.isprintable() else ""
    return malformed(position, id, error, category, known or "unknown")


def _id(value: Any) -> str | None:
    """The id of a row that has a usable one."""
    try:
        return id_of(value) if isinstance(value, dict) else None
    except RowError:
        return None
