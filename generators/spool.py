"""Sequences that may be longer than memory has room for: values in a temporary file.

Short ones are tuples. Of a long one, only a few blocks of values are in memory at a time:
what is asked for is made anew, equal to what was given and never the same object.
"""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, TypeVar, overload

from plait.generators.errors import WriteError

T = TypeVar("T")
MOST_IN_MEMORY = 32_768
"""Values of a sequence that are kept as objects; of more, none are."""
_BLOCK = 64
"""Values that are written and read together."""
_BLOCKS_HELD = 8


class Spool(Sequence[T]):
    """Values that are added one by one. In a file, which no folder lists, when many.

    The file lies in the system's folder for temporary files (TMPDIR) and is gone with the
    process. WriteError where it has no room.
    """

    def __init__(self, what: str, expected: int = 0) -> None:
        """`what` the values are, and how many are `expected` if known, is for people."""
        self._what = what
        self._expected = expected
        self._rest: list[T] = []
        """Those that are not in the file."""
        self._file: IO[bytes] | None = None
        self._ends = array("Q", [0])
        """Where each block ends in the file, after where the first begins."""
        self._held: dict[int, list[T]] = {}

    def append(self, value: T) -> None:
        """Add a value at the end."""
        self._rest.append(value)
        most = MOST_IN_MEMORY if self._file is None else _BLOCK - 1
        if len(self._rest) > most:
            self._write()

    @property
    def values(self) -> Sequence[T]:
        """The values: a tuple where they are few."""
        return self if self._file is not None else tuple(self._rest)

    def __len__(self) -> int:
        return (len(self._ends) - 1) * _BLOCK + len(self._rest)

    def __iter__(self) -> Iterator[T]:
        for block in range(len(self._ends) - 1):
            yield from self._read(block)
        yield from self._rest

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        if isinstance(place, slice):
            return select(self, range(*place.indices(len(self))))
        # As of a list: places from the end, and IndexError beyond it.
        place = range(len(self))[place]
        if (beyond := place - (len(self._ends) - 1) * _BLOCK) >= 0:
            return self._rest[beyond]
        block, at = divmod(place, _BLOCK)
        held = self._held.get(block)
        if held is None:
            held = self._read(block)
            # Replaced as a whole: other threads may read as well.
            others = list(self._held.items())[1 - _BLOCKS_HELD :]
            self._held = {**dict(others), block: held}
        return held[at]

    # --------------------------------------------------------------------------- file

    def _read(self, block: int) -> list[T]:
        assert self._file is not None
        start, end = self._ends[block : block + 2]
        # Not `seek` and `read`: other threads may read as well.
        values: list[T] = pickle.loads(os.pread(self._file.fileno(), end - start, start))
        return values

    def _write(self) -> None:
        """Put whole blocks of values into the file."""
        whole = len(self._rest) // _BLOCK * _BLOCK
        try:
            if self._file is None:
                self._file = _open_unlisted_file()
                if self._needed > shutil.disk_usage(tempfile.gettempdir()).free:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            # Only whole blocks, so that a value's block follows from its place.
            for first in range(0, whole, _BLOCK):
                data = memoryview(_pickle(self._rest[first : first + _BLOCK]))
                end = self._ends[-1] + len(data)
                while data:
                    data = data[self._file.write(data) :]
                self._ends.append(end)
        except OSError as error:
            folder = tempfile.gettempdir()
            reason = error.strerror or error
            raise WriteError(
                error.errno or errno.EIO,
                f"{self._what} cannot be kept in a temporary file in {folder}: {reason}. "
                f"{max(self._expected, len(self)):,} of them take about "
                f"{self._needed / 1e6:,.0f} MB: make room, or set TMPDIR to a folder that "
                "has it",
            ) from error
        del self._rest[:whole]

    @property
    def _needed(self) -> float:
        """About how many bytes all values take that are known or expected."""
        first = self._rest[:_BLOCK]
        return len(_pickle(first)) / len(first) * max(self._expected, len(self))


def _open_unlisted_file() -> IO[bytes]:
    """Return an open file without a name: its room is free however the process ends."""
    number, path = tempfile.mkstemp(prefix="plait-")
    os.unlink(path)
    return os.fdopen(number, "r+b", buffering=0)


def _pickle(values: Sequence[Any]) -> bytes:
    return pickle.dumps(values, pickle.HIGHEST_PROTOCOL)


class Selection(Sequence[T]):
    """Some values of another sequence, which are read where they are asked for."""

    def __init__(self, values: Sequence[T], places: Sequence[int]) -> None:
        """`places` are those of the values, from 0, in the order wanted."""
        self._values = values
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[T]:
        return map(self._values.__getitem__, self._places)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[T]: ...
    def __getitem__(self, place: int | slice) -> T | Sequence[T]:
        if isinstance(place, slice):
            return select(self._values, self._places[place])
        return self._values[self._places[place]]


def keep(values: Iterable[T], what: str) -> Sequence[T]:
    """Return a sequence of `values`, which people call `what`."""
    spool = Spool[T](what)
    for value in values:
        spool.append(value)
    return spool.values


def select(values: Sequence[T], places: Iterable[int]) -> Sequence[T]:
    """Return the values at these places of a sequence, in their order."""
    chosen = array("Q", places)
    if len(chosen) > MOST_IN_MEMORY:
        return Selection(values, chosen)
    return tuple(map(values.__getitem__, chosen))
