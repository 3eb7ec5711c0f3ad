"""`trace.json`: the trace of a run in Chrome's trace event format.

It opens in https://ui.perfetto.dev and in chrome://tracing. A process is a node, a thread
is a worker under its stage's name; further threads hold what overlaps: reading and writing,
and the calls of a stage that takes several at a time. Sessions follow each other on one
axis: the time between two of them is left out, and an instant event names the day.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from cluster.tracing.merged import PHASES, MergedBatches
from cluster.tracing.sessions import Session, WorkerTrace
from generators.files import write_whole

TRACE = "trace.json"
_GAP_US = 1_000_000
"""Between two sessions."""
_SHORTEST_WAIT_US = 1_000
_DRIVER = 1

Event = dict[str, Any]


class Slice(NamedTuple):
    """A complete event before it has a thread."""

    name: str
    begin: int
    end: int
    args: dict[str, Any]


def write_trace(root: Path, sessions: Sequence[Session]) -> Path:
    """Write the trace of the run at `root`."""
    path = root / TRACE
    write_whole(path, trace_text(sessions), durable=False)
    return path


def trace_text(sessions: Sequence[Session]) -> str:
    """The file's content: one event a line."""
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    events = ",\n".join(map(encode, events_of(sessions)))
    starts = [
        {
            "started": _utc(session.start_ns),
            "at_us": at,
            "status": session.status,
            "clocks_ahead_us": session.skews_us,
        }
        for session, at in zip(sessions, offsets(sessions), strict=True)
    ]
    about = encode({"tool": "plait", "sessions": starts})
    return f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[\n{events}\n]}}\n'


def offsets(sessions: Sequence[Session]) -> list[int]:
    """Where each session begins on the common axis, in microseconds."""
    starts, at = [], 0
    for session in sessions:
        starts.append(at)
        last = max((p.end for p in session.phases), default=0)
        at += max(session.end, last) + _GAP_US
    return starts


def events_of(sessions: Sequence[Session]) -> Iterator[Event]:
    """All events, metadata first for each process and thread."""
    places = dict.fromkeys(w.place for s in sessions for w in s.workers)
    pids = {place: pid for pid, place in enumerate(places, _DRIVER + 1)}
    yield from _process(_DRIVER, f"driver on {sessions[0].host}")
    yield _metadata("thread_name", _DRIVER, 1, name="driver")
    for place, pid in pids.items():
        yield from _process(pid, place)
    threads = count(2)
    starts = zip(sessions, offsets(sessions), strict=True)
    for number, (session, at) in enumerate(starts, 1):
        yield from _of_driver(session, number, at)
        for worker in session.workers:
            suffix = f" (session {number})" if len(sessions) > 1 else ""
            title = f"{worker.stage} #{worker.number}{suffix}"
            yield from _of_worker(worker, title, pids[worker.place], at, threads)


def _of_driver(session: Session, number: int, at: int) -> Iterator[Event]:
    name = f"session {number}, started {_utc(session.start_ns)}, {session.status}"
    yield {"name": name, "ph": "i", "s": "g", "ts": at, "pid": _DRIVER, "tid": 1}
    for phase in sorted(session.phases, key=lambda p: (p.begin, -p.end)):
        yield _complete(Slice(phase.name, phase.begin, phase.end, {}), _DRIVER, 1, at)
    for moment, jobs in session.queues:
        for stage, queued in jobs.items():
            counter = {"name": f"queued: {stage}", "ph": "C", "ts": at + moment}
            yield counter | {"pid": _DRIVER, "tid": 1, "args": {"jobs": queued}}


def _of_worker(
    worker: WorkerTrace, title: str, pid: int, at: int, threads: Iterator[int]
) -> Iterator[Event]:
    groups = (
        (title, [*_opening(worker), *_working(worker), *waits(worker)]),
        (f"{title} read, write", list(_transfers(worker))),
    )
    for name, slices in groups:
        for row, part in enumerate(_rows(slices)):
            tid = next(threads)
            yield _metadata("thread_name", pid, tid, name=name + (f" /{row}" * (row > 0)))
            yield _metadata("thread_sort_index", pid, tid, sort_index=tid)
            for entry in part:
                yield _complete(entry, pid, tid, at)


