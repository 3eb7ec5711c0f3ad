"""Reads `spans.jsonl` back: sessions, and what each worker did when; as `trace.json`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from plait.cluster.shard import FOLDER
from plait.cluster.tracing.journal import DRIVER, JOURNAL, ROWS, VERSION, Event
from plait.generators.buckets import AnyPath, matching

_DOING = {"read": "transfer", "write": "transfer", "compute": "compute", "lost": "lost"}
_GAP_US = 1_000_000
"""Between two sessions on the axis of the trace."""


class Stretch(NamedTuple):
    """What a worker or the driver did from `begin` to `end`, in microseconds."""

    name: str
    begin: int
    end: int
    busy: int
    """How much of it was spent so, added up over batches that may overlap."""


@dataclass(slots=True)
class WorkerTrace:
    """One worker of one session; times are in microseconds since the session's start."""

    stage: str
    gpus: float
    cpus: float
    slots: int
    """Batches that it computes at a time."""
    remote: bool
    """Whether it asks an endpoint."""
    place: str = ""
    """The host, or the node where it never got as far as naming its host."""
    begin: int = 0
    """When it was asked for."""
    ready: int | None = None
    """When it could take its first batch."""
    end: int = 0
    """When its resources were free again."""
    did: list[Stretch] = field(default_factory=list)
    """`compute`, `transfer` (reading and writing) and `lost`."""
    batches: int = 0
    records: int = 0
    """Those of batches that did not raise."""
    joules: float | None = None


@dataclass(slots=True)
class Session:
    """One command that made records; its events are as the journal has them."""

    start_ns: int
    host: str
    events: list[Event]
    end: int = 0
    """Its last moment, in microseconds since its start."""
    status: str = "killed"
    """How it ended; `killed` where it could not say."""
    workers: list[WorkerTrace] = field(default_factory=list)
    phases: list[Stretch] = field(default_factory=list)
    """What the driver did."""


def read_sessions(root: AnyPath) -> list[Session]:
    """Return the sessions of the run at `root`, oldest first; none without a trace."""
    sessions: list[list[Event]] = []
    for journal in (root / JOURNAL, *matching(root, f"{FOLDER}/*/{JOURNAL}")):
        own: list[list[Event]] = []
        with contextlib.suppress(FileNotFoundError):
            for line in journal.read_bytes().splitlines():
                # Not one cut short when the driver was killed, or of an earlier plait.
                with contextlib.suppress(ValueError, TypeError, LookupError):
                    event = json.loads(line)
                    if event["name"] == "session":
                        own.append([])
                    if own:
                        own[-1].append(event)
        sessions += own
    known = (s for s in sessions if s[0]["args"]["version"] == VERSION)
    return sorted(map(_session_of, known), key=lambda session: session.start_ns)


def _session_of(events: Sequence[Event]) -> Session:
    """Return the session of some events, in which every worker has an end."""
    about = events[0]["args"]
    session = Session(about["start_ns"], about["host"], list(events))
    session.end = max(e["ts"] + e.get("dur", 0) for e in events)
    places = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    workers: dict[int, WorkerTrace] = {}
    states: dict[int, Event] = {}
    for event in events:
        number = event["tid"] // ROWS
        pid = event["pid"]
        if event["name"] == "worker":
            workers[number] = WorkerTrace(**event["args"], place=places[pid])
            workers[number].end = session.end
        elif number in workers:
            _add(workers[number], event)
        elif event["ph"] == "X" and pid == DRIVER:
            session.phases.append(_stretch(event["name"], event))
        elif event["name"] == "end":
            session.status = event["args"]["status"]
        if event["ph"] == "E":
            states.pop(event["tid"], None)
        elif event["ph"] == "B":
            states[event["tid"]] = event
    # A driver that was killed could not end the states of its workers.
    session.events += [e | {"ph": "E", "ts": session.end} for e in states.values()]
    session.workers = [*workers.values()]
    return session


def _add(worker: WorkerTrace, event: Event) -> None:
    about = event.get("args", {})
    match event["ph"], event["name"]:
        case "B", "starting":
            worker.begin = event["ts"]
        case "B", "ready":
            worker.ready = event["ts"]
        case "i", "ended":
            worker.end = event["ts"]
        case "X", "batch":
            worker.batches += about["batches"]
            worker.records += about["records"]
            worker.joules = about.get("joules", worker.joules)
            if about["batches"] > 1:
                for name, busy in (("compute", "busy_us"), ("transfer", "transfer_us")):
                    worker.did.append(_stretch(name, event, about[busy]))
        case "X", name if name in _DOING:
            worker.did.append(_stretch(_DOING[name], event))


def _stretch(name: str, event: Event, busy: int | None = None) -> Stretch:
    begin = event["ts"]
    took = event["dur"]
    return Stretch(name, begin, begin + took, took if busy is None else busy)


def trace_text(sessions: Sequence[Session]) -> str:
    """Return the trace in Chrome's format, for ui.perfetto.dev and chrome://tracing.

    Sessions follow each other on one axis, without the time between them.
    """
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    lines = []
    starts = []
    at = 0
    former = 0
    driver: Event = {"ph": "M", "ts": 0, "pid": DRIVER, "tid": DRIVER}
    for number, session in enumerate(sessions, 1):
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(session.start_ns / 1e9))
        starts.append({"started": started, "at_us": at, "status": session.status})
        suffix = f" (session {number})" if len(sessions) > 1 else ""
        titles = {"process_name": f"driver on {session.host}", "thread_name": "driver"}
        names = [driver | {"name": k, "args": {"name": v}} for k, v in titles.items()]
        for event in [*names, *session.events]:
            place = {"pid": event["pid"] + former, "tid": event["tid"] + former}
            if event["ph"] == "M":
                place["args"] = {"name": event["args"]["name"] + suffix}
            lines.append(encode(event | place | {"ts": event["ts"] + at}))
        at += session.end + _GAP_US
        former += ROWS * (len(session.workers) + 1)
    about = encode({"tool": "plait", "sessions": starts})
    events = ",\n".join(lines)
    return f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[\n{events}\n]}}\n'
