"""The loop that writes the records of a batch together, token by token.

A step computes all streams, has the rules choose every record's token, and feeds it: all
queued on the device, by tensors over the whole batch. Then the host reads, once, what was
written a step before: while it waits, the device is at work. So a record that turns out to
have ended has been in one step more, which has written nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plait.generators.decoding.rules import Change, Rules, Run
from plait.generators.decoding.sampling import NONE
from plait.generators.decoding.streams import Rows, Stream, Streams

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one record."""

    tokens: list[int]
    """All of them, the one that ended it included."""
    broken: bool
    """Whether it ended where there were no numbers to choose by."""


Opener = Callable[[list[int]], Sequence[tuple[Stream, ...]]]
"""Opens the streams of these records: each one's own, then its guides."""


def steps_behind(device: torch.device) -> int:
    """Return how many steps the host reads behind: a CPU would only compute more."""
    return 1 if device.type == "cuda" else 0


@dataclass(frozen=True, slots=True)
class _Group:
    """Records that have as many streams each, and step together."""

    here: Ints
    at: Tensor
    """The same records, on the device."""
    rows: Rows
    """Of their streams, all own ones first."""
    everyone: Tensor
    """True for each of them."""


class _Reading:
    """What a step wrote, on its way to the host."""

    def __init__(self, records: Ints, tokens: Tensor, changes: Tensor) -> None:
        self.records = records
        self._copy = torch.stack([tokens, changes]).to("cpu", non_blocking=True)
        self._copied: Any = None
        if tokens.is_cuda:
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record(torch.cuda.current_stream(tokens.device))

    def wait(self) -> tuple[Ints, Ints]:
        """Return the tokens and the changes of the records."""
        if self._copied is not None:
            self._copied.synchronize()
        tokens, changes = self._copy.numpy()
        return tokens, changes


class _Runs:
    """How many tokens of its run a record has yet to compute, as far as the host knows."""

    def __init__(self, run: Run | None, records: int) -> None:
        self._run = run
        self._left = np.zeros(records, dtype=np.int64)

    def take(self, records: Ints) -> int:
        """Return how many tokens all of these records compute next."""
        if self._run is None:
            return 1
        left = self._left[records]
        tokens = max(int(left.min()), 1)
        self._left[records] = np.maximum(left - tokens, 0)
        return tokens

    def note(self, records: Ints, tokens: Ints, since: int) -> None:
        """Note what records wrote so many steps ago, each of which computed one token."""
        if self._run is not None:
            begin = records[tokens == self._run.first]
            self._left[begin] = self._run.tokens - since


