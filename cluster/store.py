"""The records of a run by key, in a folder or in a bucket: Parquet parts and an index.

A part appears under its name only after its bytes are on disk (write, fsync, rename; an
object of a bucket is there once it is complete), so a crash at any moment leaves nothing
half-written that a reader would take. Records are named by key: writing one twice is
harmless, readers keep the better one. A part that is proved damaged
is set aside under another name, and only by a store that `repairs`.

`Store` joins what its neighbours do: `parts.py` writes and reads one part, `records.py`
says what a record consists of, `record_index.py` remembers where each is, and `ledger.py`
which parts there should be. Bytes of images, notes and usage are read without a store
(`record_values.py`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
)
from plait.cluster.record_values import (
    BlobReader,
    Stored,
    forget_notes,
    notes_of,
    read_blob,
    sort_by_time,
    usage_of,
)
from plait.cluster.records import (
    INDEXED,
    SCHEMAS,
    RecordRow,
    as_current,
    iter_rows,
    rows_of,
    value_columns,
)
from plait.cluster.verify import check_part
from plait.generators.base import Job, Kind, StageSpec
from plait.generators.buckets import AnyPath, any_path, unlink_all

__all__ = [
    "BlobReader",
    "DamagedPart",
    "Store",
    "StoreError",
    "notes_of",
    "read_blob",
    "usage_of",
    "write_part",
]

_SMALL_PART_BYTES = 32 << 20
"""Smaller parts are joined at the end of a run,"""
_COMPACTED_PART_BYTES = 256 << 20
"""into parts of about this size."""
_STALE_TEMPORARY_S = 3600.0
"""Age of a temporary file that nobody writes any more: its process has crashed."""
_MOST_LOOKS = 5
"""How often the folder of a stage is listed again because a part vanished meanwhile."""
_FRESH_BYTES = 64 << 20
"""Of records that were just made: walks ask for them next, without reading a part."""
_VALUES_BYTES = 128 << 20
"""Of values that were read from parts."""
_ROW_BYTES = 700
"""What a record takes in memory beside its texts, about."""
_UNREAD = "Its records count as missing here."
_log = logging.getLogger("plait")


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
        """By the stage's digest and the key, the first added first."""

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
        if row is None or (row.part, row.row) != (place.part, place.row):
            return None
        return row


