"""When everything happened: what a worker times, and the driver's record of it.

The driver appends to `spans.jsonl` of a run. Each line is an event of Chrome's trace
format, with times in microseconds since the session's start. A process is a node, its
threads are the states of a worker and the batches in flight in it. A run that is killed
loses at most the last second, in a bucket the last minute.

Batches that are short beside the length of the run are merged: however long it is, there
are about `FINE` events for each doubling of the time of its workers.

A worker fills a `SpanList` for each batch (`worker.py`); the driver has a `SpanJournal`,
and in it a `WorkerLane` for each worker (`replica.py`). `sessions.py` reads the file back.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from plait.generators.base import Placement
from plait.generators.buckets import AnyPath
from plait.generators.files import AppendedFile

JOURNAL = "spans.jsonl"
VERSION = 2
"""Of the events; those of other versions are not read."""
FINE = 20_000
STARTING_RAY = "starting Ray"
MAKING = "making records"
"""Names of two of the driver's phases."""
DRIVER = 1
ROWS = 10_000
"""Process and thread of the driver; threads of each worker: states, then batches."""
_MERGED = ROWS - 1
"""The thread of batches that are merged."""
_OPENING = {"load": "load", "server": "start server"}
"""What a worker does before its first batch, with the names of the events."""
_SUMS = ("records", "batches", "busy_us", "transfer_us")
"""What is added up where batches are merged."""
_SECOND_NS = 1_000_000_000
_OFFSET_NS = time.time_ns() - time.perf_counter_ns()
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
Event = dict[str, Any]


def now_ns() -> int:
    """Return nanoseconds since the epoch, which setting the clock does not bend.

    They can be compared between processes of one machine.
    """
    return _OFFSET_NS + time.perf_counter_ns()


class Span(NamedTuple):
    """Something that took from `begin` until `end`, in nanoseconds since the epoch."""

    phase: str
    """`load`, `server`, `read`, `compute` or `write`."""
    begin: int
    end: int


class SpanList(list[Span]):
    """The spans of one batch, or of loading."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what runs inside, whether or not it raises."""
        begin = now_ns()
        try:
            yield
        finally:
            self.append(Span(name, begin, now_ns()))


