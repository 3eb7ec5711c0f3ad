"""Which stage gets a worker, and which idle worker gives way to it.

An idle worker whose stage has no more work loads another stage where it may, which takes a
model's time to load and spares the imports. Else it is stopped, and a new worker is started
in its place.

The engine calls `Allocator.allocate` every turn. How many workers a stage should have comes
from `estimates.py`; what is started, loaded and stopped goes to the `WorkerPool`
(`workers.py`).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from plait.cluster.estimates import Estimates
from plait.cluster.outlook import Ahead
from plait.cluster.placement import Resources, best_node
from plait.cluster.replica import Replica
from plait.cluster.stage_queue import StageQueue
from plait.cluster.workers import StageEvent, WorkerPool

_QUIET_WAIT_S = 30.0
"""How long a stage waits for resources before a notice says so."""
_IDLE_BEFORE_EVICTION_S = 1.0
"""How long a worker that may get more work is idle before it gives way to another stage."""
_LOADS_TO_RETURN = 10
"""Work that is worth room for a stage which gave it up, in times of its loading."""
_EVERY_S = 0.1
"""How often it is seen whether stages need more workers."""
_FIRST_WORKERS_S = 1.0
"""Within which all workers are started that a stage has before it is timed."""
_LEAST_SURPLUS = 0.1
"""Part of the workers of a stage that must be too many before any gives way."""
_PLANNED_EVERY_S = 0.5
"""How often it is computed how many workers stages should have."""
_BATCHES_PER_WORKER = 16
"""Where no batch was timed yet, batches that must wait for each worker before a new one is
worth its start,"""
_RECORDS_PER_WORKER = 128
"""or fewer batches of so many records, but two."""
_BATCHES_PER_IDLE_WORKER = 2
"""The same, where an idle worker only has to load the stage."""


class Allocator:
    """Gives every stage with work a worker where one fits, then more of them.

    The next worker goes to the stage whose waiting records would keep its workers busy
    for longest, at the rate at which they have worked. It is worth its start while that is
    longer than the stage takes to load. Workers that have nothing more to do are stopped
    for it; one that may get more work is stopped only where the new one is worth the
    loading of both, and is not the last of its stage. So loaded weights stay where they
    will be needed, and all stages come to their end at about the same time.

    Where not all stages fit, they take turns: one is drained before its worker is stopped.
    A worker's process has ended before its resources are used again.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self._idle: list[Replica] = []
        """Workers that are idle in this turn, unless they got a stage meanwhile."""
        self._coming: dict[str, Resources] = {}
        """What is free on each node once workers that are being stopped have ended, but
        for what stages wait for."""
        self._seen_at = -math.inf
        self._planned_at = -math.inf
        self.ahead = Ahead()
        """The jobs that are to come."""
        self._estimates = Estimates((), pool.of, self.ahead, 0.0)
        self._wanted: dict[StageQueue, int] = {}
        """How many workers let the run end soonest, by the stage."""

    def allocate(self, queues: Iterable[StageQueue]) -> list[StageEvent]:
        """Start and stop workers as needed; events where a stage had to be given up.

        Stages are served in the order of the chains, so that an idle worker rather helps
        with much work than that it begins what that work will feed.
        """
        pool = self.pool
        pool.refresh_nodes()
        usable = [q for q in queues if q.unusable is None]
        waiting = sorted((q for q in usable if q.pending), key=lambda q: q.rank)
        starved = {q for q in waiting if not pool.of(q)}
        is_new = any(q.waiting_since is None for q in starved)
        may_serve = pool.released and any(map(_is_due, starved))
        if not (is_new or may_serve) and pool.now() - self._seen_at < _EVERY_S:
            return []
        self._seen_at = pool.now()
        pool.released = False
        self._stop_excess(usable)
        self._plan(usable)
        self._idle = []
        for queue in usable:
            if not queue.pending:
                self._idle += [replica for replica in pool.of(queue) if replica.idle]
        self._coming = pool.coming()
        # Where nobody works, there is nothing better to wait for.
        quiet = len(self._idle) == len(pool.replicas)
        due = {q for q in starved if quiet or _is_due(q)}
        events: list[StageEvent] = []
        for queue in waiting:
            if queue in due:
                events += self._serve(queue)
            elif self._idle and _may_take_idle(queue, len(pool.of(queue))):
                self._load_in_idle(queue, _is_finished)
        # Room goes to stages without workers before others get more.
        if not any(self._fits_somewhere(q) for q in due):
            self._grow([q for q in usable if self._may_grow(q)])
            # Not in a set's order, which differs between processes.
            for queue in waiting:
                if queue in starved and queue not in due:
                    self._start(queue)
        return events

    def _stop_excess(self, queues: Iterable[StageQueue]) -> None:
        """Stop the workers that are more than their stages may have, if they are idle."""
        for queue in queues:
            for replica in list(self.pool.excess_of(queue)):
                if not replica.in_flight:
                    self.pool.stop(replica)

    def _plan(self, queues: Sequence[StageQueue]) -> None:
        """See anew how many workers stages should have, every now and then."""
        now = self.pool.now()
        is_new = any(queue not in self._estimates.load_s for queue in queues)
        if is_new or now - self._planned_at >= _PLANNED_EVERY_S:
            self._planned_at = now
            self._estimates = Estimates(queues, self.pool.of, self.ahead, now)
            gpus = sum(node.total.gpus for node in self.pool.nodes)
            self._wanted = self._estimates.workers_for(gpus) or {}

    def _serve(self, queue: StageQueue) -> list[StageEvent]:
        """Get a stage its first worker; stop idle ones for it, give it up in the end."""
        # What disturbs nobody comes first: finished workers, free room.
        if self._load_in_idle(queue, _is_finished) or self._start(queue):
            return []
        waited = queue.seconds_waiting()
        if not self._fits_somewhere(queue):
            return self._explain(queue, waited)
        # Then idle workers that might still have got more work, and those that are ending.
        if self._load_in_idle(queue, self._may_leave):
            return []
        if self._reserve(queue) or self._make_room(queue, self._may_leave):
            return []
        if self.pool.is_held_back(queue) or (self.pool.replicas and waited < _QUIET_WAIT_S):
            return []
        return self._explain(queue, waited)

    def _may_grow(self, queue: StageQueue) -> bool:
        """Whether jobs wait or will come that another worker may be started for.

        A stage that gave up its room returns in time for the end of the run.
        """
        if queue.pending:
            return bool(self.pool.of(queue)) or self._estimates.is_last_call(queue)
        return bool(queue.expected and queue.spec.placement.num_gpus)

    def _grow(self, queues: Sequence[StageQueue]) -> None:
        """Give more workers to the stages with most to do for each of theirs."""
        workers = {queue: len(self.pool.of(queue)) for queue in queues}
        # For the workers that stages should have and get no room for.
        missing_gpus = 0.0

        def entry(queue: StageQueue) -> tuple[float, int, int, StageQueue]:
            """What orders the heap: the most to do first, then the fewest workers."""
            each_s = self._seconds_each(queue, workers[queue])
            return -each_s, workers[queue], queue.rank, queue

        for queue in workers:
            queue.released_beyond = None
        heap = [entry(queue) for queue in workers]
        heapq.heapify(heap)
        # Stages that have as many as they should.
        filled: list[StageQueue] = []
        while heap:
            queue = heapq.heappop(heap)[-1]
            if self._is_worth_another(queue, workers[queue]):
                if self._get_another(queue):
                    workers[queue] += 1
                    heapq.heappush(heap, entry(queue))
                elif queue in self._wanted:
                    lacking = self._wanted[queue] - workers[queue]
                    missing_gpus += lacking * queue.need.gpus
            elif queue in self._wanted:
                filled.append(queue)
        if missing_gpus:
            self._release(missing_gpus)
        else:
            self._fill(filled)

    def _release(self, gpus: float) -> None:
        """Have stages with too many workers give back so many GPUs, busy ones later."""
        surplus: dict[StageQueue, int] = {}
        for queue, wanted in self._wanted.items():
            surplus[queue] = len(self.pool.of(queue)) - wanted
        most_first = sorted(surplus, key=lambda q: (-surplus[q] * q.need.gpus, q.rank))
        for queue in most_first:
            workers = len(self.pool.of(queue))
            if gpus <= 0 or surplus[queue] < max(1, _LEAST_SURPLUS * workers):
                return
            leaving = min(surplus[queue], math.ceil(gpus / queue.need.gpus))
            queue.released_beyond = workers - leaving
            gpus -= leaving * queue.need.gpus

    def _fill(self, queues: Iterable[StageQueue]) -> None:
        """Give what is left to timed stages whose workers have most to do, one to each."""
        for queue in sorted(queues, key=lambda q: -(q.backlog_s or 0.0)):
            workers = len(self.pool.of(queue))
            timed = queue.backlog_s is not None and queue.load_s is not None
            is_worth = timed and _is_worth_loading(queue, workers, queue.backlog_s)
            if is_worth and _is_allowed(queue, workers):
                self._get_another(queue)

    def _is_worth_another(self, queue: StageQueue, workers: int) -> bool:
        """Whether one more worker beside so many lets the run end earlier."""
        if not _is_allowed(queue, workers):
            return False
        # Where a number of workers was asked for, no estimate decides.
        if queue in self._wanted and queue.asked_workers is None:
            return workers < self._wanted[queue] and not self._is_loading_first(queue)
        return not workers or _is_worth_loading(queue, workers, queue.work_s)

    def _is_loading_first(self, queue: StageQueue) -> bool:
        """Whether a stage that was never timed soon will be, by the workers it has."""
        workers = self.pool.of(queue)
        if queue.computed or len(workers) < 2 or queue in self._estimates.overdue:
            return False
        return self.pool.now() - workers[1].ordered > _FIRST_WORKERS_S

    def _seconds_each(self, queue: StageQueue, workers: int) -> float:
        """How long its workers would take for all jobs; infinite if that is unknown."""
        work_s = self._estimates.work_s(queue)
        return math.inf if work_s is None or not workers else work_s / workers

    def _get_another(self, queue: StageQueue) -> bool:
        """Start one more worker, now or once others have ended."""
        workers = len(self.pool.of(queue))
        if not queue.pending:
            return self._start(queue)
        gain_s = self._seconds_each(queue, max(1, workers))
        gain_s -= self._estimates.load_s[queue] or 0.0

        def may_leave(replica: Replica) -> bool:
            other = replica.queue
            wanted = self._wanted.get(other, 0)
            if not other.computed and len(self.pool.of(other)) <= wanted:
                return False  # it was loaded in time for jobs that come soon
            pays = gain_s > (other.load_s or math.inf)
            return _is_finished(replica) or (pays and self._may_leave(replica))

        if self._start(queue) or self._reserve(queue):
            return True
        return self._make_room(queue, may_leave)

    def _start(self, queue: StageQueue) -> bool:
        """Start a worker, if some node has room for it."""
        node = best_node(queue.need, self.pool.free_for(queue))
        if node is not None:
            self.pool.start(queue, node)
            self._coming[node] -= queue.need
        return node is not None

    def _reserve(self, queue: StageQueue) -> bool:
        """Wait for workers to end where there will be room then."""
        coming = {node: self._coming[node] for node in self.pool.free_for(queue)}
        node = best_node(queue.need, coming)
        if node is not None:
            self._coming[node] -= queue.need
        return node is not None

    def _load_in_idle(
        self, queue: StageQueue, may_leave: Callable[[Replica], bool]
    ) -> bool:
        """Have a worker that `may_leave` its stage load this one, if it may."""
        for replica in self._idle:
            if may_leave(replica) and self.pool.may_load(replica, queue):
                self.pool.load(replica, queue)
                return True
        return False

    def _make_room(self, queue: StageQueue, may_leave: Callable[[Replica], bool]) -> bool:
        """Stop the fewest workers of one node that `may_leave` and whose end is enough."""
        leaving: dict[str, list[Replica]] = defaultdict(list)
        for replica in filter(may_leave, self._idle):
            leaving[replica.handle.node.id].append(replica)
        # For each node where that is possible, the workers whose end makes room.
        enough: list[list[Replica]] = []
        for node in self.pool.free_for(queue):
            free = self._coming[node]
            ending: list[Replica] = []
            for replica in leaving[node]:
                if queue.need.gains(free, replica.need):
                    ending.append(replica)
                    free += replica.need
            if queue.need.fits(free):
                enough.append(ending)
        for replica in min(enough, key=len, default=[]):
            self.pool.stop(replica)
            self._coming[replica.handle.node.id] += replica.need
        return self._reserve(queue)

    def _may_leave(self, replica: Replica) -> bool:
        """Whether a worker is idle and will probably stay so."""
        idle_s = self.pool.now() - replica.last_heard
        settled = not replica.queue.growing or idle_s > _IDLE_BEFORE_EVICTION_S
        return replica.idle and settled

    def _fits_somewhere(self, queue: StageQueue) -> bool:
        return any(queue.need.fits(n.total) for n in self.pool.nodes)

    def _explain(self, queue: StageQueue, waited: float) -> list[StageEvent]:
        """Report what is missing; give the stage up when no node can ever provide it."""
        nodes = self.pool.nodes
        need = queue.need
        if not nodes:
            return []  # a cluster that has just lost all of them may get others
        largest = max(nodes, key=lambda n: (n.total.gpus, n.total.cpus)).total
        text = (
            f"stage {queue.spec.name} needs {need} for one worker; "
            f"the largest node has {largest}"
        )
        if need.gpus > 0 and not any(n.total.gpus for n in nodes):
            text += " (to compute on CPUs, set models.NAME.num_gpus=0)"
        fits_nowhere = not self._fits_somewhere(queue)
        if fits_nowhere and self.pool.executor.fixed:  # no other node will come
            return [self.pool.give_up(queue, text)]
        if fits_nowhere or not self.pool.replicas:
            if waited > self.pool.options.placement_timeout_s:
                return [self.pool.give_up(queue, f"{text}; waited {waited:.0f} s")]
            self.pool.notice(f"waiting: {text}")
        return []


