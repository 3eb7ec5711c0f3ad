"""Reads `spans.jsonl` back: sessions, and what each worker did when; as `trace.json`.

A long run has many events, and a run that was resumed often many sessions: those of one
session are in memory at a time.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, overload

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


class _Place(NamedTuple):
    """Where the events of a session are: bytes of a journal."""

    start_ns: int
    journal: AnyPath
    begin: int
    end: int


class StoredSessions(Sequence[Session]):
    """Sessions of a run, oldest first; each is read when it is asked for."""

    def __init__(self, places: Iterable[_Place]) -> None:
        self._places = sorted(places, key=lambda place: place.start_ns)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, number: int) -> Session: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Session]: ...
    def __getitem__(self, number: int | slice) -> Session | Sequence[Session]:
        if isinstance(number, slice):
            return StoredSessions(self._places[number])
        place = self._places[number]
        with _open(place.journal) as file:
            file.seek(place.begin)
            lines = file.read(place.end - place.begin).splitlines()
        return _session_of([*_events_of(lines)])


def read_sessions(root: AnyPath) -> StoredSessions:
    """Return the sessions of the run at `root`, oldest first; none without a trace."""
    places: list[_Place] = []
    for journal in (root / JOURNAL, *matching(root, f"{FOLDER}/*/{JOURNAL}")):
        with contextlib.suppress(FileNotFoundError):
            places += _places_in(journal)
    return StoredSessions(places)


def _places_in(journal: AnyPath) -> Iterator[_Place]:
    """Yield the sessions of a journal, but for those of earlier versions of plait."""
    begun: tuple[Event, int] | None = None
    at = 0
    with _open(journal) as file:
        for line in file:
            # Of millions of lines, few are the first of a session: others are not parsed.
            if b'"session"' in line:
                for event in _events_of([line]):
                    if event["name"] == "session":
                        yield from _place_of(begun, journal, at)
                        begun = (event, at)
            at += len(line)
    yield from _place_of(begun, journal, at)


def _place_of(
    begun: tuple[Event, int] | None, journal: AnyPath, end: int
) -> Iterator[_Place]:
    """Yield where a session is that has `begun`, if one has, and ends at `end`."""
    if begun is not None:
        event, begin = begun
        about = event["args"]
        if about["version"] == VERSION:
            yield _Place(about["start_ns"], journal, begin, end)


def _open(journal: AnyPath) -> BinaryIO:
    if isinstance(journal, Path):
        return journal.open("rb")
    return io.BytesIO(journal.read_bytes())


def _events_of(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of lines; not of one cut short when the driver was killed."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "name" in event:
            yield event


def _session_of(events: Sequence[Event]) -> Session:
    """Return the session of some events, in which every worker has an end."""
    about = events[0]["args"]
    session = Session(about["start_ns"], about["host"], list(events))
    # By process, the name it was given last: a host's where that became known.
    places: dict[int, str] = {}
    for event in events:
        session.end = max(session.end, event["ts"] + event.get("dur", 0))
        if event["name"] == "process_name":
            places[event["pid"]] = event["args"]["name"]
    workers: dict[int, WorkerTrace] = {}
    # By thread, the state that has begun there and not ended yet.
    open_states: dict[int, Event] = {}
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
            open_states.pop(event["tid"], None)
        elif event["ph"] == "B":
            open_states[event["tid"]] = event
    # A driver that was killed could not end the states of its workers.
    for event in open_states.values():
        session.events.append(event | {"ph": "E", "ts": session.end})
    session.workers = list(workers.values())
    return session


def _add(worker: WorkerTrace, event: Event) -> None:
    """Add what an event tells of a worker."""
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
            if about["batches"] > 1:  # else events of its phases follow
                worker.did.append(_stretch("compute", event, about["busy_us"]))
                worker.did.append(_stretch("transfer", event, about["transfer_us"]))
        case "X", name if name in _DOING:
            worker.did.append(_stretch(_DOING[name], event))


def _stretch(name: str, event: Event, busy: int | None = None) -> Stretch:
    """What was done during an event, for `busy` of it or all the time."""
    begin = event["ts"]
    took = event["dur"]
    return Stretch(name, begin, begin + took, took if busy is None else busy)


def trace_text(sessions: Sequence[Session]) -> str:
    """Return the trace in Chrome's format; see `trace_pieces`."""
    return "".join(trace_pieces(sessions, len(sessions)))


def trace_pieces(sessions: Iterable[Session], count: int) -> Iterator[str]:
    """Yield the trace in Chrome's format, for ui.perfetto.dev and chrome://tracing.

    The `count` sessions follow each other on one axis, without the time between them.
    """
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    starts = []
    # Where the session begins on the axis.
    at = 0
    # By what the processes and threads of former sessions are passed over.
    former = 0
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    for number, session in enumerate(sessions, 1):
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(session.start_ns / 1e9))
        starts.append({"started": started, "at_us": at, "status": session.status})
        suffix = f" (session {number})" if count > 1 else ""
        names = [
            _name_of_driver("process_name", f"driver on {session.host}"),
            _name_of_driver("thread_name", "driver"),
        ]
        lines: list[str] = []
        for event in [*names, *session.events]:
            place = {"pid": event["pid"] + former, "tid": event["tid"] + former}
            if event["ph"] == "M":
                place["args"] = {"name": event["args"]["name"] + suffix}
            lines.append(encode(event | place | {"ts": event["ts"] + at}))
        yield ",\n".join(lines) + ("\n" if number == count else ",\n")
        at += session.end + _GAP_US
        former += ROWS * (len(session.workers) + 1)
    about = encode({"tool": "plait", "sessions": starts})
    yield f'],"otherData":{about}}}\n'


def _name_of_driver(what: str, name: str) -> Event:
    """An event that names the driver's process or thread."""
    about = {"name": what, "args": {"name": name}}
    return {"ph": "M", "ts": 0, "pid": DRIVER, "tid": DRIVER} | about
