"""A simulated run: stages take turns on nodes by the scheduler's rules, on a clock.

It has the rules of `cluster.allocation`: every stage with work gets a worker where one
fits, then more of them; idle workers hand their process over, or give way where not all
fit. Which stages come first is asked of `cluster.claims`, as in the engine. Jobs are
counted in chunks of whole batches, so that a large plan takes no longer than a small one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.runs.forecast.work import StageWork
from cluster.placement import Node, Resources, best_node
from generators.base import Placement, StageSpec

IDLE_BEFORE_EVICTION_S = 1.0
_BATCHES_PER_WORKER, _RECORDS_PER_WORKER, _BATCHES_AT_HAND = 16, 128, 2
Queue = TypeVar("Queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A stage with jobs that wait, and its claim to a worker."""

    spec: StageSpec
    rank: int
    """Position in the chains: lower ranks feed higher ones."""
    pending: float
    workers: int
    """That it has."""
    batch_size: int
    at_hand: bool
    """Whether a process whose stage has ended may load the stage."""
    growing: bool
    """Whether stages before it may give it more jobs."""
    max_workers: int | None = None
    """How many it can have, once that has turned out."""

    @property
    def is_worth_another(self) -> bool:
        """Whether enough work waits to start another worker."""
        if self.max_workers is not None and self.workers >= self.max_workers:
            return False
        return worth_another(
            self.spec.placement,
            self.pending,
            self.workers,
            self.batch_size,
            at_hand=self.at_hand,
        )

    @property
    def _is_helped(self) -> bool:
        """Whether a process at hand is worth being another of its workers."""
        return self.at_hand and self.workers > 0 and self.is_worth_another

    def _comes_after(self, helped: Claim) -> bool:
        """Whether it has no worker yet, and a process first helps the one before it."""
        follows = helped.rank < self.rank and may_follow(helped.spec, self.spec)
        return follows and self.growing and not self.workers


def served(claims: Mapping[Queue, Claim]) -> dict[Queue, Claim]:
    """Those that may get a worker in this turn, in the order of their stages."""
    helped = [claim for claim in claims.values() if claim._is_helped]
    ordered = sorted(claims.items(), key=lambda item: item[1].rank)
    return {
        queue: claim
        for queue, claim in ordered
        if not any(claim._comes_after(other) for other in helped)
    }


def may_follow(former: StageSpec, later: StageSpec) -> bool:
    """Whether a process that has hosted one stage may load the other after it."""
    same = Resources.of_placement(former.placement) == Resources.of_placement(
        later.placement
    )
    return former.shares_process and later.shares_process and same


