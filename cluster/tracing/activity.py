"""How much of each stretch of time every worker spent on what, as arrays over a grid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.tracing.sessions import Session, WorkerTrace

Shares = NDArray[np.float64]

STATES = ("load", "compute", "lost", "transfer", "wait")
"""`load` is from the order for a worker until it is ready, with its process and server;
`transfer` is reading and writing while nothing is computed; `lost` is work on batches that
were never answered; `wait` is having no batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Activity:
    """What one worker did in each bin, as shares of the bin that add up to at most 1."""

    worker: WorkerTrace
    states: dict[str, Shares]

    @property
    def ready(self) -> Shares:
        """For which share of each bin it was there to take batches."""
        shares: Shares = np.sum([self.states[s] for s in STATES if s != "load"], axis=0)
        return shares

    @property
    def held(self) -> Shares:
        """For which share of each bin it took its resources."""
        return self.ready + self.states["load"]

    @property
    def busy(self) -> Shares:
        """For which share of each bin it had work: all but loading and waiting."""
        return self.ready - self.states["wait"]


class Grid:
    """`bins` equal stretches from `begin` to `end`, in microseconds of a session."""

    def __init__(self, begin: int, end: int, bins: int) -> None:
        self.begin, self.bins = begin, bins
        self.width = max(1.0, (end - begin) / bins)

    def share(self, times: Iterable[tuple[float, float, float]]) -> Shares:
        """Of each bin, how much of it `times` fill: (begin, end, amount) each.

        An amount is spread evenly over its time; what lies outside the grid is left out.
        """
        shares = np.zeros(self.bins)
        for begin, end, amount in times:
            low = (begin - self.begin) / self.width
            high = max((end - self.begin) / self.width, low + 1e-9)
            first, last = max(0, int(low)), min(self.bins - 1, int(high))
            if high <= 0 or first > last:
                continue
            density = amount / self.width / (high - low)
            edges = np.arange(first, last + 1)
            overlap = np.minimum(edges + 1, high) - np.maximum(edges, low)
            shares[first : last + 1] += density * overlap.clip(0)
        return shares

    def activity(self, worker: WorkerTrace) -> Activity:
        """What one worker did."""
        ready_at = worker.end if worker.ready is None else worker.ready
        load = self._whole(worker.begin, ready_at)
        left = self._whole(ready_at, worker.end)
        states = {"load": load}
        for name, shares in (
            ("compute", self._phase(worker, 1)),
            ("lost", self.share(_lost(worker))),
            ("transfer", self._phase(worker, 0) + self._phase(worker, 2)),
        ):
            states[name] = np.minimum(shares, left)
            left = left - states[name]
        return Activity(worker, states | {"wait": left})

    def _whole(self, begin: float, end: float) -> Shares:
        return self.share([(begin, end, end - begin)]) if end > begin else self.share([])

    def _phase(self, worker: WorkerTrace, number: int) -> Shares:
        times = (b.phases[number] for b in worker.batches)
        slots = worker.slots
        return self.share((t.begin, t.end, t.busy / slots) for t in times if t is not None)


def _lost(worker: WorkerTrace) -> Iterable[tuple[float, float, float]]:
    """Time in which it worked on batches that it never answered."""
    computed = [p.end for b in worker.batches if (p := b.phases[1]) is not None]
    ready_at = worker.end if worker.ready is None else worker.ready
    free_at = max([ready_at, *computed])
    for interval in worker.lost:
        begin = max(interval.begin, free_at)
        if interval.end > begin:
            yield begin, interval.end, (interval.end - begin) / worker.slots


def activities(session: Session, grid: Grid) -> list[Activity]:
    """What every worker of a session did."""
    return [grid.activity(worker) for worker in session.workers]
