"""Single values of stored records, read where they are: image bytes, notes, usage.

`store.py` finds records by key and reads what their outcomes are made of. What is larger,
or seldom wanted, is read here by whoever needs it, with no index in memory: by the place
that a `Blob` names, or by the part and row of a record.

A part may be gone by then, because it was joined with others (`compaction.py`). Its records
are then found by key in the parts that are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from plait.cluster.parts import (
    DamagedPart,
    MissingPart,
    StoreError,
    ValueCache,
    parts_in,
    read_blocks,
    read_cell,
    reading,
    reading_record,
)
from plait.cluster.record_index import Array, KeyDigests, halves_of
from plait.cluster.records import StoredCell
from plait.generators.buckets import AnyPath, any_path
from plait.generators.document import Blob

_NOTED_BYTES = 64 << 20
"""Of notes and usage that are held in memory."""
_NOTED_COLUMNS = ("notes", "usage", "seconds")


# ---------------------------------------------------------------- bytes of images, payloads


def read_blob(blob: Blob) -> bytes:
    """Return the bytes of `blob`, from memory, from its file, or from its cell of a part.

    Bytes that are read have the digest of the blob: DamagedPart where a part holds
    others, StoreError where a file does. OSError where a file cannot be read.
    """
    if blob.data is not None:
        return blob.data
    if blob.place is None:
        raise StoreError(f"bytes {blob.digest[:12]} have no place to read them from")
    cell = StoredCell.of(blob.place)
    if cell is None:
        with open(blob.place, "rb") as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != blob.digest:
            raise StoreError(f"{blob.place} has changed since the run was planned")
        return data
    return _read_anywhere(cell, blob.digest)


def with_bytes(blob: Blob) -> Blob:
    """`blob` with its bytes, which are read where they are not there yet."""
    return blob if blob.data is not None else replace(blob, data=read_blob(blob))


class BlobReader:
    """`read_blob` for readers that continue after an error: remembers damaged parts."""

    def __init__(self) -> None:
        self.damage: dict[str, DamagedPart] = {}
        """By part, the first damage that was noticed."""

    def __call__(self, blob: Blob) -> bytes:
        """Return the bytes of `blob`; raises what `read_blob` raises."""
        try:
            return read_blob(blob)
        except DamagedPart as damage:
            self.damage.setdefault(damage.part, damage)
            raise


def _read_anywhere(cell: StoredCell, digest: str) -> bytes:
    """The bytes of a cell, of a joined part where its own is gone."""
    if cell.part not in _JOINED_INTO:
        with contextlib.suppress(MissingPart):
            return _read_cell(cell, digest)
    damage: DamagedPart = MissingPart(cell.part)
    for found in find_records(cell):
        try:
            data = _read_cell(cell._replace(part=str(found.part), row=found.row), digest)
        except MissingPart:
            continue  # it was joined with others in turn
        except DamagedPart as error:
            damage = error  # unless another record of the key is the one that is meant
        else:
            _JOINED_INTO[cell.part] = found.part
            return data
    _JOINED_INTO.pop(cell.part, None)
    raise damage


def _read_cell(cell: StoredCell, digest: str) -> bytes:
    """The bytes of a cell; DamagedPart where they have another digest."""
    value: Any = read_cell(cell.part, cell.row, cell.column)
    with reading(cell.part):
        if cell.item is not None:
            value = value[cell.item]
        if isinstance(value, dict):  # an image: its bytes and its file name
            value = value["bytes"]
    if not isinstance(value, bytes) or hashlib.sha256(value).hexdigest() != digest:
        reason = f"{cell.column} of record {cell.row} has another digest"
        raise DamagedPart(cell.part, reason)
    return value


# ----------------------------------------------------------- records of parts that are gone


class FoundRecord(NamedTuple):
    """Where a record is."""

    part: AnyPath
    row: int


_LATEST_PARTS: dict[AnyPath, list[AnyPath]] = {}
"""By folder, its parts when they were last looked for, the latest first."""
_JOINED_INTO: dict[str, AnyPath] = {}
"""By the path of a part that is gone, the part in which a record of it was found last.
Records that were in one part are mostly in one joined part, too, so the next is tried there
first, and no folder is listed for it."""


def find_records(cell: StoredCell) -> Iterator[FoundRecord]:
    """Yield where records with the key of a cell's are, the latest first.

    For what names a part that was joined with others since. Parts are looked for again
    where none of those that were there last has it. Raises DamagedPart, StoreError.
    """
    if cell.part in _JOINED_INTO:
        yield from _find_in([_JOINED_INTO[cell.part]], cell.key)
    folder = any_path(cell.part).parent
    known = _LATEST_PARTS.get(folder, [])
    yield from _find_in(known, cell.key)
    latest = sort_by_time(parts_in(folder))
    latest.reverse()
    _LATEST_PARTS[folder] = latest
    yield from _find_in([part for part in latest if part not in known], cell.key)


def _find_in(parts: Iterable[AnyPath], key: str) -> Iterator[FoundRecord]:
    high, low = halves_of(key)
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            keys = _sort_keys(part)
            # Equal first halves follow each other; the second half tells which is meant.
            i = int(keys.digests.high.searchsorted(high))
            while i < len(keys.rows) and keys.digests.high[i] == high:
                if keys.digests.low[i] == low:
                    yield FoundRecord(part, int(keys.rows[i]))
                i += 1


def sort_by_time(parts: Iterable[AnyPath]) -> list[AnyPath]:
    """Return those of `parts` that are there, the first written first."""
    times: dict[AnyPath, float] = {}
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            times[part] = part.stat().st_mtime
    return sorted(times, key=lambda part: (times[part], part))


class _SortedKeys(NamedTuple):
    """The keys of a part, sorted by their first half."""

    digests: KeyDigests
    rows: Array
    """Where the record of each is in the part."""


@lru_cache(maxsize=256)
def _sort_keys(part: AnyPath) -> _SortedKeys:
    with reading(str(part)):
        tables = [table for _, table in read_blocks(part, ["key"])]
        keys = KeyDigests.of(pa.concat_tables(tables).column("key").combine_chunks())
    order = keys.high.argsort(kind="stable")
    return _SortedKeys(keys.at(order), order)


# -------------------------------------------------------------------------- notes and usage


class Stored(Protocol):
    """What says where a record is."""

    @property
    def part(self) -> str:
        """Path of the part."""

    @property
    def row(self) -> int:
        """Position in it."""


_noted = ValueCache(_NOTED_BYTES)


def notes_of(row: Stored) -> dict[str, Any]:
    """Return what a stage noted about one record: the exact prompt, truncation, ..."""
    with reading_record(row.part):
        notes, _, _ = _noted.read(row.part, row.row, _NOTED_COLUMNS)
        return json.loads(notes or "{}")  # type: ignore[no-any-return]


def usage_of(row: Stored) -> dict[str, float]:
    """What one record used: tokens, images, ..., and its busy `seconds`."""
    with reading_record(row.part):
        _, usage, seconds = _noted.read(row.part, row.row, _NOTED_COLUMNS)
        return {**json.loads(usage or "{}"), "seconds": round(seconds or 0.0, 3)}


def forget_notes() -> None:
    """Have notes and usage read from their parts again."""
    _noted.clear()
