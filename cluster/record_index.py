"""Where the record of every key is: 25 bytes a record, whatever the number of records.

A record is named by 16 bytes of its key, the number of its part, its row there and a code
for how it ended. Those of parts that are read lie in arrays sorted by key, in 256 buckets
by the first byte, so that sorting one needs little memory beside the others. Records that
are added one by one lie in a dict until there are many.

Rows of a part come in by three steps: `append` stages them, `_spread` hands them to the
buckets, and `settle` sorts each bucket and keeps one record of each key. The store
(`store.py`) has one `RecordIndex` for each stage.
"""

from __future__ import annotations

import binascii
import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from plait.cluster.memory import release_memory
from plait.generators.base import Fault

Array = np.ndarray[Any, np.dtype[Any]]
_KEY_CHARACTERS = 32
"""Hexadecimal digits of a key, for its 16 bytes."""
_BUCKETS = 256
_MOST_STATUSES = 256
"""As many as a code of one byte can tell apart."""
_ONE_BUCKET_ROWS = 1 << 17
"""With no more records, they are all in one bucket."""
_STAGED_ROWS = 1 << 20
"""Rows that are read before they are spread over the buckets."""
_RELEASED_EVERY = 16
"""Buckets that are sorted before memory is released. What was added to one lies between
what was added to others: the holes that it leaves are too small for sorted arrays."""
_LEAST_RECENT = 100_000
_RECENT_SHARE = 256
"""How many records that were added one by one a dict holds, before they are sorted in with
the others: this part of all, and `_LEAST_RECENT` at least. A dict takes several times as
much memory for each."""


class RecordStatus(NamedTuple):
    """How a record ended."""

    outcome: str
    fault: str | None
    final: bool
    """Whether running the command again leaves the record as it is."""


class RecordPlace(NamedTuple):
    """Where a record is, and how it ended."""

    key: str
    part: str
    """Path of the Parquet part."""
    row: int
    status: RecordStatus

    @property
    def outcome(self) -> str:
        """The name of its outcome."""
        return self.status.outcome

    @property
    def fault(self) -> str | None:
        """Why it failed."""
        return self.status.fault

    @property
    def final(self) -> bool:
        """Whether running the command again leaves the record as it is."""
        return self.status.final


class StatusCodes:
    """Numbers for how records end: there are few different ends."""

    def __init__(self) -> None:
        self.statuses: list[RecordStatus] = []
        """By their codes."""
        self._codes: dict[tuple[str, str | None], int] = {}
        self._adding = threading.Lock()  # parts are read side by side

    def code_of(self, outcome: str, fault: str | None) -> int:
        """Return the code of one end; ValueError for a fault that does not exist."""
        code = self._codes.get((outcome, fault))
        if code is not None:
            return code
        final = fault is None or Fault(fault).final
        with self._adding:  # another thread may have added it just now
            if (outcome, fault) not in self._codes:
                if len(self.statuses) == _MOST_STATUSES:
                    raise ValueError("records end in too many ways")
                self.statuses.append(RecordStatus(outcome, fault, final))
                self._codes[outcome, fault] = len(self.statuses) - 1
        return self._codes[outcome, fault]

    def codes_of(self, outcomes: pa.Array, faults: pa.Array) -> Array:
        """Return the codes of many, as uint8; ValueError where an outcome is missing."""
        if outcomes.null_count:
            raise ValueError("a record has no outcome")
        # Each distinct outcome and each distinct fault gets a number, and each pair of them
        # another: of a million records, only the few pairs that occur are looked up.
        encoded_outcomes = outcomes.dictionary_encode()
        encoded_faults = faults.dictionary_encode()
        outcome_names = encoded_outcomes.dictionary.to_pylist()
        fault_names = [*encoded_faults.dictionary.to_pylist(), None]
        no_fault = len(fault_names) - 1
        outcome = encoded_outcomes.indices.to_numpy(zero_copy_only=False)
        fault = encoded_faults.indices.fill_null(no_fault).to_numpy(zero_copy_only=False)
        pair = outcome * len(fault_names) + fault
        code_of_pair = np.zeros(len(outcome_names) * len(fault_names), np.uint8)
        occurring = np.bincount(pair, minlength=code_of_pair.size).nonzero()[0]
        for number in occurring.tolist():
            i, j = divmod(number, len(fault_names))
            code_of_pair[number] = self.code_of(outcome_names[i], fault_names[j])
        codes: Array = np.take(code_of_pair, pair)
        return codes

    def are_final(self, codes: Array) -> Array:
        """Whether records with these codes are final."""
        final = np.array([status.final for status in self.statuses], bool)
        return np.take(final, codes)


