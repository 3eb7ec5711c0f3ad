"""The parts of the store: Parquet files, written whole and checked whenever they are read.

A part is named by the digest of its bytes, and every page in it carries a checksum that
is compared whenever the page is read. Parts of earlier versions have neither and are
read as they are. Errors are kept apart: `DamagedPart` is proof that the bytes are not
those that were written; any other problem (no permission, a file server that fails)
is a `StoreError` and says nothing about the bytes.

A part is read in four ways: whole (`read_part`), piece by piece (`read_blocks`, and
`read_parts` for many), some rows of it (`read_rows`), or single values (`read_cell` for
large ones, a `ValueCache` for small ones that are asked for one after the other).
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import threading
import uuid
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plait.generators.buckets import AnyPath, BucketPath, any_path
from plait.generators.errors import PlaitError
from plait.generators.files import move_whole, write_whole

_GROUP_BYTES = 1 << 20
"""Of a row group: reading one image reads its whole group."""
_MOST_ROWS_PER_GROUP = 1024
_DIGEST_LENGTH = 64
"""Of a SHA-256 in hexadecimal digits."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BLOCK_BYTES = 4 << 20
"""Of the pieces in which a part is read from its beginning to its end,"""
_HELD_BLOCK_BYTES = 1 << 20
"""and of those that are held for single records: a run is read in dozens of parts side by
side, and of larger pieces too few are held, so that each is read again and again."""
_BLOCK_OVERHEAD = 4096
"""What holding a block takes beside its values, about."""
_MOST_PARTS_HELD = 1 << 16
_MOST_THREADS = 8
_READ_AT_ONCE = 16
"""Parts of a bucket: what a request waits for is the network."""


class StoreError(PlaitError, RuntimeError):
    """Results cannot be written or read; nothing already written is lost."""


class DamagedPart(StoreError):
    """The bytes of a part are not those that were written."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(part, reason)
        self.part = part
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"part {self.part} is damaged ({self.reason}); `plait verify` checks the "
            "whole run and says how its records are made again"
        )


class MissingPart(DamagedPart):
    """A part is gone in which records were."""

    def __init__(self, part: str, reason: str = "it is gone") -> None:
        super().__init__(part, reason)

    def __str__(self) -> str:
        return (
            f"part {self.part} is gone: somebody has removed it, or another command has "
            "joined it with others meanwhile; try again. `plait run` makes records that "
            "are in no part"
        )


def write_part(folder: AnyPath, table: pa.Table) -> AnyPath:
    """Commit `table` as one new part of `folder`; StoreError when the disk refuses."""
    buffer = pa.BufferOutputStream()
    pq.write_table(
        table,
        buffer,
        compression="zstd",
        row_group_size=min(_MOST_ROWS_PER_GROUP, _rows_per_group(table)),
        # Half the work for a small batch: zstd finds what recurs, and nobody filters.
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    data = buffer.getvalue().to_pybytes()
    part = folder / _name(hashlib.sha256(data).hexdigest())
    with _as_store_errors():
        write_whole(part, data)
    return part


def write_joined(
    folder: AnyPath, schema: pa.Schema, tables: Iterable[pa.Table], mtime_ns: int
) -> AnyPath:
    """Commit many tables as one part, as `write_part` does, one after the other.

    The part counts as written at `mtime_ns`, so that parts sorted by time stay so.
    """
    with _as_store_errors():
        folder.mkdir(parents=True, exist_ok=True)
    place = folder if isinstance(folder, Path) else Path(tempfile.gettempdir())
    temporary = place / f".part-{uuid.uuid4().hex}.tmp"
    try:
        with _as_store_errors():
            with pq.ParquetWriter(
                temporary, schema, compression="zstd", write_page_checksum=True
            ) as writer:
                for table in _in_groups(tables):
                    writer.write_table(table, row_group_size=max(1, table.num_rows))
            with temporary.open("rb") as file:
                part = folder / _name(hashlib.file_digest(file, "sha256").hexdigest())
            os.utime(temporary, ns=(mtime_ns, mtime_ns))
            move_whole(temporary, part)
    finally:
        temporary.unlink(missing_ok=True)
    return part


def _in_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, in tables of about the size of a row group."""
    waiting = list[pa.Table]()
    size = 0
    for table in tables:
        step = _rows_per_group(table)
        for first in range(0, table.num_rows, step):
            piece = table.slice(first, step)
            waiting.append(piece)
            size += _row_bytes(table) * piece.num_rows
            if size >= _GROUP_BYTES:
                yield pa.concat_tables(waiting)
                waiting = []
                size = 0
    if waiting:
        yield pa.concat_tables(waiting)


