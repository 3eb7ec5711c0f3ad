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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.cluster.parts import (
    DamagedPart,
    StoreError,
    forget_open_parts,
    parts_in,
    read_cell,
    read_part,
    read_parts,
    reading,
    stage_folders,
    write_part,
)
from plait.cluster.records import RecordRow, as_current, head_columns, rows_of
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
    part, in_store, cell_name = blob.place.rpartition(".parquet#")
    if not in_store:
        data = Path(blob.place).read_bytes()
        if hashlib.sha256(data).hexdigest() != blob.digest:
            raise StoreError(f"{blob.place} has changed since the run was planned")
        return data
    return _stored(f"{part}.parquet", cell_name, blob.digest)


def with_bytes(blob: Blob) -> Blob:
    """`blob` with its bytes, which are read where they are not there yet."""
    return blob if blob.data is not None else replace(blob, data=read_blob(blob))


def _stored(part: str, cell_name: str, digest: str) -> bytes:
    row, column, *item = cell_name.split("#")
    cell = read_cell(part, int(row), column)
    with reading(part):
        data: Any = cell[int(item[0])] if item else cell
        data = data["bytes"] if isinstance(data, dict) else data
    if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != digest:
        raise DamagedPart(part, f"{column} of record {row} has another digest")
    return data


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


@lru_cache(maxsize=4096)
def _told(part: str) -> pa.Table:
    # Readers go from stage to stage for every sample: all parts must stay at hand.
    return read_part(any_path(part), ["notes", "usage", "seconds"])


def notes_of(row: RecordRow) -> dict[str, Any]:
    """Return what a stage noted about one record: the exact prompt, truncation, ..."""
    with reading(row.part):
        return json.loads(_told(row.part)["notes"][row.row].as_py() or "{}")  # type: ignore[no-any-return]


def usage_of(row: RecordRow) -> dict[str, float]:
    """What one record used: tokens, images, ..., and its busy `seconds`."""
    with reading(row.part):
        part = _told(row.part)
        usage = json.loads(part["usage"][row.row].as_py() or "{}")
        seconds = part["seconds"][row.row].as_py() or 0.0
    return {**usage, "seconds": round(seconds, 3)}


