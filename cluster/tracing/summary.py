"""What a session waited for: the stage that bounds it, and idle hours.

The making of records is divided into moments. Each goes to the stage whose workers were
busiest, as far as they were busy; what they left, to the next busiest; what all left, to
loading where a model was being loaded; the rest is waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.cluster.tracing.journal import MAKING, STARTING_RAY
from plait.cluster.tracing.sessions import Session, WorkerTrace, read_sessions, trace_pieces
from plait.generators.buckets import AnyPath
from plait.generators.files import write_pieces

TRACE = "trace.json"
TRACE_ENTRY = "trace"
"""The manifest's entry with summaries of the last sessions."""
STATES = ("load", "compute", "lost", "transfer", "wait")
"""`load` is from the order for a worker until it is ready, with its process and server;
`transfer` is reading and writing while nothing is computed; `lost` is work on batches that
were never answered; `wait` is having no batch."""
_LOAD = STATES.index("load")
_COMPUTE = STATES.index("compute")
_WAIT = STATES.index("wait")
_BINS = 1000
"""Moments into which the making of records is divided."""
_ALIKE = 0.05
"""Stages whose shares of a moment differ by less are equally busy."""
_MOST_SUMMARIES = 20
"""Sessions that the manifest tells of: the last ones. The trace has them all."""
Shares = NDArray[np.float64]
"""By moment, or by state and moment, a part of each moment."""
_Activities = Sequence[tuple[WorkerTrace, Shares]]


def write_trace(root: AnyPath, notice: Callable[[str], None]) -> dict[str, Any]:
    """Write `trace.json`; return the manifest's entry, empty where a run has no trace.

    A run that has made its records is not failed by its trace: `notice` is called with the
    reason why there is none.
    """
    try:
        sessions = read_sessions(root)
        if not sessions:
            return {}
        summaries = deque[dict[str, Any]](maxlen=_MOST_SUMMARIES)

        def with_summaries() -> Iterator[Session]:
            for session in sessions:
                yield session
                summaries.append(summarise(session))

        pieces = trace_pieces(with_summaries(), len(sessions))
        write_pieces(root / TRACE, pieces, durable=False)
        return {TRACE_ENTRY: {"sessions": [*summaries]}}
    except Exception as error:
        notice(f"the trace of the run cannot be written: {type(error).__name__}: {error}")
        return {}


class Grid:
    """`bins` equal stretches from `begin` to `end`, in microseconds of a session."""

    def __init__(self, begin: float, end: float, bins: int) -> None:
        self.width = max(1.0, (end - begin) / bins)
        self._edges = begin + self.width * np.arange(bins + 1)

    def share(self, times: Iterable[tuple[float, float, float]]) -> Shares:
        """Return how much of each bin `times` fill: (begin, end, amount) each.

        An amount is spread evenly over its time; what lies outside the grid is left out.
        """
        # One of nothing, so that there is an array even of no times.
        begins, ends, amounts = np.array([*times, (0, 1, 0)], float).T
        ends = np.maximum(ends, begins + 1e-3)
        rates = amounts / (ends - begins)
        # The rate at which all together fill changes at each begin and end. Its integral is
        # the amount up to there; between the edges of a bin, what falls into the bin.
        moments = np.concatenate([begins, ends])
        order = np.argsort(moments, kind="stable")
        moments = moments[order]
        rate = np.cumsum(np.concatenate([rates, -rates])[order])
        total = np.cumsum([0.0, *rate[:-1] * np.diff(moments)])
        shares: Shares = np.diff(np.interp(self._edges, moments, total)) / self.width
        return shares

    def activity(self, worker: WorkerTrace) -> Shares:
        """Return what a worker did, (STATES, bins): shares that add up to at most 1."""
        ready = worker.end if worker.ready is None else worker.ready
        load = self.share([(worker.begin, ready, ready - worker.begin)])
        left = self.share([(ready, worker.end, max(0, worker.end - ready))])
        rows = [load]
        for state in STATES[_COMPUTE:_WAIT]:
            times: list[tuple[float, float, float]] = []
            for stretch in worker.did:
                if stretch.name == state:
                    busy = stretch.busy / worker.slots
                    times.append((stretch.begin, stretch.end, busy))
            # Earlier states come first: what is read while a batch computes is no transfer.
            share = np.clip(self.share(times), 0.0, left)
            rows.append(share)
            left = left - share
        return np.array([*rows, left])


