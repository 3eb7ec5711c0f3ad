"""Whether a part is intact: every byte of every column, and the digests inside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.parts import DamagedPart, named_digest, open_part, read_part, reading
from cluster.records import SCHEMAS
from generators.base import Kind
from generators.pictures import PictureError, decode

_BLOCK = 1 << 22
_JSON = ("usage", "notes", "segments", "parts")


@dataclass(slots=True)
class PartCheck:
    """What one look at a whole part showed."""

    part: Path
    records: int | None = None
    """None where not even their number can be read."""
    pictures: int = 0
    """Pictures whose digest was compared."""
    undecodable: list[str] = field(default_factory=list)
    """Keys of records whose picture is as its stage made it, yet is no picture."""
    keys: frozenset[str] | None = None
    """Keys of its records; None where they cannot be read."""
    damage: str | None = None
    """What is wrong with the bytes; None for an intact part."""


def check_part(part: Path, *, pictures: bool = False) -> PartCheck:
    """Read all of a part; with `pictures`, decode them too. Changes nothing.

    Raises FileNotFoundError for a part that is gone, StoreError where it cannot be read.
    """
    check = PartCheck(part)
    _read_keys(check)
    try:
        with reading(str(part)):
            with open_part(str(part)) as file:
                _check_groups(file, check, pictures)
            _compare_name(part)
    except DamagedPart as damage:
        check.damage = damage.reason
    return check


def _read_keys(check: PartCheck) -> None:
    try:
        keys = read_part(check.part, ["key"]).column(0).to_pylist()
    except DamagedPart:
        return
    check.records, check.keys = len(keys), frozenset(keys)


def _check_groups(file: pq.ParquetFile, check: PartCheck, pictures: bool) -> None:
    kind = _kind_of(set(file.schema_arrow.names))
    check.records = file.metadata.num_rows
    for group in range(file.metadata.num_row_groups):
        table: pa.Table = file.read_row_group(group)
        table.validate(full=True)
        for record in table.to_pylist():
            _check_record(kind, record)
            if kind is Kind.RENDER and record["image"] is not None:
                check.pictures += 1
                if pictures and not _is_picture(record["image"]["bytes"]):
                    check.undecodable.append(record["key"])


def _kind_of(columns: set[str]) -> Kind | None:
    """The kind of stage whose columns these are; None for those of another version."""
    same = (kind for kind, schema in SCHEMAS.items() if set(schema.names) == columns)
    return next(same, None)


def _check_record(kind: Kind | None, record: Mapping[str, Any]) -> None:
    """ValueError for text that should be JSON and is not, and for bytes of other digest."""
    for name in _JSON:
        json.loads(record.get(name) or "{}")
    for digest, data in _digests(kind, record):
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"bytes of record {record['key']} have another digest")


def _digests(
    kind: Kind | None, record: Mapping[str, Any]
) -> list[tuple[str, bytes | None]]:
    """(digest, bytes) of every picture and payload of one record."""
    if kind is None or record["outcome"] != "done":
        return []
    match kind:
        case Kind.RENDER:
            return [(record["digest"], (record["image"] or {}).get("bytes"))]
        case Kind.CONDITION:
            return [(record["digest"], (record["payload"] or [None])[0])]
        case Kind.DRAFT:
            segments = json.loads(record["segments"])
            digests = [s["payload"] for s in segments if s.get("payload") is not None]
            return list(zip(digests, record["payload"] or (), strict=True))
    return []


def _is_picture(data: bytes) -> bool:
    try:
        decode(data)
    except PictureError:
        return False
    return True


def _compare_name(part: Path) -> None:
    """ValueError where a part's bytes are not those that its name gives the digest of."""
    expected = named_digest(part)
    if expected is None:
        return
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != expected:
        raise ValueError("its bytes are not those that were written")
