"""Which stage gets a worker, and which idle worker gives way to it.

An idle worker's process loads the next stage itself where it may (`Replica.may_become`):
that takes a model's time to load and spares the imports, which take longer for a small
model. Else the worker is stopped, and a new one is started in its place. A process at hand
rather helps a stage with much work than that it begins one which that work will feed: else
the last stages would wait for one worker of the stage before them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from cluster.local_ray import is_local
from cluster.placement import (
    IDLE_BEFORE_EVICTION_S,
    Resources,
    best_node,
    may_follow,
    worth_another,
)
from cluster.replica import Replica
from cluster.stage_queue import StageQueue
from cluster.workers import Event, WorkerPool

_QUIET_WAIT_S = 30.0
"""How long a stage waits for resources before a notice says so."""


class Allocator:
    """Gives every stage with work a worker where one fits, then more of them.

    Where not all fit, stages take turns: one is drained before its worker is stopped, and
    the worker's process has ended before its resources are used again.
    """

    def __init__(self, pool: WorkerPool, growing: Callable[[StageQueue], bool]) -> None:
        self.pool = pool
        self._growing = growing

    def allocate(self, queues: Iterable[StageQueue]) -> list[Event]:
        """Start and stop workers as needed; events where a stage had to be given up."""
        self.pool.refresh_nodes()
        waiting = [q for q in queues if q.pending and q.unusable is None]
        waiting.sort(key=lambda q: q.rank)
        helped = [q for q in waiting if self.pool.of(q) and self._may_be_helped(q)]
        waiting = [q for q in waiting if not self._comes_after(q, helped)]
        starved = [q for q in waiting if not self.pool.of(q)]
        events: list[Event] = []
        for queue in starved:
            if not self._start(queue):
                events += self._free_resources(queue)
        if not any(self._fits_somewhere(q) for q in starved):
            for queue in filter(self._is_worth_another, waiting):
                if not self._start(queue):
                    self._stop_finished(queue)
        return events

    def _start(self, queue: StageQueue) -> bool:
        """Give the stage a worker where there is room; a process at hand is preferred."""
        if self._take_over(queue, self._is_finished):
            return True
        need = Resources.of_placement(queue.spec.placement)
        node = best_node(need, self.pool.free_for(queue))
        if node is not None:
            self.pool.start(queue, node)
        return node is not None

    def _take_over(self, queue: StageQueue, may_leave: Callable[[Replica], bool]) -> bool:
        """Have the process of a worker that `may_leave` load the stage."""
        nodes = self.pool.free_for(queue)
        candidates = (r for r in self.pool.replicas if r.may_become(queue))
        for replica in filter(may_leave, candidates):
            if replica.handle.node in nodes:
                self.pool.hand_over(replica, queue)
                return True
        return False

    def _is_worth_another(self, queue: StageQueue) -> bool:
        """Whether enough work waits to start another worker."""
        workers, most = len(self.pool.of(queue)), queue.max_workers
        if most is not None and workers >= most:
            return False
        return worth_another(
            queue.spec.placement,
            queue.pending,
            workers,
            queue.limit,
            at_hand=self._is_at_hand(queue),
        )

    def _is_at_hand(self, queue: StageQueue) -> bool:
        """Whether a process whose stage has ended may load the stage."""
        nodes = self.pool.free_for(queue)
        ended = filter(self._is_finished, self.pool.replicas)
        return any(r.may_become(queue) and r.handle.node in nodes for r in ended)

    def _may_be_helped(self, queue: StageQueue) -> bool:
        """Whether a process at hand is worth being another worker of the stage."""
        return self._is_at_hand(queue) and self._is_worth_another(queue)

    def _comes_after(self, queue: StageQueue, helped: Sequence[StageQueue]) -> bool:
        """Whether the stage has no worker, and a process first helps one before it."""
        if self.pool.of(queue) or not self._growing(queue):
            return False
        return any(q.rank < queue.rank and may_follow(q.spec, queue.spec) for q in helped)

    def _free_resources(self, queue: StageQueue) -> list[Event]:
        """Stop idle workers for a stage that fits nowhere now; give it up in the end."""
        waited = queue.waited_s()
        need = Resources.of_placement(queue.spec.placement)
        if not self._fits_somewhere(queue):
            return self._explain(queue, need, waited)
        if self._take_over(queue, self._may_stop):
            return []
        if any(r.state == "stopping" for r in self.pool.replicas):
            return []
        if to_stop := self._to_stop_for(queue, need, self._may_stop):
            for replica in to_stop:
                self.pool.stop(replica)
            return []
        if self.pool.is_held_back(queue) or (self.pool.replicas and waited < _QUIET_WAIT_S):
            return []
        return self._explain(queue, need, waited)

    def _stop_finished(self, queue: StageQueue) -> None:
        """Stop workers whose stages have no more work, for one more worker of `queue`."""
        if not any(r.state == "stopping" for r in self.pool.replicas):
            need = Resources.of_placement(queue.spec.placement)
            for replica in self._to_stop_for(queue, need, self._is_finished):
                self.pool.stop(replica)

    def _to_stop_for(
        self, queue: StageQueue, need: Resources, may_stop: Callable[[Replica], bool]
    ) -> list[Replica]:
        """The fewest workers of one node that `may_stop` and whose end frees `need`."""
        candidates: list[list[Replica]] = []
        for node, free in self.pool.free_for(queue).items():
            selected: list[Replica] = []
            for replica in filter(may_stop, self.pool.replicas):
                if replica.handle.node == node and need.gains(free, replica.need):
                    selected.append(replica)
                    free += replica.need
            if need.fits(free):
                candidates.append(selected)
        return min(candidates, key=len, default=[])

    def _may_stop(self, replica: Replica) -> bool:
        idle_s = time.monotonic() - replica.last_heard
        settled = not self._growing(replica.queue) or idle_s > IDLE_BEFORE_EVICTION_S
        return replica.idle and settled

    def _is_finished(self, replica: Replica) -> bool:
        return replica.idle and not self._growing(replica.queue)

    def _fits_somewhere(self, queue: StageQueue) -> bool:
        need = Resources.of_placement(queue.spec.placement)
        return any(need.fits(n.total) for n in self.pool.nodes)

    def _explain(self, queue: StageQueue, need: Resources, waited: float) -> list[Event]:
        """Report what is missing; give the stage up when no node can ever provide it."""
        nodes, options = self.pool.nodes, self.pool.options
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
        if fits_nowhere and is_local(options.address):
            return [self.pool.give_up(queue, text)]
        if waited > options.placement_timeout_s and (
            fits_nowhere or not self.pool.replicas
        ):
            return [self.pool.give_up(queue, f"{text}; waited {waited:.0f} s")]
        if fits_nowhere or not self.pool.replicas:
            self.pool.notice(f"waiting: {text}")
        return []
