"""Walks that come and go while others run, in the current process: the work of a server.

    pool = WalkPool(stages.outcomes, system.stages)
    pool.add(walk, ended=print)
    ...
    pool.stop()

Jobs that wait for one stage are computed together, those of the oldest walks first. As
`cluster.local`, it needs neither Ray nor Arrow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cluster.local import Answering
from cluster.stage_errors import error_text, stage_fault
from generators.base import Failure, Fault, Job, Outcome, StageSpec, Walk
from generators.secrets import print_error

STOPPING = "the server is stopping"
LOCAL = ""
"""The lane of all stages that compute in this process."""


@dataclass(eq=False, slots=True)
class LiveWalk:
    """A walk in progress."""

    walk: Walk[Any]
    ended: Callable[[Outcome[Any]], None]
    """Called once, from a thread of the pool, unless the walk is dropped first."""
    number: int
    """Its place in the order of arrival."""
    outcomes: list[Outcome[Any] | None] = field(default_factory=list)
    """Of the jobs it waits for."""
    over: bool = False


class _Task(NamedTuple):
    """One job of one walk, waiting for its stage."""

    live: LiveWalk
    place: int
    job: Job
    since: float


class BatchTime(NamedTuple):
    """A batch that was computed."""

    stage: str
    jobs: int
    seconds: float


class WalkPool:
    """Advances walks with batches of their jobs.

    One thread computes the stages of this process; the stages of a server are asked in as
    many threads as it takes requests. All methods may be called from any thread.
    """

    def __init__(
        self,
        answering: Answering,
        stages: Iterable[StageSpec],
        *,
        wait_s: float = 0.005,
        on_batch: Callable[[BatchTime], None] = lambda batch: None,
    ) -> None:
        """A batch that is not full waits `wait_s` for further jobs."""
        self._answering = answering
        self._wait_s = wait_s
        self._on_batch = on_batch
        self._changed = threading.Condition()
        self._waiting: dict[str, list[_Task]] = {}
        self._most: dict[str, int] = {}
        self._arrived = 0
        self._stopped = False
        self.broken: str | None = None
        """Why this process can compute no more, once it cannot."""
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name="batches", daemon=True)
            for lane, count in _lanes(stages).items()
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, walk: Walk[Any], ended: Callable[[Outcome[Any]], None]) -> LiveWalk:
        """Start a walk; `ended` is told its outcome."""
        with self._changed:
            self._arrived += 1
            live = LiveWalk(walk, ended, self._arrived)
            if reason := self.broken or (STOPPING if self._stopped else ""):
                self._end(live, Failure(reason, Fault.DIED))
            else:
                self._advance(live, None)
            self._changed.notify_all()
        return live

    def drop(self, live: LiveWalk) -> None:
        """Forget a walk: jobs of it that have not begun are not computed."""
        with self._changed:
            live.over = True
            for digest, tasks in self._waiting.items():
                self._waiting[digest] = [t for t in tasks if t.live is not live]

    def stop(self) -> None:
        """End all walks but those whose batch is being computed; take no further ones."""
        with self._changed:
            self._stopped = True
            self._end_waiting(STOPPING)
            self._changed.notify_all()

    def join(self, grace_s: float) -> bool:
        """After `stop`: whether the batches in progress ended within the grace."""
        until = time.monotonic() + grace_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, lane: str) -> None:
        while tasks := self._next(lane):
            began = time.perf_counter()
            outcomes = self._computed([t.job for t in tasks])
            seconds = time.perf_counter() - began
            self._on_batch(BatchTime(tasks[0].job.spec.name, len(tasks), seconds))
            self._deliver(tasks, outcomes)

    def _next(self, lane: str) -> list[_Task]:
        """The next batch of a lane, once there is one; nothing when the pool stops."""
        with self._changed:
            while not (self._stopped or self.broken):
                tasks = self._oldest(lane)
                rest = self._wait_s
                if tasks:
                    rest -= time.monotonic() - min(t.since for t in tasks)
                if tasks and (rest <= 0 or len(tasks) == self._size(tasks[0].job.spec)):
                    self._take(tasks)
                    return tasks
                self._changed.wait(rest if tasks else None)
        return []

    def _oldest(self, lane: str) -> list[_Task]:
        """What waits for the stage that the oldest walk of the lane waits for."""
        stages = (t for t in self._waiting.values() if t and lane_of(t[0].job.spec) == lane)
        tasks = min(stages, key=lambda t: t[0].live.number, default=[])
        return tasks[: self._size(tasks[0].job.spec)] if tasks else []

    def _size(self, spec: StageSpec) -> int:
        return self._most.get(spec.digest, spec.placement.batch_size)

    def _take(self, tasks: Sequence[_Task]) -> None:
        digest = tasks[0].job.spec.digest
        self._waiting[digest] = self._waiting[digest][len(tasks) :]

    def _computed(self, jobs: Sequence[Job]) -> list[Outcome[Any]]:
        """The outcomes; a batch that raises is halved until the record stands alone."""
        try:
            return self._answering(jobs)
        except Exception as error:
            print_error(error)
            text = error_text(error)
            fault = stage_fault(error)
        if fault == "broken":
            self._give_up(text)
        if fault == "broken" or len(jobs) == 1:
            memory = fault == "out of memory"
            reason = Failure(text, Fault.OUT_OF_MEMORY if memory else Fault.ERROR)
            return [reason] * len(jobs)
        middle = len(jobs) // 2
        if fault == "out of memory":
            self._most[jobs[0].spec.digest] = middle
        return self._computed(jobs[:middle]) + self._computed(jobs[middle:])

    def _give_up(self, reason: str) -> None:
        with self._changed:
            self.broken = reason
            self._end_waiting(reason)
            self._changed.notify_all()

    def _deliver(self, tasks: Sequence[_Task], outcomes: list[Outcome[Any]]) -> None:
        with self._changed:
            for task, outcome in zip(tasks, outcomes, strict=True):
                task.live.outcomes[task.place] = outcome
            for live in dict.fromkeys(task.live for task in tasks):
                if not live.over and None not in live.outcomes:
                    self._advance(live, [o for o in live.outcomes if o is not None])
            self._changed.notify_all()

    def _advance(self, live: LiveWalk, sent: list[Outcome[Any]] | None) -> None:
        """Continue a walk to its next jobs, or to its end."""
        try:
            jobs = next(live.walk) if sent is None else live.walk.send(sent)
            while not jobs:
                jobs = live.walk.send([])
        except StopIteration as stop:
            self._end(live, stop.value)
            return
        except Exception as error:
            print_error(error)
            self._end(live, Failure(error_text(error), Fault.ERROR))
            return
        if reason := self.broken or (STOPPING if self._stopped else ""):
            self._end(live, Failure(reason, Fault.DIED))
            return
        live.outcomes = [None] * len(jobs)
        now = time.monotonic()
        for place, job in enumerate(jobs):
            tasks = self._waiting.setdefault(job.spec.digest, [])
            tasks.append(_Task(live, place, job, now))
        for tasks in self._waiting.values():
            tasks.sort(key=lambda t: (t.live.number, t.place))

    def _end_waiting(self, reason: str) -> None:
        waiting = [t.live for tasks in self._waiting.values() for t in tasks]
        self._waiting.clear()
        for live in dict.fromkeys(waiting):
            self._end(live, Failure(reason, Fault.DIED))

    def _end(self, live: LiveWalk, outcome: Outcome[Any]) -> None:
        if not live.over:
            live.over = True
            live.ended(outcome)


def lane_of(spec: StageSpec) -> str:
    """Which threads a stage belongs to: those of its server, or the one of this process."""
    place = spec.placement
    return place.endpoint or (spec.digest if place.concurrency > 1 else LOCAL)


def _lanes(stages: Iterable[StageSpec]) -> dict[str, int]:
    """How many threads each lane has."""
    lanes: dict[str, int] = {}
    for spec in stages:
        lane = lane_of(spec)
        count = spec.placement.concurrency if lane else 1
        lanes[lane] = max(count, lanes.get(lane, 0))
    return lanes
