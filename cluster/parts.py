"""The parts of the store: Parquet files, written whole and checked whenever they are read.

A part is named by the digest of its bytes, and every page in it carries a checksum that
is compared whenever the page is read. Parts of earlier versions have neither and are
read as they are. Errors are kept apart: `DamagedPart` is proof that the bytes are not
those that were written; any other problem (no permission, a file server that fails)
is a `StoreError` and says nothing about the bytes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plait.generators.buckets import AnyPath, BucketPath, any_path
from plait.generators.errors import PlaitError
from plait.generators.files import write_whole

_GROUP_BYTES = 1 << 20
_MOST_ROWS_PER_GROUP = 64
_DIGEST_LENGTH = 64
_FULL = (errno.ENOSPC, errno.EDQUOT)
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
    # About 1 MiB each: reading one image reads its whole group.
    row_bytes = max(1, table.nbytes // max(1, table.num_rows))
    buffer = pa.BufferOutputStream()
    pq.write_table(
        table,
        buffer,
        compression="zstd",
        row_group_size=max(1, min(_MOST_ROWS_PER_GROUP, _GROUP_BYTES // row_bytes)),
        write_page_checksum=True,
    )
    data = buffer.getvalue().to_pybytes()
    part = folder / f"part-{hashlib.sha256(data).hexdigest()}.parquet"
    try:
        write_whole(part, data)
    except OSError as error:
        advice = "free some space" if error.errno in _FULL else "solve that"
        raise StoreError(
            f"{error}. Everything committed before is kept: {advice} and run the same "
            "command again."
        ) from error
    return part


def named_digest(part: AnyPath) -> str | None:
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
        table.validate(full=True)
        if columns is not None and len(table.column_names) < len(columns):
            raise KeyError(f"it lacks columns of {', '.join(columns)}")
        return table


def read_parts(
    parts: Sequence[AnyPath], columns: Sequence[str] | None = None
) -> Iterator[tuple[AnyPath, Callable[[], pa.Table]]]:
    """Each part, with what returns or raises what `read_part` does.

    Those in a bucket are read ahead, a few at a time.
    """
    if not any(isinstance(part, BucketPath) for part in parts):
        yield from ((part, partial(read_part, part, columns)) for part in parts)
        return
    pool = ThreadPoolExecutor(_READ_AT_ONCE)
    begun = ((part, pool.submit(read_part, part, columns)) for part in parts)
    try:
        ahead = deque(islice(begun, _READ_AT_ONCE))
        while ahead:
            part, table = ahead.popleft()
            yield part, table.result
            ahead.extend(islice(begun, 1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


_one_reader = threading.Lock()
_opened = lru_cache(maxsize=64)(open_part)


def read_cell(part: str, row: int, column: str) -> Any:
    """Return one value of a part, reading only its row group of its column.

    Raises DamagedPart, MissingPart, and StoreError for one that cannot be read.
    """
    with _one_reader, reading_record(part):
        file, first = _opened(part), 0
        for group in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if row < first + rows:
                table = file.read_row_group(group, columns=[column])
                value = table.column(0)[row - first].as_py()
                return value[column.partition(".")[2]] if "." in column else value
            first += rows
        raise StoreError(f"part {part} has no row {row}")


def forget_open_parts() -> None:
    """Close the parts that are held open for reading single cells."""
    _opened.cache_clear()


def stage_folders(root: AnyPath) -> list[AnyPath]:
    """The folders of all stages under `root`; StoreError when they cannot be read."""
    return sorted(_listed(root / "stages"))


def parts_in(folder: AnyPath) -> list[AnyPath]:
    """Return the parts in the folder of a stage; StoreError when it cannot be read."""
    names = ((p.name, p) for p in _listed(folder))
    return sorted(p for n, p in names if n.startswith("part-") and n.endswith(".parquet"))


def _listed(folder: AnyPath) -> list[AnyPath]:
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
        self._writing = threading.Lock()

    def commit(self, table: pa.Table) -> tuple[str, int]:
        """Return the part that now holds `table`, and the row it starts at."""
        place: Future[tuple[str, int]] = Future()
        self._queue.put((table, place))
        with self._writing:
            if not place.done():
                self._write_all()
        return place.result()

    def _write_all(self) -> None:
        entries = [self._queue.get() for _ in range(self._queue.qsize())]
        try:
            part = str(write_part(self.folder, pa.concat_tables(t for t, _ in entries)))
        except Exception as error:
            for _, place in entries:
                place.set_exception(error)
            return
        first = 0
        for table, place in entries:
            place.set_result((part, first))
            first += table.num_rows
