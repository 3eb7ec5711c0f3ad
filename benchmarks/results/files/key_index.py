"""Keys of records as numbers: 24 bytes each, where texts take 100."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.cluster.record_index import bytes_of_keys

Indices = npt.NDArray[np.int64]
KeyNumbers = npt.NDArray[np.uint64]
"""(n, 2): the two halves of each key."""
_AT_ONCE = 1 << 16


class KeyIndex:
    """Finds keys of records among others."""

    def __init__(self, numbers: KeyNumbers) -> None:
        # By their first halves: few keys share one, if any, and all those are looked at.
        self._order = np.argsort(numbers[:, 0], kind="stable")
        self._high = numbers[self._order, 0]
        self._low = numbers[self._order, 1]

    @property
    def size(self) -> int:
        """How many keys there are."""
        return len(self._order)

    def places(self, keys: pa.ChunkedArray) -> Indices:
        """Return by key its row in the table; -1 for one that is not there."""
        asked = numbers_of(keys)
        found = np.full(len(asked), -1)
        if not self.size:
            return found
        # In their order they are found in a tenth of the time.
        order = np.argsort(asked[:, 0])
        high, low = asked[order].T
        at = np.searchsorted(self._high, high)
        places = np.full(len(asked), -1)
        # Keys that begin alike in 64 bits are beside each other; there may be some.
        for _ in range(self._alike):
            near = np.minimum(at, self.size - 1)
            same = (self._high[near] == high) & (self._low[near] == low) & (at < self.size)
            places[same] = self._order[near[same]]
            at = at + 1
        found[order] = places
        return found

    @cached_property
    def _alike(self) -> int:
        """The most keys that share their first half."""
        starts = np.flatnonzero(np.diff(self._high)) + 1
        return int(np.diff(starts, prepend=0, append=self.size).max(initial=1))


def numbers_of(keys: pa.ChunkedArray) -> KeyNumbers:
    """Return keys, which are 32 hexadecimal digits, as pairs of numbers."""
    parts = [np.zeros((0, 2), np.uint64)]
    for chunk in keys.chunks:
        # As values of Python a key takes 80 bytes: only so many are there at a time.
        for first in range(0, len(chunk), _AT_ONCE):
            some = chunk.slice(first, _AT_ONCE)
            data = bytes_of_keys(some)
            if data is None:
                data = bytes.fromhex("".join(some.to_pylist()))
            parts.append(numbers_in(data))
    return np.concatenate(parts)


def numbers_in(data: bytes | bytearray) -> KeyNumbers:
    """Return keys, whose 16 bytes each are side by side, as pairs of numbers."""
    return np.frombuffer(data, ">u8").reshape(-1, 2).astype(np.uint64)
