"""The run that a forecast is made of: the engine itself on a virtual clock.

    work = work_of(plan, counts, sources)     # what each stage has left, as is expected
    simulate(work, rates, nodes).seconds      # how long that takes at these rates

Allocation, queues and workers' hosts are those of a run
(`plait.cluster.executors.simulated`). Only the jobs stand for others: where there are many,
each is counted for several records and takes as long as they do, so that a large plan takes
no longer than a small one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from plait.benchmarks.runs.forecast.rates import Sources, StageRates
from plait.cluster.counts import StageCount
from plait.cluster.engine import Engine, Known
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
from plait.generators.document import Query, Request
from plait.generators.system import Role, System
from plait.generators.work import FigureRange, RangeEnd
from plait.scorers.base import Scorer

_LEAST_JOBS = 400
"""A stage with no more records is simulated record by record."""
_JOBS_PER_WORKER = 24
"""More than the engine wants to wait for a worker before it starts another."""
_MOST_QUERIES = 1000
"""Queries that expected numbers are means over."""
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
    grounds: Sequence[str] = ()
    """What the numbers in `flows` rest on, where no run tells how many there will be."""

    @property
    def jobs(self) -> float:
        """All of them."""
        return self.known + sum(self.flows.values())


def work_of(
    plan: Plan, counts: Sequence[StageCount], sources: Sources
) -> tuple[StageWork, ...]:
    """Return the work of every stage that has some, as many records as are expected.

    Runs before tell how many images and judgements an answer has; else the protocol, the
    references and what the scorers can score (`Share`).
    """
    expected = _Expected(plan, sources)
    feeders = plan.feeders
    work = []
    for tally in counts:
        flows = defaultdict[str, float](float)
        # Each once, in their order.
        grounds: dict[str, None] = {}
        for (system, feeder), jobs in tally.later_of.items():
            share = expected.share(tally.spec, system)
            flows[feeder] += jobs * share.part
            if share.ground:
                grounds[share.ground] = None
        of_stage = StageWork(
            spec=tally.spec,
            known=float(tally.distinct - tally.done),
            flows=flows,
            feeders=frozenset(feeders.get(tally.spec.digest, ())),
            grounds=tuple(grounds),
        )
        if of_stage.jobs > 0:
            work.append(of_stage)
    return tuple(work)


class Share(NamedTuple):
    """The part of an upper bound of jobs that is expected."""

    part: float
    ground: str = ""
    """Why, where no run tells and not all are certain."""


_ALL = Share(1.0)


@dataclass(frozen=True, eq=False)
class _Expected:
    """Tells how many of the jobs that follow others are expected.

    A plan knows upper bounds alone: as many images as an answer may hold, every image drawn
    again as often as is allowed, every answer judged.
    """

    plan: Plan
    sources: Sources
    _images: dict[str, Share] = field(default_factory=dict)
    """By system."""

    @cached_property
    def queries(self) -> Sequence[Query]:
        """So many that means are near those of all, the same ones each time."""
        number = len(self.plan.queries)
        places = Random(0).sample(range(number), min(number, _MOST_QUERIES))
        queries = []
        for place in sorted(places):
            query = self.plan.queries[place]
            if isinstance(query, Query):
                queries.append(query)
        return queries

    def share(self, spec: StageSpec, system: str) -> Share:
        """Return the share of a stage's jobs that follow drafts of `system`."""
        systems = {own.name: own for own in self.plan.systems}
        own = systems.get(system)
        if own is None:
            return _ALL
        if own.limits.drafts > 1 and _has_role(own, "draft", spec):
            return self._share_of_attempts(own)
        if self._draws(spec):
            if system not in self._images:
                self._images[system] = self._share_of_images(own)
            drawn = self._images[system]
            if _has_role(own, "critic", spec):
                return drawn._replace(part=drawn.part * _looks_of_a_drawing(own))
            return drawn
        judges = []
        for scorer in self.plan.scorers:
            if spec.digest in _digests(scorer.stages):
                judges.append(scorer)
        return self._share_of_scores(spec, own, judges) if judges else _ALL

    def _draws(self, spec: StageSpec) -> bool:
        """Return whether a stage works on images: it follows a system's first stage."""
        for system in self.plan.systems:
            if spec.digest in _digests(system.stages[1:]):
                return True
        return False

    def _share_of_images(self, system: System) -> Share:
        """Return the share of the images that answers may hold."""
        tries = system.limits.tries
        # Of each image the first try and half of the others, as a part of all tries.
        redrawn = (1 + tries) / (2 * tries)
        again = f", and half of the {tries - 1} redraws" if tries > 1 else ""
        measured = self.sources.images(system.name)
        if measured is not None:
            most = max(system.limits.images_of_reply, system.limits.rounds)
            ground = f"images of earlier runs{again}" if again else ""
            return Share(min(1.0, measured / most) * redrawn, ground)
        asking = [query for query in self.queries if query.wants_images]
        most = sum(system.most_images(query) for query in self.queries)
        images = sum(system.expected_images(query) for query in asking)
        if not most:
            return _ALL
        ground = _ground_of_images(system, asking)
        return Share(images / most * redrawn, f"{ground}{again}")

    def _share_of_attempts(self, system: System) -> Share:
        """Return the share of the plans that may be asked for after an answer's first."""
        answers = len(self.queries)
        turns = sum(len(query.openings) for query in self.queries)
        most = turns * system.limits.drafts - answers
        return Share((turns - answers) / most, _FIRST_PLAN) if most else _ALL

    def _share_of_scores(
        self, spec: StageSpec, system: System, scorers: Sequence[Scorer]
    ) -> Share:
        """Return the share of a judging stage's jobs."""
        measured = self.sources.records_per_document(spec)
        if measured is not None:
            return Share(min(1.0, measured / sum(scorer.rounds for scorer in scorers)))
        expected = 0
        most = 0
        for query in self.queries:
            form = system.answer_form(query)
            images = system.expected_images(query)
            allowed = self.plan.most_images(query)
            for scorer in scorers:
                most += scorer.rounds * scorer.jobs(query, allowed)
                if form is not None and scorer.refusal(query, form) is None:
                    # One round: no reply is expected to be asked for again.
                    expected += scorer.jobs(query, images)
        return Share(expected / most, _JUDGED) if most else _ALL


