"""Which stage gets a worker, and which idle worker gives way to it.

An idle worker whose stage has no more work loads another stage where it may, which takes a
model's time to load and spares the imports. Else it is stopped, and a new worker is started
in its place.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable

from plait.cluster.placement import Resources, best_node
from plait.cluster.replica import Replica
from plait.cluster.stage_queue import StageQueue
from plait.cluster.workers import Event, WorkerPool

_QUIET_WAIT_S = 30.0
"""How long a stage waits for resources before a notice says so."""
_IDLE_BEFORE_EVICTION_S = 1.0
"""How long a worker that may get more work is idle before it gives way to another stage."""
_LOADS_TO_RETURN = 10
"""Work that is worth room for a stage which gave it up, in times of its loading."""
_EVERY_S = 0.1
"""How often it is seen whether stages need more workers."""
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

    def allocate(self, queues: Iterable[StageQueue]) -> list[Event]:
        """Start and stop workers as needed; events where a stage had to be given up.

        Stages are served in the order of the chains, so that an idle worker rather helps
        with much work than that it begins what that work will feed.
        """
        pool = self.pool
        pool.refresh_nodes()
        waiting = [q for q in queues if q.pending and q.unusable is None]
        starved = {q for q in waiting if not pool.of(q)}
        is_new = any(q.waiting_since is None for q in starved)
        may_serve = pool.released and any(map(_is_due, starved))
        if not (is_new or may_serve) and pool.now() - self._seen_at < _EVERY_S:
            return []
        self._seen_at, pool.released = pool.now(), False
        for replica in [r for r in pool.replicas if pool.is_excess(r)]:
            if not replica.in_flight:
                pool.stop(replica)
        self._idle = [r for r in pool.replicas if r.idle]
        self._coming = pool.coming()
        quiet = len(self._idle) == len(pool.replicas)
        due = {q for q in starved if quiet or _is_due(q)}
        events: list[Event] = []
        for queue in sorted(waiting, key=lambda q: q.rank):
            if queue in due:
                events += self._serve(queue)
            elif _is_worth_another(queue, len(pool.of(queue)), idle=True):
                self._load_in_idle(queue, _is_finished)
        if not any(self._fits_somewhere(q) for q in due):
            self._grow(q for q in waiting if q not in starved)
            for queue in starved - due:
                self._start(queue)
        return events

    def _serve(self, queue: StageQueue) -> list[Event]:
        """Get a stage its first worker; stop idle ones for it, give it up in the end."""
        if self._load_in_idle(queue, _is_finished) or self._start(queue):
            return []
        waited = queue.waited_s()
        if not self._fits_somewhere(queue):
            return self._explain(queue, waited)
        if self._load_in_idle(queue, self._may_leave):
            return []
        if self._reserve(queue) or self._make_room(queue, self._may_leave):
            return []
        if self.pool.is_held_back(queue) or (self.pool.replicas and waited < _QUIET_WAIT_S):
            return []
        return self._explain(queue, waited)

    def _grow(self, queues: Iterable[StageQueue]) -> None:
        """Give more workers to the stages with most to do for each of theirs."""
        workers = {q: len(self.pool.of(q)) for q in queues}

        def entry(queue: StageQueue) -> tuple[float, int, int, StageQueue]:
            each_s = _seconds_each(queue, workers[queue])
            return -each_s, workers[queue], queue.rank, queue

        heap = list(map(entry, workers))
        heapq.heapify(heap)
        while heap:
            queue = heapq.heappop(heap)[-1]
            if _is_worth_another(queue, workers[queue]) and self._get_another(queue):
                workers[queue] += 1
                heapq.heappush(heap, entry(queue))

    def _get_another(self, queue: StageQueue) -> bool:
        """Start one more worker, now or once others have ended."""
        gain_s = _seconds_each(queue, len(self.pool.of(queue))) - (queue.load_s or 0.0)

        def may_leave(replica: Replica) -> bool:
            other = replica.queue
            pays = gain_s > (other.load_s or math.inf)
            return _is_finished(replica) or (pays and self._may_leave(replica))

        ways = (self._start, self._reserve)
        return any(way(queue) for way in ways) or self._make_room(queue, may_leave)

    def _start(self, queue: StageQueue) -> bool:
        node = best_node(queue.need, self.pool.free_for(queue))
        if node is not None:
            self.pool.start(queue, node)
            self._coming[node] -= queue.need
        return node is not None

    def _reserve(self, queue: StageQueue) -> bool:
        """Wait for workers to end where there will be room then."""
        nodes = self.pool.free_for(queue)
        node = best_node(queue.need, {n: self._coming[n] for n in nodes})
        if node is not None:
            self._coming[node] -= queue.need
        return node is not None

    def _load_in_idle(
        self, queue: StageQueue, may_leave: Callable[[Replica], bool]
    ) -> bool:
        """Have a worker that `may_leave` its stage load this one, if it may."""
        fitting = (r for r in self._idle if may_leave(r))
        replica = next((r for r in fitting if self.pool.may_load(r, queue)), None)
        if replica is not None:
            self.pool.load(replica, queue)
        return replica is not None

    def _make_room(self, queue: StageQueue, may_leave: Callable[[Replica], bool]) -> bool:
        """Stop the fewest workers of one node that `may_leave` and whose end is enough."""
        leaving: dict[str, list[Replica]] = defaultdict(list)
        for replica in filter(may_leave, self._idle):
            leaving[replica.handle.node.id].append(replica)
        candidates: list[list[Replica]] = []
        for node in self.pool.free_for(queue):
            free = self._coming[node]
            selected: list[Replica] = []
            for replica in leaving[node]:
                if queue.need.gains(free, replica.need):
                    selected.append(replica)
                    free += replica.need
            if queue.need.fits(free):
                candidates.append(selected)
        for replica in min(candidates, key=len, default=[]):
            self.pool.stop(replica)
            self._coming[replica.handle.node.id] += replica.need
        return self._reserve(queue)

    def _may_leave(self, replica: Replica) -> bool:
        idle_s = self.pool.now() - replica.last_heard
        settled = not replica.queue.growing or idle_s > _IDLE_BEFORE_EVICTION_S
        return replica.idle and settled

    def _fits_somewhere(self, queue: StageQueue) -> bool:
        return any(queue.need.fits(n.total) for n in self.pool.nodes)

    def _explain(self, queue: StageQueue, waited: float) -> list[Event]:
        """Report what is missing; give the stage up when no node can ever provide it."""
        nodes, need = self.pool.nodes, queue.need
        if not nodes:
            return []
        largest = max(nodes, key=lambda n: (n.total.gpus, n.total.cpus)).total
        text = (
            f"stage {queue.spec.name} needs {need} for one worker; "
            f"the largest node has {largest}"
        )
        if need.gpus > 0 and not any(n.total.gpus for n in nodes):
            text += " (to compute on CPUs, set models.NAME.num_gpus=0)"
        fits_nowhere = not self._fits_somewhere(queue)
        if fits_nowhere and self.pool.executor.fixed:
            return [self.pool.give_up(queue, text)]
        if fits_nowhere or not self.pool.replicas:
            if waited > self.pool.options.placement_timeout_s:
                return [self.pool.give_up(queue, f"{text}; waited {waited:.0f} s")]
            self.pool.notice(f"waiting: {text}")
        return []


def _is_finished(replica: Replica) -> bool:
    return replica.idle and not replica.queue.growing


def _is_due(queue: StageQueue) -> bool:
    """Whether a stage without workers has enough to do for the room to be made for it.

    One that gets more work may wait, unless it was never timed.
    """
    if not queue.growing or queue.backlog_s is None or queue.load_s is None:
        return True
    return queue.backlog_s > _LOADS_TO_RETURN * queue.load_s


def _is_worth_another(queue: StageQueue, workers: int, *, idle: bool = False) -> bool:
    """Whether enough jobs wait for one more worker, new or `idle`, beside its workers."""
    placement = queue.spec.placement
    limits = (queue.asked_workers, queue.max_workers)
    if placement.remote or any(most is not None and workers >= most for most in limits):
        return False
    at_once = queue.limit * placement.concurrency * workers
    if queue.asked_workers is None and idle:
        return queue.backlog > at_once * _BATCHES_PER_IDLE_WORKER
    if queue.asked_workers is not None:
        return queue.backlog > at_once
    if queue.backlog_s is None or queue.load_s is None:
        batches = max(2, min(_BATCHES_PER_WORKER, _RECORDS_PER_WORKER // queue.limit))
        return queue.backlog > at_once * batches
    return queue.backlog > at_once and queue.backlog_s > queue.load_s * workers


def _seconds_each(queue: StageQueue, workers: int) -> float:
    """How long its workers would take for the waiting jobs; infinite if that is unknown."""
    return math.inf if queue.backlog_s is None else queue.backlog_s / max(workers, 1)