def _is_finished(replica: Replica) -> bool:
    """Whether a worker is idle and its stage gets no more jobs."""
    return replica.idle and not replica.queue.growing


def _is_due(queue: StageQueue) -> bool:
    """Whether a stage without workers has enough to do for the room to be made for it.

    One that gets more work may wait, unless it was never timed.
    """
    if not queue.growing or queue.backlog_s is None or queue.load_s is None:
        return True
    return queue.backlog_s > _LOADS_TO_RETURN * queue.load_s


def _is_allowed(queue: StageQueue, workers: int) -> bool:
    """Whether one more worker beside so many is allowed and can be started."""
    if queue.spec.placement.remote:
        return False
    limits = (queue.asked_workers, queue.max_workers)
    return all(most is None or workers < most for most in limits)


def _at_once(queue: StageQueue, workers: int) -> int:
    """How many records so many workers compute at a time."""
    return queue.limit * queue.spec.placement.concurrency * workers


def _may_take_idle(queue: StageQueue, workers: int) -> bool:
    """Whether enough jobs wait for an idle worker to load the stage."""
    batches_each = _BATCHES_PER_IDLE_WORKER if queue.asked_workers is None else 1
    enough = _at_once(queue, workers) * batches_each
    return _is_allowed(queue, workers) and queue.pending > enough


def _is_worth_loading(queue: StageQueue, workers: int, work_s: float | None) -> bool:
    """Whether enough jobs wait, and take long enough, for one more worker to be loaded."""
    at_once = _at_once(queue, workers)
    if queue.asked_workers is not None:
        return queue.pending > at_once
    if work_s is None or queue.load_s is None:
        batches = max(2, min(_BATCHES_PER_WORKER, _RECORDS_PER_WORKER // queue.limit))
        return queue.pending > at_once * batches
    return queue.pending > at_once and work_s > queue.load_s * workers
