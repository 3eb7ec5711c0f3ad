"""What the allocator takes for true before it was measured, and what follows for stages.

Measured times replace what is computed from the sizes of models, and correct it for the
stages that were not measured yet.

`Estimates.workers_for` answers what the allocator (`allocation.py`) asks: how many workers
of each stage let the run end soonest, on so many GPUs. It tries an end of the run, counts
from the last stage to the first how many workers each needs to be done by then, and halves
the interval between an end that is too early and one that can be kept.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from plait.cluster.outlook import Ahead
from plait.cluster.replica import Replica
from plait.cluster.stage_queue import StageQueue
from plait.generators.base import StageSpec

_PROCESS_S = 15.0
"""Until a process has imported its libraries,"""
_LOADED_BYTES_PER_S = 1e9
"""and how fast it then loads weights."""
_FLOPS = 1.7e14
_READ_BYTES_PER_S = 0.9e12
"""What is reached between A100 and H100, see `plait.benchmarks.runs.forecast.prior`: the
proportions of the stages matter here, and the first batches tell the rest."""
_LEAD = 0.3
"""Part of the time of a stage by whose end what feeds it should have ended."""
_EARLY_S = 15.0
"""How long before their first job workers are ready."""
_PRECISION = 0.01
_LEAST_S = 1.0
"""To which the end of a run is computed."""
_LEAST_FACTOR = 0.1
_MOST_FACTOR = 10.0
"""Between these lies what expected times are multiplied by."""


def estimate_load_s(spec: StageSpec) -> float | None:
    """Return seconds until a new worker is ready; None where the weights are not known."""
    if spec.work is None or not spec.work.weight_bytes:
        return None
    return _PROCESS_S + spec.work.weight_bytes / _LOADED_BYTES_PER_S


def estimate_record_s(spec: StageSpec) -> float | None:
    """Return seconds of one worker for a record; None where its work is not known."""
    work = spec.work
    placed = spec.placement
    if work is None or placed.remote or not placed.num_gpus:
        return None
    # Each step of a batch reads all weights once, for all its records together.
    at_once = placed.batch_size * placed.concurrency
    read_bytes = work.weight_bytes / at_once + work.cache_bytes
    # It takes as long as reading or computing, whichever takes longer.
    step_s = max(read_bytes / _READ_BYTES_PER_S, work.step_flops / _FLOPS)
    seconds = work.flops.mean / _FLOPS + work.steps.mean * step_s
    return seconds / min(1.0, placed.num_gpus) or None


class Estimates:
    """Times of the stages of a run, as far as is known at one moment."""

    def __init__(
        self,
        queues: Iterable[StageQueue],
        workers: Callable[[StageQueue], Sequence[Replica]],
        ahead: Ahead,
        now: float,
    ) -> None:
        """`workers` gives those of a stage."""
        self._queues = sorted(queues, key=lambda q: q.rank)
        self._workers = workers
        self._now = now
        self._load_factor = _factor(
            (q.load_s, estimate_load_s(q.spec)) for q in self._queues
        )
        self._record_factors: dict[str, float] = {}
        for target, alike in _by_target(self._queues).items():
            times = ((q.record_s, _record_s(q)) for q in alike)
            self._record_factors[target] = _factor(times)
        self.overdue: set[StageQueue] = set()
        """Stages whose first batch takes longer than was expected."""
        self.end_s = math.inf
        """In how many seconds the run ends; infinite where stages take turns."""
        self.load_s = {q: self._load_time(q) for q in self._queues}
        """Seconds until a new worker of a stage is ready; None where nothing tells."""
        self.record_s = {q: self._record_time(q) for q in self._queues}
        """Seconds of one worker for one record; None where nothing tells."""
        self._ahead = ahead

    def _load_time(self, queue: StageQueue) -> float | None:
        if queue.load_s is not None:
            return queue.load_s
        expected = estimate_load_s(queue.spec)
        return None if expected is None else expected * self._load_factor

    def _record_time(self, queue: StageQueue) -> float | None:
        if queue.record_s is not None:
            return queue.record_s
        expected = _record_s(queue)
        if expected is None:
            return None
        expected *= self._record_factors[queue.spec.target]
        # As long as a batch that is not answered yet has been under way already.
        lasting_s = 0.0
        for worker in self._workers(queue):
            if worker.in_flight:
                lasting_s = max(lasting_s, self._now - worker.last_heard)
        # A first batch takes as long again as it has lasted, for all that is known.
        at_least = 2 * lasting_s / queue.limit
        if at_least > expected:
            self.overdue.add(queue)
        return max(expected, at_least)

    def work_s(self, queue: StageQueue) -> float | None:
        """Return seconds of one worker for what waits and what will come."""
        record_s = self.record_s[queue]
        if record_s is None:
            return None
        return record_s * (queue.pending + (queue.expected or 0.0))

    def is_last_call(self, queue: StageQueue) -> bool:
        """Whether one worker that is started now would be done by the end of the run."""
        work_s = self.work_s(queue)
        load_s = self.load_s[queue]
        return (work_s or 0.0) + (load_s or 0.0) + _EARLY_S >= self.end_s

    def workers_for(self, gpus: float) -> dict[StageQueue, int] | None:
        """Return how many workers let all stages on GPUs end soonest, of so many GPUs.

        It holds those of which the times are known; no more than they have where their
        jobs do not come soon. None where there is no room for one of each: stages take
        turns then.
        """
        chains = _Chains(self, [q for q in self._queues if self._is_timed(q)])
        too_early_s = 0.0
        end_s = chains.latest_end_s()
        wanted = chains.workers_until(end_s, gpus)
        if wanted is None:
            return None
        while end_s - too_early_s > max(_PRECISION * end_s, _LEAST_S):
            middle_s = (too_early_s + end_s) / 2
            workers = chains.workers_until(middle_s, gpus)
            if workers is None:
                too_early_s = middle_s
            else:
                wanted = workers
                end_s = middle_s
        self.end_s = end_s
        for stage in chains.stages:
            if not stage.is_due:
                wanted[stage.queue] = min(wanted[stage.queue], stage.workers)
        return wanted

    def _is_timed(self, queue: StageQueue) -> bool:
        known = self.record_s[queue] is not None and self.load_s[queue] is not None
        return known and queue.need.gpus > 0 and not queue.spec.placement.remote

    def count_ready(self, queue: StageQueue) -> Counter[int]:
        """Return how many workers of a stage are ready in how many seconds, to a second."""
        load_s = self.load_s[queue] or 0.0
        ready = Counter[int]()
        for worker in self._workers(queue):
            left_s = 0.0
            if worker.state != "ready":
                left_s = max(0.0, worker.ordered + load_s - self._now)
            ready[round(left_s)] += 1
        return ready

    def feeders(self, queue: StageQueue) -> Collection[str]:
        """Return the digests of the stages from which jobs of a stage will come."""
        return self._ahead.sources.get(queue.spec.digest, ())


@dataclass(kw_only=True)
class _Stage:
    """What is known of a stage that is planned for."""

    queue: StageQueue
    work_s: float
    load_s: float
    batch_s: float
    ready: list[tuple[int, int]]
    """In how many seconds how many of its workers are ready, in order."""
    most: int
    """More workers would take longer to load than they would work."""
    starts_s: float = 0.0
    """In how many seconds its first job comes."""
    feeders: list[_Stage] = field(default_factory=list)

    @property
    def workers(self) -> int:
        """How many it has."""
        return sum(number for _, number in self.ready)

    @property
    def first_answer_s(self) -> float:
        """In how many seconds it has made its first records."""
        ready_s = self.ready[0][0] if self.ready else self.load_s
        return max(self.starts_s, ready_s) + self.batch_s

    @property
    def is_due(self) -> bool:
        """Whether its first job comes as soon as a new worker would be ready."""
        return self.starts_s <= self.load_s + _EARLY_S

    @property
    def gpus(self) -> float:
        """GPUs of one worker."""
        return self.queue.need.gpus

    def workers_until(self, end_s: float) -> int | None:
        """Return how many workers end by then; None where no number may do so."""
        if self.work_s <= 0.0:
            return 0
        left_s = self.work_s
        workers = 0
        # Those that are there work first, the one that is ready soonest before the others.
        new_ones = (self.load_s, max(0, self.most - self.workers))
        for ready_s, number in [*self.ready, new_ones]:
            each_s = self._time_until(end_s, ready_s)
            if left_s <= each_s * number:
                return workers + math.ceil(left_s / each_s)
            left_s -= each_s * number
            workers += number
        return None

    def _time_until(self, end_s: float, ready_s: float) -> float:
        """Return for how long a worker computes, in halves of a batch."""
        seconds = max(0.0, end_s - max(self.starts_s, ready_s))
        half_s = self.batch_s / 2
        return half_s * (seconds // half_s) if half_s > 0 else seconds


class _Chains:
    """Stages and what they feed."""

    def __init__(self, estimates: Estimates, queues: Sequence[StageQueue]) -> None:
        """`queues` are in the order of the chains: what feeds a stage comes before it."""
        by_digest: dict[str, _Stage] = {}
        for queue in queues:
            stage = _stage_of(estimates, queue)
            for digest in estimates.feeders(queue):
                if digest in by_digest:
                    stage.feeders.append(by_digest[digest])
            has_work = queue.pending or queue.out
            if stage.feeders and not has_work:
                stage.starts_s = min(f.first_answer_s for f in stage.feeders)
            by_digest[queue.spec.digest] = stage
        self.stages = list(by_digest.values())

    def latest_end_s(self) -> float:
        """Return when all ended if one worker of each stage worked after the other."""
        return 2 * sum(s.work_s + s.load_s + s.batch_s for s in self.stages) + _LEAST_S

    def workers_until(self, end_s: float, gpus: float) -> dict[StageQueue, int] | None:
        """Return the least workers with which all stages end by then, on so many GPUs."""
        ends = {stage.queue: end_s for stage in self.stages}
        wanted: dict[StageQueue, int] = {}
        for stage in reversed(self.stages):  # what is fed sets the end of what feeds it
            end = ends[stage.queue]
            workers = stage.workers_until(end)
            if workers is None:
                return None
            wanted[stage.queue] = workers
            gpus -= workers * stage.gpus
            if gpus < 0:
                return None
            for feeder in stage.feeders:
                before_s = stage.batch_s + _lead_s(feeder, stage, workers)
                ends[feeder.queue] = min(ends[feeder.queue], end - before_s)
        return wanted


def _stage_of(estimates: Estimates, queue: StageQueue) -> _Stage:
    record_s = estimates.record_s[queue] or 0.0
    load_s = estimates.load_s[queue] or 0.0
    waiting_s = estimates.work_s(queue) or 0.0
    # What is in flight is half done, on average.
    in_flight_s = record_s * queue.out * queue.limit / 2
    return _Stage(
        queue=queue,
        work_s=waiting_s + in_flight_s,
        load_s=load_s,
        batch_s=record_s * queue.limit,
        ready=sorted(estimates.count_ready(queue).items()),
        most=_most_workers(queue, waiting_s, load_s),
    )


def _most_workers(queue: StageQueue, work_s: float, load_s: float) -> int:
    """Return how many workers are of use: each has as much to do as it takes to load."""
    by_work = work_s / load_s if load_s > 0 else math.inf
    at_once = queue.limit * queue.spec.placement.concurrency
    by_jobs = (queue.pending + (queue.expected or 0.0)) / at_once
    most = max(1, math.ceil(min(by_work, by_jobs)))
    if queue.asked_workers is not None:
        most = min(most, queue.asked_workers)
    if queue.max_workers is not None:
        most = min(most, queue.max_workers)
    return most


def _lead_s(feeder: _Stage, fed: _Stage, workers: int) -> float:
    """Return how long before the end of the stage that it feeds a stage should end.

    Cheap stages work ahead of dear ones, so that these never wait for jobs.
    """
    own = feeder.work_s * feeder.gpus
    of_fed = fed.work_s * fed.gpus
    if own >= of_fed:
        return 0.0
    return _LEAD * (1 - own / of_fed) * fed.work_s / max(1, workers)


def _by_target(queues: Iterable[StageQueue]) -> dict[str, list[StageQueue]]:
    """Return the stages that run the same code."""
    alike: dict[str, list[StageQueue]] = defaultdict(list)
    for queue in queues:
        alike[queue.spec.target].append(queue)
    return alike


def _record_s(queue: StageQueue) -> float | None:
    """Return `estimate_record_s` for one job of a queue."""
    seconds = estimate_record_s(queue.spec)
    return None if seconds is None else seconds * queue.stands_for


def _factor(pairs: Iterable[tuple[float | None, float | None]]) -> float:
    """Return by what expected times are to be multiplied: as those that were measured."""
    logs: list[float] = []
    for measured, expected in pairs:
        if measured and expected:
            logs.append(math.log(measured / expected))
    if not logs:
        return 1.0
    # The geometric mean: twice as long and half as long even each other out.
    factor = math.exp(math.fsum(logs) / len(logs))
    return min(max(factor, _LEAST_FACTOR), _MOST_FACTOR)