class KeyDigests(NamedTuple):
    """The 16 bytes of each of many keys, as two numbers of 64 bits."""

    high: Array
    low: Array
    names: dict[bytes, str]
    """The keys that are not 32 hexadecimal digits, by their 16 bytes."""

    @classmethod
    def of(cls, keys: pa.Array) -> KeyDigests:
        """Return those of a column of keys; ValueError where one is missing."""
        if keys.null_count:
            raise ValueError("a record has no key")
        names: dict[bytes, str] = {}
        data = bytes_of_keys(keys)
        if data is None:
            digests: list[bytes] = []
            for key in keys.to_pylist():
                digest = _digest_of(key)
                digests.append(digest)
                if digest.hex() != key:
                    names[digest] = key
            data = b"".join(digests)
        # Copies, so that rows of one half lie side by side.
        halves = np.frombuffer(data, ">u8").reshape(-1, 2).astype(np.uint64)
        return cls(halves[:, 0].copy(), halves[:, 1].copy(), names)

    def to_bytes(self) -> bytes:
        """Return the 16 bytes of all keys, one after the other."""
        return np.stack([self.high, self.low], axis=1).astype(">u8").tobytes()

    def at(self, chosen: Array) -> KeyDigests:
        """Return some of them."""
        return KeyDigests(self.high[chosen], self.low[chosen], self.names)


def bytes_of_keys(keys: pa.Array) -> bytes | None:
    """Return the 16 bytes of each key, one after the other.

    None where one is not 32 hexadecimal digits in small letters.
    """
    if not pa.types.is_string(keys.type) or not len(keys):
        return None
    # All texts lie in one buffer, and the offsets say where each begins: so all keys are
    # read at once, without a Python string of each.
    _, offsets_buffer, data = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset :][: len(keys) + 1]
    if data is None or not bool(np.all(np.diff(offsets) == _KEY_CHARACTERS)):
        return None
    text = memoryview(data)[int(offsets[0]) : int(offsets[-1])]
    letters = np.frombuffer(text, np.uint8)
    if bool(np.any((letters >= ord("A")) & (letters <= ord("F")))):
        return None  # another key than the same in small letters
    try:
        return binascii.unhexlify(text)
    except binascii.Error:
        return None


def _digest_of(key: str) -> bytes:
    """The 16 bytes of a key: what its digits say, or a digest of any other text."""
    if len(key) == _KEY_CHARACTERS:
        try:
            digest = bytes.fromhex(key)
        except ValueError:
            digest = b""
        if digest.hex() == key:
            return digest
    return hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def halves_of(key: str) -> tuple[np.uint64, np.uint64]:
    """Return the 16 bytes of a key as `KeyDigests` has them: high, low."""
    return _halves(_digest_of(key))


def _halves(digest: bytes) -> tuple[np.uint64, np.uint64]:
    high = digest[:8]
    low = digest[8:]
    return np.uint64(int.from_bytes(high)), np.uint64(int.from_bytes(low))


class Rows(NamedTuple):
    """Records as arrays of one length."""

    high: Array
    low: Array
    part: Array
    """Numbers of parts."""
    row: Array
    code: Array

    @classmethod
    def none(cls) -> Rows:
        """Return no records."""
        return cls(
            high=np.empty(0, np.uint64),
            low=np.empty(0, np.uint64),
            part=np.empty(0, np.uint32),
            row=np.empty(0, np.uint32),
            code=np.empty(0, np.uint8),
        )

    @classmethod
    def concatenate(cls, several: list[Rows]) -> Rows:
        """Return the records of several, one after the other."""
        if len(several) == 1:
            return several[0]
        columns = zip(*several, strict=True)
        return cls(*map(np.concatenate, columns))

    def at(self, chosen: Array | slice) -> Rows:
        """Return some of them, copied."""
        return Rows(*(column[chosen].copy() for column in self))

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.high)


