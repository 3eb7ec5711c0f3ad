"""Sessions made by hand, and a strict reader of Chrome's trace event format."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.tracing.journal import JOURNAL, VERSION
from cluster.tracing.merged import MergedBatches, PhaseTime
from cluster.tracing.sessions import MAKING, Interval, Session, WorkerTrace

SECOND = 1_000_000


def batch(begin: float, end: float, records: int = 4) -> MergedBatches:
    """One batch that computed from `begin` to `end`, in seconds."""
    first, last = round(begin * SECOND), round(end * SECOND)
    phases = (None, PhaseTime(first, last, last - first), None)
    return MergedBatches(1, records, phases, 0, 0)


def worker(
    stage: str,
    batches: Sequence[tuple[float, float]],
    *,
    number: int = 0,
    begin: float = 0.0,
    ready: float = 0.0,
    end: float = 100.0,
    gpus: float = 0.0,
    slots: int = 1,
    remote: bool = False,
) -> WorkerTrace:
    """A worker with the seconds of its life and of its batches."""
    states = {"starting": begin, "loading": begin, "ready": ready, "ended": end}
    return WorkerTrace(
        number=number,
        stage=stage,
        node="0123456789",
        gpus=gpus,
        cpus=1.0,
        slots=slots,
        remote=remote,
        host="host",
        states={name: round(t * SECOND) for name, t in states.items()},
        batches=[batch(b, e) for b, e in batches],
    )


def session(*workers: WorkerTrace, end: float = 100.0, start_ns: int = 10**18) -> Session:
    """A session that made records for its whole length."""
    length = round(end * SECOND)
    making = Interval(MAKING, 0, length)
    traces = list(workers)
    return Session(start_ns, "driver", length, "finished", traces, [making])


def each(length: float, times: int, begin: float = 0.0) -> list[tuple[float, float]]:
    """Batches of one length that follow each other."""
    return [(begin + i * length, begin + (i + 1) * length) for i in range(times)]


def write_sessions(root: Path, *sessions: Session) -> None:
    """Store sessions as a driver would have."""
    lines: list[list[Any]] = []
    for entry in sessions:
        about = {"version": VERSION, "start_ns": entry.start_ns, "host": entry.host}
        lines.append(["session", about])
        for trace in entry.workers:
            names = ("stage", "node", "gpus", "cpus", "slots", "remote")
            lines.append(["worker", trace.number, {n: getattr(trace, n) for n in names}])
            lines.append(["host", trace.number, trace.host])
            lines += [["state", trace.number, *state] for state in trace.states.items()]
            lines += [["batch", trace.number, *b.as_json()] for b in trace.batches]
            lines += [["lost", trace.number, x.begin, x.end, x.records] for x in trace.lost]
        lines += [["phase", p.name, p.begin, p.end] for p in entry.phases]
        lines.append(["end", entry.end, entry.status])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (root / JOURNAL).write_text(text)


def read_chrome(text: str) -> dict[str, Any]:
    """A trace as the format asks for it; AssertionError where it breaks a rule.

    Rules: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    (JSON object format; M, X, C and i events; complete events of a thread are nested or
    apart; every thread and process has a name).
    """
    trace = json.loads(text)
    assert isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    named: dict[str, set[Any]] = {"process_name": set(), "thread_name": set()}
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        _check(event)
        at = (event["pid"], event["tid"])
        if event["name"] == "process_name":
            named["process_name"].add(event["pid"])
        elif event["name"] == "thread_name":
            assert at not in named["thread_name"], f"two names for thread {at}"
            named["thread_name"].add(at)
        elif event["ph"] == "X":
            slices[at].append((event["ts"], event["ts"] + event["dur"]))
    assert set(slices) <= named["thread_name"]
    assert {pid for pid, _ in slices} <= named["process_name"]
    for at, times in slices.items():
        _check_nested(at, times)
    return trace


def _check(event: dict[str, Any]) -> None:
    assert isinstance(event["name"], str)
    for name in ("pid", "tid", "ts"):
        assert isinstance(event[name], int), event
    assert event["ts"] >= 0, event
    match event["ph"]:
        case "X":
            assert isinstance(event["dur"], int), event
            assert event["dur"] >= 0, event
        case "C":
            assert event["args"], event
            assert all(isinstance(v, int | float) for v in event["args"].values()), event
        case "i":
            assert event["s"] in ("g", "p", "t"), event
        case "M":
            assert event["args"], event
        case other:
            raise AssertionError(f"{other!r} is no kind of event that plait writes")


def _check_nested(at: tuple[int, int], times: list[tuple[int, int]]) -> None:
    open_until: list[int] = []
    for begin, end in sorted(times, key=lambda t: (t[0], -t[1])):
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        assert not open_until or end <= open_until[-1], f"slices of {at} overlap at {begin}"
        open_until.append(end)


def slices_of(trace: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The complete events of one name."""
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["name"] == name]


def threads_of(trace: dict[str, Any]) -> list[str]:
    """The names of all threads."""
    events = trace["traceEvents"]
    return [e["args"]["name"] for e in events if e["name"] == "thread_name"]
