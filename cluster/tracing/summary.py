"""What a session waited for: the stage that bounds it, and idle hours.

The making of records is divided into moments. Each goes to the stage whose workers were
busiest, as far as they were busy; what they left, to the next busiest; what all left, to
loading where a model was being loaded; the rest is waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.tracing.sessions import MAKING, STARTING_RAY, Session, WorkerTrace

STATES = ("load", "compute", "lost", "transfer", "wait")
"""`load` is from the order for a worker until it is ready, with its process and server;
`transfer` is reading and writing while nothing is computed; `lost` is work on batches that
were never answered; `wait` is having no batch."""
_LOAD, _COMPUTE, _WAIT = (STATES.index(name) for name in ("load", "compute", "wait"))
_BINS = 1000
_ALIKE = 0.05
"""Stages whose shares of a moment differ by less are equally busy."""
Shares = NDArray[np.float64]


class Grid:
    """`bins` equal stretches from `begin` to `end`, in microseconds of a session."""

    def __init__(self, begin: float, end: float, bins: int) -> None:
        self.begin, self.bins = begin, bins
        self.width = max(1.0, (end - begin) / bins)

    def share(self, times: Iterable[tuple[float, float, float]]) -> Shares:
        """Return how much of each bin `times` fill: (begin, end, amount) each.

        An amount is spread evenly over its time; what lies outside the grid is left out.
        """
        shares = np.zeros(self.bins)
        for begin, end, amount in times:
            low = (begin - self.begin) / self.width
            high = max((end - self.begin) / self.width, low + 1e-9)
            first, last = max(0, int(low)), min(self.bins - 1, int(high))
            if high <= 0 or first > last:
                continue
            edges = np.arange(first, last + 1)
            overlap = np.minimum(edges + 1, high) - np.maximum(edges, low)
            shares[first : last + 1] += amount / self.width / (high - low) * overlap.clip(0)
        return shares

    def activity(self, worker: WorkerTrace) -> Shares:
        """Return what a worker did, (STATES, bins): shares that add up to at most 1."""
        ready = worker.end if worker.ready is None else worker.ready
        load = self.share([(worker.begin, ready, ready - worker.begin)])
        left = self.share([(ready, worker.end, max(0, worker.end - ready))])
        rows = [load]
        for state in STATES[_COMPUTE:_WAIT]:
            own = (d for d in worker.did if d.name == state)
            share = self.share((d.begin, d.end, d.busy / worker.slots) for d in own)
            rows.append(np.minimum(share, left))
            left = left - rows[-1]
        return np.array([*rows, left])


@dataclass(frozen=True, slots=True, kw_only=True)
class StageUse:
    """One stage in one session; times are in seconds, summed over its workers.

    `workers` are the most at a time, `bound_s` the seconds of the run that it bounded.
    """

    workers: int
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
    joules: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What one session did, and waited for.

    `seconds` are those until the records were made and read back, `driver_s` those before
    and after the making. In `load_bound_s` nothing was done but loading, in `wait_bound_s`
    no worker had work and none was loading. `bounding` is the stage that bounds the run.
    Idle hours are those held and not computing; of GPUs where any worker held one.
    """

    seconds: float
    making_s: float
    start_ray_s: float
    driver_s: float
    load_bound_s: float
    wait_bound_s: float
    bounding: str | None
    hours_unit: str
    held_hours: float
    idle_hours: float
    load_hours: float
    stages: Mapping[str, StageUse]

    def as_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        content = asdict(self)
        for stage in content["stages"].values():
            stage |= {k: round(v, 3) for k, v in stage.items() if isinstance(v, float)}
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in content.items()}


def summarise(session: Session) -> TraceSummary:
    """Return the summary of one session."""
    begin, end = _making(session)
    grid = Grid(begin, end, _BINS)
    did = [(w, grid.activity(w)) for w in session.workers]
    stages = {w.stage: [own for own in did if own[0].stage == w.stage] for w, _ in did}
    bounds, loading, waiting = _bounds(stages)
    bin_s = grid.width / 1e6
    bounding = max(bounds, key=bounds.__getitem__, default=None)
    gpus = any(w.gpus for w in session.workers)
    hours = np.zeros(len(STATES))
    for worker, activity in did:
        weight = worker.gpus if gpus else float(not worker.remote)
        hours += weight * activity.sum(axis=1) * bin_s / 3600
    starting, making = session.phase_us(STARTING_RAY) / 1e6, (end - begin) / 1e6
    return TraceSummary(
        seconds=session.end / 1e6,
        making_s=making,
        start_ray_s=starting,
        driver_s=max(0.0, session.end / 1e6 - making - starting),
        load_bound_s=loading * bin_s,
        wait_bound_s=waiting * bin_s,
        bounding=bounding if bounding and bounds[bounding] > 0 else None,
        hours_unit="GPU" if gpus else "worker",
        held_hours=float(hours.sum()),
        idle_hours=float(hours.sum() - hours[_COMPUTE]),
        load_hours=float(hours[_LOAD]),
        stages={
            name: _use(own, bounds[name] * bin_s, bin_s) for name, own in stages.items()
        },
    )


def _making(session: Session) -> tuple[int, int]:
    """The first and the last moment in which workers were managed."""
    parts = [p for p in session.phases if p.name == MAKING]
    begins = [p.begin for p in parts] or [w.begin for w in session.workers]
    return min(begins, default=0), max((p.end for p in parts), default=session.end)


_Stages = Mapping[str, Sequence[tuple[WorkerTrace, Shares]]]


def _bounds(stages: _Stages) -> tuple[dict[str, float], float, float]:
    """Moments that each stage bounded, those of loading alone, and those of neither."""
    use, load = {}, np.zeros(_BINS)
    for name, own in stages.items():
        total = np.sum([activity for _, activity in own], axis=0)
        ready = total[_COMPUTE:].sum(axis=0)
        busy = np.divide(ready - total[_WAIT], ready, out=0 * ready, where=ready > 1e-9)
        # Workers that were there for a part of the moment count for that part.
        use[name] = busy * np.minimum(1.0, ready)
        load = np.maximum(load, np.max([activity[_LOAD] for _, activity in own], axis=0))
    bound, loading, waiting = dict.fromkeys(use, 0.0), 0.0, 0.0
    for i in range(_BINS):
        left = 1.0
        # Of equally busy stages, that which is busier in the whole run comes first.
        for name in sorted(use, key=lambda n: (-round(use[n][i] / _ALIKE), -use[n].sum())):
            taken = min(left, float(use[name][i]))
            bound[name] += taken
            left -= taken
        loading += min(left, float(load[i]))
        waiting += left - min(left, float(load[i]))
    return bound, loading, waiting


def _use(
    own: Sequence[tuple[WorkerTrace, Shares]], bound_s: float, bin_s: float
) -> StageUse:
    total = np.sum([activity for _, activity in own], axis=0)
    workers = [worker for worker, _ in own]
    joules = [w.joules for w in workers if w.joules is not None]
    seconds = {
        f"{s}_s": float(v) for s, v in zip(STATES, total.sum(axis=1) * bin_s, strict=True)
    }
    return StageUse(
        workers=max(1, round(float(total[_COMPUTE:].sum(axis=0).max()))),
        remote=workers[0].remote,
        batches=sum(w.batches for w in workers),
        records=sum(w.records for w in workers),
        held_s=sum(seconds.values()),
        **seconds,
        bound_s=bound_s,
        joules=sum(joules) if joules else None,
    )
