"""Records in a folder or in a bucket: Parquet parts, written whole or not at all.

A part appears under its name only after its bytes are on disk (write, fsync, rename; an
object of a bucket is there once it is complete), so a crash at any moment leaves nothing
half-written that a reader would take. Records are named by key: writing one twice is
harmless, readers keep the better one. A part that is proved damaged
is set aside under another name, and only by a store that `repairs`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from plait.cluster.ledger import PartLedger, missing_parts, notices_of_missing
from plait.cluster.parts import (
    Blocks,
    DamagedPart,
    MissingPart,
    StoreError,
    ValueCache,
    forget_open_parts,
    parts_in,
    read_blocks,
    read_cell,
    read_parts,
    read_rows,
    reading,
    reading_record,
    stage_folders,
    write_joined,
    write_part,
)
from plait.cluster.record_index import (
    Array,
    KeyDigests,
    RecordIndex,
    RecordPlace,
    RecordStatus,
    Rows,
    Worth,
    halves_of,
)
from plait.cluster.records import (
    INDEXED,
    SCHEMAS,
    RecordRow,
    StoredCell,
    as_current,
    rows_of,
    value_columns,
)
from plait.cluster.verify import check_part
from plait.generators.base import Job, Kind, StageSpec
from plait.generators.buckets import AnyPath, any_path, unlink_all
from plait.generators.document import Blob

__all__ = [
    "BlobReader",
    "DamagedPart",
    "Store",
    "StoreError",
    "notes_of",
    "read_blob",
    "write_part",
]

_SMALL_PART_BYTES = 32 << 20
_COMPACTED_PART_BYTES = 256 << 20
_STALE_TEMPORARY_S = 3600.0
_MOST_LOOKS = 5
_FRESH_BYTES = 64 << 20
_VALUES_BYTES = 128 << 20
_ROW_BYTES = 700
"""What a record takes in memory beside its texts, about."""
_UNREAD = "Its records count as missing here."
_log = logging.getLogger("plait")


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
    data: Any = read_cell(cell.part, cell.row, cell.column)
    with reading(cell.part):
        data = data if cell.item is None else data[cell.item]
        data = data["bytes"] if isinstance(data, dict) else data
    if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != digest:
        reason = f"{cell.column} of record {cell.row} has another digest"
        raise DamagedPart(cell.part, reason)
    return data


def with_bytes(blob: Blob) -> Blob:
    """`blob` with its bytes, which are read where they are not there yet."""
    return blob if blob.data is not None else replace(blob, data=read_blob(blob))


class FoundRecord(NamedTuple):
    """Where a record is."""

    part: AnyPath
    row: int


_LATEST_PARTS: dict[AnyPath, list[AnyPath]] = {}
"""By folder, its parts when they were last looked for, the latest first."""
_JOINED_INTO: dict[str, AnyPath] = {}
"""By the path of a part that is gone, the part in which a record of it was found last."""


def find_records(cell: StoredCell) -> Iterator[FoundRecord]:
    """Yield where records with the key of a cell's are, the latest first.

    For what names a part that was joined with others since. Parts are looked for again
    where none of those that were there last has it. Raises DamagedPart, StoreError.
    """
    if cell.part in _JOINED_INTO:
        yield from _found_in([_JOINED_INTO[cell.part]], cell.key)
    folder = any_path(cell.part).parent
    known = _LATEST_PARTS.get(folder, [])
    yield from _found_in(known, cell.key)
    _LATEST_PARTS[folder] = latest = _by_time(parts_in(folder))[::-1]
    yield from _found_in([part for part in latest if part not in known], cell.key)


def _found_in(parts: Iterable[AnyPath], key: str) -> Iterator[FoundRecord]:
    high, low = halves_of(key)
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            keys = _sort_keys(part)
            i = int(keys.digests.high.searchsorted(high))
            while i < len(keys.rows) and keys.digests.high[i] == high:
                if keys.digests.low[i] == low:
                    yield FoundRecord(part, int(keys.rows[i]))
                i += 1


def _by_time(parts: Iterable[AnyPath]) -> list[AnyPath]:
    """Those of parts that are there, the first written first."""
    times: dict[AnyPath, float] = {}
    for part in parts:
        with contextlib.suppress(FileNotFoundError):
            times[part] = part.stat().st_mtime
    return sorted(times, key=lambda part: (times[part], part))


class _SortedKeys(NamedTuple):
    digests: KeyDigests
    rows: Array


@lru_cache(maxsize=256)
def _sort_keys(part: AnyPath) -> _SortedKeys:
    with reading(str(part)):
        tables = [table for _, table in read_blocks(part, ["key"])]
        keys = KeyDigests.of(pa.concat_tables(tables).column("key").combine_chunks())
    order = keys.high.argsort(kind="stable")
    return _SortedKeys(keys.at(order), order)


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


_NOTED = ValueCache(most_bytes=64 << 20)
_TOLD = ("notes", "usage", "seconds")


class _Stored(Protocol):
    """What says where a record is."""

    @property
    def part(self) -> str:
        """Path of the part."""

    @property
    def row(self) -> int:
        """Position in it."""


def notes_of(row: _Stored) -> dict[str, Any]:
    """Return what a stage noted about one record: the exact prompt, truncation, ..."""
    with reading_record(row.part):
        notes, _, _ = _NOTED.read(row.part, row.row, _TOLD)
        return json.loads(notes or "{}")  # type: ignore[no-any-return]


def usage_of(row: _Stored) -> dict[str, float]:
    """What one record used: tokens, images, ..., and its busy `seconds`."""
    with reading_record(row.part):
        _, usage, seconds = _NOTED.read(row.part, row.row, _TOLD)
        return {**json.loads(usage or "{}"), "seconds": round(seconds or 0.0, 3)}


class StageRows(Mapping[str, RecordRow]):
    """The records of a stage by key; values are read when they are asked for."""

    def __init__(self, store: Store, spec: StageSpec, index: RecordIndex) -> None:
        self._store = store
        self._spec = spec
        self._index = index

    def __getitem__(self, key: str) -> RecordRow:
        row = self._store.record(self._spec, key)
        if row is None:
            raise KeyError(key)
        return row

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._index.find(key) is not None

    def __iter__(self) -> Iterator[str]:
        return self._index.keys()

    def __len__(self) -> int:
        return len(self._index)


class _Fresh:
    """Records that were just added, with their values, up to a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._rows: OrderedDict[tuple[str, str], RecordRow] = OrderedDict()

    def add(self, stage: str, key: str, row: RecordRow) -> None:
        """Hold a record of the stage with this digest."""
        self.drop(stage, key)
        self._rows[stage, key] = row
        self._bytes += _size_of(row)
        while self._bytes > self._most_bytes:
            _, former = self._rows.popitem(last=False)
            self._bytes -= _size_of(former)

    def drop(self, stage: str, key: str) -> None:
        """Forget a record, if it is held."""
        former = self._rows.pop((stage, key), None)
        if former is not None:
            self._bytes -= _size_of(former)

    def get(self, stage: str, place: RecordPlace) -> RecordRow | None:
        """Return the record at a place, where it is held."""
        row = self._rows.get((stage, place.key))
        same = row is not None and (row.part, row.row) == (place.part, place.row)
        return row if same else None