def summarise(session: Session) -> dict[str, Any]:
    """Return what the manifest tells of a session; times are in seconds.

    `seconds` are those until the records were made and read back, `driver_s` those before
    and after the making. In `load_bound_s` nothing was done but loading, in `wait_bound_s`
    no worker had work and none was loading. `bounding` is the stage that bounds the run.
    Idle hours are those held and not computing; of GPUs where any worker held one.
    """
    begin, end = _making_of(session)
    grid = Grid(begin, end, _BINS)
    bin_s = grid.width / 1e6
    stages: dict[str, list[tuple[WorkerTrace, Shares]]] = {}
    gpus = any(worker.gpus for worker in session.workers)
    hours = np.zeros(len(STATES))
    for worker in session.workers:
        activity = grid.activity(worker)
        stages.setdefault(worker.stage, []).append((worker, activity))
        weight = worker.gpus if gpus else float(not worker.remote)
        hours += weight * activity.sum(axis=1) * bin_s / 3600
    bounds, loading, waiting = _bounds(stages)
    bounding = max(bounds, key=bounds.__getitem__, default=None)
    uses: dict[str, dict[str, Any]] = {}
    for name, own in stages.items():
        uses[name] = _use(own, bounds[name] * bin_s, bin_s)
    starting_us = sum(p.busy for p in session.phases if p.name == STARTING_RAY)
    seconds = session.end / 1e6
    making_s = (end - begin) / 1e6
    starting_s = starting_us / 1e6
    summary = {
        "seconds": seconds,
        "making_s": making_s,
        "start_ray_s": starting_s,
        "driver_s": max(0.0, seconds - making_s - starting_s),
        "load_bound_s": loading * bin_s,
        "wait_bound_s": waiting * bin_s,
        "bounding": bounding if bounding and bounds[bounding] > 0 else None,
        "hours_unit": "GPU" if gpus else "worker",
        "held_hours": float(hours.sum()),
        "idle_hours": float(hours.sum() - hours[_COMPUTE]),
        "load_hours": float(hours[_LOAD]),
        "stages": uses,
    }
    return _round(summary, 4)


def _making_of(session: Session) -> tuple[int, int]:
    """From when until when a session made records, in its microseconds.

    As the driver noted it, else from its first worker to its end.
    """
    making = [phase for phase in session.phases if phase.name == MAKING]
    if making:
        return min(p.begin for p in making), max(p.end for p in making)
    return min((w.begin for w in session.workers), default=0), session.end


def _round(values: dict[str, Any], digits: int) -> dict[str, Any]:
    """The same with all fractions rounded."""
    rounded = dict(values)
    for name, value in values.items():
        if isinstance(value, float):
            rounded[name] = round(value, digits)
    return rounded


def _bounds(
    stages: Mapping[str, _Activities],
) -> tuple[dict[str, float], float, float]:
    """Moments that each stage bounded, those of loading alone, and those of neither."""
    # By stage, how busy its workers were in each moment, from 0 to 1.
    use = np.zeros((len(stages), _BINS))
    # Whether any worker was loading, from 0 to 1.
    load = np.zeros(_BINS)
    for i, own in enumerate(stages.values()):
        activities = np.array([activity for _, activity in own])
        total = activities.sum(axis=0)
        ready = total[_COMPUTE:].sum(axis=0)
        busy = np.divide(ready - total[_WAIT], ready, out=0 * ready, where=ready > 1e-9)
        # Workers that were there for a part of the moment count for that part.
        use[i] = busy * np.minimum(1.0, ready)
        load = np.maximum(load, activities[:, _LOAD].max(axis=0))
    # Of equally busy stages, that which is busier in the whole run comes first.
    busier = np.broadcast_to(-use.sum(axis=1, keepdims=True), use.shape)
    left = np.ones(_BINS)
    bound = np.zeros(len(stages))
    # Rows of the order: the busiest stage of each moment, the next busiest, and so on.
    for stage_of_moment in np.lexsort((busier, -np.round(use / _ALIKE)), axis=0):
        taken = np.minimum(left, use[stage_of_moment, np.arange(_BINS)])
        np.add.at(bound, stage_of_moment, taken)
        left -= taken
    loading = float(np.minimum(left, load).sum())
    waiting = float(left.sum()) - loading
    return dict(zip(stages, bound.tolist(), strict=True)), loading, waiting


def _use(own: _Activities, bound_s: float, bin_s: float) -> dict[str, Any]:
    """Return what the workers of a stage did; `workers` are the most at a time."""
    total = np.sum([activity for _, activity in own], axis=0)
    batches = 0
    records = 0
    joules: float | None = None
    for worker, _ in own:
        batches += worker.batches
        records += worker.records
        if worker.joules is not None:
            joules = worker.joules + (joules or 0)
    most_at_once = float(total[_COMPUTE:].sum(axis=0).max())
    seconds = (total.sum(axis=1) * bin_s).tolist()
    use = {
        "workers": max(1, round(most_at_once)),
        "remote": own[0][0].remote,
        "batches": batches,
        "records": records,
        "held_s": sum(seconds),
    }
    for state, state_s in zip(STATES, seconds, strict=True):
        use[f"{state}_s"] = state_s
    use |= {"bound_s": bound_s, "joules": joules}
    return _round(use, 3)