@dataclass(slots=True)
class _Rivals:
    """Records of keys that have several."""

    bucket: int
    position: Array
    """In the sorted bucket."""
    group: Array
    """Equal for records of one key."""
    known: Array
    """Whether they were in the index before."""
    rows: Rows


class Worth(NamedTuple):
    """By what one of several records of a key is chosen."""

    settled: Array
    """Whether each is final, and need not be made again (`RecordRow.is_settled`)."""
    at: Array
    """When each was made, in microseconds since the epoch."""


Weighing = Callable[[Rows], Worth]
_Spot = tuple[int, int, int]
"""Number of the part, row, code."""


class _InBucket(NamedTuple):
    """Those of many keys that belong to one bucket."""

    bucket: int
    chosen: Array
    """Which of the keys they are."""
    position: Array
    """Where each is in the sorted bucket; -1 where it is not."""


class RecordIndex:
    """Where the records of one stage are; each key once."""

    def __init__(self) -> None:
        self.codes = StatusCodes()
        self.parts: list[str] = []
        """By number."""
        self.whole: set[str] = set()
        """Parts of which all records are here."""
        self._numbers: dict[str, int] = {}
        self._buckets = [Rows.none()]
        """Sorted by key, those of one first byte each; a single one while there are few."""
        self._added: list[list[Rows]] = [[]]
        """By bucket, what is not sorted into it yet."""
        self._staged: list[Rows] = []
        """What is not handed to the buckets yet."""
        self._staged_rows = 0
        self._recent: dict[bytes, _Spot] = {}
        """Records added one by one, in place of those in the buckets."""
        self._most_recent = _LEAST_RECENT
        self._hidden: set[bytes] = set()
        """Keys that count as missing although their records are there."""
        self._names: dict[bytes, str] = {}
        """Keys that are not 32 hexadecimal digits."""

    # ---------------------------------------------------------------------- one record

    def find(self, key: str) -> RecordPlace | None:
        """Return where the record of `key` is."""
        digest = _digest_of(key)
        spot = self._recent.get(digest) or self._find_stored(digest)
        if spot is None or digest in self._hidden:
            return None
        part, row, code = spot
        return RecordPlace(key, self.parts[part], row, self.codes.statuses[code])

    def put(self, key: str, part: str, row: int, outcome: str, fault: str | None) -> None:
        """Have this record be the one of `key`."""
        digest = _digest_of(key)
        if digest.hex() != key:
            self._names[digest] = key
        self._hidden.discard(digest)
        code = self.codes.code_of(outcome, fault)
        self._recent[digest] = self.number_of(part), row, code
        if len(self._recent) > self._most_recent:
            self.fold()

    def hide(self, key: str) -> None:
        """Have `key` count as missing, until a record is put or it is shown again."""
        self._hidden.add(_digest_of(key))

    def show(self, key: str) -> bool:
        """Undo `hide`; whether `key` was still hidden."""
        digest = _digest_of(key)
        was_hidden = digest in self._hidden
        self._hidden.discard(digest)
        return was_hidden

    def number_of(self, part: str) -> int:
        """Return the number of a part, which it is given when it is first named."""
        if part not in self._numbers:
            self._numbers[part] = len(self.parts)
            self.parts.append(part)
        return self._numbers[part]

    def _bucket_of(self, high: int) -> int:
        return high >> 56 if len(self._buckets) > 1 else 0

    def _find_stored(self, digest: bytes) -> _Spot | None:
        high, low = _halves(digest)
        rows = self._buckets[self._bucket_of(int(high))]
        # The first with this half; very rarely another key has the same one.
        i = int(rows.high.searchsorted(high))
        while i < rows.size and rows.high[i] == high:
            if rows.low[i] == low:
                return int(rows.part[i]), int(rows.row[i]), int(rows.code[i])
            i += 1
        return None

    # --------------------------------------------------------------------- all records

    def __len__(self) -> int:
        self.fold()
        return sum(rows.size for rows in self._buckets) - len(self._hidden)

    def keys(self) -> Iterator[str]:
        """Every key, in no order that means anything."""
        self.fold()
        for rows in list(self._buckets):
            data = KeyDigests(rows.high, rows.low, self._names).to_bytes()
            for i in range(0, len(data), 16):
                digest = data[i : i + 16]
                if digest not in self._hidden:
                    yield self._names.get(digest) or digest.hex()

    def statuses(self) -> Counter[RecordStatus]:
        """How many records ended how."""
        self.fold()
        counts = np.zeros(_MOST_STATUSES, np.int64)
        for rows in self._buckets:
            counts += np.bincount(rows.code, minlength=_MOST_STATUSES)
        for digest in self._hidden:
            _, _, code = self._find_stored(digest) or (0, 0, 0)
            counts[code] -= 1
        statuses = Counter[RecordStatus]()
        for code, status in enumerate(self.codes.statuses):
            if counts[code] > 0:
                statuses[status] = int(counts[code])
        return statuses

    # ----------------------------------------------------------------------- many rows

    def append(self, part: str, first: int, digests: KeyDigests, codes: Array) -> None:
        """Add rows of a part, from row `first`; they are found once `settle` was called."""
        count = len(digests.high)
        number = np.full(count, self.number_of(part), np.uint32)
        row = np.arange(first, first + count, dtype=np.uint32)
        self._names |= digests.names
        self._staged.append(Rows(digests.high, digests.low, number, row, codes))
        self._staged_rows += count
        if self._staged_rows >= _STAGED_ROWS:
            self._spread()

    def settle(self, weigh: Weighing) -> None:
        """Sort what was appended; of each key keep one record.

        A final record that was known before stays. Else the settled one that was made
        first, and where none is settled the last one that was made, as `weigh` tells.
        """
        self.fold()  # those that were added one by one are known, too
        self._spread()
        rivals: list[_Rivals] = []
        for bucket, added in enumerate(self._added):
            if any(rows.size for rows in added):
                found = self._sort(bucket, added)
                if found is not None:
                    rivals.append(found)
            self._added[bucket] = []
            if bucket % _RELEASED_EVERY == _RELEASED_EVERY - 1:
                release_memory()
        self._note_size()
        if rivals:
            self._choose(rivals, weigh)

    def fold(self) -> None:
        """Move what was added one by one into the arrays."""
        if not self._recent:
            return
        recent = self._recent
        self._recent = {}
        halves = np.frombuffer(b"".join(recent), ">u8").reshape(-1, 2).astype(np.uint64)
        spots = np.array(list(recent.values()), np.uint32)
        rows = Rows(
            high=halves[:, 0],
            low=halves[:, 1],
            part=spots[:, 0],
            row=spots[:, 1],
            code=spots[:, 2].astype(np.uint8),
        )
        # Records of keys that are there take the place of the former ones.
        is_new = np.ones(rows.size, bool)
        for bucket, chosen, position in self._locate(rows.high, rows.low):
            there = position >= 0
            old = self._buckets[bucket]
            old_at = position[there]
            at = chosen[there]
            old.part[old_at] = rows.part[at]
            old.row[old_at] = rows.row[at]
            old.code[old_at] = rows.code[at]
            is_new[at] = False
        # The others are sorted in.
        rows = rows.at(is_new)
        self._make_room(rows.size)
        for bucket, chosen in self._groups(rows.high):
            self._sort(bucket, [rows.at(chosen)])
        self._note_size()

    def are_current(self, part: str, first: int, digests: KeyDigests) -> Array:
        """Whether rows of a part, from row `first`, are the records of their keys."""
        self.fold()
        current = np.zeros(len(digests.high), bool)
        number = self._numbers.get(part, -1)
        for bucket, chosen, position in self._locate(digests.high, digests.low):
            rows = self._buckets[bucket]
            there = position >= 0
            at = position[there]
            which = chosen[there]
            same = (rows.part[at] == number) & (rows.row[at] == first + which)
            current[which] = same
        if self._hidden:
            halves = digests.to_bytes()
            for i in current.nonzero()[0].tolist():
                current[i] = halves[16 * i : 16 * i + 16] not in self._hidden
        return current

    def move(self, former: str, rows: Array, digests: KeyDigests, to: str, row: int) -> int:
        """Note that `rows` of part `former` are now in `to`, from `row`.

        Return how many of them are the records of their keys; others stay superseded.
        """
        number = self._numbers.get(former, -1)
        new = self.number_of(to)
        moved = 0
        # Which of `rows` are in the buckets, if anywhere.
        left = np.arange(len(rows))
        if self._recent:
            # Without folding, which would sort buckets anew for each part that is joined.
            data = digests.to_bytes()
            absent = list[int]()
            for i, old_row in enumerate(rows.tolist()):
                digest = data[16 * i : 16 * i + 16]
                spot = self._recent.get(digest)
                if spot is None:
                    absent.append(i)
                elif spot[:2] == (number, old_row):
                    self._recent[digest] = new, row + i, spot[2]
                    moved += 1
            left = np.array(absent, np.int64)
        others = digests.at(left)
        for bucket, chosen, position in self._locate(others.high, others.low):
            here = self._buckets[bucket]
            there = position >= 0
            at = position[there]
            which = left[chosen[there]]
            same = (here.part[at] == number) & (here.row[at] == rows[which])
            here.part[at[same]] = new
            here.row[at[same]] = row + which[same]
            moved += int(same.sum())
        return moved

    def drop_parts(self, parts: Collection[str]) -> None:
        """Forget the names of parts to which no record refers any more."""
        self.whole -= set(parts)
        for part in parts:
            if part in self._numbers:
                self.parts[self._numbers.pop(part)] = ""

    def forget(self, parts: Collection[str]) -> None:
        """Remove all records of some parts."""
        self.fold()
        gone = [self._numbers[part] for part in parts if part in self._numbers]
        self.drop_parts(parts)  # which forgets the numbers
        numbers = np.array(gone, np.uint32)
        for i, rows in enumerate(self._buckets):
            lost = np.isin(rows.part, numbers)
            if lost.any():
                self._buckets[i] = rows.at(~lost)
        self._hidden = {digest for digest in self._hidden if self._find_stored(digest)}

    # ----------------------------------------------------------------------- internals

    def _locate(self, high: Array, low: Array) -> Iterator[_InBucket]:
        """Yield where keys are, bucket by bucket."""
        for bucket, chosen in self._groups(high):
            position = _positions(self._buckets[bucket], high[chosen], low[chosen])
            yield _InBucket(bucket, chosen, position)

    def _groups(self, high: Array) -> Iterable[tuple[int, Array]]:
        """The buckets of keys, and which are for each."""
        if len(self._buckets) == 1:
            return [(0, np.arange(len(high)))]
        return _by_first_byte(high)

    def _spread(self) -> None:
        """Hand what is staged to its buckets."""
        if not self._staged:
            return
        rows = Rows.concatenate(self._staged)
        self._staged = []
        self._staged_rows = 0
        self._make_room(rows.size)
        for bucket, chosen in self._groups(rows.high):
            self._added[bucket].append(rows.at(chosen))

    def _make_room(self, more: int) -> None:
        """Have many buckets, where there is one and it becomes too full."""
        if len(self._buckets) > 1:
            return
        (former,) = self._buckets
        (waiting,) = self._added
        waiting_rows = sum(rows.size for rows in waiting)
        if former.size + waiting_rows + more <= _ONE_BUCKET_ROWS:
            return
        self._buckets = [Rows.none() for _ in range(_BUCKETS)]
        self._added = [[] for _ in range(_BUCKETS)]
        for bucket, chosen in _by_first_byte(former.high):
            self._buckets[bucket] = former.at(chosen)
        for rows in waiting:
            for bucket, chosen in _by_first_byte(rows.high):
                self._added[bucket].append(rows.at(chosen))

    def _note_size(self) -> None:
        stored = sum(rows.size for rows in self._buckets)
        self._most_recent = max(_LEAST_RECENT, stored // _RECENT_SHARE)

    def _choose(self, rivals: Sequence[_Rivals], weigh: Weighing) -> None:
        """Keep one record of each key that has several."""
        rows = Rows.concatenate([r.rows for r in rivals])
        known = np.concatenate([r.known for r in rivals])
        settled, at = weigh(rows)
        # Groups are numbered from 0 in every bucket; here, through all of them.
        groups: list[Array] = []
        count = 0
        for rival in rivals:
            groups.append(rival.group + count)
            count += int(rival.group[-1]) + 1
        group = np.concatenate(groups)
        # The rows of a group follow each other, the best one first: see `settle`. Keys of
        # lexsort are the other way round: the last one counts most.
        stays = known & self.codes.are_final(rows.code)
        first_or_last = np.where(settled, at, -at)
        order = np.lexsort((np.arange(rows.size), first_or_last, ~settled, ~stays, group))
        best = np.ones(rows.size, bool)
        best[order[1:]] = group[order][1:] != group[order][:-1]
        # Each bucket keeps what is not its rivals, and the best of these.
        first = 0
        for rival in rivals:
            count = len(rival.position)
            lost = rival.position[~best[first : first + count]]
            keep = np.ones(self._buckets[rival.bucket].size, bool)
            keep[lost] = False
            self._buckets[rival.bucket] = self._buckets[rival.bucket].at(keep)
            first += count

    def _sort(self, bucket: int, added: list[Rows]) -> _Rivals | None:
        """Sort rows into a bucket; the records of keys that have several."""
        former_size = self._buckets[bucket].size
        rows = Rows.concatenate([self._buckets[bucket], *added])
        # By the first half alone, which is nearly always enough.
        order = np.argsort(rows.high, kind="stable")
        high = rows.high[order]
        same_as_next = high[1:] == high[:-1]
        if same_as_next.any():
            rows = _once_each(rows)
            order = np.lexsort((rows.low, rows.high))
            high = rows.high[order]
            low = rows.low[order]
            same_as_next = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        sorted_rows = rows.at(order)
        self._buckets[bucket] = sorted_rows
        if not same_as_next.any():
            return None
        has_rival = np.zeros(len(order), bool)
        has_rival[:-1] |= same_as_next
        has_rival[1:] |= same_as_next
        position = has_rival.nonzero()[0]
        # A group begins wherever a key differs from the one before it.
        group_of_row = np.cumsum(np.concatenate([[True], ~same_as_next]))
        _, group = np.unique(group_of_row[position], return_inverse=True)
        known = order[position] < former_size
        return _Rivals(bucket, position, group, known, sorted_rows.at(position))


def _once_each(rows: Rows) -> Rows:
    """Return the rows without those that are in the same place as an earlier one.

    What a worker reported is known before its part is read: a record is no rival of itself.
    """
    order = np.lexsort((rows.row, rows.part, rows.low, rows.high))
    ordered = rows.at(order)
    same = np.ones(rows.size - 1, bool)
    for column in (ordered.high, ordered.low, ordered.part, ordered.row):
        same &= column[1:] == column[:-1]
    if not same.any():
        return rows
    first = np.ones(rows.size, bool)
    first[order[1:][same]] = False
    return rows.at(first)


def _by_first_byte(high: Array) -> Iterator[tuple[int, Array]]:
    """The first bytes that occur, and where."""
    first = (high >> np.uint64(56)).astype(np.uint8)
    order = np.argsort(first, kind="stable")
    ends = np.cumsum(np.bincount(first, minlength=_BUCKETS))
    start = 0
    for byte, end in enumerate(ends.tolist()):
        if end > start:
            yield byte, order[start:end]
        start = end


def _positions(rows: Rows, high: Array, low: Array) -> Array:
    """Where keys are in a sorted bucket; -1 for those that are not."""
    if not rows.size:
        return np.full(len(high), -1)
    position = np.minimum(rows.high.searchsorted(high), rows.size - 1)
    alike = rows.high[position] == high
    found = alike & (rows.low[position] == low)
    result = np.where(found, position, -1)
    for i in (alike & ~found).nonzero()[0].tolist():  # as rare as equal halves of a digest
        j = int(position[i]) + 1
        while j < rows.size and rows.high[j] == high[i]:
            if rows.low[j] == low[i]:
                result[i] = j
            j += 1
    return result