def _size_of(row: RecordRow) -> int:
    """What a record takes in memory, about, in bytes."""
    size = _ROW_BYTES
    for value in (*row.light, row.reason):
        if isinstance(value, str | bytes):
            size += len(value)
    return size


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

    # ---------------------------------------------------------- finding and reading one

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
        if place is not None:
            return place
        for former_key in job.keys[1:]:  # of earlier versions of plait
            place = index.find(former_key)
            if place is not None:
                return place
        return None

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
                self._look_again(spec)  # others may have joined the part meanwhile
            except DamagedPart as damage:
                self.go_on_without(damage, _UNREAD)
                self._indices.pop(spec.digest, None)
            # Another part may have it by now.
            found = self._index(spec).find(place.key)
        raise self._changes(spec)

    def _read(self, spec: StageSpec, place: RecordPlace) -> RecordRow:
        fresh = self._fresh.get(spec.digest, place)
        if fresh is not None:
            return fresh
        names = value_columns(spec.kind)
        reason, at, *light = self._values.read(place.part, place.row, names)
        return RecordRow(
            outcome=place.outcome,
            fault=place.fault,
            reason=reason,
            at=at,
            light=tuple(light),
            part=place.part,
            row=place.row,
            key=place.key,
        )

    # ----------------------------------------------------------------- adding records

    def add(self, spec: StageSpec, rows: Mapping[str, RecordRow]) -> None:
        """Index records that a worker or the driver has just committed."""
        index = self._index(spec)
        for key, row in rows.items():
            place = index.find(key)
            # A look at the folder may have found the very record before its receipt came.
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

    # ---------------------------------------------------------------- indexing parts

    def _look(self, spec: StageSpec) -> None:
        """Index the parts that were not read yet.

        A final record that is known stays, even where an earlier one turns up, which a
        worker has committed unsaid: others may have been made from it.
        """
        looks = 0
        while looks < _MOST_LOOKS:
            index = self._indices.setdefault(spec.digest, RecordIndex())
            try:
                self._index_parts(spec, index)
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

    def _index_parts(self, spec: StageSpec, index: RecordIndex) -> None:
        """Add the records of all parts that `index` does not have yet."""
        new: list[AnyPath] = []
        for part in self.parts(spec):
            if str(part) not in index.whole and str(part) not in self.damage:
                new.append(part)
        for part, read in read_parts(new, INDEXED):
            for head in self._heads(index, part, read):
                index.append(str(part), head.first, head.digests, head.codes)
            index.whole.add(str(part))
        index.settle(partial(self._weigh, spec.kind, index))

    def _changes(self, spec: StageSpec) -> StoreError:
        return StoreError(f"{self.folder(spec)} changes while it is read; try again")

    def _look_again(self, spec: StageSpec) -> None:
        """Forget the records of parts that are gone, and index those that are new."""
        index = self._index(spec)
        there = {str(part) for part in self.parts(spec)}
        gone: list[str] = []
        for part in index.parts:
            if part not in there and not any_path(part).exists():
                gone.append(part)
        index.forget(gone)
        self._look(spec)

    def _heads(
        self, index: RecordIndex, part: AnyPath, read: Callable[[], Blocks]
    ) -> list[_Heads]:
        """Return what is indexed of a part; nothing where it is proved damaged."""
        heads: list[_Heads] = []
        try:
            with reading(str(part)):
                for first, table in read():
                    keys = table.column("key").combine_chunks()
                    outcomes = table.column("outcome").combine_chunks()
                    faults = table.column("fault").combine_chunks()
                    codes = index.codes.codes_of(outcomes, faults)
                    heads.append(_Heads(first, KeyDigests.of(keys), codes))
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
            raise damage  # it is whole here, gone, or of another run directory

    def _weigh(self, kind: Kind, index: RecordIndex, rows: Rows) -> Worth:
        """Read by what one of several records of a key is chosen."""
        settled = index.codes.are_final(rows.code)
        at = np.zeros(rows.size, np.int64)
        # Whether a final draft is settled depends on what it says (`RecordRow.is_settled`).
        reads_drafts = kind is Kind.DRAFT
        columns = value_columns(kind) if reads_drafts else ("at",)
        # Each part is opened once, for all its rows in ascending order.
        order = np.lexsort((rows.row, rows.part))
        starts = np.flatnonzero(np.diff(rows.part[order], prepend=-1))
        for chosen in np.split(order, starts[1:]):
            part = index.parts[rows.part[chosen[0]]]
            table = read_rows(part, rows.row[chosen].tolist(), columns)
            at[chosen] = table.column("at").to_numpy()
            if reads_drafts:
                statuses = [index.codes.statuses[code] for code in rows.code[chosen]]
                settled[chosen] = _are_settled(kind, table, statuses, part)
        return Worth(settled, at)

    # ------------------------------------------------------- damaged and missing parts

    def go_on_without(self, damage: DamagedPart, what: str) -> None:
        """Note damage and `what` follows from it; raise it in a store that does not."""
        if self.repairs or (self.strict and not isinstance(damage, MissingPart)):
            raise damage
        self.damage.setdefault(damage.part, damage)
        self._notice(f"{damage}. {what}")

    def notes_and_usage(self, row: Stored) -> tuple[dict[str, Any], dict[str, float]]:
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
        renamed = 0
        for part in sorted(set(parts)):
            renamed += self._set_aside(any_path(part))
        return renamed

    def check_all(self, specs: Iterable[StageSpec]) -> int:
        """Set aside what is damaged among all parts of `specs`; how many."""
        damaged: list[str] = []
        for spec in specs:
            for part in self.parts(spec):
                if check_part(part).damage is not None:
                    damaged.append(str(part))
        return self.set_aside(damaged)

    def _set_aside(self, part: AnyPath) -> bool:
        """Rename a part if this process, too, finds it damaged; whether it was renamed."""
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
        forget_notes()

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

    # --------------------------------------------------------------- reading all records

    def parts(self, spec: StageSpec) -> list[AnyPath]:
        """Return the parts of `spec`, in all folders with its digest.

        A stage that was renamed keeps its digest, and has its records in several folders.
        """
        suffix = f"-{spec.digest[:12]}"
        parts: list[AnyPath] = []
        for folder in stage_folders(self.root):
            if folder.name.endswith(suffix):
                parts += parts_in(folder)
        return sorted(parts)

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
        names = [*INDEXED, *value_columns(spec.kind)]
        for part, read in read_parts(self.parts(spec), names):
            try:
                for rows, table in self._current(spec, part, read):
                    for row in iter_rows(spec.kind, table, str(part), rows.tolist()):
                        yield row.key, row
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

    # --------------------------------------------------------------------- joining parts

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
            small: list[AnyPath] = []
            for part in self.parts(spec):
                if part.stat().st_size < _SMALL_PART_BYTES:
                    small.append(part)
            if len(small) < 2:
                return
            # A worker that was stopped may have committed records without reporting them.
            self._look(spec)
            left = set(self.parts(spec))  # damaged ones may have been set aside just now
            small = [part for part in small if part in left]
            for group in _groups(sort_by_time(small)):
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
        ordered = sort_by_time(parts)
        if not ordered:
            raise FileNotFoundError(f"none of the parts in {self.folder(spec)} is there")
        moves: list[_Move] = []

        def tables_to_write() -> Iterator[pa.Table]:
            """Read the parts piece by piece, and note of each piece where it was."""
            for part, read in read_parts(ordered):
                if current:
                    pieces = self._current(spec, part, read)
                else:
                    pieces = _all_rows(part, read)
                for rows, table in pieces:
                    digests = KeyDigests.of(table.column("key").combine_chunks())
                    moves.append(_Move(part, rows, digests))
                    with reading(str(part)):
                        yield as_current(spec.kind, table)

        latest_ns = int(ordered[-1].stat().st_mtime * 1e9)
        joined = write_joined(
            self.folder(spec), SCHEMAS[spec.kind], tables_to_write(), latest_ns
        )
        return JoinedPart(spec, joined, joined.stat().st_size, moves)

    def take_over(self, joined: JoinedPart) -> list[AnyPath]:
        """Note where joined records are by now; the parts that are no longer needed."""
        index = self._index(joined.spec)
        moved = 0
        first = 0  # the row of the joined part where the next ones begin
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


class _Heads(NamedTuple):
    """What is indexed of some rows of a part that follow each other."""

    first: int
    """The first of these rows."""
    digests: KeyDigests
    codes: Array
    """How each record ended, see `StatusCodes`."""


def _are_settled(
    kind: Kind, table: pa.Table, statuses: Sequence[RecordStatus], part: str
) -> list[bool]:
    """Whether each record is settled whose `value_columns` are in `table`."""
    columns = [table.column(name).to_pylist() for name in value_columns(kind)]
    settled: list[bool] = []
    for status, reason, at, *light in zip(statuses, *columns, strict=True):
        row = RecordRow(status.outcome, status.fault, reason, at, tuple(light), part, 0)
        settled.append(row.is_settled(kind))
    return settled


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
