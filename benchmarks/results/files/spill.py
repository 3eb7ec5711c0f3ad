"""Rows on their way to a Parquet file, in a temporary file and not in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plait.generators.files import write_error

Row = Mapping[str, Any]
_AT_ONCE = 8_192
"""Rows that are plain values until they become columns."""
_GROUP_ROWS = 4_096
"""Of a row group: whoever reads some answers reads all of their group."""
_GROUP_BYTES = 16 << 20


class Spill:
    """Rows by group, added in any order, and written group by group.

    WriteError where the temporary file cannot be written.
    """

    def __init__(self, schema: pa.Schema, file: Path) -> None:
        """The temporary `file` is made when rows become many."""
        self._schema = schema
        self._file = file
        self._sink: pa.ipc.RecordBatchFileWriter | None = None
        self._rows = defaultdict[str, list[Row]](list)
        self._waiting = 0
        self._places = defaultdict[str, list[int]](list)
        """By group, which batches of the temporary file are its."""
        self._batches = 0
        self.rows = 0

    def add(self, row: Row, group: str = "") -> None:
        """Add a row to a group."""
        self._rows[group].append(row)
        self._waiting += 1
        self.rows += 1
        if self._waiting >= _AT_ONCE:
            self._flush()

    def add_columns(self, columns: Mapping[str, Any], group: str = "") -> None:
        """Add rows by their columns to a group."""
        arrays = [columns[name] for name in self._schema.names]
        table = pa.table(arrays, names=self._schema.names).cast(self._schema)
        self._flush()
        for batch in table.to_batches(max_chunksize=_GROUP_ROWS):
            self._write(batch, group)
        self.rows += len(table)

    def _flush(self) -> None:
        for group, rows in self._rows.items():
            self._write(self._batch(rows), group)
        self._rows.clear()
        self._waiting = 0

    def _write(self, batch: pa.RecordBatch, group: str) -> None:
        if self._sink is None:
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            self._sink = pa.ipc.new_file(str(self._file), self._schema, options=options)
        try:
            self._sink.write_batch(batch)
        except OSError as error:
            raise write_error(self._file.parent, error) from error
        self._places[group].append(self._batches)
        self._batches += 1

    def _batch(self, rows: list[Row]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(rows, schema=self._schema)

    def write(self, target: Path, groups: Iterable[str] = ("",)) -> None:
        """Write all rows as Parquet, in row groups that hold rows of one group each."""
        with pq.ParquetWriter(
            target, self._schema, compression="zstd", write_page_checksum=True
        ) as file:
            for table in self._tables(groups):
                file.write_table(table, row_group_size=max(1, table.num_rows))
        self._file.unlink(missing_ok=True)

    def _tables(self, groups: Iterable[str]) -> Iterator[pa.Table]:
        """Yield what becomes a row group each."""
        if self._sink is None:
            for group in groups:
                if group in self._rows:
                    yield pa.Table.from_batches([self._batch(self._rows[group])])
            return
        self._flush()
        self._sink.close()
        with pa.ipc.open_file(pa.memory_map(str(self._file))) as spilled:
            for group in groups:
                batches: list[pa.RecordBatch] = []
                rows = 0
                size = 0
                for place in self._places[group]:
                    batch = spilled.get_batch(place)
                    batches.append(batch)
                    rows += batch.num_rows
                    size += batch.nbytes
                    if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                        yield pa.Table.from_batches(batches)
                        batches = []
                        rows = 0
                        size = 0
                if batches:
                    yield pa.Table.from_batches(batches)
