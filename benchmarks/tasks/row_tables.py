"""Ids and digests of many rows, in a few dozen bytes each."""

from __future__ import annotations

from array import array
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from itertools import pairwise

_FREE = 0
_HASH = 0xFFFFFFFF


class IdTable:
    """Different ids, each with its place: their number, from 0, in the order of adding."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._text = bytearray()
        self._ends = array("Q", [0])
        self._hashes = array("I")
        self._slots = array("I", [_FREE] * 64)
        """By a hash of the id: 1 more than its place, or the next free slot behind it."""
        for id in ids:
            self.add(id)

    def add(self, id: str) -> int:
        """Return the place of an id, which it gets now if it has none."""
        slot, place = self._find(id)
        if place is None:
            place = len(self)
            self._text += _bytes_of(id)
            self._ends.append(len(self._text))
            self._hashes.append(hash(id) & _HASH)
            self._slots[slot] = place + 1
            if 3 * len(self) > 2 * len(self._slots):
                self._grow()
        return place

    def place(self, id: str) -> int | None:
        """Return the place of an id; None where it has none."""
        return self._find(id)[1]

    def copy(self) -> IdTable:
        """Return a table of its own with the same ids in the same places."""
        table = IdTable()
        table._text = self._text[:]
        table._ends = self._ends[:]
        table._hashes = self._hashes[:]
        table._slots = self._slots[:]
        return table

    def has_same_order(self, other: IdTable) -> bool:
        """Return whether both hold the same ids, each in the same place."""
        return self._ends == other._ends and self._text == other._text

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, id: str) -> bool:
        return self._find(id)[1] is not None

    def __iter__(self) -> Iterator[str]:
        for start, end in pairwise(self._ends):
            yield self._text[start:end].decode("utf-8", "surrogatepass")

    def _find(self, id: str) -> tuple[int, int | None]:
        """Return the slot of an id, and its place."""
        mask = len(self._slots) - 1
        hashed = hash(id) & _HASH
        slot = hashed & mask
        while (after := self._slots[slot]) != _FREE:
            place = after - 1
            if self._hashes[place] == hashed:
                start, end = self._ends[place : place + 2]
                if self._text[start:end] == _bytes_of(id):
                    return slot, place
            slot = (slot + 1) & mask
        return slot, None

    def _grow(self) -> None:
        self._slots = array("I", [_FREE]) * (2 * len(self._slots))
        mask = len(self._slots) - 1
        for place, hashed in enumerate(self._hashes):
            slot = hashed & mask
            while self._slots[slot] != _FREE:
                slot = (slot + 1) & mask
            self._slots[slot] = place + 1


def _bytes_of(id: str) -> bytes:
    return id.encode("utf-8", "surrogatepass")


class RowDigests(Mapping[str, str]):
    """Digests by id, in the order in which the ids came; of one id the last counts."""

    def __init__(self, rows: Iterable[tuple[str, str]] = ()) -> None:
        self._ids = IdTable()
        self._digests = bytearray()
        self.update(rows)

    def update(self, rows: Iterable[tuple[str, str]]) -> None:
        """Add or replace digests, which are hexadecimal and of 32 characters."""
        for id, digest in rows:
            at = 16 * self._ids.add(id)
            self._digests[at : at + 16] = bytes.fromhex(digest)

    def copy(self) -> RowDigests:
        """Return a table of its own with the same rows."""
        table = RowDigests()
        table._ids = self._ids.copy()
        table._digests = self._digests[:]
        return table

    def items(self) -> ItemsView[str, str]:
        """Return ids with their digests, which are looked up for none of them."""
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        # Most often two readings of the same data are compared, in the same order.
        if isinstance(other, RowDigests) and self._ids.has_same_order(other._ids):
            return self._digests == other._digests
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, id: str) -> str:
        place = self._ids.place(id)
        if place is None:
            raise KeyError(id)
        return self._digest_at(place)

    def _digest_at(self, place: int) -> str:
        return self._digests[16 * place : 16 * place + 16].hex()

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


class _Items(ItemsView[str, str]):
    _mapping: RowDigests

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for place, id in enumerate(self._mapping._ids):
            yield id, self._mapping._digest_at(place)
