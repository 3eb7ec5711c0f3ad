"""What a session waited for: the stage that bounds it, idle hours, one worker more.

The making of records is divided into windows. In each window the time goes to the stage
whose workers were busiest, as far as they were busy; what they left, to the next busiest;
what all left, to loading where a model was being loaded; the rest is waiting.

What one more worker would save is a work-conserving replay of the same windows: while all
workers of the stage are busy, its work is shared by one more. Other stages may fill their
own idle time but not more; where they have none, the new worker does what waited for its
stage, which later windows then need not do. The size of batches stays; the new worker has
resources of its own and is ready when the first one was. A stage that is never busy on all
its workers at a time gains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from cluster.tracing.activity import Activity, Grid, Shares, activities
from cluster.tracing.sessions import MAKING, STARTING_RAY, Interval, Session

_MOST_WINDOWS, _FEWEST_WINDOWS = 200, 8
_BINS = 1000
"""For the totals: what is read while something is computed is told apart within a bin."""
_HOUR_US = 3600e6
_ALIKE = 0.05
"""Stages whose shares of a window differ by less are equally busy."""
_THERE = 0.5
"""Share of a window for which a worker must be ready to count in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageUse:
    """One stage in one session; times are in seconds, summed over its workers."""

    workers: int
    """Most workers at a time."""
    remote: bool
    batches: int
    records: int
    held_s: float
    load_s: float
    compute_s: float
    transfer_s: float
    lost_s: float
    wait_s: float
    bound_s: float
    """Seconds of the run that it bounded."""
    joules: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What one session did, and waited for."""

    seconds: float
    """From its start until its records were made and read back."""
    making_s: float
    start_ray_s: float
    driver_s: float
    """Before and after: counting, compacting, reading results."""
    load_bound_s: float
    """Seconds of the making in which nothing was done but loading."""
    wait_bound_s: float
    """Seconds of the making in which no worker had work and none was loading."""
    bounding: str | None
    """The stage that bounds the run; None where no worker was ever busy."""
    one_more_saves_s: float | None
    """With one more worker of it; None for an endpoint, which has one worker."""
    hours_unit: str
    """`GPU` where any worker held a GPU, else `worker`."""
    held_hours: float
    idle_hours: float
    """Held and not computing, loading included."""
    load_hours: float
    stages: Mapping[str, StageUse]

    def as_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        content = asdict(self)
        for stage in content["stages"].values():
            stage |= {k: round(v, 3) for k, v in stage.items() if isinstance(v, float)}
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in content.items()}


def summarise(session: Session) -> TraceSummary:
    """The summary of one session."""
    making = _making(session)
    grid = _grid(session, making)
    workers = activities(session, grid)
    stages = _Windows(workers, grid)
    bounds, loading, waiting = stages.bounds()
    ever_busy = (stage for stage in bounds if bounds[stage] > 0)
    bounding = max(ever_busy, key=bounds.__getitem__, default=None)
    saved = None
    if bounding is not None:
        saved = stages.saved(bounding, _backlog(session, bounding, grid))
    whole = Grid(0, session.end, _BINS)
    uses = activities(session, whole)
    gpus = any(w.gpus for w in session.workers)
    starting = session.phase_us(STARTING_RAY) / 1e6
    making_s = (making.end - making.begin) / 1e6
    hours = _hours(uses, whole, gpus=gpus)
    return TraceSummary(
        seconds=session.end / 1e6,
        making_s=making_s,
        start_ray_s=starting,
        driver_s=max(0.0, session.end / 1e6 - making_s - starting),
        load_bound_s=loading,
        wait_bound_s=waiting,
        bounding=bounding,
        one_more_saves_s=saved,
        hours_unit="GPU" if gpus else "worker",
        held_hours=hours[0],
        idle_hours=hours[1],
        load_hours=hours[2],
        stages={
            name: _use(
                stages.of(name), [u for u in uses if u.worker.stage == name], whole, bound_s
            )
            for name, bound_s in bounds.items()
        },
    )


def _making(session: Session) -> Interval:
    """From the first to the last moment that workers were managed."""
    parts = [p for p in session.phases if p.name == MAKING]
    begins = [p.begin for p in parts] or [w.begin for w in session.workers]
    ends = [p.end for p in parts] or [session.end]
    return Interval(MAKING, min(begins, default=0), max(ends))


def _grid(session: Session, making: Interval) -> Grid:
    """Windows that hold at least two batches of the slowest stage, where there are many."""
    times: dict[str, list[int]] = {}
    for worker in session.workers:
        for batch in worker.batches:
            if (p := batch.phases[1]) is not None:
                times.setdefault(worker.stage, []).append(p.busy // batch.batches)
    slowest = max((median(t) for t in times.values()), default=0.0)
    fitting = int((making.end - making.begin) / max(1.0, 2 * slowest))
    bins = min(_MOST_WINDOWS, max(_FEWEST_WINDOWS, fitting))
    return Grid(making.begin, making.end, bins)


class _Windows:
    """The workers of a session in the windows of its making."""

    def __init__(self, workers: Sequence[Activity], grid: Grid) -> None:
        self._all = workers
        self._width_s = grid.width / 1e6
        names = dict.fromkeys(a.worker.stage for a in workers)
        self._mean = {name: _mean_use(self.of(name)) for name in names}

    def of(self, stage: str) -> list[Activity]:
        """The workers of one stage."""
        return [a for a in self._all if a.worker.stage == stage]

    def bounds(self) -> tuple[dict[str, float], float, float]:
        """Seconds that each stage bounded, those of loading alone, and those of neither."""
        bound = dict.fromkeys(self._mean, 0.0)
        loading, waiting = 0.0, 0.0
        load = _highest([a.states["load"] for a in self._all])
        for i in range(len(load)):
            left = 1.0
            for name in sorted(bound, key=lambda n: self._order(n, i)):
                taken = min(left, float(self._mean[name][i]))
                bound[name] += taken * self._width_s
                left -= taken
            loaded = min(left, float(load[i]))
            loading += loaded * self._width_s
            waiting += (left - loaded) * self._width_s
        return bound, loading, waiting

    def _order(self, stage: str, i: int) -> tuple[int, float]:
        """The busiest stage of a window first; of equally busy ones, that of the run."""
        mean = self._mean[stage]
        return -round(float(mean[i]) / _ALIKE), -float(mean.sum())

    def saved(self, stage: str, backlog: Shares) -> float | None:
        """Seconds that one more worker of a stage would save; None for an endpoint.

        `backlog` is the work that waited for the stage at the end of each window.
        """
        workers = self.of(stage)
        if any(a.worker.remote for a in workers):
            return None
        slots = workers[0].worker.slots
        batches = sum(b.batches for a in workers for b in a.worker.batches)
        others = [m for n, m in self._mean.items() if n != stage]
        other = _highest([*others, np.zeros(len(backlog))])
        total = early = 0.0
        for i, (full, there) in enumerate(zip(*_all_busy(workers), strict=True)):
            relief = _relief(batches, there * slots, slots)
            capacity = there * slots / (1 - relief)
            work = full * there * slots * self._width_s
            needed = max(0.0, work - early)
            least = float(other[i]) * self._width_s
            lasts = max(needed / capacity, least) if there else 0.0
            lasts = min(lasts, full * self._width_s)
            total += full * self._width_s - lasts
            early = max(0.0, early - work) + lasts * capacity - needed
            early = min(max(0.0, early), float(backlog[i]))
        return total


def _all_busy(workers: Sequence[Activity]) -> tuple[list[float], list[int]]:
    """For which share of each window all workers there were busy, and their number."""
    ready = np.array([a.ready for a in workers])
    use = np.array([_quotient(a.busy, a.ready) for a in workers])
    there = ready >= _THERE
    least = np.where(there, use, 1.0).min(axis=0)
    return np.where(there.any(axis=0), least, 0.0).tolist(), there.sum(axis=0).tolist()


def _backlog(session: Session, stage: str, grid: Grid) -> Shares:
    """Work that waited for a stage at the end of each window, in seconds of one slot."""
    times = [q[0] for q in session.queues]
    batches = [b for w in session.workers if w.stage == stage for b in w.batches]
    busy = sum(p.busy for b in batches if (p := b.phases[1]) is not None) / 1e6
    each = busy / max(1, sum(b.records for b in batches))
    ends = grid.begin + grid.width * np.arange(1, grid.bins + 1)
    before = np.searchsorted(times, ends, side="right") - 1
    jobs = [session.queues[i][1].get(stage, 0) if i >= 0 else 0 for i in before]
    return each * np.array(jobs, dtype=np.float64)


def _relief(batches: int, slots: int, more: int) -> float:
    """Which share of a stage's time another worker takes off, batches being whole."""
    if not batches or not slots:
        return 0.0
    rounds = math.ceil(batches / slots)
    return min(more / (slots + more), 1 - math.ceil(batches / (slots + more)) / rounds)


