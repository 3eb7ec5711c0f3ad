"""Which stage gets a worker, and whose drained worker leaves to make room for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from cluster import actors
from cluster.crew import Crew, Event
from cluster.placement import Need, best_node
from cluster.pool import StagePool
from cluster.replica import Replica

_IDLE_BEFORE_EVICTION_S = 1.0
_QUIET_WAIT_S = 30.0
"""How long a stage waits for a place before the user is told."""
_BATCHES_PER_WORKER = 16
"""Batches that must wait for each worker before one more pays for its own start."""


class Hiring:
    """Gives every stage with work a worker where there is room, then more of them.

    Where there is not room for all, stages take turns: one is drained before its worker
    leaves, and the worker's process is gone before its room is used.
    """

    def __init__(self, crew: Crew, growing: Callable[[StagePool], bool]) -> None:
        self.crew = crew
        self._growing = growing

    def place(self, pools: Iterable[StagePool]) -> list[Event]:
        """One round of decisions; events where a stage had to be given up."""
        self.crew.look_at_nodes()
        wanting = [p for p in pools if p.pending and p.unusable is None]
        wanting.sort(key=lambda p: p.rank)
        starved = [p for p in wanting if not self.crew.of(p)]
        events: list[Event] = []
        for pool in starved:
            if not self._start(pool):
                events += self._make_room(pool)
        if not any(self._fits_somewhere(p) for p in starved):
            for pool in filter(self._wants_more, wanting):
                self._start(pool)
        return events

    def _start(self, pool: StagePool) -> bool:
        need = Need.of_placement(pool.spec.placement)
        node = best_node(need, self.crew.room_for(pool))
        if node is not None:
            self.crew.start(pool, node)
        return node is not None

    def _wants_more(self, pool: StagePool) -> bool:
        """Whether another worker would pay for its own start."""
        workers, most = len(self.crew.of(pool)), pool.spec.placement.workers
        limits = (n for n in (most, pool.most_workers) if n is not None)
        if pool.spec.placement.endpoint or any(workers >= n for n in limits):
            return False
        batches = _BATCHES_PER_WORKER if most is None else 1
        return pool.pending > batches * pool.limit * workers

    def _make_room(self, pool: StagePool) -> list[Event]:
        """Let drained stages go for one that cannot be placed; give it up at last."""
        waited = pool.wait_for_place()
        need = Need.of_placement(pool.spec.placement)
        if not self._fits_somewhere(pool):
            return self._explain(pool, need, waited)
        if any(r.state == "leaving" for r in self.crew.replicas):
            return []
        if leavers := self._in_the_way(pool, need):
            for replica in leavers:
                self.crew.dismiss(replica)
            return []
        if self.crew.is_held_back(pool) or (self.crew.replicas and waited < _QUIET_WAIT_S):
            return []
        return self._explain(pool, need, waited)

    def _in_the_way(self, pool: StagePool, need: Need) -> list[Replica]:
        """The fewest drained workers of one node whose leaving makes room for `need`."""
        found: list[list[Replica]] = []
        for node, room in self.crew.room_for(pool).items():
            chosen: list[Replica] = []
            for replica in filter(self._may_leave, self.crew.replicas):
                if replica.handle.node == node and need.gains(room, replica.need):
                    chosen.append(replica)
                    room += replica.need
            if need.fits(room):
                found.append(chosen)
        return min(found, key=len, default=[])

    def _may_leave(self, replica: Replica) -> bool:
        idle_s = time.monotonic() - replica.heard
        settled = not self._growing(replica.pool) or idle_s > _IDLE_BEFORE_EVICTION_S
        return replica.idle and settled

    def _fits_somewhere(self, pool: StagePool) -> bool:
        need = Need.of_placement(pool.spec.placement)
        return any(need.fits(n.total) for n in self.crew.nodes)

    def _explain(self, pool: StagePool, need: Need, waited: float) -> list[Event]:
        """Say what is missing; give the stage up when it can never come."""
        nodes, options = self.crew.nodes, self.crew.options
        if not nodes:
            return []
        largest = max(nodes, key=lambda n: (n.total.gpus, n.total.cpus)).total
        text = (
            f"stage {pool.spec.name} needs {need} for one worker; "
            f"the largest node has {largest}"
        )
        if need.gpus > 0 and not any(n.total.gpus for n in nodes):
            text += " (to compute on CPUs, set models.NAME.num_gpus=0)"
        fits_nowhere = not self._fits_somewhere(pool)
        if fits_nowhere and actors.is_local(options.address):
            return [self.crew.give_up(pool, text)]
        if waited > options.placement_timeout_s and (
            fits_nowhere or not self.crew.replicas
        ):
            return [self.crew.give_up(pool, f"{text}; waited {waited:.0f} s")]
        if fits_nowhere or not self.crew.replicas:
            self.crew.notice(f"waiting: {text}")
        return []
