"""The run that a forecast is made of: the engine itself on a virtual clock.

Scheduler, allocation and workers' hosts are those of a run (`cluster.executors.simulated`).
Only the jobs stand for others: where there are many, each is counted for `scale` records
and takes as long as they do, so that a large plan takes no longer than a small one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.runs.forecast.work import StageWork
from cluster.executors.simulated import Speeds, World
from cluster.placement import Node, Resources
from cluster.plan import EngineOptions, Plan
from cluster.records import Item, RecordRow
from cluster.schedule import Scheduler
from cluster.store import Store
from cluster.watcher import StageProgress
from cluster.worker import Receipt, WorkerInfo
from generators.base import Job, OutcomeName, Skip, StageSpec, Walk
from generators.document import Request

_LEAST_JOBS = 400
"""A stage with no more records is simulated record by record."""
_JOBS_PER_WORKER = 24
"""More than the engine wants to wait for a worker before it starts another."""
_TICK = 0.001
"""Of the run: how closely idle workers are looked at."""
_COUNTED = RecordRow(OutcomeName.SKIPPED, None, "only counted", 0, (), "", 0)


@dataclass(frozen=True, slots=True)
class WorkerSpeed:
    """How fast one worker of a stage is."""

    seconds: float
    """For one record; 0 where it is not known."""
    load_s: float = 0.0
    """Until a new process is ready."""
    takeover_s: float | None = None
    """The same of a process that has hosted another stage; None for as long."""


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
    work: Sequence[StageWork], speeds: Mapping[str, WorkerSpeed], nodes: Sequence[Node]
) -> Simulated:
    """Let the stages run on `nodes`; `speeds` are by the stage's digest.

    Stages that fit on no node take no time.
    """
    placed = [w for w in work if _most_workers(w.spec, nodes)]
    chunks = _Chunks(placed, _scale(placed, nodes))
    world = World(
        nodes,
        _Rates(chunks=chunks, by_stage=speeds),
        make_worker=_CountingWorker,
        tick_s=max(1.0, _least_seconds(placed, speeds, nodes) * _TICK),
    )
    workers = Counter[str]()
    names = {w.spec.name: w.spec.digest for w in work}

    def watch(stages: Sequence[StageProgress]) -> None:
        workers.update(
            {names[s.name]: max(0, s.workers - workers[names[s.name]]) for s in stages}
        )

    with TemporaryDirectory() as nowhere, world.driver() as executor:
        store, options = Store(Path(nowhere)), EngineOptions(placement_timeout_s=math.inf)
        Scheduler(chunks.plan, store, options, executor, on_turn=watch).run()
        seconds = world.now
        world.pass_time(1.0)  # until the hosts have ended
    return Simulated(
        seconds=seconds,
        gpu_seconds=world.gpu_seconds,
        workers=workers,
        unplaced=[w.spec.name for w in work if w not in placed],
    )


def _least_seconds(
    work: Sequence[StageWork], speeds: Mapping[str, WorkerSpeed], nodes: Sequence[Node]
) -> float:
    """Return the time of the longest stage, with all nodes to itself."""
    return max(
        (
            w.jobs * _speed(speeds, w.spec).seconds / _most_workers(w.spec, nodes)
            for w in work
        ),
        default=0.0,
    )


def _speed(speeds: Mapping[str, WorkerSpeed], spec: StageSpec) -> WorkerSpeed:
    return speeds.get(spec.digest, WorkerSpeed(0.0))


def _scale(work: Sequence[StageWork], nodes: Sequence[Node]) -> float:
    """Return how many records a job stands for."""
    most = max((_most_workers(w.spec, nodes) for w in work), default=0)
    jobs = max((w.jobs for w in work), default=0.0)
    return max(1.0, jobs / max(_LEAST_JOBS, _JOBS_PER_WORKER * most))


def _most_workers(spec: StageSpec, nodes: Sequence[Node]) -> int:
    """Return how many workers of a stage fit on the nodes."""
    need = Resources.of_placement(spec.placement)
    return sum(_fitting(need, node.total) for node in nodes if need.fits(node.total))


def _fitting(need: Resources, total: Resources) -> int:
    pairs = ((total.gpus, need.gpus), (total.cpus, need.cpus), (total.memory, need.memory))
    return int(min((has / takes for has, takes in pairs if takes > 0), default=1.0))


class _Chunks:
    """The jobs that stand for the records of a plan, and what each waits for."""

    def __init__(self, work: Sequence[StageWork], scale: float) -> None:
        self._work = {w.spec.digest: w for w in work}
        self._specs = {w.spec.digest: _scaled(w.spec, scale) for w in work}
        self.count = {d: math.ceil(w.jobs / scale) for d, w in self._work.items()}

    @property
    def plan(self) -> Plan:
        """A walk for every job, those of all stages side by side."""
        most = max(self.count.values(), default=0)
        numbered = ((d, i) for i in range(most) for d, n in self.count.items() if i < n)
        return _ChunkPlan(
            systems=(),
            samples=(),
            scorers=(),
            prompt=lambda sample, variant: (),
            comparisons=[_Chunk(self, digest, i) for digest, i in numbered],
            specs=list(self._specs.values()),
            before={d: set(w.feeders) & self.count.keys() for d, w in self._work.items()},
        )

    def records(self, digest: str) -> float:
        """Return how many records one job of a stage stands for."""
        return self._work[digest].jobs / self.count[digest]

    def walk(self, digest: str, i: int, after: frozenset[str] = frozenset()) -> Walk[Any]:
        """Have job `i` of a stage done once the one that it follows from is."""
        feeder = self._feeder(digest, i)
        if feeder is not None and feeder[0] not in after:
            yield from self.walk(*feeder, after | {digest})
        yield [Job(self._specs[digest], Request((), seed=i), str(i))]
        return Skip("only counted")

    def _feeder(self, digest: str, i: int) -> tuple[str, int] | None:
        """Return the stage and job that job `i` of a stage waits for, if any."""
        work = self._work[digest]
        at = (i + 0.5) * self.records(digest) - work.known
        for flow in work.flows:
            if 0 <= at < flow.jobs and flow.feeder in self.count:
                return flow.feeder, int(at / flow.jobs * self.count[flow.feeder])
            at -= flow.jobs
        return None


def _scaled(spec: StageSpec, scale: float) -> StageSpec:
    size = max(1, round(spec.placement.batch_size / scale))
    return replace(spec, placement=replace(spec.placement, batch_size=size))


@dataclass(frozen=True)
class _Chunk:
    """One job as an item of a plan."""

    chunks: _Chunks
    digest: str
    number: int
    stages: tuple[StageSpec, ...] = ()
    rounds: int = 1

    def walk(self) -> Walk[Any]:
        return self.chunks.walk(self.digest, self.number)


@dataclass(frozen=True, kw_only=True)
class _ChunkPlan(Plan):
    """A plan whose stages and feeders are given."""

    specs: list[StageSpec]
    before: Mapping[str, set[str]]

    @property
    def stages(self) -> list[StageSpec]:
        return self.specs

    @property
    def feeders(self) -> Mapping[str, set[str]]:
        return self.before


@dataclass(frozen=True, kw_only=True)
class _Rates(Speeds):
    """How long the calls of workers take."""

    chunks: _Chunks
    by_stage: Mapping[str, WorkerSpeed]

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        speed = _speed(self.by_stage, spec)
        match method:
            case "load":
                return speed.load_s
            case "host":
                return speed.load_s if speed.takeover_s is None else speed.takeover_s
            case "run":
                seconds = records * self.chunks.records(spec.digest) * speed.seconds
                return seconds / spec.placement.concurrency
        return 0.0


class _CountingWorker:
    """A worker that computes nothing and stores nothing."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        self.spec: StageSpec = given[0]

    def describe(self, samples: Sequence[Any]) -> WorkerInfo:
        return WorkerInfo(token=None, sees_data=True)

    def ping(self) -> None:
        """Return once the process has ended."""

    close = ping

    def load(self, shared: bool) -> str | None:
        return None

    def host(self, spec: StageSpec) -> str | None:
        self.spec = spec
        return None

    def run(self, items: Sequence[Item]) -> Receipt:
        return Receipt("done", rows={item.key: _COUNTED for item in items})
