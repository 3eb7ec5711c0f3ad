"""Which stage gets a worker, and which idle worker gives way to it.

An idle worker whose stage has no more work loads another stage where it may, which takes a
model's time to load and spares the imports. Else it is stopped, and a new worker is started
in its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from cluster.placement import best_node
from cluster.replica import Replica
from cluster.stage_queue import StageQueue
from cluster.workers import Event, WorkerPool

_QUIET_WAIT_S = 30.0
"""How long a stage waits for resources before a notice says so."""
_IDLE_BEFORE_EVICTION_S = 1.0
"""How long a worker that may get more work is idle before it gives way to a stage that
has none."""
_BATCHES_PER_WORKER = 16
"""Batches that must wait for each worker before a new one is worth its start,"""
_RECORDS_PER_WORKER = 128
"""or fewer batches of so many records, but two."""
_BATCHES_PER_IDLE_WORKER = 2
"""The same, where an idle worker only has to load the stage."""


class Allocator:
    """Gives every stage with work a worker where one fits, then more of them.

    Where not all fit, stages take turns: one is drained before its worker is stopped, and
    the worker's process has ended before its resources are used again.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self._idle: list[Replica] = []
        """Workers that are idle in this turn, unless they got a stage meanwhile."""
        self._stopping = False
        """Whether workers are being stopped, so that resources will be free."""

    def allocate(self, queues: Iterable[StageQueue]) -> list[Event]:
        """Start and stop workers as needed; events where a stage had to be given up.

        Stages are served in the order of the chains, so that an idle worker rather helps
        with much work than that it begins what that work will feed.
        """
        self.pool.refresh_nodes()
        self._idle = [r for r in self.pool.replicas if r.idle]
        self._stopping = any(r.state == "stopping" for r in self.pool.replicas)
        waiting = [q for q in queues if q.pending and q.unusable is None]
        starved = {q for q in waiting if not self.pool.of(q)}
        crowded = any(self._fits_somewhere(q) for q in starved)
        events: list[Event] = []
        for replica in [r for r in self.pool.replicas if self.pool.is_excess(r)]:
            if not replica.in_flight:
                self.pool.stop(replica)
        for queue in sorted(waiting, key=lambda q: q.rank):
            if queue in starved:
                events += self._serve(queue)
            else:
                self._grow(queue, crowded=crowded)
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
        if self._stopping or self._make_room(queue, self._may_leave):
            return []
        if self.pool.is_held_back(queue) or (self.pool.replicas and waited < _QUIET_WAIT_S):
            return []
        return self._explain(queue, waited)

    def _grow(self, queue: StageQueue, *, crowded: bool) -> None:
        """Give a stage with much work one more worker, unless others have none."""
        workers = len(self.pool.of(queue))
        if _is_worth_another(queue, workers, idle=True):
            if self._load_in_idle(queue, _is_finished):
                return
            if crowded or not _is_worth_another(queue, workers):
                return
            if not (self._start(queue) or self._stopping):
                self._make_room(queue, _is_finished)

    def _start(self, queue: StageQueue) -> bool:
        """Start a worker where there is room."""
        node = best_node(queue.need, self.pool.free_for(queue))
        if node is not None:
            self.pool.start(queue, node)
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
        for node, free in self.pool.free_for(queue).items():
            selected: list[Replica] = []
            for replica in leaving[node]:
                if queue.need.gains(free, replica.need):
                    selected.append(replica)
                    free += replica.need
            if queue.need.fits(free):
                candidates.append(selected)
        for replica in min(candidates, key=len, default=[]):
            self.pool.stop(replica)
        self._stopping = self._stopping or bool(candidates)
        return bool(candidates)

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


def _is_worth_another(queue: StageQueue, workers: int, *, idle: bool = False) -> bool:
    """Whether enough jobs wait for one more worker, new or `idle`, beside its workers."""
    placement = queue.spec.placement
    limits = (queue.asked_workers, queue.max_workers)
    if placement.remote or any(most is not None and workers >= most for most in limits):
        return False
    batches = 1
    if queue.asked_workers is None and idle:
        batches = _BATCHES_PER_IDLE_WORKER
    elif queue.asked_workers is None:
        batches = max(2, min(_BATCHES_PER_WORKER, _RECORDS_PER_WORKER // queue.limit))
    return queue.pending > batches * queue.limit * placement.concurrency * workers
