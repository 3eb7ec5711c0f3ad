"""The run that a forecast is made of: the engine itself on a virtual clock.

Scheduler, allocation and workers' hosts are those of a run (`cluster.executors.simulated`).
Only the jobs stand for others: where there are many, each is counted for several records
and takes as long as they do, so that a large plan takes no longer than a small one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.runs.forecast.rates import Sources, StageRates
from cluster.counts import StageCount
from cluster.executors.simulated import Speeds, World
from cluster.placement import Node, Resources
from cluster.plan import EngineOptions, Plan
from cluster.records import Item, RecordRow
from cluster.schedule import Scheduler
from cluster.store import Store
from cluster.watcher import RunProgress
from cluster.worker import Receipt, WorkerInfo
from generators.base import Job, OutcomeName, Skip, StageSpec, Walk
from generators.document import Request
from generators.work import FigureRange, RangeEnd

_LEAST_JOBS = 400
"""A stage with no more records is simulated record by record."""
_JOBS_PER_WORKER = 24
"""More than the engine wants to wait for a worker before it starts another."""
_TICK = 0.001
"""Of the run: how closely idle workers are looked at."""
_COUNTED = RecordRow(OutcomeName.SKIPPED, None, "only counted", 0, (), "", 0)


# -------------------------------------------------------------------------------- work


@dataclass(frozen=True, kw_only=True)
class StageWork:
    """What one stage has left to do."""

    spec: StageSpec
    known: float
    """Jobs that can start at once."""
    flows: Mapping[str, float] = field(default_factory=dict)
    """Jobs that appear while another stage works, evenly over its jobs, by its digest."""
    feeders: frozenset[str] = frozenset()
    """Digests of the stages that may give it more work."""
    bound: bool = False
    """Whether `flows` are upper bounds, since no run tells how many there will be."""

    @property
    def jobs(self) -> float:
        """All of them."""
        return self.known + sum(self.flows.values())


def work_of(
    plan: Plan, counts: Sequence[StageCount], sources: Sources
) -> tuple[StageWork, ...]:
    """Return the work of every stage that has some, as far as runs before tell it."""
    feeders = plan.feeders
    work = (
        _work(plan, tally, sources, feeders.get(tally.spec.digest, ())) for tally in counts
    )
    return tuple(w for w in work if w.jobs > 0)


def _work(
    plan: Plan, tally: StageCount, sources: Sources, feeders: Iterable[str]
) -> StageWork:
    flows: dict[str, float] = {}
    bound = False
    for (system, feeder), jobs in tally.later_of.items():
        share = _share(plan, tally.spec, system, sources)
        bound = bound or share is None
        flows[feeder] = flows.get(feeder, 0.0) + jobs * (1.0 if share is None else share)
    return StageWork(
        spec=tally.spec,
        known=float(tally.distinct - tally.done),
        flows=flows,
        feeders=frozenset(feeders),
        bound=bound,
    )


def _share(plan: Plan, spec: StageSpec, system: str, sources: Sources) -> float | None:
    """Return which part of an upper bound is to be expected; None where no run tells."""
    digest = spec.digest
    if system and any(digest == s.digest for y in plan.systems for s in y.stages[1:]):
        own = next(s for s in plan.systems if s.name == system)
        images = sources.images(system)
        # Nor does a run's table tell how often a critic has an image drawn again.
        if images is None or own.review is not None:
            return None
        return min(1.0, images / (own.rounds * max(own.max_images, 1)))
    asked = sum(r.rounds for r in plan.scorers for s in r.stages if s.digest == digest)
    if system and asked:
        judged = sources.judged(spec)
        return None if judged is None else min(1.0, judged / asked)
    return 1.0


# -------------------------------------------------------------------------- simulation


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The result of a simulated run."""

    seconds: float
    gpu_seconds: float
    """Seconds for which workers held GPUs, loading and idling included."""
    workers: Mapping[str, int]
    """Most workers of a stage at a time, by its digest."""
    unplaced: Sequence[str] = ()
    """Names of stages of which no worker fits on any node."""


def simulate(
    work: Sequence[StageWork],
    rates: Mapping[str, StageRates],
    nodes: Sequence[Node],
    end: RangeEnd = "mean",
) -> Simulated:
    """Let the stages run on `nodes`; `rates` are by the stage's digest, each at one `end`.

    Stages that fit on no node take no time, nor does what is not known of others.
    """
    fitting = {w.spec.digest: _most_workers(w.spec, nodes) for w in work}
    placed = [w for w in work if fitting[w.spec.digest]]
    jobs = max((w.jobs for w in placed), default=0.0)
    most = max(fitting.values(), default=0)
    scale = max(1.0, jobs / max(_LEAST_JOBS, _JOBS_PER_WORKER * most))
    plan = _CountedPlan.of(placed, scale)
    speeds = _Rates(records=plan.records, by_stage=rates, end=end)
    world = World(
        nodes,
        speeds,
        make_worker=CountingWorker,
        tick_s=max(1.0, _TICK * _least_seconds(placed, speeds, fitting)),
    )
    workers = Counter[str]()
    names = {w.spec.name: w.spec.digest for w in work}

    def watch(progress: RunProgress) -> None:
        nonlocal workers
        workers |= Counter({names[s.name]: s.workers for s in progress.stages})

    with TemporaryDirectory() as nowhere, world.driver() as executor:
        store, options = Store(Path(nowhere)), EngineOptions(placement_timeout_s=math.inf)
        Scheduler(plan, store, options, executor, on_turn=watch).run()
        seconds = world.now
        world.pass_time(1.0)  # until the hosts have ended
    return Simulated(
        seconds=seconds,
        gpu_seconds=world.gpu_seconds,
        workers=workers,
        unplaced=[w.spec.name for w in work if w not in placed],
    )