def _rows_per_group(table: pa.Table) -> int:
    """Return how many rows of a table make a row group of about `_GROUP_BYTES`."""
    return max(1, _GROUP_BYTES // _row_bytes(table))


def _row_bytes(table: pa.Table) -> int:
    """Return what a row takes in memory on average."""
    return max(1, int(table.nbytes) // max(1, int(table.num_rows)))


def _name(digest: str) -> str:
    return f"part-{digest}.parquet"


@contextmanager
def _as_store_errors() -> Iterator[None]:
    """StoreError where the disk refuses what is written."""
    try:
        yield
    except OSError as error:
        advice = "free some space" if error.errno in _FULL else "solve that"
        raise StoreError(
            f"{error}. Everything committed before is kept: {advice} and run the same "
            "command again."
        ) from error


def digest_in_name(part: AnyPath) -> str | None:
    """Return the SHA-256 that a part's name gives; None for parts of earlier versions."""
    digest = part.stem.removeprefix("part-")
    return digest if len(digest) == _DIGEST_LENGTH else None


@contextmanager
def reading(part: str) -> Iterator[None]:
    """Tell damage of `part` from all other errors while it is read.

    Raises DamagedPart only where the bytes themselves are proved wrong. A part that is
    gone stays a FileNotFoundError: another process may have compacted it.
    """
    try:
        yield
    except (StoreError, FileNotFoundError, MemoryError):
        raise
    except OSError as error:
        forget_open_parts()
        # Errors raised by Parquet itself have no error number.
        if error.errno is None and not os.path.isdir(part):
            raise DamagedPart(part, _first_line(error)) from error
        cause = error.strerror or str(error)
        raise StoreError(
            f"part {part} cannot be read: {cause}. It was left as it is; run the same "
            "command again once it can be read."
        ) from error
    except (pa.ArrowException, ValueError, LookupError) as error:
        forget_open_parts()
        raise DamagedPart(part, _first_line(error)) from error


@contextmanager
def reading_record(part: str) -> Iterator[None]:
    """`reading`, of a part in which a record is known to be: MissingPart where it is gone.

    Whoever reads all parts of a stage looks for them again instead.
    """
    try:
        with reading(part):
            yield
    except FileNotFoundError:
        raise MissingPart(part) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def open_part(part: str | AnyPath) -> pq.ParquetFile:
    """Return a part to be read from, with its checksums compared."""
    path = any_path(part)
    source = path if isinstance(path, Path) else path.open()
    # Ranges that lie together by one request. Not memory-mapped: a disk error would then
    # end the whole process.
    return pq.ParquetFile(source, pre_buffer=True, page_checksum_verification=True)


def read_part(part: AnyPath, columns: Sequence[str] | None = None) -> pa.Table:
    """Columns of a part, all by default; DamagedPart, StoreError, FileNotFoundError."""
    with reading(str(part)):
        with open_part(part) as file:
            table = file.read(columns=None if columns is None else list(columns))
        return _check_table(table, columns)


@dataclass(frozen=True, slots=True)
class OpenPart:
    """A part that is held open, and where its row groups begin."""

    file: pq.ParquetFile
    starts: np.ndarray[Any, np.dtype[np.int64]]
    """The first row of every group, and the number of rows."""

    @classmethod
    def of(cls, part: str | AnyPath) -> OpenPart:
        """Open a part; raises as Parquet and the system do."""
        file = open_part(part)
        groups = range(file.metadata.num_row_groups)
        rows = [file.metadata.row_group(i).num_rows for i in groups]
        return cls(file, np.cumsum([0, *rows]))

    def group_of(self, row: int) -> int:
        """Return the row group that holds a row."""
        return int(np.searchsorted(self.starts, row, "right")) - 1

    def blocks(
        self, columns: Sequence[str] | None, most_bytes: int = _BLOCK_BYTES
    ) -> list[range]:
        """Row groups that are read together: those of a small part, else so many bytes."""
        metadata = self.file.metadata
        if metadata.num_row_groups <= 1:
            return [range(metadata.num_row_groups)]
        # Numbers of the columns that are read; Parquet has several for a struct.
        read: list[int] = []
        for i in range(metadata.num_columns):
            path = metadata.schema.column(i).path
            if columns is None or path.partition(".")[0] in columns:
                read.append(i)
        blocks = list[range]()
        first = 0
        size = 0
        for group in range(metadata.num_row_groups):
            chunks = metadata.row_group(group)
            size += sum(chunks.column(i).total_uncompressed_size for i in read)
            if size >= most_bytes:
                blocks.append(range(first, group + 1))
                first = group + 1
                size = 0
        if first < metadata.num_row_groups:
            blocks.append(range(first, metadata.num_row_groups))
        return blocks

    def read(self, groups: range, columns: Sequence[str] | None) -> pa.Table:
        """Columns of some row groups; KeyError where a column is missing."""
        names = None if columns is None else list(columns)
        table = self.file.read_row_groups(groups, columns=names)
        return _check_table(table, columns)


def _check_table(table: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """Return a table that was read, if it is valid and has the columns, or any for None.

    Raises what `reading` takes for damage: KeyError where a column is missing, which
    Parquet leaves out in silence, and ArrowInvalid.
    """
    table.validate(full=True)
    if columns is not None and len(table.column_names) < len(columns):
        raise KeyError(f"it lacks columns of {', '.join(columns)}")
    return table


def read_blocks(
    part: AnyPath, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """A part piece by piece, each with its first row; raises what `read_part` does."""
    with reading(str(part)):
        opened = OpenPart.of(part)
        with opened.file:
            for groups in opened.blocks(columns):
                table = opened.read(groups, columns)
                yield int(opened.starts[groups.start]), table


Blocks = Iterable[tuple[int, pa.Table]]
"""Pieces of a part, each with its first row."""


def read_parts(
    parts: Sequence[AnyPath], columns: Sequence[str] | None = None
) -> Iterator[tuple[AnyPath, Callable[[], Blocks]]]:
    """Each part, with what returns its blocks or raises what `read_blocks` does.

    Small ones are read ahead, a few at a time: many at once where they are in a bucket.
    """
    in_bucket = any(isinstance(part, BucketPath) for part in parts)
    threads = _READ_AT_ONCE if in_bucket else min(_MOST_THREADS, os.cpu_count() or 1)
    if len(parts) < threads or threads < 2:
        for part in parts:
            yield part, partial(read_blocks, part, columns)
        return
    left = iter(parts)
    # Parts that are being read or were, in order: as many as there are threads.
    ahead: deque[tuple[AnyPath, Future[Blocks]]] = deque()
    pool = ThreadPoolExecutor(threads)

    def begin_next() -> None:
        part = next(left, None)
        if part is not None:
            future = pool.submit(_read_ahead, part, columns, large=in_bucket)
            ahead.append((part, future))

    try:
        for _ in range(threads):
            begin_next()
        while ahead:
            part, blocks = ahead.popleft()
            yield part, blocks.result
            begin_next()
    finally:
        # Whoever reads may stop early, on an error for one.
        pool.shutdown(wait=False, cancel_futures=True)


def _read_ahead(part: AnyPath, columns: Sequence[str] | None, *, large: bool) -> Blocks:
    """The blocks of a part; unless `large` ones are read too, of these they come later."""
    blocks = read_blocks(part, columns)
    first_two = list(islice(blocks, 2))
    is_small = len(first_two) < 2
    if is_small or large:
        return [*first_two, *blocks]
    return chain(first_two, blocks)


def read_rows(part: str, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Columns of some rows of a part, in ascending order; raises what `read_part` does."""
    with reading(part):
        opened = OpenPart.of(part)
        with opened.file:
            tables: list[pa.Table] = []
            wanted = np.asarray(rows)
            for groups in opened.blocks(columns):
                first = opened.starts[groups.start]
                end = opened.starts[groups.stop]
                here = wanted[(wanted >= first) & (wanted < end)] - first
                if len(here):
                    tables.append(opened.read(groups, columns).take(pa.array(here)))
            return pa.concat_tables(tables)


_one_reader = threading.Lock()
"""Of single cells: the threads of a process share the parts that are held open."""
_opened = lru_cache(maxsize=64)(OpenPart.of)


@lru_cache(maxsize=8)
def _column_of_group(part: str, group: int, column: str) -> pa.ChunkedArray:
    """A column of a row group: small records that follow each other share one."""
    return _opened(part).file.read_row_group(group, columns=[column]).column(0)


def read_cell(part: str, row: int, column: str) -> Any:
    """Return one value of a part, reading only its row group of its column.

    Raises DamagedPart, MissingPart, and StoreError for one that cannot be read.
    """
    with _one_reader, reading_record(part):
        opened = _opened(part)
        group = opened.group_of(row)
        if not 0 <= row < opened.starts[-1]:
            raise StoreError(f"part {part} has no row {row}")
        values = _column_of_group(part, group, column)
        value = values[row - int(opened.starts[group])].as_py()
        _, is_inside, field = column.partition(".")  # such as image.bytes
        return value[field] if is_inside else value


@dataclass(frozen=True, slots=True)
class _Block:
    """Columns of a few row groups."""

    first: int
    """The first row."""
    end: int
    """The row after the last."""
    columns: tuple[pa.Array, ...]
    size: int
    """In bytes."""


class ValueCache:
    """Columns of parts, those read last, up to a number of bytes.

    A run is read record after record, in about the order in which they were written: so
    whole blocks of a part are held, not single values.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0
        self._blocks: OrderedDict[tuple[str, tuple[str, ...], int], _Block] = OrderedDict()
        self._starts: OrderedDict[tuple[str, tuple[str, ...]], list[int]] = OrderedDict()
        """The first row of every block of a part."""
        self._lock = threading.Lock()

    def read(self, part: str, row: int, columns: tuple[str, ...]) -> list[Any]:
        """Return values of one record.

        Raises DamagedPart, StoreError, and FileNotFoundError for a part that is gone.
        """
        with self._lock, reading(part):
            block = self._block(part, row, columns)
            return [column[row - block.first].as_py() for column in block.columns]

    def _block(self, part: str, row: int, columns: tuple[str, ...]) -> _Block:
        starts = self._starts.get((part, columns))
        if starts is not None:
            number = bisect_right(starts, row) - 1
            block = self._blocks.get((part, columns, number))
            if block is not None and row < block.end:
                self._blocks.move_to_end((part, columns, number))
                return block
        return self._read(part, row, columns)

    def _read(self, part: str, row: int, columns: tuple[str, ...]) -> _Block:
        opened = OpenPart.of(part)
        with opened.file:
            blocks = opened.blocks(columns, _HELD_BLOCK_BYTES)
            starts = [int(opened.starts[groups.start]) for groups in blocks]
            number = bisect_right(starts, row) - 1
            if not 0 <= row < opened.starts[-1]:
                raise LookupError(f"it has no row {row}")
            table = opened.read(blocks[number], columns).combine_chunks()
        arrays = tuple(table.column(name).chunk(0) for name in columns)
        end = starts[number] + table.num_rows
        block = _Block(starts[number], end, arrays, table.nbytes + _BLOCK_OVERHEAD)
        self._starts[part, columns] = starts
        self._hold((part, columns, number), block)
        return block

    def _hold(self, name: tuple[str, tuple[str, ...], int], block: _Block) -> None:
        """Hold a block, and let go of those that were used longest ago."""
        former = self._blocks.pop(name, None)
        if former is not None:
            self.held_bytes -= former.size
        self._blocks[name] = block
        self.held_bytes += block.size
        while self.held_bytes > self.most_bytes and len(self._blocks) > 1:
            _, dropped = self._blocks.popitem(last=False)
            self.held_bytes -= dropped.size
        while len(self._starts) > _MOST_PARTS_HELD:
            self._starts.popitem(last=False)

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._blocks.clear()
            self._starts.clear()
            self.held_bytes = 0


def forget_open_parts() -> None:
    """Close the parts that are held open for reading single cells."""
    _opened.cache_clear()
    _column_of_group.cache_clear()


def stage_folders(root: AnyPath) -> list[AnyPath]:
    """The folders of all stages under `root`; StoreError when they cannot be read."""
    return sorted(_list(root / "stages"))


def parts_in(folder: AnyPath) -> list[AnyPath]:
    """Return the parts in the folder of a stage; StoreError when it cannot be read."""
    parts: list[AnyPath] = []
    for path in _list(folder):
        name = path.name
        if name.startswith("part-") and name.endswith(".parquet"):
            parts.append(path)
    return sorted(parts)


def _list(folder: AnyPath) -> list[AnyPath]:
    # Path.glob would take a folder that may not be read for an empty one.
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"folder {folder} cannot be read: {error.strerror}") from error


class Committer:
    """Commits tables that arrive at about the same time as one part.

    The thread that holds the lock writes for all that wait: an endpoint that answers a
    hundred requests at once costs one fsync, and no answer waits for a batch to fill.
    """

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder
        self._queue: SimpleQueue[tuple[pa.Table, Future[tuple[str, int]]]] = SimpleQueue()
        """Tables that are not written yet, and the futures of their places."""
        self._writing = threading.Lock()

    def commit(self, table: pa.Table) -> tuple[str, int]:
        """Return the part that now holds `table`, and the row it starts at."""
        place: Future[tuple[str, int]] = Future()
        self._queue.put((table, place))
        with self._writing:
            if not place.done():  # else another thread has written it meanwhile
                self._write_all()
        return place.result()

    def _write_all(self) -> None:
        """Write all tables that wait as one part, and tell each of its place."""
        entries = [self._queue.get() for _ in range(self._queue.qsize())]
        try:
            tables = [table for table, _ in entries]
            part = str(write_part(self.folder, pa.concat_tables(tables)))
        except Exception as error:
            for _, place in entries:
                place.set_exception(error)
            return
        first = 0
        for table, place in entries:
            place.set_result((part, first))
            first += table.num_rows