_JUDGED = "each answer that can be scored, once, with the images expected of it"
_FIRST_PLAN = "plans that can be read at once"
_REFERENCES = "as many images as the references hold"
_HALF = "half of the images that are allowed"
"""What expected numbers rest on, for people."""


def _has_role(system: System, role: Role, spec: StageSpec) -> bool:
    """Return whether a stage is the one that has a role in a system, such as `critic`."""
    stage = system.roles.get(role)
    return stage is not None and stage.digest == spec.digest


def _looks_of_a_drawing(system: System) -> float:
    """Return how much smaller the critic's share is than that of what is drawn."""
    limits = system.limits
    return limits.tries / limits.looks if limits.looks else 0.0


def _digests(stages: Iterable[StageSpec]) -> set[str]:
    return {stage.digest for stage in stages}


def _ground_of_images(system: System, asking: Sequence[Query]) -> str:
    """Say what the number of images in answers to the queries `asking` rests on."""
    if system.limits.images_of_reply <= 1:
        return "one image an answer that should hold any, as its protocol draws"
    with_reference = 0
    for query in asking:
        if query.reference and query.reference.images:
            with_reference += 1
    if with_reference == len(asking):
        return _REFERENCES
    return f"{_REFERENCES}, else {_HALF}" if with_reference else _HALF


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
    # Which stages fit, by the digest.
    most_workers: dict[str, int] = {}
    placed: dict[str, StageWork] = {}
    unplaced: list[str] = []
    for of_stage in work:
        digest = of_stage.spec.digest
        most_workers[digest] = _most_workers(of_stage.spec, nodes)
        if most_workers[digest]:
            placed[digest] = of_stage
        else:
            unplaced.append(of_stage.spec.name)

    jobs = max((of_stage.jobs for of_stage in placed.values()), default=0.0)
    most = max(most_workers.values(), default=0)
    # A job stands for `scale` records: so many jobs remain that no worker is idle merely
    # for want of them, and a run of millions of records is still simulated in seconds.
    scale = max(1.0, jobs / max(_LEAST_JOBS, _JOBS_PER_WORKER * most))
    counts: dict[str, int] = {}
    records: dict[str, float] = {}
    for digest, own in placed.items():
        counts[digest] = math.ceil(own.jobs / scale)
        records[digest] = own.jobs / counts[digest]

    # How closely the engine looks at idle workers: a thousandth of the slowest stage.
    speeds = _Rates(records=records, by_stage=rates, end=end)
    longest_s = 0.0
    for digest, own in placed.items():
        stage_s = own.jobs / most_workers[digest] * speeds.seconds(digest)
        longest_s = max(longest_s, stage_s)
    tick_s = max(1.0, _TICK * longest_s)

    world = World(nodes, speeds, make_worker=CountingWorker, tick_s=tick_s)
    # No directory of a user is looked at, whatever its name.
    with TemporaryDirectory() as nowhere, world.driver() as executor:
        engine = _CountingEngine(executor, Path(nowhere), [*placed.values()], scale, counts)
        engine.run()
        seconds = world.now
        # Until the hosts have ended.
        world.pass_time(1.0)
    return Simulated(
        seconds=seconds,
        gpu_seconds=world.gpu_seconds,
        workers=engine.workers,
        unplaced=unplaced,
    )