class BatchWriter:
    """Writes the records of one batch, each of which leaves when it has ended."""

    def __init__(
        self, streams: Streams, rules: Rules, open: Opener, rows: int | None = None
    ) -> None:
        """`rows` is the most records written at a time; None for all at once."""
        self._streams = streams
        self._rules = rules
        self._open = open
        self._most = rules.records if rows is None else rows
        self._waiting = deque(range(rules.records))
        self._live: dict[int, tuple[Stream, ...]] = {}
        """The streams of each record in flight."""
        self._groups: list[_Group] = []
        self._records = np.zeros(0, dtype=np.int64)
        """Those of all groups."""
        self._runs = _Runs(rules.run, rules.records)
        self._behind = steps_behind(streams.device)
        self._ledger = Ledger(rules.records)
        self._broken = set[int]()

    @torch.inference_mode()
    def __call__(self) -> list[Written]:
        """Return what was written, by record."""
        readings = deque[_Reading]()
        while self._waiting or self._live:
            self._join()
            readings.append(self._step())
            if len(readings) > self._behind:
                reading = readings.popleft()
                self._settle(reading, len(readings))
        written: list[Written] = []
        for record in range(self._rules.records):
            is_broken = record in self._broken
            written.append(Written(self._ledger.tokens(record), is_broken))
        return written

    def _join(self) -> None:
        """Open the streams of records that wait, where there is room for them."""
        room = min(self._most - len(self._live), len(self._waiting))
        if room:
            joining = [self._waiting.popleft() for _ in range(room)]
            self._live |= zip(joining, self._open(joining), strict=True)
            self._arrange()

    def _arrange(self) -> None:
        """Group the records in flight; needed whenever a stream has joined or left."""
        by_streams: dict[int, list[int]] = {}
        # By row, so that rows follow one another wherever they can.
        for record in sorted(self._live, key=lambda record: self._live[record][0].row):
            by_streams.setdefault(len(self._live[record]), []).append(record)
        self._groups = []
        for count, records in by_streams.items():
            streams: list[Stream] = []
            for place in range(count):
                streams += [self._live[record][place] for record in records]
            here = np.array(records)
            at = torch.tensor(here, device=self._streams.device)
            everyone = torch.ones_like(at, dtype=torch.bool)
            self._groups.append(_Group(here, at, self._streams.rows(streams), everyone))
        if self._groups:
            self._records = np.concatenate([group.here for group in self._groups])

    def _step(self) -> _Reading:
        """Queue a step of all records in flight."""
        run = self._runs.take(self._records)
        states = self._streams.step() if run == 1 else self._step_run(run)
        tokens: list[Tensor] = []
        changes: list[Tensor] = []
        for group in self._groups:
            wrote, changed = self._move(group, states)
            tokens.append(wrote)
            changes.append(changed)
        return _Reading(self._records, _concatenate(tokens), _concatenate(changes))

    def _step_run(self, tokens: int) -> Tensor:
        """Queue a pass over the next tokens of runs; return the states at the last ones."""
        (group,) = self._groups
        more = self._rules.rest(group.at, tokens - 1)
        states = self._streams.step_run(group.rows, more)
        self._rules.pass_by(states[group.rows.there, :-1], group.at)
        return states[:, -1]

    def _move(self, group: _Group, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return what a group's records write (records,), and its changes (records,)."""
        rules = self._rules
        # Read at once, records that have ended leave before the next step.
        going = rules.goes_on[group.at] if self._behind else group.everyone
        width = states.shape[-1]
        # (streams, records, width), as rules take them.
        own = states[group.rows.there].view(-1, len(group.here), width)
        move = rules.move(own, group.at, going)
        tokens = move.tokens
        changes = torch.where(
            move.broken, Change.BROKEN.value, move.ends * Change.END.value
        )
        if move.pauses is not None:
            pauses = move.pauses & (changes == Change.NOTHING)
            changes = changes.where(~pauses, Change.PAUSE.value)
        fed: Tensor | None = None
        if self._behind:
            tokens = tokens.where(going, NONE)
            changes = changes * going
            rules.goes_on[group.at] = going & (changes == Change.NOTHING)
            fed = (going & ~move.broken & ~move.ends).repeat(len(own))
        embeddings = rules.embed(move.fed.clamp(min=0))
        if len(own) > 1:
            embeddings = embeddings.repeat(len(own), 1)
        self._streams.feed(group.rows, embeddings, fed)
        return tokens, changes

    def _settle(self, reading: _Reading, since: int) -> None:
        """Note what was written `since` steps ago, and let records leave or go on."""
        tokens, changes = reading.wait()
        tokens = np.where(changes == Change.BROKEN, NONE, tokens)
        self._ledger.add(reading.records, tokens)
        self._runs.note(reading.records, tokens, since)
        if not changes.any():
            return
        ending = changes == Change.END
        self._leave(reading.records[ending].tolist(), broken=False)
        broken = reading.records[changes == Change.BROKEN].tolist()
        self._broken |= set(broken)
        self._leave(broken, broken=True)
        self._resume(reading.records[changes == Change.PAUSE].tolist())
        self._arrange()

    def _leave(self, records: list[int], broken: bool) -> None:
        leaving: list[Stream] = []
        for record in records:
            leaving += self._live.pop(record)
        if leaving:
            self._streams.close(list(dict.fromkeys(leaving)), broken)

    def _resume(self, records: list[int]) -> None:
        if not records:
            return
        paused = {record: self._ledger.tokens(record) for record in records}
        closing: dict[Stream, None] = {}
        for record in records:
            streams = self._live[record]
            self._live[record] = streams[:1]
            closing |= dict.fromkeys(streams[1:])
        if closing:
            self._streams.close(list(closing))
        for record, guides in self._rules.resume(paused).items():
            self._live[record] += guides
        self._rules.goes_on[torch.tensor(records, device=self._rules.device)] = True


def _concatenate(parts: Sequence[Tensor]) -> Tensor:
    """Return the parts one after another; a single one without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat([*parts])


class Ledger:
    """The tokens that each record has written, as the host knows them."""

    def __init__(self, records: int) -> None:
        self._tokens = np.zeros((records, 64), dtype=np.int64)
        self._counts = np.zeros(records, dtype=np.int64)

    def add(self, records: Ints, tokens: Ints) -> None:
        """Append a token to each of some records; NONE is no token."""
        wrote = tokens != NONE
        records = records[wrote]
        if not len(records):
            return
        counts = self._counts[records]
        if counts.max() == self._tokens.shape[1]:
            self._tokens = np.concatenate(
                [self._tokens, np.zeros_like(self._tokens)], axis=1
            )
        self._tokens[records, counts] = tokens[wrote]
        self._counts[records] = counts + 1

    def tokens(self, record: int) -> list[int]:
        """Return all tokens of a record."""
        tokens: list[int] = self._tokens[record, : self._counts[record]].tolist()
        return tokens