def _opening(worker: WorkerTrace) -> Iterator[Slice]:
    """Until it was ready: as the driver saw it, where the worker has not said."""
    ready = worker.end if worker.ready is None else worker.ready
    loading = min(ready, worker.states.get("loading", ready))
    yield Slice("start process", worker.begin, loading, {})
    if not worker.opening and ready > loading:
        yield Slice("load", loading, ready, {})
    loaded = loading
    for part in worker.opening:
        name = {"server": "start server"}.get(part.name, part.name)
        begin = max(part.begin, loading)
        loaded = max(begin, min(part.end, ready))
        yield Slice(name, begin, loaded, {})
    if worker.opening and ready - loaded >= _SHORTEST_WAIT_US:
        # It imports what its first table needs, and the driver hears of it.
        yield Slice("get ready", loaded, ready, {})


def _working(worker: WorkerTrace) -> Iterator[Slice]:
    for batch in worker.batches:
        if (time_of := batch.phases[1]) is not None:
            yield Slice("compute", time_of.begin, time_of.end, _about(batch, time_of.busy))
    for lost in worker.lost:
        yield Slice("lost", lost.begin, lost.end, {"records": lost.records})


def _transfers(worker: WorkerTrace) -> Iterator[Slice]:
    for batch in worker.batches:
        for name, part in zip(PHASES, batch.phases, strict=True):
            if name != "compute" and part is not None:
                yield Slice(name, part.begin, part.end, _about(batch, part.busy))


def _about(batch: MergedBatches, busy: int) -> dict[str, Any]:
    args: dict[str, Any] = {"records": batch.records}
    if batch.status != "done":
        args["status"] = batch.status
    if batch.batches > 1:
        args |= {"batches": batch.batches, "busy_ms": busy / 1000}
    return args


def waits(worker: WorkerTrace) -> list[Slice]:
    """When it was ready and had no batch."""
    if worker.ready is None:
        return []
    times = [(p.begin, p.end) for b in worker.batches for p in b.phases if p is not None]
    times += [(lost.begin, lost.end) for lost in worker.lost]
    end = min(worker.states.get("stopping", worker.end), worker.end)
    gaps, free = [], worker.ready
    for begin, until in [*sorted(times), (end, end)]:
        if begin - free >= _SHORTEST_WAIT_US:
            gaps.append(Slice("wait", free, begin, {}))
        free = max(free, until)
    return gaps


def _rows(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Slices in as few rows as they need, so that none overlaps another of its row."""
    rows: list[list[Slice]] = []
    ends: list[tuple[int, int]] = []
    free: list[int] = []
    for entry in sorted(slices, key=lambda s: (s.begin, s.end)):
        while ends and ends[0][0] <= entry.begin:
            heapq.heappush(free, heapq.heappop(ends)[1])
        row = heapq.heappop(free) if free else len(rows)
        if row == len(rows):
            rows.append([])
        rows[row].append(entry)
        heapq.heappush(ends, (entry.end, row))
    return rows


def _complete(entry: Slice, pid: int, tid: int, at: int) -> Event:
    # Before the session's start is only what a clock that was set has misplaced.
    begin = max(0, entry.begin)
    event = {"name": entry.name, "ph": "X", "ts": at + begin}
    event |= {"dur": max(0, entry.end - begin), "pid": pid, "tid": tid}
    return event | ({"args": entry.args} if entry.args else {})


def _process(pid: int, name: str) -> Iterator[Event]:
    yield _metadata("process_name", pid, 0, name=name)
    yield _metadata("process_sort_index", pid, 0, sort_index=pid)


def _metadata(kind: str, pid: int, tid: int, **args: Any) -> Event:
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args}


def _utc(time_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns / 1e9))
