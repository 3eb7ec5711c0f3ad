"""The driver's record of when everything happened, appended to `spans.jsonl` of a run.

One line per event, each a JSON list; times are microseconds since the session's start. A
run that is killed loses at most the last second, a line that was cut short is ignored.

Its size is bounded however long a run is. The first `FINE` batches of a session have a
line each. Then the batches of a worker are merged until a line covers 1 second, and
after each further `FINE` lines twice as long: a session has about `FINE` lines for each
doubling of its worker-seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cluster.tracing.merged import MergedBatches
from cluster.tracing.spans import CLOCK, Span

JOURNAL = "spans.jsonl"
VERSION = 1
FINE = 20_000
"""Lines of batches before their resolution is halved."""
_FLUSHED_EVERY_NS = 1_000_000_000
_QUEUES_EVERY_NS = 1_000_000_000
_FINE_QUEUES = 2_000
"""Samples of the queues before they are taken half as often."""


class SpanJournal:
    """Writes the lines of one session; a context manager.

    Nothing is written before `activate`, so that commands which make nothing leave no
    session. Without a folder nothing is ever written.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._path = None if root is None else root / JOURNAL
        self._start = CLOCK.now()
        self._waiting: list[str] = []
        """Lines that are written once the session is active."""
        self._file: IO[str] | None = None
        self._flushed = self._start
        self._lanes: list[WorkerLane] = []
        self._batch_lines = 0
        self.resolution_us = 0
        """Batches of a worker are merged until a line covers so much."""
        self._queues_at = 0
        self._queues_every = _QUEUES_EVERY_NS
        self._queue_lines = 0
        self._queues: Mapping[str, int] = {}
        self._closed = False

    def __enter__(self) -> "SpanJournal":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("finished" if kind is None else kind.__name__)

    @property
    def active(self) -> bool:
        """Whether this session is kept."""
        return self._file is not None

    def activate(self) -> None:
        """Begin to write; a later call changes nothing."""
        if self._file is not None or self._path is None or self._closed:
            return
        about = {"version": VERSION, "start_ns": self._start, "pid": os.getpid()}
        head = json.dumps(["session", about | {"host": socket.gethostname()}])
        # A disk that is full or read-only must not end a run because of its trace.
        with contextlib.suppress(OSError):
            self._file = self._path.open("a", encoding="utf-8")
            # The session before may have been cut short within a line.
            self._file.write(f"\n{head}\n")
            self._file.writelines(self._waiting)
            self._file.flush()
        self._waiting = []

    def close(self, status: str) -> None:
        """End all workers and the session."""
        for lane in self._lanes:
            lane.enter("ended")
        if not self._closed:
            self.write("end", self.now_us(), status)
        self._closed = True
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()

    def now_us(self) -> int:
        """Microseconds since the session's start."""
        return self.as_us(CLOCK.now())

    def as_us(self, time_ns: int) -> int:
        """A time of the wall clock on the session's axis."""
        return (time_ns - self._start) // 1000

    def write(self, *line: Any) -> None:
        """Append one line."""
        text = json.dumps(line, separators=(",", ":")) + "\n"
        if self._closed or self._path is None:
            return
        if self._file is None:
            self._waiting.append(text)
            return
        with contextlib.suppress(OSError):
            self._file.write(text)
            if CLOCK.now() - self._flushed > _FLUSHED_EVERY_NS:
                self._file.flush()
                self._flushed = CLOCK.now()

    @contextmanager
    def phase(self, name: str) -> Iterator["PhaseTimer"]:
        """Time a part of the driver's work, until its end or an earlier `end()`."""
        timer = PhaseTimer(self, name)
        try:
            yield timer
        finally:
            timer.end()

    def nodes(self, nodes: Mapping[str, Sequence[float]]) -> None:
        """The nodes of the cluster, each with its GPUs and CPUs."""
        self.write("nodes", self.now_us(), {n: list(v) for n, v in nodes.items()})

    def queued(self, jobs: Mapping[str, int]) -> None:
        """How many jobs wait, by stage; written once a second at most, if it changes."""
        now = CLOCK.now()
        if now - self._queues_at < self._queues_every or jobs == self._queues:
            return
        self._queues_at, self._queues = now, dict(jobs)
        self._queue_lines += 1
        if self._queue_lines % _FINE_QUEUES == 0:
            self._queues_every *= 2
        self.write("queued", self.as_us(now), dict(jobs))

    def lane(
        self, stage: str, node: str, *, gpus: float, cpus: float, slots: int, remote: bool
    ) -> "WorkerLane":
        """The lane of a worker that is being started.

        `slots` are the batches that it computes at a time; `remote` is an endpoint.
        """
        lane = WorkerLane(self, len(self._lanes))
        self._lanes.append(lane)
        about = {"stage": stage, "node": node, "gpus": gpus, "cpus": cpus}
        self.write("worker", lane.number, about | {"slots": slots, "remote": remote})
        lane.enter("starting")
        return lane

    def write_batches(self, lane: int, merged: MergedBatches) -> None:
        """Write one line of one or several batches, and coarsen where there are many."""
        self.write("batch", lane, *merged.as_json())
        self._batch_lines += 1
        if self._batch_lines % FINE == 0:
            self.resolution_us = max(1_000_000, 2 * self.resolution_us)