class SpanJournal:
    """Writes the events of one session; a context manager.

    Nothing is written before `activate`, so that commands which make nothing leave no
    session. Without a folder nothing is ever written.
    """

    def __init__(self, root: AnyPath | None = None) -> None:
        self._file = None if root is None else AppendedFile(root / JOURNAL)
        self._start = now_ns()
        self._lines: list[str] = []
        """That are not written yet."""
        self.active = False
        """Whether this session is kept."""
        self._flushed = self._start
        """When lines were last written,"""
        self._sampled = self._start
        """and when it was last noted how many jobs wait."""
        self._processes: dict[str, int] = {}
        self._queues: Mapping[str, int] = {}
        self.lanes: list[WorkerLane] = []

    def __enter__(self) -> "SpanJournal":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("finished" if kind is None else kind.__name__)

    def activate(self) -> None:
        """Begin to write; a later call changes nothing."""
        if self.active or self._file is None:
            return
        about = {"version": VERSION, "start_ns": self._start, "pid": os.getpid()}
        head = _line("session", "i", 0, s="g", args=about | {"host": socket.gethostname()})
        # The session before may have been cut short within a line.
        self._lines[:0] = ["\n", head]
        self.active = True
        self._flush()

    def close(self, status: str) -> None:
        """End all workers and the session; what is written later is left out."""
        for lane in self.lanes:
            lane.enter("ended")
        self.write("end", "i", self.now_us(), s="g", args={"status": status})
        self._flush()
        if self.active and self._file is not None:
            with contextlib.suppress(OSError):
                self._file.save()
        self._file = None

    def _flush(self) -> None:
        # A disk that is full or read-only must not end a run because of its trace.
        if self.active and self._file is not None:
            with contextlib.suppress(OSError):
                self._file.append("".join(self._lines))
            self._lines = []
            self._flushed = now_ns()

    def now_us(self) -> int:
        """Return the microseconds since the session's start."""
        return self.as_us(now_ns())

    def as_us(self, time_ns: int) -> int:
        """Convert a time of the wall clock to the session's axis."""
        return (time_ns - self._start) // 1000

    def write(self, name: str, kind: str, at: int, **fields: Any) -> None:
        """Add one event."""
        if self._file is not None:
            self._lines.append(_line(name, kind, at, **fields))
            if now_ns() - self._flushed > _SECOND_NS:
                self._flush()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a part of the driver's work."""
        begin = self.now_us()
        try:
            yield
        finally:
            self.write(name, "X", begin, dur=self.now_us() - begin)

    def note_queues(self, jobs: Mapping[str, int]) -> None:
        """Note how many jobs wait, by stage, if it changes; rarely in a long session."""
        now = now_ns()
        pause = max(_SECOND_NS, (now - self._start) // 1000)
        if now - self._sampled < pause or jobs == self._queues:
            return
        self._sampled = now
        self._queues = dict(jobs)
        for stage, n in jobs.items():
            self.write(f"queued: {stage}", "C", self.as_us(now), args={"jobs": n})

    def lane(self, stage: str, placement: Placement, node: str) -> "WorkerLane":
        """Return the lane of a worker that is told to host a stage."""
        pid = self._processes.setdefault(node, DRIVER + 1 + len(self._processes))
        lane = WorkerLane(self, len(self.lanes), pid, stage)
        self.lanes.append(lane)
        lane.note_host(f"node {node[:8]}")
        about = {
            "stage": stage,
            "gpus": placement.num_gpus,
            "cpus": placement.num_cpus,
            "slots": placement.concurrency,
            "remote": placement.remote,
        }
        lane.write("worker", "i", self.now_us(), s="t", args=about)
        lane.enter("starting")
        return lane


class _Timed(NamedTuple):
    """A span in microseconds since the session's start."""

    phase: str
    begin: int
    end: int

    def later(self, shift: int) -> _Timed:
        """Return the same, later by `shift`."""
        return _Timed(self.phase, self.begin + shift, self.end + shift)


class WorkerLane:
    """What one worker did while it hosted one stage, as the driver hears of it."""

    def __init__(self, journal: SpanJournal, number: int, pid: int, stage: str) -> None:
        self._journal = journal
        self._pid = pid
        self._thread = (number + 1) * ROWS
        self._name = f"{stage} #{number}"
        self._rows: set[int] = set()
        """Threads that have a name."""
        self._state = ""
        self._sent: dict[int, tuple[int, int]] = {}
        """When each batch in flight was sent, and its row, by its identity."""
        self._merged: Event = {}
        """Batches that are not written yet."""
        self._until = 0
        """When the last merged ones ended."""

    def enter(self, state: str) -> None:
        """Enter `starting`, `loading`, `ready`, `stopping` or `ended`; once each."""
        if state == self._state or self._state == "ended":
            return
        now = self._journal.now_us()
        if self._state:
            self.write(self._state, "E", now)
        self._state = state
        if state != "ended":
            self.write(state, "B", now)
            return
        self._flush()
        self.write(state, "i", now, s="t")

    def note_host(self, host: str) -> None:
        """Note the host that it runs on."""
        self.write("process_name", "M", 0, args={"name": host})

    def note_sent(self, batch: object) -> None:
        """Note that a batch is on its way to the worker."""
        # The first thread without a batch: events of one thread may not overlap.
        used = {row for _, row in self._sent.values()}
        row = 1
        while row in used:
            row += 1
        self._sent[id(batch)] = self._journal.now_us(), row

    def note_answer(
        self,
        batch: object,
        spans: Sequence[Span],
        *,
        records: int,
        status: str,
        joules: float | None,
        batches: int = 1,
    ) -> None:
        """Note what the worker says of `batches` that it has answered together.

        Where its clock puts the batch before the sending or after the answer, clocks of
        nodes differ: all is shifted so that it ends when the answer comes.
        """
        journal = self._journal
        now = self._journal.now_us()
        sent, row = self._sent.pop(id(batch), (0, 1))
        opening: list[_Timed] = []
        own: list[_Timed] = []
        for span in spans:
            timed = _Timed(span.phase, journal.as_us(span.begin), journal.as_us(span.end))
            (opening if span.phase in _OPENING else own).append(timed)
        last = max((timed.end for timed in (*opening, *own)), default=now)
        first = min((timed.begin for timed in own), default=sent)
        if first < sent or last > now:
            shift = now - last
            opening = [timed.later(shift) for timed in opening]
            own = [timed.later(shift) for timed in own]
        for name, begin, end in opening:
            self._slice(row, _OPENING[name], begin, end)
        about: Event = {} if joules is None else {"joules": joules}
        if status == "done":
            about["records"] = records
        else:
            about["status"] = status
        if own:
            self._merge(row, own, about | {"batches": batches})

    def note_loss(self, batch: object, records: int) -> None:
        """Note that no answer will come: the worker died, hangs, or has lost its server."""
        now = self._journal.now_us()
        begin, row = self._sent.pop(id(batch), (now, 1))
        self._slice(row, "lost", begin, now, args={"records": records})

    def _merge(self, row: int, times: list[_Timed], about: Event) -> None:
        """Add a batch to those that wait; write them once they are long enough."""
        begin = min(timed.begin for timed in times)
        end = max(timed.end for timed in times)
        busy = 0
        moved = 0
        for timed in times:
            if timed.phase == "compute":
                busy += timed.end - timed.begin
            else:
                moved += timed.end - timed.begin
        new: Event = {"begin": begin, "end": end, "row": row, "times": times, "records": 0}
        new |= about | {"busy_us": busy, "transfer_us": moved}
        # The later in the run, the longer are the stretches that one event stands for.
        resolution = end * len(self._journal.lanes) // FINE
        if self._merged and end - self._merged["begin"] > resolution:
            self._flush()
        old = self._merged
        if old:
            new = old | new | {name: old[name] + new[name] for name in _SUMS}
            new["begin"] = old["begin"]
            new["end"] = max(end, old["end"])
            new["row"] = _MERGED
            new["times"] = []
        self._merged = new
        if new["end"] - new["begin"] >= resolution:
            self._flush()

    def _flush(self) -> None:
        """Write the batches that wait as one event."""
        merged = self._merged
        self._merged = {}
        if not merged:
            return
        begin = merged.pop("begin")
        end = merged.pop("end")
        row = merged.pop("row")
        times = merged.pop("times")
        if row == _MERGED:  # calls may overlap; the events of a thread may not
            begin = max(begin, self._until)
            self._until = end
        self._slice(row, "batch", begin, end, args=merged)
        for timed in times:
            self._slice(row, timed.phase, timed.begin, timed.end)

    def _slice(self, row: int, name: str, begin: int, end: int, **fields: Any) -> None:
        self.write(name, "X", begin, row, dur=max(0, end - begin), **fields)

    def write(self, name: str, kind: str, at: int, row: int = 0, **fields: Any) -> None:
        """Add an event to one of the worker's threads."""
        place = {"pid": self._pid, "tid": self._thread + row}
        if row not in self._rows:
            self._rows.add(row)
            suffix = {0: "", _MERGED: " batches, merged"}.get(row, f" batches {row}")
            title = {"args": {"name": self._name + suffix}}
            self._journal.write("thread_name", "M", 0, **place, **title)
        self._journal.write(name, kind, at, **place, **fields)


def _line(name: str, kind: str, at: int, **fields: Any) -> str:
    """Return one event as text; the driver's where no thread is given."""
    event = {"name": name, "ph": kind, "ts": at, "pid": DRIVER, "tid": DRIVER} | fields
    return _ENCODE(event) + "\n"
