"""Sessions recorded by a clock of the test's own; a strict reader of Chrome's format."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from plait.cluster.tracing import journal as journal_module
from plait.cluster.tracing.journal import MAKING, Span, SpanJournal
from plait.cluster.tracing.sessions import Session, read_sessions
from plait.generators.base import Placement

SECOND = 1_000_000
START = 10**18


class Clock:
    """Shows what it is set to."""

    def __init__(self, start: int = START) -> None:
        self.start = self.time = start

    def at(self, seconds: float) -> None:
        self.time = self.start + round(seconds * 1e9)

    def shown(self) -> Any:
        """Journals go by this clock within."""
        return patch.object(journal_module, "now_ns", lambda: self.time)


@dataclass
class Work:
    """A worker by the seconds of its life and of its batches."""

    stage: str
    batches: Sequence[tuple[float, float]] = ()
    begin: float = 0.0
    ready: float = 0.0
    end: float = 100.0
    gpus: float = 0.0
    slots: int = 1
    remote: bool = False
    lost: tuple[float, float] | None = None
    joules: float | None = None
    status: str = "done"
    ahead: float = 0.0
    """Of the driver's clock."""

    def record(self, journal: SpanJournal, clock: Clock) -> None:
        clock.at(self.begin)
        endpoint = "http://x" if self.remote else None
        place = Placement(num_gpus=self.gpus, concurrency=self.slots, endpoint=endpoint)
        lane = journal.lane(self.stage, place, "0123456789")
        lane.note_host("host")
        lane.enter("loading")
        clock.at(self.ready)
        lane.enter("ready")
        moments = [(t, i) for i, times in enumerate(self.batches) for t in times]
        for t, i in sorted(moments):
            begin, end = self.batches[i]
            sent = ("batch", self.stage, i)
            key = self._keys.setdefault(sent, sent)
            clock.at(t)
            if t == begin:
                lane.note_sent(key)
                continue
            times = (clock.start + round((s + self.ahead) * 1e9) for s in (begin, end))
            spans = [Span("compute", *times)]
            told = {"records": 4, "status": self.status, "joules": self.joules}
            lane.note_answer(key, spans, **told)
        if self.lost:
            clock.at(self.lost[0])
            lane.note_sent(self)
            clock.at(self.lost[1])
            lane.note_loss(self, 4)
        clock.at(self.end)
        lane.enter("ended")

    def __post_init__(self) -> None:
        self._keys: dict[Any, Any] = {}


def record(root: Path, *workers: Work, end: float = 100.0, start: int = START) -> Session:
    """Record a session that makes records for its whole length; as it is read back."""
    clock = Clock(start)
    with clock.shown(), SpanJournal(root) as journal:
        journal.activate()
        with journal.phase(MAKING):
            for worker in workers:
                worker.record(journal, clock)
            clock.at(end)
    return read_sessions(root)[-1]


def each(length: float, times: int, begin: float = 0.0) -> list[tuple[float, float]]:
    """Batches of one length that follow each other."""
    return [(begin + i * length, begin + (i + 1) * length) for i in range(times)]


def read_chrome(text: str) -> dict[str, Any]:
    """A trace as the format asks for it; AssertionError where it breaks a rule.

    Rules: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    (JSON object format; M, X, B, E, C and i events; complete events of a thread are nested
    or apart; states have an end; every thread and process has a name).
    """
    trace = json.loads(text)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    named: set[tuple[str, int, int]] = set()
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    states: dict[tuple[int, int], list[str]] = defaultdict(list)
    for event in trace["traceEvents"]:
        at = (event["pid"], event["tid"])
        assert isinstance(event["name"], str)
        assert isinstance(event["ts"], int), event
        assert event["ts"] >= 0, event
        match event["ph"]:
            case "X":
                assert event["dur"] >= 0, event
                slices[at].append((event["ts"], event["ts"] + event["dur"]))
            case "B":
                states[at].append(event["name"])
            case "E":
                assert states[at].pop() == event["name"]
            case "C":
                assert all(isinstance(v, int) for v in event["args"].values()), event
            case "i":
                assert event["s"] in ("g", "p", "t"), event
            case "M":
                thread = event["tid"] if event["name"] == "thread_name" else 0
                named.add((event["name"], event["pid"], thread))
            case other:
                raise AssertionError(f"{other!r} is no kind of event that plait writes")
    assert not any(states.values())
    for at, times in slices.items():
        assert ("thread_name", *at) in named
        assert ("process_name", at[0], 0) in named
        _check_nested(at, times)
    return trace


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