def _mean_use(workers: Sequence[Activity]) -> Shares:
    """How busy the workers of one stage were in each window, on average over those there.

    A worker that was there for a part of the window counts for that part.
    """
    busy = np.sum([a.busy for a in workers], axis=0)
    ready = np.sum([a.ready for a in workers], axis=0)
    present = np.minimum(1.0, ready)
    return np.asarray(_quotient(busy, ready) * present)


def _quotient(amount: Shares, of: Shares) -> Shares:
    shares: Shares = np.divide(amount, of, out=np.zeros_like(amount), where=of > 1e-9)
    return shares


def _highest(rows: Sequence[Shares]) -> Shares:
    highest: Shares = np.max(rows, axis=0) if len(rows) else np.zeros(0)
    return highest


def _hours(uses: Sequence[Activity], whole: Grid, *, gpus: bool) -> tuple[float, ...]:
    """Hours held, held without computing, and spent loading: of GPUs or of workers."""
    held = idle = load = 0.0
    for use in uses:
        weight = use.worker.gpus if gpus else float(not use.worker.remote)
        hours = whole.width / _HOUR_US * weight
        held += hours * float(use.held.sum())
        idle += hours * float((use.held - use.states["compute"]).sum())
        load += hours * float(use.states["load"].sum())
    return held, idle, load


def _use(
    windows: Sequence[Activity], uses: Sequence[Activity], whole: Grid, bound_s: float
) -> StageUse:
    def seconds(state: str) -> float:
        return sum(float(u.states[state].sum()) for u in uses) * whole.width / 1e6

    traces = [u.worker for u in uses]
    present = np.sum([a.ready for a in windows], axis=0)
    joules = [w.joules for w in traces if w.joules is not None]
    return StageUse(
        workers=max(1, round(float(present.max(initial=0.0)))),
        remote=traces[0].remote,
        batches=sum(b.batches for w in traces for b in w.batches),
        records=sum(b.records for w in traces for b in w.batches if b.status == "done"),
        held_s=sum(float(u.held.sum()) for u in uses) * whole.width / 1e6,
        load_s=seconds("load"),
        compute_s=seconds("compute"),
        transfer_s=seconds("transfer"),
        lost_s=seconds("lost"),
        wait_s=seconds("wait"),
        bound_s=bound_s,
        joules=sum(joules) if joules else None,
    )
