"""Reads `spans.jsonl` back: sessions, their workers, and what each did when.

Clocks of nodes differ. No worker can read a batch before it was sent, nor can a receipt
arrive before it was written: where a host's times say otherwise, they are shifted by the
least amount that puts cause before effect, and the session says by how much.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cluster.tracing.journal import JOURNAL, VERSION
from cluster.tracing.merged import MergedBatches

STARTING_RAY, MAKING = "starting Ray", "making records"
"""Names of two of the driver's phases."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A named stretch of time, in microseconds of its session."""

    name: str
    begin: int
    end: int
    records: int = 0


@dataclass(slots=True)
class WorkerTrace:
    """One worker of one session."""

    number: int
    stage: str
    node: str
    gpus: float
    cpus: float
    slots: int
    """Batches that it computes at a time."""
    remote: bool
    """Whether it asks an endpoint."""
    host: str = ""
    states: dict[str, int] = field(default_factory=dict)
    """When it entered each state."""
    batches: list[MergedBatches] = field(default_factory=list)
    lost: list[Interval] = field(default_factory=list)
    """Batches that it never answered."""
    opening: list[Interval] = field(default_factory=list)
    """Starting its server and loading its model, as it measured them itself."""
    joules: float | None = None

    @property
    def place(self) -> str:
        """The host, or the node where it never got as far as naming its host."""
        return self.host or f"node {self.node[:8]}"

    @property
    def begin(self) -> int:
        """When it was asked for."""
        return self.states.get("starting", 0)

    @property
    def ready(self) -> int | None:
        """When it could take its first batch."""
        return self.states.get("ready")

    @property
    def end(self) -> int:
        """When its resources were free again."""
        return self.states["ended"]


@dataclass(slots=True)
class Session:
    """One command that made records."""

    start_ns: int
    host: str
    end: int = 0
    """Its last moment, in microseconds since its start."""
    status: str = "killed"
    """How it ended; `killed` where it could not say."""
    workers: list[WorkerTrace] = field(default_factory=list)
    phases: list[Interval] = field(default_factory=list)
    """What the driver did."""
    queues: list[tuple[int, Mapping[str, int]]] = field(default_factory=list)
    """Jobs that waited, by stage, at some moments."""
    nodes: dict[str, tuple[float, float]] = field(default_factory=dict)
    """GPUs and CPUs of each node."""
    skews_us: dict[str, int] = field(default_factory=dict)
    """By how much the clock of a host was ahead of the driver's, at least."""

    def phase_us(self, name: str) -> int:
        """How long the driver spent on something."""
        return sum(p.end - p.begin for p in self.phases if p.name == name)


def read_sessions(root: Path) -> list[Session]:
    """The sessions of the run at `root`, oldest first; none where there is no trace."""
    path = root / JOURNAL
    try:
        about = path.stat()
    except FileNotFoundError:
        return []
    return list(_read(path, about.st_mtime_ns, about.st_size))


@lru_cache(maxsize=1)
def _read(path: Path, changed_ns: int, size: int) -> list[Session]:
    # Page, words and trace are made one after the other, from the same file.
    with path.open(encoding="utf-8", errors="replace") as file:
        return _sessions(file)


def _sessions(lines: Iterable[str]) -> list[Session]:
    sessions: list[Session] = []
    for text in lines:
        try:
            kind, *values = json.loads(text)
            if kind == "session":
                about = values[0]
                if about["version"] > VERSION:
                    break  # a later plait wrote it, and knows better than this one
                sessions.append(Session(about["start_ns"], about["host"]))
            elif sessions:
                _add(sessions[-1], kind, values)
        except (ValueError, LookupError, TypeError):
            continue  # a line that was cut short when the driver was killed
    return [_completed(session) for session in sessions]


def _add(session: Session, kind: str, values: list[Any]) -> None:
    match kind:
        case "worker":
            number, about = values
            session.workers.append(WorkerTrace(number, **about))
        case "nodes":
            session.end = max(session.end, values[0])
            session.nodes |= {n: (v[0], v[1]) for n, v in values[1].items()}
        case "queued":
            session.end = max(session.end, values[0])
            session.queues.append((values[0], values[1]))
        case "phase":
            session.phases.append(Interval(*values))
            session.end = max(session.end, values[2])
        case "after":
            name, begin, end = values
            start_us = session.start_ns // 1000
            if begin >= start_us:
                session.phases.append(Interval(name, begin - start_us, end - start_us))
        case "end":
            session.end = max(session.end, values[0])
            session.status = values[1]
        case _:
            _add_to_worker(session, kind, values)


def _add_to_worker(session: Session, kind: str, values: list[Any]) -> None:
    number, *rest = values
    worker = session.workers[number]
    match kind:
        case "state":
            worker.states[rest[0]] = rest[1]
            session.end = max(session.end, rest[1])
        case "host":
            worker.host = rest[0]
        case "opening":
            worker.opening += [Interval(*times) for times in rest[0]]
        case "batch":
            batch = MergedBatches.from_json(rest)
            worker.batches.append(batch)
            worker.joules = worker.joules if batch.joules is None else batch.joules
        case "lost":
            worker.lost.append(Interval("lost", *rest))
            session.end = max(session.end, rest[1])


def _completed(session: Session) -> Session:
    """With one clock for all workers, and an end for those that were never ended."""
    for host in {w.place for w in session.workers}:
        workers = [w for w in session.workers if w.place == host]
        skew = skew_of([b for w in workers for b in w.batches])
        if skew:
            session.skews_us[host] = skew
        for worker in workers:
            worker.batches = [b.shifted(-skew) for b in worker.batches]
            worker.opening = [
                replace(o, begin=o.begin - skew, end=o.end - skew) for o in worker.opening
            ]
    last = (b.end for w in session.workers for b in w.batches)
    session.end = max([session.end, *last])
    for worker in session.workers:
        worker.states.setdefault("ended", session.end)
    return session


def skew_of(batches: Iterable[MergedBatches]) -> int:
    """By how much a worker's clock is ahead at least, in µs; 0 where it may be right.

    It is at most the least time that any batch took to arrive, and at least the most by
    which a receipt arrived before it was written.
    """
    batches = list(batches)
    most = min((b.sent_before for b in batches), default=0)
    least = max((-b.received_after for b in batches), default=0)
    if least > 0:
        return least
    return min(0, most)