class PhaseTimer:
    """A part of the driver's work that has begun."""

    def __init__(self, journal: SpanJournal, name: str) -> None:
        self._journal, self.name = journal, name
        self._begin: int | None = journal.now_us()

    def end(self) -> None:
        """Write it; a later call changes nothing."""
        if self._begin is not None:
            self._journal.write("phase", self.name, self._begin, self._journal.now_us())
        self._begin = None


class WorkerLane:
    """What one worker did, as the driver hears of it."""

    def __init__(self, journal: SpanJournal, number: int) -> None:
        self._journal = journal
        self.number = number
        self._state = ""
        self._sent: dict[int, int] = {}
        """When each batch in flight was sent, by its identity."""
        self._merged: MergedBatches | None = None

    def enter(self, state: str) -> None:
        """`starting`, `loading`, `ready`, `stopping` or `ended`; once each."""
        if state in (self._state, "") or self._state == "ended":
            return
        self._state = state
        if state == "ended":
            self._flush()
        self._journal.write("state", self.number, state, self._journal.now_us())

    def placed(self, host: str) -> None:
        """It runs on this host."""
        self._journal.write("host", self.number, host)

    def sent(self, batch: object) -> None:
        """A batch is on its way to the worker."""
        self._sent[id(batch)] = self._journal.now_us()

    def received(
        self,
        batch: object,
        spans: Sequence[Span],
        *,
        records: int,
        status: str,
        joules: float | None,
    ) -> None:
        """The worker has answered."""
        journal, received = self._journal, self._journal.now_us()
        sent = self._sent.pop(id(batch), received)
        times = [(s.phase, journal.as_us(s.begin), journal.as_us(s.end)) for s in spans]
        opening = [t for t in times if t[0] in ("load", "server")]
        if opening:
            journal.write("opening", self.number, opening)
        own = [t for t in times if t[0] not in ("load", "server")]
        if not own:
            return
        entry = MergedBatches.of_batch(own, records, status, (sent, received), joules)
        if self._merged is not None:
            if self._merged.takes(entry, journal.resolution_us):
                self._merged = self._merged.with_batch(entry)
                return
            self._flush()
        if journal.resolution_us and entry.duration_us < journal.resolution_us:
            self._merged = entry
        else:
            journal.write_batches(self.number, entry)

    def lost(self, batch: object, records: int) -> None:
        """No answer will come: the worker died, hangs, or has lost its server."""
        now = self._journal.now_us()
        begin = self._sent.pop(id(batch), now)
        self._flush()
        self._journal.write("lost", self.number, begin, now, records)

    def _flush(self) -> None:
        if self._merged is not None:
            self._journal.write_batches(self.number, self._merged)
        self._merged = None


def append_phase(root: Path, name: str, begin_ns: int) -> None:
    """Add something the driver did after its session had ended; it ends now."""
    times = [begin_ns // 1000, CLOCK.now() // 1000]
    with contextlib.suppress(OSError), (root / JOURNAL).open("a") as file:
        file.write(json.dumps(["after", name, *times]) + "\n")
