"""The run that a forecast is made of: the engine itself on a virtual clock.

Allocation, queues and workers' hosts are those of a run
(`plait.cluster.executors.simulated`). Only the jobs stand for others: where there are many,
each is counted for several records and takes as long as they do, so that a large plan takes
no longer than a small one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from plait.benchmarks.runs.forecast.rates import Sources, StageRates
from plait.cluster.counts import StageCount
from plait.cluster.engine import Engine
from plait.cluster.executors.base import Executor
from plait.cluster.executors.simulated import Speeds, World
from plait.cluster.outlook import Outlook
from plait.cluster.placement import Node, Resources
from plait.cluster.plan import EngineOptions, Plan
from plait.cluster.records import Item, RecordRow
from plait.cluster.stage_queue import FailedJobs, StageQueue
from plait.cluster.walks import Walker
from plait.cluster.worker import Receipt, WorkerInfo
from plait.generators.base import Job, Outcome, OutcomeName, Skip, StageSpec, Walk
from plait.generators.document import Request
from plait.generators.work import FigureRange, RangeEnd

_LEAST_JOBS = 400
"""A stage with no more records is simulated record by record."""
_JOBS_PER_WORKER = 24
"""More than the engine wants to wait for a worker before it starts another."""
_TICK = 0.001
"""Of the run: how closely idle workers are looked at."""
_COUNTED = RecordRow(OutcomeName.SKIPPED, None, "only counted", 0, (), "", 0)


@dataclass(frozen=True, kw_only=True, eq=False)
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
    work, feeders = [], plan.feeders
    for tally in counts:
        flows: dict[str, float] = {}
        bound = False
        for (system, feeder), jobs in tally.later_of.items():
            share = _share(plan, tally.spec, system, sources)
            bound = bound or share is None
            expected = jobs if share is None else jobs * share
            flows[feeder] = flows.get(feeder, 0.0) + expected
        work.append(
            StageWork(
                spec=tally.spec,
                known=float(tally.distinct - tally.done),
                flows=flows,
                feeders=frozenset(feeders.get(tally.spec.digest, ())),
                bound=bound,
            )
        )
    return tuple(w for w in work if w.jobs > 0)


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
    counts = {w.spec.digest: math.ceil(w.jobs / scale) for w in placed}
    records = {w.spec.digest: w.jobs / counts[w.spec.digest] for w in placed}
    speeds = _Rates(records=records, by_stage=rates, end=end)
    each = {w.spec.digest: w.jobs / fitting[w.spec.digest] for w in placed}
    longest_s = max((n * speeds.seconds(d) for d, n in each.items()), default=0.0)
    tick_s = max(1.0, _TICK * longest_s)
    world = World(nodes, speeds, make_worker=CountingWorker, tick_s=tick_s)
    # No directory of a user is looked at, whatever its name.
    with TemporaryDirectory() as nowhere, world.driver() as executor:
        engine = _CountingEngine(executor, Path(nowhere), placed, scale, counts)
        engine.run()
        seconds = world.now
        world.pass_time(1.0)  # until the hosts have ended
    return Simulated(
        seconds=seconds,
        gpu_seconds=world.gpu_seconds,
        workers=engine.workers,
        unplaced=[w.spec.name for w in work if w not in placed],
    )


def _most_workers(spec: StageSpec, nodes: Sequence[Node]) -> int:
    need = Resources.of_placement(spec.placement)
    return sum(_fitting(need, node.total) for node in nodes if need.fits(node.total))


def _fitting(need: Resources, total: Resources) -> int:
    pairs = ((total.gpus, need.gpus), (total.cpus, need.cpus), (total.memory, need.memory))
    return int(min((has / takes for has, takes in pairs if takes > 0), default=1.0))


class _CountingEngine(Engine):
    """Has jobs counted that stand for `scale` records, those of all stages side by side."""

    def __init__(
        self,
        executor: Executor,
        root: Path,
        work: Sequence[StageWork],
        scale: float,
        counts: Mapping[str, int],
    ) -> None:
        options = EngineOptions(placement_timeout_s=math.inf)
        super().__init__(executor, root, options)
        self._work = {w.spec.digest: w for w in work}
        self._specs = {w.spec.digest: _scaled(w.spec, scale) for w in work}
        self._counts = counts
        self._scale = scale
        feeders = {digest: w.feeders for digest, w in self._work.items()}
        self._outlook: Outlook = Outlook(feeders, sum(counts.values()))
        self._foreseen = list(self._specs.values())
        self._counted: set[str] = set()
        """Keys of the jobs that have ended."""
        self.workers = Counter[str]()
        """Most workers of each stage that were ready at a time."""

    def run(self) -> None:
        """Turn until all jobs are counted."""
        for number in range(max(self._counts.values(), default=0)):
            for digest in (d for d, count in self._counts.items() if number < count):
                self._outlook.open_walk()
                self._advance(Walker(self._walk(digest, number)))
        feeders = {digest: w.feeders for digest, w in self._work.items()}
        while self._waiting:
            self._note_growth(feeders)
            self._turn(0.1)
            ready = (r.queue.spec.digest for r in self._pool.replicas if r.state == "ready")
            self.workers |= Counter(ready)
        self._pool.kill_all()

    def _walk(
        self, digest: str, number: int, after: frozenset[str] = frozenset()
    ) -> Walk[Any]:
        """Have a job done once the one that it follows from is, if any."""
        work = self._work[digest]
        at = (number + 0.5) * work.jobs / self._counts[digest] - work.known
        for feeder, jobs in work.flows.items():
            if 0 <= at < jobs and feeder in self._work and feeder not in after:
                place = int(at / jobs * self._counts[feeder])
                yield from self._walk(feeder, place, after | {digest})
            at -= jobs
        yield [Job(self._specs[digest], Request((), seed=number), str(number))]
        return Skip("only counted")

    def _new_queue(self, spec: StageSpec) -> StageQueue:
        queue = StageQueue(spec, list(self._work).index(spec.digest), self._now)
        queue.stands_for = self._scale
        return queue

    def _lookup(self, job: Job) -> Outcome[Any] | None:
        return Skip("only counted") if job.key in self._counted else None

    def _keep(self, queue: StageQueue, receipt: Receipt) -> Iterable[str]:
        self._counted.update(receipt.rows)
        return receipt.rows

    def _keep_failures(self, queue: StageQueue, failed: FailedJobs) -> Iterable[str]:
        keys = [job.key for job, _ in failed]
        self._counted.update(keys)
        return keys

    def _ended(self, walker: Walker[Any], outcome: Outcome[Any]) -> None:
        """Nothing is to be done."""


def _scaled(spec: StageSpec, scale: float) -> StageSpec:
    size = max(1, round(spec.placement.batch_size / scale))
    # What stands for many records may take as long as they do.
    placement = replace(spec.placement, batch_size=size, batch_timeout_s=math.inf)
    return replace(spec, placement=placement)


@dataclass(frozen=True, kw_only=True)
class _Rates(Speeds):
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