def _most_workers(spec: StageSpec, nodes: Sequence[Node]) -> int:
    """Return how many workers of a stage fit on all nodes together."""
    need = Resources.of_placement(spec.placement)
    workers = 0
    for node in nodes:
        if need.fits(node.total):
            workers += _workers_on(node.total, need)
    return workers


def _workers_on(total: Resources, need: Resources) -> int:
    """Return how many workers with a need fit on a node of which nothing is taken."""
    limits = []
    for has, takes in (
        (total.gpus, need.gpus),
        (total.cpus, need.cpus),
        (total.memory, need.memory),
    ):
        if takes > 0:
            limits.append(has / takes)
    # A worker that takes nothing counts once on each node.
    return int(min(limits, default=1.0))


_ONLY_COUNTED = Skip("only counted")


class _CountingEngine(Engine):
    """Has jobs counted that stand for `scale` records, those of all stages side by side.

    What the engine takes from records and stores there is replaced by a set of keys; all
    decisions about workers and batches are the engine's own.
    """

    def __init__(
        self,
        executor: Executor,
        root: Path,
        work: Sequence[StageWork],
        scale: float,
        counts: Mapping[str, int],
    ) -> None:
        """`counts` are the jobs of each stage of `work`, by its digest."""
        options = EngineOptions(placement_timeout_s=math.inf)
        super().__init__(executor, root, options)
        self._work: dict[str, StageWork] = {}
        self._specs: dict[str, StageSpec] = {}
        """As the engine sees them: with batches of jobs."""
        self._feeders: dict[str, frozenset[str]] = {}
        for of_stage in work:
            digest = of_stage.spec.digest
            self._work[digest] = of_stage
            self._specs[digest] = _scale(of_stage.spec, scale)
            self._feeders[digest] = of_stage.feeders
        self._counts = counts
        self._scale = scale
        self._outlook: Outlook = Outlook(self._feeders, sum(counts.values()))
        self._foreseen = list(self._specs.values())
        self._counted: set[str] = set()
        """Keys of the jobs that have ended."""
        self.workers = Counter[str]()
        """Most workers of each stage that were ready at a time."""

    def run(self) -> None:
        """Turn until all jobs are counted."""
        # The first job of each stage, then the second of each, and so on.
        for number in range(max(self._counts.values(), default=0)):
            for digest, count in self._counts.items():
                if number < count:
                    self._outlook.open_walk()
                    self._advance(Walker(self._walk(digest, number)))
        while self._waiting:
            self._note_growth(self._feeders)
            self._turn(0.1)
            ready = Counter[str]()
            for replica in self._pool.replicas:
                if replica.state == "ready":
                    ready[replica.queue.spec.digest] += 1
            # Keeps the larger count of each stage.
            self.workers |= ready
        self._pool.kill_all()

    def _walk(
        self, digest: str, number: int, after: frozenset[str] = frozenset()
    ) -> Walk[Any]:
        """Have a job done once the one that it follows from is, if any.

        `after` are the stages whose jobs follow from this one, so that none follows from
        itself where stages feed each other.
        """
        work = self._work[digest]
        # Where its records lie among all of the stage: first those that can start at once,
        # then those of each feeder. What is left of that counts from the feeder's own.
        place = (number + 0.5) * work.jobs / self._counts[digest] - work.known
        for feeder, jobs in work.flows.items():
            if 0 <= place < jobs and feeder in self._work and feeder not in after:
                feeding = int(place / jobs * self._counts[feeder])
                yield from self._walk(feeder, feeding, after | {digest})
            place -= jobs
        yield [Job(self._specs[digest], Request((), seed=number), str(number))]
        return _ONLY_COUNTED

    def _new_queue(self, spec: StageSpec) -> StageQueue:
        queue = StageQueue(spec, list(self._work).index(spec.digest), self._now)
        queue.stands_for = self._scale
        return queue

    def _lookup(self, job: Job) -> Outcome[Any] | None:
        return _ONLY_COUNTED if job.key in self._counted else None

    def _keep(self, queue: StageQueue, receipt: Receipt) -> Iterable[Known]:
        self._counted.update(receipt.rows)
        return [(key, _ONLY_COUNTED) for key in receipt.rows]

    def _keep_failures(self, queue: StageQueue, failed: FailedJobs) -> Iterable[Known]:
        self._counted.update(job.key for job, _ in failed)
        return [(job.key, failure) for job, failure in failed]

    def _end_walk(self, walker: Walker[Any], outcome: Outcome[Any]) -> None:
        """Nothing is to be done."""