@dataclass(frozen=True, slots=True, eq=False)
class StoredPiece:
    """Some records of one part."""

    part: str
    """Path of the Parquet part."""
    rows: npt.NDArray[np.int64]
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
    ) -> None:
        self.root, self.on_notice = root, on_notice
        self.repairs, self.strict = repairs, strict
        self.notices: list[str] = []
        """Messages about the state of the store."""
        self.damage: dict[str, DamagedPart] = {}
        """By part, the damage that readers went on without."""
        self.suspects: set[str] = set()
        """Parts that a worker reported damaged."""
        self._indices: dict[str, _Index] = {}
        """By the stage's digest."""

    def folder(self, spec: StageSpec) -> AnyPath:
        """Return where the parts of `spec` are kept."""
        return self.root / "stages" / spec.folder

    def rows(self, spec: StageSpec) -> Mapping[str, RecordRow]:
        """Every record of `spec` by key, without large columns; read from disk once."""
        return self._index(spec).rows

    def _index(self, spec: StageSpec) -> _Index:
        if spec.digest not in self._indices:
            self._look(spec)
        return self._indices[spec.digest]

    def key_of(self, job: Job) -> str:
        """Return the key under which the record of `job` is kept, or will be."""
        rows = self.rows(job.spec)
        return next((key for key in job.keys if key in rows), job.key)

    def row(self, job: Job) -> RecordRow | None:
        """Return the record of `job`, if there is one."""
        return self.rows(job.spec).get(self.key_of(job))

    def add(self, spec: StageSpec, rows: Mapping[str, RecordRow]) -> None:
        """Index records that a worker or the driver has just committed."""
        self._index(spec).merge(rows)

    @contextlib.contextmanager
    def without(self, jobs: Iterable[Job]) -> Iterator[None]:
        """Have the records of `jobs` count as missing within; what is not made again stays.

        They are only left out of the index: whoever reads the parts meanwhile has them.
        """
        taken = []
        for job in jobs:
            key = self.key_of(job)
            rows = self._index(job.spec).rows
            if key in rows:
                taken.append((job.spec, {key: rows.pop(key)}))
        try:
            yield
        finally:
            for spec, record in taken:
                self.add(spec, record)

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
        for _ in range(_MOST_LOOKS):
            index = self._indices.setdefault(spec.digest, _Index(spec.kind))
            known = {key for key, row in index.rows.items() if row.final}
            try:
                new = [p for p in self.parts(spec) if str(p) not in index.parts]
                for part, read in read_parts(new, head_columns(spec.kind)):
                    heads = self._heads(spec, part, read)
                    index.merge({k: r for k, r in heads.items() if k not in known})
                    index.parts.add(str(part))
            except FileNotFoundError:
                # A running command has just compacted its parts: look again.
                self._indices.pop(spec.digest, None)
                continue
            # Damage may have been found, and with it all that was read forgotten.
            self._indices.setdefault(spec.digest, index)
            return
        raise StoreError(f"{self.folder(spec)} changes while it is read; try again")

    def _heads(
        self, spec: StageSpec, part: AnyPath, read: Callable[[], pa.Table]
    ) -> dict[str, RecordRow]:
        """Return the records of a part; none where it is proved damaged."""
        try:
            table = read()
            with reading(str(part)):
                return rows_of(spec.kind, table, str(part))
        except DamagedPart as damage:
            if not self.repairs:
                self.go_on_without(damage, "Its records count as missing here.")
            elif not self.set_aside([damage.part]):
                raise
            return {}

    def go_on_without(self, damage: DamagedPart, what: str) -> None:
        """Note damage and `what` follows from it; raise it in a store that does not."""
        if self.strict or self.repairs:
            raise damage
        self.damage.setdefault(damage.part, damage)
        self._notice(f"{damage}. {what}")

    def told(self, row: RecordRow) -> tuple[dict[str, Any], dict[str, float]]:
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
        parts = [part for spec in specs for part in self.parts(spec)]
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
        # They are read again when they are needed.
        self._indices.clear()
        self.suspects.clear()
        forget_open_parts()
        _told.cache_clear()
        return True

    def parts(self, spec: StageSpec) -> list[AnyPath]:
        """Return the parts of `spec`, in all folders with its digest."""
        suffix = f"-{spec.digest[:12]}"
        folders = [f for f in stage_folders(self.root) if f.name.endswith(suffix)]
        return sorted(part for folder in folders for part in parts_in(folder))

    def columns(self, spec: StageSpec, names: list[str]) -> Iterator[dict[str, Any]]:
        """The named columns (and `key`) of every record that is not superseded."""
        for piece in self.pieces(spec, names):
            yield from piece.table.to_pylist()

    def pieces(self, spec: StageSpec, names: Sequence[str]) -> Iterator[StoredPiece]:
        """The same as tables, with where the records are; one is in memory at a time."""
        rows = self.rows(spec)
        for part, read in read_parts(self.parts(spec), ["key", *names]):
            table, place = read(), str(part)
            live = []
            for i, key in enumerate(table.column("key").to_pylist()):
                row = rows.get(key)
                if row is not None and (row.part, row.row) == (place, i):
                    live.append(i)
            whole = len(live) == len(table)
            current = table if whole else table.take(pa.array(live, pa.int64()))
            yield StoredPiece(place, np.array(live, np.int64), current)

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
            small = [p for p in self.parts(spec) if p.stat().st_size < _SMALL_PART_BYTES]
            if len(small) < 2:
                return
            # A worker that was stopped may have committed records without reporting them.
            self._look(spec)
            left = set(self.parts(spec))
            for group in _groups([part for part in small if part in left]):
                self._join(spec, group)
            forget_open_parts()
        except OSError as error:
            folder = self.folder(spec)
            raise StoreError(
                f"parts of {folder} cannot be compacted: {error.strerror or error}. All "
                "records are kept; run the same command again."
            ) from error

    def _join(self, spec: StageSpec, parts: list[AnyPath]) -> None:
        index = self._index(spec)
        tables = []
        for part, read in read_parts(parts):
            table = read()
            with reading(str(part)):
                table = as_current(spec.kind, table)
            keys = table.column("key").to_pylist()
            live = [i for i, k in enumerate(keys) if index.rows[k][-2:] == (str(part), i)]
            whole = len(live) == len(keys)
            tables.append(table if whole else table.take(pa.array(live, pa.int64())))
        whole_table = pa.concat_tables(tables)
        joined = write_part(self.folder(spec), whole_table)
        index.rows |= rows_of(spec.kind, whole_table, str(joined))
        index.parts.add(str(joined))
        # Equal content has an equal name: the joined part may be one of them.
        former = [part for part in parts if part != joined]
        index.parts -= set(map(str, former))
        unlink_all(former)


@dataclass
class _Index:
    kind: Kind
    rows: dict[str, RecordRow] = field(default_factory=dict)
    parts: set[str] = field(default_factory=set)
    """Those of which all records are indexed."""

    def merge(self, new: Mapping[str, RecordRow]) -> None:
        """Add records, of each key the better one."""
        for key, row in new.items():
            if key not in self.rows or row.supersedes(self.rows[key], self.kind):
                self.rows[key] = row


def _groups(parts: list[AnyPath]) -> Iterator[list[AnyPath]]:
    """Runs of parts that together stay near the size of a compacted part."""
    group: list[AnyPath] = []
    size = 0
    for part in parts:
        group.append(part)
        size += part.stat().st_size
        if size >= _COMPACTED_PART_BYTES:
            yield group
            group, size = [], 0
    if len(group) > 1:
        yield group
