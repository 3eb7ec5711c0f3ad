"""Which stage gets a worker, and which idle worker gives way to it.

An idle worker's process loads the next stage itself where it may (`Replica.may_become`):
that takes a model's time to load and spares the imports, which take longer for a small
model. Else the worker is stopped, and a new one is started in its place. Which stages come
first is decided in `cluster.claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cluster.claims import Claim, served
from cluster.placement import IDLE_BEFORE_EVICTION_S, Resources, best_node
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
        waiting = (q for q in queues if q.pending and q.unusable is None)
        claims = served({q: self._claim(q) for q in waiting})
        starved = [q for q, claim in claims.items() if not claim.workers]
        events: list[Event] = []
        for queue in starved:
            if not self._start(queue):
                events += self._free_resources(queue)
        if not any(self._fits_somewhere(q) for q in starved):
            for queue, claim in claims.items():
                if claim.is_worth_another:
                    self._grow(queue, at_hand=claim.at_hand)
        return events

    def _claim(self, queue: StageQueue) -> Claim:
        return Claim(
            spec=queue.spec,
            rank=queue.rank,
            pending=queue.pending,
            workers=len(self.pool.of(queue)),
            batch_size=queue.limit,
            at_hand=self._process_for(queue, self._is_finished) is not None,
            growing=self._growing(queue),
            max_workers=queue.max_workers,
        )

    def _start(self, queue: StageQueue) -> bool:
        """Give the stage a worker where there is room; a process at hand is preferred."""
        if self._take_over(queue, self._is_finished):
            return True
        need = Resources.of_placement(queue.spec.placement)
        node = best_node(need, self.pool.free_for(queue))
        if node is not None:
            self.pool.start(queue, node)
        return node is not None

    def _grow(self, queue: StageQueue, *, at_hand: bool) -> None:
        """One more worker: of the process at hand, or where there is none, a new one."""
        if at_hand:
            self._take_over(queue, self._is_finished)  # unless it has helped another stage
        elif not self._start(queue):
            self._stop_finished(queue)

    def _take_over(self, queue: StageQueue, may_leave: Callable[[Replica], bool]) -> bool:
        """Have the process of a worker that `may_leave` load the stage."""
        replica = self._process_for(queue, may_leave)
        if replica is not None:
            self.pool.hand_over(replica, queue)
        return replica is not None

    def _process_for(
        self, queue: StageQueue, may_leave: Callable[[Replica], bool]
    ) -> Replica | None:
        """A worker that `may_leave` and whose process may load the stage."""
        leaving = [r for r in self.pool.replicas if may_leave(r) and r.may_become(queue)]
        nodes = self.pool.free_for(queue) if leaving else {}
        return next((r for r in leaving if r.handle.node.id in nodes), None)

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
                if replica.handle.node.id == node and need.gains(free, replica.need):
                    selected.append(replica)
                    free += replica.need
            if need.fits(free):
                candidates.append(selected)
        return min(candidates, key=len, default=[])

    def _may_stop(self, replica: Replica) -> bool:
        idle_s = self.pool.now() - replica.last_heard
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
        if fits_nowhere and self.pool.executor.fixed:
            return [self.pool.give_up(queue, text)]
        if waited > options.placement_timeout_s and (
            fits_nowhere or not self.pool.replicas
        ):
            return [self.pool.give_up(queue, f"{text}; waited {waited:.0f} s")]
        if fits_nowhere or not self.pool.replicas:
            self.pool.notice(f"waiting: {text}")
        return []