def worth_another(
    placement: Placement,
    pending: float,
    workers: int,
    batch_size: int,
    *,
    at_hand: bool = False,
) -> bool:
    """Whether `pending` jobs are enough for one more worker beside `workers`.

    `at_hand` says that a process which has imported its libraries would become it.
    """
    remote = placement.endpoint is not None and placement.server is None
    if remote or (placement.workers is not None and workers >= placement.workers):
        return False
    batches = 1
    if placement.workers is None and at_hand:
        batches = _BATCHES_AT_HAND
    elif placement.workers is None:
        batches = max(2, min(_BATCHES_PER_WORKER, _RECORDS_PER_WORKER // batch_size))
    return pending > batches * batch_size * placement.concurrency * workers


_CHUNKS = 150
"""Chunks of a stage's jobs, about."""
_CHUNKS_PER_WORKER = 8
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class WorkerSpeed:
    """How fast one worker of a stage is."""

    seconds: float
    """For one record; 0 where it is not known."""
    load_s: float = 0.0
    """Until a new process is ready."""
    takeover_s: float | None = None
    """The same of a process that has hosted another stage; None for as long."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The result of a simulated run."""

    seconds: float
    gpu_seconds: float
    """Seconds for which workers held GPUs, loading and idling included."""
    workers: Mapping[str, int]
    """Most workers of a stage at a time."""
    unplaced: Sequence[str] = ()
    """Names of stages of which no worker fits on any node."""


@dataclass(eq=False)
class _Worker:
    queue: _Queue
    node: str
    started: float
    free_at: float
    """When it has loaded, or finished its chunk; in the past while it is idle."""
    jobs: float = 0.0
    """In its chunk."""


@dataclass(eq=False)
class _Queue:
    work: StageWork
    speed: WorkerSpeed
    chunk: float
    need: Resources
    pending: float
    left: float
    """Jobs that are not done, later ones included."""
    feeds: list[tuple[_Queue, float]] = field(default_factory=list)
    """Stages that get jobs from this one, and how many per job done."""
    workers: list[_Worker] = field(default_factory=list)
    most_workers: int = 0

    @property
    def has_work(self) -> bool:
        return self.pending > _ROUNDING

    @property
    def busy(self) -> bool:
        return self.has_work or any(worker.jobs for worker in self.workers)


def simulate(
    work: Sequence[StageWork], speeds: Mapping[str, WorkerSpeed], nodes: Sequence[Node]
) -> Simulated:
    """Let the stages run on `nodes`; `speeds` are by the stage's digest."""
    return _Simulation(work, speeds, nodes).run()


class _Simulation:
    def __init__(
        self,
        work: Sequence[StageWork],
        speeds: Mapping[str, WorkerSpeed],
        nodes: Sequence[Node],
    ) -> None:
        self.nodes = nodes
        self.now = self.gpu_seconds = 0.0
        self.queues = {w.spec.digest: self._queue(w, speeds) for w in work}
        self.unplaced = [q for q in self.queues.values() if not self._fits(q)]
        self._free = {node.id: node.total for node in nodes}
        for queue in self.queues.values():
            self._connect(queue)

    def _queue(self, work: StageWork, speeds: Mapping[str, WorkerSpeed]) -> _Queue:
        placement = work.spec.placement
        need = Resources.of_placement(placement)
        batch = max(placement.batch_size, placement.concurrency, 1)
        slots = sum(_slots(need, node.total) for node in self.nodes)
        chunks = max(_CHUNKS, _CHUNKS_PER_WORKER * slots)
        return _Queue(
            work=work,
            speed=speeds.get(work.spec.digest, WorkerSpeed(0.0)),
            chunk=batch * max(1, math.ceil(work.jobs / batch / chunks)),
            need=need,
            pending=work.known,
            left=work.jobs,
        )

    def _connect(self, queue: _Queue) -> None:
        for flow in queue.work.flows:
            feeder = self.queues.get(flow.feeder)
            if feeder is None or feeder is queue or not feeder.left:
                queue.pending += flow.jobs
            else:
                feeder.feeds.append((queue, flow.jobs / feeder.left))

    def _fits(self, queue: _Queue) -> bool:
        return any(queue.need.fits(node.total) for node in self.nodes)

    # --------------------------------------------------------------------- the clock

    def run(self) -> Simulated:
        """Turn until nothing is left; a stage that fits nowhere takes no time."""
        for queue in self.unplaced:
            self._finish(queue, queue.pending)
        while any(queue.busy for queue in self.queues.values()):
            self._allocate()
            self._dispatch()
            if not self._advance():
                break
        for worker in list(self._workers()):
            self._stop(worker)
        return Simulated(
            seconds=self.now,
            gpu_seconds=self.gpu_seconds,
            workers={d: q.most_workers for d, q in self.queues.items()},
            unplaced=[q.work.spec.name for q in self.unplaced],
        )

    def _workers(self) -> Iterator[_Worker]:
        for queue in self.queues.values():
            yield from queue.workers

    def _advance(self) -> bool:
        """Go to the next moment at which something changes; False where there is none."""
        moments = [
            moment
            for worker in self._workers()
            for moment in (worker.free_at, worker.free_at + IDLE_BEFORE_EVICTION_S)
            if moment > self.now
        ]
        if not moments:
            return False
        self.now = min(moments)
        for worker in list(self._workers()):
            if worker.jobs and worker.free_at <= self.now:
                done, worker.jobs = worker.jobs, 0.0
                self._finish(worker.queue, done)
        return True

    def _finish(self, queue: _Queue, jobs: float) -> None:
        queue.left -= jobs
        if queue in self.unplaced:
            queue.pending = 0.0
        for fed, each in queue.feeds:
            fed.pending += jobs * each
            if fed in self.unplaced:
                self._finish(fed, jobs * each)

    # -------------------------------------------------------------------- allocation

    def _allocate(self) -> None:
        """Turns, until one starts nothing."""
        while self._turn():
            pass

    def _turn(self) -> bool:
        """A turn of the allocator; whether it started a worker."""
        waiting = (q for q in self.queues.values() if q.has_work and self._fits(q))
        claims = served({q: self._claim(q) for q in waiting})
        starved = [q for q, claim in claims.items() if not claim.workers]
        if starved:
            started = [self._start(q) or self._room(q, self._may_stop) for q in starved]
        else:
            growing = [(q, c.at_hand) for q, c in claims.items() if c.is_worth_another]
            started = [self._grow(q, at_hand=at_hand) for q, at_hand in growing]
        return any(started)

    def _claim(self, queue: _Queue) -> Claim:
        return Claim(
            spec=queue.work.spec,
            rank=queue.work.rank,
            pending=queue.pending,
            workers=len(queue.workers),
            batch_size=queue.work.spec.placement.batch_size,
            at_hand=self._process_for(queue, self._is_finished) is not None,
            growing=self._growing(queue),
        )

    def _grow(self, queue: _Queue, *, at_hand: bool) -> bool:
        if at_hand:
            return self._take_over(queue, self._is_finished)
        return self._start(queue) or self._room(queue, self._is_finished)

    def _start(self, queue: _Queue) -> bool:
        if self._take_over(queue, self._is_finished):
            return True
        node = best_node(queue.need, self._free)
        if node is None:
            return False
        self._place(queue, node, queue.speed.load_s)
        return True

    def _take_over(self, queue: _Queue, may_leave: Callable[[_Worker], bool]) -> bool:
        """Have the process of a worker that `may_leave` load the stage."""
        worker = self._process_for(queue, may_leave)
        if worker is None:
            return False
        self._stop(worker)
        speed = queue.speed
        load_s = speed.load_s if speed.takeover_s is None else speed.takeover_s
        self._place(queue, worker.node, load_s)
        return True

    def _process_for(
        self, queue: _Queue, may_leave: Callable[[_Worker], bool]
    ) -> _Worker | None:
        """A worker that `may_leave` and whose process may load the stage."""
        for worker in filter(may_leave, self._workers()):
            if may_follow(worker.queue.work.spec, queue.work.spec):
                return worker
        return None

    def _place(self, queue: _Queue, node: str, load_s: float) -> None:
        self._free[node] -= queue.need
        queue.workers.append(_Worker(queue, node, self.now, self.now + load_s))
        queue.most_workers = max(queue.most_workers, len(queue.workers))

    def _room(self, queue: _Queue, may_stop: Callable[[_Worker], bool]) -> bool:
        """Start a worker in place of the fewest of one node that `may_stop`."""
        if self._take_over(queue, may_stop):
            return True
        candidates: list[list[_Worker]] = []
        for node, free in self._free.items():
            selected: list[_Worker] = []
            for worker in filter(may_stop, list(self._workers())):
                if worker.node == node and queue.need.gains(free, worker.queue.need):
                    selected.append(worker)
                    free += worker.queue.need
            if queue.need.fits(free):
                candidates.append(selected)
        for worker in min(candidates, key=len, default=[]):
            self._stop(worker)
        return bool(candidates) and self._start(queue)

    def _is_idle(self, worker: _Worker) -> bool:
        return not (worker.jobs or worker.queue.has_work or worker.free_at > self.now)

    def _is_finished(self, worker: _Worker) -> bool:
        return self._is_idle(worker) and not self._growing(worker.queue)

    def _may_stop(self, worker: _Worker) -> bool:
        settled = self.now - worker.free_at >= IDLE_BEFORE_EVICTION_S - _ROUNDING
        return self._is_idle(worker) and (settled or not self._growing(worker.queue))

    def _stop(self, worker: _Worker) -> None:
        worker.queue.workers.remove(worker)
        self._free[worker.node] += worker.queue.need
        self.gpu_seconds += worker.queue.need.gpus * (self.now - worker.started)

    def _growing(self, queue: _Queue) -> bool:
        feeders = (self.queues.get(digest) for digest in queue.work.feeders)
        return any(feeder is not None and feeder.busy for feeder in feeders)

    # --------------------------------------------------------------------- computing

    def _dispatch(self) -> None:
        for queue in self.queues.values():
            idle = [w for w in queue.workers if not w.jobs and w.free_at <= self.now]
            for worker in idle:
                if queue.has_work:
                    self._take(queue, worker)

    def _take(self, queue: _Queue, worker: _Worker) -> None:
        placement = queue.work.spec.placement
        size = queue.chunk
        if not self._growing(queue):
            share = math.ceil(queue.pending / len(queue.workers))
            size = min(size, max(share, math.ceil(placement.batch_size / 2)))
        worker.jobs = min(size, queue.pending)
        queue.pending = max(0.0, queue.pending - worker.jobs)
        asked = placement.endpoint is not None or placement.server is not None
        at_once = placement.concurrency if asked else 1
        seconds = worker.jobs * queue.speed.seconds / at_once
        if at_once > 1:
            seconds = max(seconds, queue.speed.seconds)
        worker.free_at = self.now + max(seconds, _ROUNDING)


def _slots(need: Resources, total: Resources) -> int:
    """How many workers fit on a node; at most 64 count."""
    pairs = ((total.gpus, need.gpus), (total.cpus, need.cpus))
    counts = [int(has / takes) for has, takes in pairs if takes > 0]
    return min([64, *counts])