def _size_of(row: RecordRow) -> int:
    texts = (v for v in (*row.light, row.reason) if isinstance(v, str | bytes))
    return _ROW_BYTES + sum(map(len, texts))


@dataclass(frozen=True, slots=True, eq=False)
class StoredPiece:
    """Some records of one part."""

    part: str
    """Path of the Parquet part."""
    rows: Array
    """Where each of them is in the part."""
    table: pa.Table


class Store:
    """All stages' records under one run directory.

    A store that `repairs` sets damaged parts aside, so that their records are made again;
    a `strict` one raises DamagedPart; any other leaves them in place, counts their records
    as missing and names them in `damage`. Unless it raises, `on_notice` is called with a
    message, by default one that writes to the terminal.
    """

    def __init__(
        self,
        root: AnyPath,
        *,
        repairs: bool = False,
        strict: bool = False,
        on_notice: Callable[[str], None] = _log.warning,
        former: Store | None = None,
    ) -> None:
        """Take over what a `former` store of this root has read, if nothing is damaged.

        Else parts are read anew, whatever this process has read of them before.
        """
        if former is None:
            forget_open_parts()
        self.root = root
        self.on_notice = on_notice
        self.repairs = repairs
        self.strict = strict
        self.notices: list[str] = []
        """Messages about the state of the store."""
        self.damage: dict[str, DamagedPart] = {}
        """By part, the damage that readers went on without."""
        self.suspects: set[str] = set()
        """Parts that a worker reported damaged."""
        intact = former if former is not None and not former.damage else None
        self._indices: dict[str, RecordIndex] = intact._indices if intact else {}
        """By the stage's digest."""
        self._values = ValueCache(_VALUES_BYTES)
        self._fresh = _Fresh(_FRESH_BYTES)
        self._ledger: PartLedger | None = None
        """Of the driver that works on the run."""

    def folder(self, spec: StageSpec) -> AnyPath:
        """Return where the parts of `spec` are kept."""
        return self.root / "stages" / spec.folder

    def rows(self, spec: StageSpec) -> StageRows:
        """Every record of `spec` by key; only where they are is kept in memory."""
        return StageRows(self, spec, self._index(spec))

    def statuses(self, spec: StageSpec) -> Counter[RecordStatus]:
        """How many records of `spec` ended how."""
        return self._index(spec).statuses()

    def _index(self, spec: StageSpec) -> RecordIndex:
        if spec.digest not in self._indices:
            self._notice_missing()
            self._look(spec)
        return self._indices[spec.digest]

    def is_current(self, spec: StageSpec) -> bool:
        """Whether what was read of `spec` is what there is: no part came or went."""
        index = self._indices.get(spec.digest)
        return index is None or index.whole == set(map(str, self.parts(spec)))

    def forget(self, spec: StageSpec) -> None:
        """Read the records of `spec` again when they are needed."""
        self._indices.pop(spec.digest, None)

    def find(self, job: Job) -> RecordPlace | None:
        """Return where the record of `job` is, if there is one, and how it ended."""
        index = self._index(job.spec)
        place = index.find(job.key)
        if place is None:
            former = (index.find(key) for key in job.keys[1:])
            place = next((found for found in former if found is not None), None)
        return place

    def place(self, spec: StageSpec, key: str) -> RecordPlace | None:
        """Return where the record with this key is, if there is one."""
        return self._index(spec).find(key)

    def key_of(self, job: Job) -> str:
        """Return the key under which the record of `job` is kept, or will be."""
        place = self.find(job)
        return job.key if place is None else place.key

    def row(self, job: Job) -> RecordRow | None:
        """Return the record of `job`, if there is one."""
        place = self.find(job)
        return None if place is None else self.read(job.spec, place)

    def record(self, spec: StageSpec, key: str) -> RecordRow | None:
        """Return the record with this key, if there is one."""
        place = self._index(spec).find(key)
        return None if place is None else self.read(spec, place)

    def read(self, spec: StageSpec, place: RecordPlace) -> RecordRow | None:
        """Return the record that is at a place, or that is under its key by now.

        None where its part is gone or damaged, and no other has it.
        """
        found: RecordPlace | None = place
        for _ in range(_MOST_LOOKS):
            if found is None:
                return None
            try:
                return self._read(spec, found)
            except FileNotFoundError:
                self._look_again(spec)
            except DamagedPart as damage:
                self.go_on_without(damage, _UNREAD)
                self._indices.pop(spec.digest, None)
            found = self._index(spec).find(place.key)
        raise self._changes(spec)

    def _read(self, spec: StageSpec, place: RecordPlace) -> RecordRow:
        fresh = self._fresh.get(spec.digest, place)
        if fresh is not None:
            return fresh
        names = value_columns(spec.kind)
        reason, at, *light = self._values.read(place.part, place.row, names)
        outcome, fault, _ = place.status
        stored = place.part, place.row, place.key
        return RecordRow(outcome, fault, reason, at, tuple(light), *stored)

    def add(self, spec: StageSpec, rows: Mapping[str, RecordRow]) -> None:
        """Index records that a worker or the driver has just committed."""
        index = self._index(spec)
        for key, row in rows.items():
            place = index.find(key)
            if place is not None and (place.part, place.row) != (row.part, row.row):
                former = self.read(spec, place)
                if former is not None and not row.supersedes(former, spec.kind):
                    continue
            index.put(key, row.part, row.row, row.outcome, row.fault)
            self._fresh.add(spec.digest, key, row)
        if self._ledger is not None:
            self._ledger.add({row.part for row in rows.values()})

    @contextlib.contextmanager
    def without(self, jobs: Iterable[Job]) -> Iterator[None]:
        """Have the records of `jobs` count as missing within; what is not made again stays.

        They are only left out of the index: whoever reads the parts meanwhile has them.
        """
        taken: list[tuple[StageSpec, str, RecordRow]] = []
        for job in jobs:
            place = self.find(job)
            row = None if place is None else self.read(job.spec, place)
            if place is not None and row is not None:
                taken.append((job.spec, place.key, row))
                self._index(job.spec).hide(place.key)
        try:
            yield
        finally:
            for spec, key, row in taken:
                if not self._index(spec).show(key):  # it was made again
                    self.add(spec, {key: row})

    def commit(self, spec: StageSpec, table: pa.Table) -> dict[str, RecordRow]:
        """Write records in this process and index them."""
        part = write_part(self.folder(spec), table)
        rows = rows_of(spec.kind, table, str(part))
        self.add(spec, rows)
        return rows

    def _look(self, spec: StageSpec) -> None:
        """Index the parts that were not read yet.

        A final record that is known stays, even where an earlier one turns up, which a
        worker has committed unsaid: others may have been made from it.
        """
        looks = 0
        while looks < _MOST_LOOKS:
            index = self._indices.setdefault(spec.digest, RecordIndex())
            try:
                unread = (p for p in self.parts(spec) if str(p) not in index.whole)
                new = [part for part in unread if str(part) not in self.damage]
                for part, read in read_parts(new, INDEXED):
                    for first, digests, codes in self._heads(index, part, read):
                        index.append(str(part), first, digests, codes)
                    index.whole.add(str(part))
                index.settle(partial(self._weigh, spec.kind, index))
            except FileNotFoundError:
                # A running command has just compacted its parts: look again.
                self._indices.pop(spec.digest, None)
                looks += 1
            except DamagedPart as damage:
                # Found where two records of a key were compared.
                self._go_on_or_repair(damage)
                self._indices.pop(spec.digest, None)
            else:
                # Damage may have been found, and with it all that was read forgotten.
                self._indices.setdefault(spec.digest, index)
                return
        raise self._changes(spec)

    def _changes(self, spec: StageSpec) -> StoreError:
        return StoreError(f"{self.folder(spec)} changes while it is read; try again")

    def _look_again(self, spec: StageSpec) -> None:
        """Forget the records of parts that are gone, and index those that are new."""
        index = self._index(spec)
        there = {str(part) for part in self.parts(spec)}
        missing = [part for part in index.parts if part not in there]
        index.forget([part for part in missing if not any_path(part).exists()])
        self._look(spec)

    def _heads(
        self, index: RecordIndex, part: AnyPath, read: Callable[[], Blocks]
    ) -> list[tuple[int, KeyDigests, Array]]:
        """Return what is indexed of a part; nothing where it is proved damaged."""
        heads = []
        try:
            with reading(str(part)):
                for first, table in read():
                    key, outcome, fault = (
                        table.column(name).combine_chunks() for name in INDEXED
                    )
                    codes = index.codes.codes_of(outcome, fault)
                    heads.append((first, KeyDigests.of(key), codes))
        except DamagedPart as damage:
            self._go_on_or_repair(damage)
            index.forget([damage.part])
            return []
        return heads

    def _go_on_or_repair(self, damage: DamagedPart) -> None:
        """Set a damaged part aside; go on without it in a store that does not repair."""
        if not self.repairs:
            self.go_on_without(damage, _UNREAD)
        elif not self.set_aside([damage.part]):
            raise damage

    def _weigh(self, kind: Kind, index: RecordIndex, rows: Rows) -> Worth:
        """Read by what one of several records of a key is chosen."""
        final = index.codes.are_final(rows.code)
        settled = final.copy()
        at = np.zeros(rows.size, np.int64)
        columns = value_columns(kind) if kind is Kind.DRAFT else ("at",)
        order = np.lexsort((rows.row, rows.part))
        starts = np.flatnonzero(np.diff(rows.part[order], prepend=-1))
        for chosen in np.split(order, starts[1:]):
            part = index.parts[rows.part[chosen[0]]]
            table = read_rows(part, rows.row[chosen].tolist(), columns)
            at[chosen] = table.column("at").to_numpy()
            if kind is not Kind.DRAFT:
                continue
            values = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
            for i, (reason, made, *light) in zip(chosen.tolist(), values, strict=True):
                outcome, fault, _ = index.codes.statuses[rows.code[i]]
                row = RecordRow(outcome, fault, reason, made, tuple(light), part, 0)
                settled[i] = row.is_settled(kind)
        return Worth(settled, at)

    def go_on_without(self, damage: DamagedPart, what: str) -> None:
        """Note damage and `what` follows from it; raise it in a store that does not."""
        if self.repairs or (self.strict and not isinstance(damage, MissingPart)):
            raise damage
        self.damage.setdefault(damage.part, damage)
        self._notice(f"{damage}. {what}")

    def notes_and_usage(self, row: _Stored) -> tuple[dict[str, Any], dict[str, float]]:
        """`notes_of` and `usage_of`; nothing where they are damaged."""
        try:
            return notes_of(row), usage_of(row)
        except DamagedPart as damage:
            self.go_on_without(damage, "What its stage noted is not shown.")
            return {}, {}

    def _notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)
            self.on_notice(text)

    def set_aside(self, parts: Iterable[str]) -> int:
        """Rename those of `parts` that are damaged for this process too; how many."""
        return sum(self._set_aside(any_path(part)) for part in sorted(set(parts)))

    def check_all(self, specs: Iterable[StageSpec]) -> int:
        """Set aside what is damaged among all parts of `specs`; how many."""
        parts = chain.from_iterable(map(self.parts, specs))
        return self.set_aside(str(p) for p in parts if check_part(p).damage is not None)

    def _set_aside(self, part: AnyPath) -> bool:
        try:
            damage = check_part(part).damage
        except FileNotFoundError:
            return False
        if damage is None:
            self._notice(f"part {part} was reported damaged, but is intact on this machine")
            return False
        if not self.repairs or self.root not in part.parents:
            self._notice(str(DamagedPart(str(part), damage)))
            return False
        aside = part.with_suffix(".unreadable")
        try:
            part.rename(aside)  # type: ignore[arg-type]
        except OSError as error:
            raise StoreError(
                f"part {part} is damaged and cannot be set aside: {error.strerror}"
            ) from error
        self._notice(
            f"part {part} is damaged ({damage}); it was set aside as {aside.name} and its "
            "records are made again"
        )
        self._forget_read()
        return True

    def _forget_read(self) -> None:
        """Have all parts read again when they are needed."""
        self._indices.clear()
        self.suspects.clear()
        forget_open_parts()
        self._values.clear()
        _NOTED.clear()

    @contextlib.contextmanager
    def noting_parts(self, shard_folder: AnyPath | None) -> Iterator[None]:
        """Within, a driver that holds the lock notes which parts there are."""
        self._ledger = PartLedger(self.root, shard_folder)
        try:
            self.forget_missing()
            yield
        finally:
            self._ledger.save()

    def forget_missing(self) -> bool:
        """Have records made again whose parts are gone; whether any are."""
        gone = [] if self._ledger is None else self._ledger.take_missing()
        for text in notices_of_missing(self.root, gone, "Their records are made again."):
            self._notice(text)
        if gone:
            self._forget_read()
        return bool(gone)

    def _notice_missing(self) -> None:
        """Say once which parts are gone, where no driver does."""
        if self._ledger is None and not self._indices:
            what = "Their records count as missing here; `plait run` makes them again."
            for text in notices_of_missing(self.root, missing_parts(self.root), what):
                self._notice(text)

    def parts(self, spec: StageSpec) -> list[AnyPath]:
        """Return the parts of `spec`, in all folders with its digest."""
        suffix = f"-{spec.digest[:12]}"
        folders = [f for f in stage_folders(self.root) if f.name.endswith(suffix)]
        return sorted(chain.from_iterable(map(parts_in, folders)))

    def columns(self, spec: StageSpec, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The named columns (and `key`) of every record that is not superseded."""
        for piece in self.pieces(spec, names):
            yield from piece.table.to_pylist()

    def pieces(self, spec: StageSpec, names: Sequence[str]) -> Iterator[StoredPiece]:
        """The same as tables, with where the records are; one is in memory at a time."""
        wanted = list(dict.fromkeys(["key", *names]))
        for part, read in read_parts(self.parts(spec), wanted):
            for rows, table in self._current(spec, part, read):
                yield StoredPiece(str(part), rows, table)

    def records(self, spec: StageSpec) -> Iterator[tuple[str, RecordRow]]:
        """Every record of `spec` with its values, by key, part after part."""
        names = ["key", "outcome", "fault", *value_columns(spec.kind)]
        for part, read in read_parts(self.parts(spec), names):
            try:
                for rows, table in self._current(spec, part, read):
                    columns = (table.column(name).to_pylist() for name in names)
                    for i, key, outcome, fault, reason, at, *light in zip(
                        rows.tolist(), *columns, strict=True
                    ):
                        values = outcome, fault, reason, at, tuple(light)
                        yield key, RecordRow(*values, str(part), i, key)
            except DamagedPart as damage:
                self.go_on_without(damage, _UNREAD)

    def _current(
        self, spec: StageSpec, part: AnyPath, read: Callable[[], Blocks]
    ) -> Iterator[tuple[Array, pa.Table]]:
        """The records of a part that are not superseded, with their rows, in pieces."""
        index = self._index(spec)
        with reading_record(str(part)):
            for first, table in read():
                digests = KeyDigests.of(table.column("key").combine_chunks())
                current = index.are_current(str(part), first, digests)
                rows = first + np.flatnonzero(current)
                whole = len(rows) == table.num_rows
                yield rows, table if whole else table.filter(pa.array(current))

    def sweep(self) -> None:
        """Remove temporary files that a crash left behind."""
        for path in self.root.glob("stages/*/.part-*.tmp"):
            # What cannot be removed does no harm.
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_TEMPORARY_S:
                    path.unlink(missing_ok=True)

    def compact(self, spec: StageSpec) -> None:
        """Join small parts into few large ones; superseded records are dropped.

        The joined part is complete before the small ones are removed, so a crash in
        between leaves duplicates, which readers resolve by key. Raises DamagedPart,
        StoreError.
        """
        try:
            sizes = {part: part.stat() for part in self.parts(spec)}
            small = [p for p, about in sizes.items() if about.st_size < _SMALL_PART_BYTES]
            if len(small) < 2:
                return
            # A worker that was stopped may have committed records without reporting them.
            self._look(spec)
            left = set(self.parts(spec))
            for group in _groups(_by_time(part for part in small if part in left)):
                joined = self.join(spec, group, current=True)
                self.remove(spec, self.take_over(joined))
            forget_open_parts()
        except OSError as error:
            folder = self.folder(spec)
            raise StoreError(
                f"parts of {folder} cannot be compacted: {error.strerror or error}. All "
                "records are kept; run the same command again."
            ) from error

    def join(
        self, spec: StageSpec, parts: Iterable[AnyPath], *, current: bool = False
    ) -> JoinedPart:
        """Write the records of `parts` as one part, only `current` ones if asked.

        Nothing in this store changes, and another thread may do it, unless it asks for
        current ones. Raises DamagedPart, StoreError, FileNotFoundError.
        """
        moves: list[_Move] = []
        ordered = _by_time(parts)
        if not ordered:
            raise FileNotFoundError(f"none of the parts in {self.folder(spec)} is there")

        def tables() -> Iterator[pa.Table]:
            for part, read in read_parts(ordered):
                pieces = (
                    self._current(spec, part, read) if current else _all_rows(part, read)
                )
                for rows, table in pieces:
                    digests = KeyDigests.of(table.column("key").combine_chunks())
                    moves.append(_Move(part, rows, digests))
                    with reading(str(part)):
                        yield as_current(spec.kind, table)

        latest = int(ordered[-1].stat().st_mtime * 1e9)
        joined = write_joined(self.folder(spec), SCHEMAS[spec.kind], tables(), latest)
        return JoinedPart(spec, joined, joined.stat().st_size, moves)

    def take_over(self, joined: JoinedPart) -> list[AnyPath]:
        """Note where joined records are by now; the parts that are no longer needed."""
        index = self._index(joined.spec)
        moved = 0
        first = 0
        for move in joined.moves:
            to = str(joined.part)
            moved += index.move(str(move.part), move.rows, move.digests, to, first)
            first += len(move.rows)
        if moved == first:
            # Else all are looked at once more: the driver was not told of some of them yet.
            index.whole.add(str(joined.part))
        if self._ledger is not None:
            self._ledger.add([str(joined.part)])
        # Equal content has an equal name: the joined part may be one of them.
        former = dict.fromkeys(move.part for move in joined.moves)
        return [part for part in former if part != joined.part]

    def remove(self, spec: StageSpec, parts: Sequence[AnyPath]) -> None:
        """Remove parts whose records others have by now; OSError where that is refused."""
        names = [str(part) for part in parts]
        self._index(spec).drop_parts(names)
        if self._ledger is not None:
            self._ledger.remove(names)
        unlink_all(parts)


def _all_rows(
    part: AnyPath, read: Callable[[], Blocks]
) -> Iterator[tuple[Array, pa.Table]]:
    with reading(str(part)):
        for first, table in read():
            yield first + np.arange(table.num_rows), table


class _Move(NamedTuple):
    """Rows of a part that follow each other in a joined one."""

    part: AnyPath
    rows: Array
    digests: KeyDigests


class JoinedPart(NamedTuple):
    """A part that was made of others."""

    spec: StageSpec
    part: AnyPath
    size: int
    """In bytes."""
    moves: Sequence[_Move]
    """What it is made of, in order."""


def _groups(parts: list[AnyPath]) -> Iterator[list[AnyPath]]:
    """Runs of parts that together stay near the size of a compacted part."""
    group: list[AnyPath] = []
    size = 0
    for part in parts:
        group.append(part)
        size += part.stat().st_size
        if size >= _COMPACTED_PART_BYTES:
            yield group
            group = []
            size = 0
    if len(group) > 1:
        yield group