def _least_seconds(
    work: Iterable[StageWork], speeds: _Rates, fitting: Mapping[str, int]
) -> float:
    """Return the time of the longest stage, with all nodes to itself."""
    each = ((w, w.spec.digest) for w in work)
    return max((w.jobs * speeds.seconds(d) / fitting[d] for w, d in each), default=0.0)


def _most_workers(spec: StageSpec, nodes: Sequence[Node]) -> int:
    """Return how many workers of a stage fit on the nodes."""
    need = Resources.of_placement(spec.placement)
    return sum(_fitting(need, node.total) for node in nodes if need.fits(node.total))


def _fitting(need: Resources, total: Resources) -> int:
    pairs = ((total.gpus, need.gpus), (total.cpus, need.cpus), (total.memory, need.memory))
    return int(min((has / takes for has, takes in pairs if takes > 0), default=1.0))


@dataclass(frozen=True, kw_only=True)
class _CountedPlan(Plan):
    """Jobs that stand for the records of stages, those of all stages side by side."""

    work: Mapping[str, StageWork]
    scaled: Mapping[str, StageSpec]
    jobs: Mapping[str, int]
    records: Mapping[str, float]
    """For how many one job of a stage stands."""

    @classmethod
    def of(cls, work: Iterable[StageWork], scale: float) -> _CountedPlan:
        """Let a job stand for `scale` records."""
        by_stage = {w.spec.digest: w for w in work}
        jobs = {d: math.ceil(w.jobs / scale) for d, w in by_stage.items()}
        plan = cls(
            systems=(),
            samples=(),
            scorers=(),
            prompt=lambda sample, variant: (),
            work=by_stage,
            scaled={d: _scaled(w.spec, scale) for d, w in by_stage.items()},
            jobs=jobs,
            records={d: w.jobs / jobs[d] for d, w in by_stage.items()},
        )
        most = max(jobs.values(), default=0)
        numbered = ((d, i) for i in range(most) for d, n in jobs.items() if i < n)
        return replace(plan, comparisons=[_CountedJob(plan, d, i) for d, i in numbered])

    @property
    def stages(self) -> list[StageSpec]:
        return list(self.scaled.values())

    @property
    def feeders(self) -> Mapping[str, set[str]]:
        return {d: set(w.feeders) & self.work.keys() for d, w in self.work.items()}


def _scaled(spec: StageSpec, scale: float) -> StageSpec:
    size = max(1, round(spec.placement.batch_size / scale))
    # What stands for many records may take as long as they do.
    placement = replace(spec.placement, batch_size=size, batch_timeout_s=math.inf)
    return replace(spec, placement=placement)


@dataclass(frozen=True)
class _CountedJob:
    """One job as an item of a plan."""

    plan: _CountedPlan
    digest: str
    number: int
    stages: tuple[StageSpec, ...] = ()
    rounds: int = 1

    def walk(self, after: frozenset[str] = frozenset()) -> Walk[Any]:
        """Have the job done once the one that it follows from is."""
        for feeder in self._feeder():
            if feeder.digest not in after:
                yield from feeder.walk(after | {self.digest})
        spec = self.plan.scaled[self.digest]
        yield [Job(spec, Request((), seed=self.number), str(self.number))]
        return Skip("only counted")

    def _feeder(self) -> Iterator[_CountedJob]:
        """Yield the job of another stage that this one waits for, if any."""
        plan, work = self.plan, self.plan.work[self.digest]
        at = (self.number + 0.5) * plan.records[self.digest] - work.known
        for feeder, jobs in work.flows.items():
            if 0 <= at < jobs and feeder in plan.jobs:
                yield _CountedJob(plan, feeder, int(at / jobs * plan.jobs[feeder]))
            at -= jobs


@dataclass(frozen=True, kw_only=True)
class _Rates(Speeds):
    """How long the calls of workers take."""

    records: Mapping[str, float]
    by_stage: Mapping[str, StageRates]
    end: RangeEnd

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        rates = self.by_stage.get(spec.digest, StageRates())
        match method:
            case "load":
                return self._at(rates.load_s)
            case "host":
                return self._at(rates.takeover_s or rates.load_s)
            case "run":
                seconds = self.seconds(spec.digest) / spec.placement.concurrency
                return records * self.records[spec.digest] * seconds
        return 0.0

    def seconds(self, digest: str) -> float:
        """Return the seconds of one worker for one record."""
        return self._at(self.by_stage.get(digest, StageRates()).seconds)

    def _at(self, span: FigureRange | None) -> float:
        return span.at(self.end) if span else 0.0


class CountingWorker:
    """A worker that computes nothing and stores nothing."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        self.spec: StageSpec = given[0]

    def describe(self, samples: Sequence[Any]) -> WorkerInfo:
        """Share nothing with the driver."""
        return WorkerInfo(token=None, sees_data=True)

    def ping(self) -> None:
        """Return once the process has ended."""

    close = ping

    def load(self, shared: bool) -> str | None:
        """Load nothing."""
        return None

    def host(self, spec: StageSpec) -> str | None:
        """Turn to another stage."""
        self.spec = spec
        return None

    def run(self, items: Sequence[Item]) -> Receipt:
        """Count a batch."""
        return Receipt("done", rows={item.key: _COUNTED for item in items})
