"""Writes the results of one process: tables that arrive together share one part."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa

from cluster.parts import StoreError, write_part


class Committer:
    """Commits tables that arrive at about the same time as one part.

    Whoever holds the pen writes for all who wait: an endpoint that answers a hundred
    requests at once costs one fsync, and no answer waits for a batch to fill.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._queue: list[_Entry] = []
        self._guard = threading.Lock()
        self._pen = threading.Lock()

    def commit(self, table: pa.Table) -> tuple[str, int]:
        """The part that now holds `table`, and the row it starts at."""
        entry = _Entry(table)
        with self._guard:
            self._queue.append(entry)
        with self._pen:
            if entry.part is None and entry.error is None:
                self._write_all()
        if entry.error is not None:
            raise entry.error
        assert entry.part is not None
        return entry.part, entry.first

    def _write_all(self) -> None:
        with self._guard:
            entries, self._queue = self._queue, []
        try:
            part = str(write_part(self.folder, pa.concat_tables(e.table for e in entries)))
        except StoreError as error:
            for entry in entries:
                entry.error = error
            return
        first = 0
        for entry in entries:
            entry.part, entry.first = part, first
            first += entry.table.num_rows


class _Entry:
    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.part: str | None = None
        self.first = 0
        self.error: StoreError | None = None