def _scale(spec: StageSpec, scale: float) -> StageSpec:
    """Return a stage whose batches of jobs stand for its batches of records."""
    jobs = max(1, round(spec.placement.batch_size / scale))
    # What stands for many records may take as long as they do.
    placement = replace(spec.placement, batch_size=jobs, batch_timeout_s=math.inf)
    return replace(spec, placement=placement)


@dataclass(frozen=True, kw_only=True)
class _Rates(Speeds):
    """How long workers take on the virtual clock, by what is known of their stages."""

    records: Mapping[str, float]
    """For how many records a job stands, by the stage's digest."""
    by_stage: Mapping[str, StageRates]
    end: RangeEnd
    """Of every range: its mean, its lower or its upper end."""

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        """Return the seconds of a worker's method; `records` are jobs here."""
        rates = self.by_stage.get(spec.digest, StageRates())
        match method:
            case "load":
                return self._at(rates.load_s)
            case "host":
                return self._at(rates.takeover_s or rates.load_s)
            case "run_all":
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

    def run_all(self, batches: Sequence[Sequence[Item]]) -> list[Receipt]:
        """Count batches."""
        return [_count_only(items) for items in batches]


def _count_only(items: Sequence[Item]) -> Receipt:
    return Receipt("done", rows={item.key: _COUNTED for item in items})
