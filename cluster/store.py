"""Records on a local or shared file system: Parquet parts, written whole or not at all.

A part appears under its name only after its bytes are on disk (write, fsync, rename),
so a crash at any moment leaves nothing half-written that a reader would take. Records
are named by key: writing one twice is harmless, readers keep the better one.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.records import SCHEMAS, Row, head_columns, rows_of
from generators.base import Kind, StageSpec
from generators.document import Blob

_GROUP_BYTES = 1 << 20
_MOST_ROWS_PER_GROUP = 64
_SMALL_PART_BYTES = 32 << 20
_COMPACTED_PART_BYTES = 256 << 20
_STALE_TEMPORARY_S = 3600.0
_MOST_LOOKS = 5


class StoreError(RuntimeError):
    """Results cannot be written or read; nothing already written is lost."""


def write_part(folder: Path, table: pa.Table) -> Path:
    """Commit `table` as one new part of `folder`; StoreError when the disk refuses."""
    part = folder / f"part-{uuid.uuid4().hex}.parquet"
    temporary = folder / f".{part.name}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            rows = _rows_per_group(table)
            pq.write_table(table, file, compression="zstd", row_group_size=rows)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(part)
        _sync_folder(folder)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(
            f"cannot write results to {folder}: {error.strerror or error}. Everything "
            "committed before is kept: make room and issue the same command again."
        ) from error
    return part


def _rows_per_group(table: pa.Table) -> int:
    """Rows that make about 1 MiB: whoever wants one picture reads its whole group."""
    row_bytes: int = max(1, table.nbytes // max(1, table.num_rows))
    return max(1, min(_MOST_ROWS_PER_GROUP, _GROUP_BYTES // row_bytes))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_blob(blob: Blob) -> bytes:
    """The bytes of `blob`, from memory, from its file, or from its cell of a part."""
    if blob.data is not None:
        return blob.data
    if blob.place is None:
        raise StoreError(f"bytes {blob.digest[:12]} have no place to be read from")
    part, in_store, cell_name = blob.place.rpartition(".parquet#")
    if not in_store:
        return Path(blob.place).read_bytes()
    row, column, *item = cell_name.split("#")
    cell = read_cell(f"{part}.parquet", int(row), column)
    return cell[int(item[0])] if item else cell  # type: ignore[no-any-return]


_reading = threading.Lock()


@lru_cache(maxsize=64)
def _open(part: str) -> pq.ParquetFile:
    return pq.ParquetFile(part, memory_map=True)


def read_cell(part: str, row: int, column: str) -> Any:
    """One value of a part, reading only its row group of its column."""
    with _reading:
        file = _open(part)
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < rows:
                table = file.read_row_group(group, columns=[column])
                break
            row -= rows
        else:
            raise StoreError(f"part {part} has no row {row}")
    value = table.column(0)[row].as_py()
    return value[column.partition(".")[2]] if "." in column else value


@lru_cache(maxsize=4096)
def _notes(part: str) -> pa.ChunkedArray:
    # Readers go from stage to stage for every sample: all parts must stay at hand.
    return pq.read_table(part, columns=["notes"]).column(0)


def notes_of(row: Row) -> dict[str, Any]:
    """What a stage noted about one record: the exact prompt, truncation, ..."""
    return json.loads(_notes(row.part)[row.row].as_py() or "{}")  # type: ignore[no-any-return]


class Store:
    """All stages' records under one run directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notices: list[str] = []
        """What a user should be told about the state the store was found in."""
        self._rows: dict[str, dict[str, Row]] = {}

    def folder(self, spec: StageSpec) -> Path:
        """Where the parts of `spec` are kept."""
        return self.root / "stages" / spec.folder

    def rows(self, spec: StageSpec) -> Mapping[str, Row]:
        """What is known of every record of `spec`, by key; read from disk once."""
        if spec.digest not in self._rows:
            self._rows[spec.digest] = self._load(spec)
        return self._rows[spec.digest]

    def add(self, spec: StageSpec, rows: Mapping[str, Row]) -> None:
        """Take note of records that a worker or the driver has just committed."""
        _merge(self.rows(spec), rows)  # type: ignore[arg-type]

    def commit(self, spec: StageSpec, table: pa.Table) -> dict[str, Row]:
        """Write records here, in this process, and take note of them."""
        part = write_part(self.folder(spec), table)
        rows = rows_of(spec.kind, table, str(part))
        self.add(spec, rows)
        return rows

    def _load(self, spec: StageSpec) -> dict[str, Row]:
        for _ in range(_MOST_LOOKS):
            known: dict[str, Row] = {}
            try:
                for part in self._parts(spec):
                    if (table := self._heads(spec, part)) is not None:
                        _merge(known, rows_of(spec.kind, table, str(part)))
            except FileNotFoundError:
                # A run that is under way has just joined its parts: look again.
                continue
            return known
        raise StoreError(f"{self.folder(spec)} changes while it is read; try again")

    def _heads(self, spec: StageSpec, part: Path) -> pa.Table | None:
        """The light columns of a part; a part that cannot be read is set aside."""
        try:
            return pq.read_table(part, columns=head_columns(spec.kind))
        except FileNotFoundError:
            raise
        except (pa.ArrowInvalid, OSError) as error:
            broken = part.with_suffix(".unreadable")
            part.rename(broken)
            self.notices.append(
                f"part {part} cannot be read ({error}); it is set aside as "
                f"{broken.name} and its records are made anew"
            )
            return None

    def _parts(self, spec: StageSpec) -> list[Path]:
        folder = self.root / "stages"
        return sorted(folder.glob(f"*-{spec.digest[:12]}/part-*.parquet"))

    def columns(self, spec: StageSpec, names: list[str]) -> Iterator[dict[str, Any]]:
        """The named columns (and `key`) of every record that is not superseded."""
        rows = self.rows(spec)
        for part in self._parts(spec):
            table = pq.read_table(part, columns=["key", *names])
            for i, record in enumerate(table.to_pylist()):
                row = rows.get(record["key"])
                if row is not None and (row.part, row.row) == (str(part), i):
                    yield record

    def sweep(self) -> None:
        """Remove temporary files that a crash left behind."""
        for path in self.root.glob("stages/*/.part-*.tmp"):
            if time.time() - path.stat().st_mtime > _STALE_TEMPORARY_S:
                path.unlink(missing_ok=True)

    def compact(self, spec: StageSpec) -> None:
        """Join small parts into few large ones; superseded records are dropped.

        The joined part is complete before the small ones are removed, so a crash in
        between leaves duplicates, which readers resolve by key.
        """
        small = [p for p in self._parts(spec) if p.stat().st_size < _SMALL_PART_BYTES]
        if len(small) < 2:
            return
        # A worker that was stopped may have committed what it could not report.
        self._rows.pop(spec.digest, None)
        self.rows(spec)
        for group in _groups([part for part in small if part.exists()]):
            self._join(spec, group)
        self._rows.pop(spec.digest, None)
        _open.cache_clear()

    def _join(self, spec: StageSpec, parts: list[Path]) -> None:
        rows = self.rows(spec)
        kept = []
        for part in parts:
            table = pq.read_table(part, schema=SCHEMAS[spec.kind])
            keys = table.column("key").to_pylist()
            live = [i for i, k in enumerate(keys) if rows[k][-2:] == (str(part), i)]
            kept.append(table.take(pa.array(live, pa.int64())))
        write_part(self.folder(spec), pa.concat_tables(kept))
        for part in parts:
            part.unlink(missing_ok=True)


def _merge(known: dict[str, Row], new: Mapping[str, Row]) -> None:
    for key, row in new.items():
        if key not in known or row.supersedes(known[key]):
            known[key] = row


def _groups(parts: list[Path]) -> Iterator[list[Path]]:
    """Runs of parts that together stay near the size of a compacted part."""
    group: list[Path] = []
    size = 0
    for part in parts:
        group.append(part)
        size += part.stat().st_size
        if size >= _COMPACTED_PART_BYTES:
            yield group
            group, size = [], 0
    if len(group) > 1:
        yield group


def kind_of_folder(folder: Path) -> Kind | None:
    """The kind of stage whose records stand in `folder`; None where there are none."""
    part = next(folder.glob("part-*.parquet"), None)
    if part is None:
        return None
    names = set(pq.read_schema(part).names)
    for kind, schema in SCHEMAS.items():
        if set(schema.names) == names:
            return kind
    return None
