"""Whether a store is whole: every byte of every column, the digests inside, the numbers.

    for stage in verify(Path("runs/mine")):
        print(stage.name, stage.records, [str(p.part) for p in stage.damaged])

The store checks a part that was reported damaged in the same way (`check_part`), before it
sets it aside.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from plait.cluster.ledger import missing_parts
from plait.cluster.parts import (
    DamagedPart,
    digest_in_name,
    open_part,
    parts_in,
    read_part,
    reading,
    stage_folders,
)
from plait.cluster.records import kind_of
from plait.generators.base import Kind
from plait.generators.buckets import AnyPath, local_copy
from plait.generators.images import ImageError, decode

_JSON = ("usage", "notes", "segments", "parts")
"""Columns that hold JSON."""


@dataclass(slots=True)
class PartCheck:
    """The result of checking one part."""

    part: AnyPath
    records: int | None = None
    """Their number; None where not even that can be read."""
    images: int = 0
    """Images whose digest was compared."""
    undecodable: list[str] = field(default_factory=list)
    """Keys of records whose bytes are intact but cannot be decoded as an image."""
    keys: frozenset[str] | None = None
    """Keys of its records; None where they cannot be read."""
    damage: str | None = None
    """What is wrong with the bytes; None for an intact part."""


def check_part(part: AnyPath, *, images: bool = False) -> PartCheck:
    """Read all of a part; with `images`, decode them too. Changes nothing.

    Raises FileNotFoundError for a part that is gone, StoreError where it cannot be read.
    """
    check = PartCheck(part)
    try:
        with reading(str(part)), local_copy(part) as copy:
            # How many records a damaged part has is told where its keys can be read.
            with suppress(DamagedPart):
                keys = read_part(copy, ["key"]).column(0).to_pylist()
                check.records = len(keys)
                check.keys = frozenset(keys)
            with open_part(copy) as parquet:
                _check_groups(parquet, check, images)
            with copy.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            # Parts of earlier versions have no digest in their names.
            if digest_in_name(part) not in (None, digest):
                raise ValueError("its bytes are not those that were written")
    except DamagedPart as damage:
        check.damage = damage.reason
    return check


def _check_groups(file: pq.ParquetFile, check: PartCheck, images: bool) -> None:
    kind = kind_of(file.schema_arrow.names)
    check.records = file.metadata.num_rows
    for group in range(file.metadata.num_row_groups):
        table: pa.Table = file.read_row_group(group)
        table.validate(full=True)
        for record in table.to_pylist():
            _check_record(kind, record)
            stored = _images_of(record)
            check.images += len(stored)
            if images and not all(map(_is_image, stored)):
                check.undecodable.append(record["key"])


def _images_of(record: Mapping[str, Any]) -> list[bytes]:
    """The bytes of the images of one record, of whatever kind."""
    images: list[bytes] = []
    for cell in (record.get("image"), *(record.get("images") or ())):
        if cell is not None:
            images.append(cell["bytes"])
    return images


def _check_record(kind: Kind | None, record: Mapping[str, Any]) -> None:
    """ValueError for text that is not valid JSON, and for bytes with another digest."""
    for name in _JSON:
        json.loads(record.get(name) or "{}")
    for digest, data in _digests(kind, record):
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"bytes of record {record['key']} have another digest")


def _digests(
    kind: Kind | None, record: Mapping[str, Any]
) -> list[tuple[str, bytes | None]]:
    """(digest, bytes) of every image and payload of one record."""
    if kind is None or record["outcome"] != "done":
        return []
    match kind:
        case Kind.RENDER | Kind.TRANSFORM:
            return [(record["digest"], (record["image"] or {}).get("bytes"))]
        case Kind.CONDITION:
            return [(record["digest"], (record["payload"] or [None])[0])]
        case Kind.DRAFT:
            return [*_of_draft(record, "payload"), *_of_draft(record, "images")]
    return []


def _of_draft(
    record: Mapping[str, Any], column: Literal["payload", "images"]
) -> Iterator[tuple[str, bytes | None]]:
    """(digest, bytes) of what one column of a draft holds; the segments name the digests.

    ValueError where there are more of the ones than of the others.
    """
    name = "digest" if column == "images" else "payload"
    digests: list[str] = []
    for segment in json.loads(record["segments"]):
        if segment.get(name) is not None:
            digests.append(segment[name])
    for digest, item in zip(digests, record.get(column) or (), strict=True):
        yield digest, item["bytes"] if isinstance(item, dict) else item


def _is_image(data: bytes) -> bool:
    try:
        decode(data)
    except ImageError:
        return False
    return True


class _Held(NamedTuple):
    """The records that some parts hold."""

    keys: set[str]
    unnamed: int
    """Records of parts of which the keys cannot be read, but their number."""

    @classmethod
    def by(cls, checks: Sequence[PartCheck]) -> _Held:
        """Return those of the parts that were checked."""
        keys: set[str] = set()
        unnamed = 0
        for check in checks:
            if check.keys is None:
                unnamed += check.records or 0
            else:
                keys |= check.keys
        return cls(keys, unnamed)


@dataclass(frozen=True, slots=True)
class StageCheck:
    """The results of checking all parts of one stage."""

    name: str
    """The folder of the stage."""
    checks: Sequence[PartCheck]
    noted: int = 0
    """Records that it had at the end of a run; 0 where that was not noted."""
    gone: Sequence[AnyPath] = ()
    """Parts that somebody has removed."""

    @property
    def records(self) -> int:
        """Records that were read, superseded ones included."""
        return sum(check.records or 0 for check in self.checks)

    @property
    def images(self) -> int:
        """Images whose digest was compared and that were decoded."""
        return sum(check.images for check in self.checks)

    @property
    def damaged(self) -> list[PartCheck]:
        """Parts whose bytes are not those that were written."""
        return [check for check in self.checks if check.damage is not None]

    @property
    def undecodable(self) -> list[str]:
        """Keys of records whose bytes are intact but cannot be decoded as an image."""
        keys: list[str] = []
        for check in self.checks:
            keys += check.undecodable
        return keys

    @property
    def lost(self) -> int:
        """Number of records to be made again: those that are in no intact part."""
        intact = _Held.by([check for check in self.checks if check.damage is None])
        damaged = _Held.by(self.damaged)
        return len(damaged.keys - intact.keys) + damaged.unnamed

    @property
    def missing(self) -> int:
        """Records that were there at the end of a run and are in no part of any kind."""
        if self.uncounted:
            return 0
        held = _Held.by(self.checks)
        return max(0, self.noted - len(held.keys) - held.unnamed)

    @property
    def unsigned(self) -> int:
        """Parts of earlier versions, which carry no checksums."""
        return sum(digest_in_name(check.part) is None for check in self.checks)

    @property
    def uncounted(self) -> int:
        """Damaged parts of which not even the number of records can be read."""
        return sum(check.records is None for check in self.damaged)


def verify(root: AnyPath, noted: Mapping[str, int] | None = None) -> Iterator[StageCheck]:
    """Check all parts under `root`, stage by stage; StoreError where one cannot be read.

    `noted` is how many records the folder of each stage had at the end of a run.
    """
    noted = noted or {}
    missing = [root / "stages" / name for name in missing_parts(root)]
    # Folders that are there, those that were, and those of parts that were removed.
    folders = stage_folders(root)
    folders += [root / "stages" / name for name in noted]
    folders += [part.parent for part in missing]
    # A stage that was renamed has its records in several folders, with the same digest.
    stages: dict[str, dict[str, AnyPath]] = defaultdict(dict)
    for folder in folders:
        _, _, digest = folder.name.rpartition("-")
        stages[digest].setdefault(folder.name, folder)
    for of_stage in stages.values():
        most = max(noted.get(name, 0) for name in of_stage)
        gone = [part for part in missing if part.parent.name in of_stage]
        checks = _check_all(list(of_stage.values()))
        if checks or most or gone:
            yield StageCheck(next(iter(of_stage)), checks, most, gone)


def _check_all(folders: Sequence[AnyPath]) -> list[PartCheck]:
    """Check all parts, those too that others have been joined to meanwhile."""
    checks: dict[AnyPath, PartCheck | None] = {}
    while True:
        left: list[AnyPath] = []
        for folder in folders:
            left += [part for part in parts_in(folder) if part not in checks]
        if not left:
            return [check for check in checks.values() if check is not None]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            checks |= zip(left, pool.map(_check, left), strict=True)


def _check(part: AnyPath) -> PartCheck | None:
    try:
        return check_part(part, images=True)
    except FileNotFoundError:
        return None  # joined with others by a run that is under way
