r"""The engine on 1 to 512 simulated GPUs: 20 systems, 3 scorers, up to 20,103 queries.

    python -m plait.benchmarks.speed.scripts.many_gpus \
        --out many-gpus.md --plot many-gpus.svg
    python -m plait.benchmarks.speed.scripts.many_gpus --gpus 64 --queries 1000

Scheduler, allocation, queues, walks, keys and records are those of a run, on the virtual
clock of `plait.cluster.executors.simulated`. Simulated are nodes, processes and stages: a
batch takes as long as `RATES` say and answers with a made-up record, which stays in memory.
So makespans are virtual, and the driver's CPU time is real; it includes the simulation's
own.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, cycle, islice, product
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.forecast.simulation import CountingWorker
from plait.benchmarks.speed.scripts.common import Script
from plait.benchmarks.tasks.mmie.categories import CATEGORIES
from plait.benchmarks.tasks.task_set import load
from plait.cluster.executors.simulated import Speeds, World
from plait.cluster.manifest import environment
from plait.cluster.placement import Node, Resources
from plait.cluster.plan import EngineOptions, Plan
from plait.cluster.records import Item, RecordRow
from plait.cluster.schedule import Scheduler
from plait.cluster.store import Store
from plait.cluster.worker import TOKEN_FOLDER, Receipt, WorkerInfo
from plait.generators.base import Kind, OutcomeName, StageSpec
from plait.generators.document import Query, Text, Turn
from plait.generators.system import System
from plait.pipelines.systems import Models, chat_spec, resolve
from plait.scorers import resolve_scorer

LVLMS = ("qwen2-vl-72b", "qwen2-vl-7b", "llava-34b", "hf:Qwen/Qwen3-VL-4B-Instruct")
T2I_MODELS = ("openjourney", "sd3", "sdxl", "flux")
NATIVES = ("anole", "gill", "minigpt5", "emu2")
SCORERS = ("clipscore", "judge:mmie-score", "judge:qwen2-vl-7b")
GPUS_PER_NODE = 8
_VECTOR = np.ones(512, np.float32).tobytes()
START_S = 15.0
READ_GIB_PER_S = 1.0
"""Assumed: a process imports for so long, then reads its weights at this speed."""
STAY_S = 3600.0
AWAY_S = 600.0
"""Where nodes come and go, each stays for so long on average (exponential), and for so long
there is none in its place."""
MOVING = "come and go"
NODES = ("stay", MOVING)
QUERIES_ON = {1: 500, 8: 2000, 64: 8000, 512: 20103}
"""Queries by GPUs: on few GPUs all of MMIE takes weeks, which show no more."""


class Rate(NamedTuple):
    """What one worker needs for one record."""

    seconds: float
    source: str


_QWEN_7B = 1 / 8.74
"""vllm PR #15748: Qwen2-VL-7B, VisionArena-Chat, 8.74 requests/s on one GPU."""
_FAL = "fal-ai/stable-diffusion-benchmarks"
_PARAMETERS = "vllm PR #15748 for Qwen2-VL-7B, scaled by parameters and GPUs"
RATES: Mapping[str, Rate] = {
    "qwen2-vl-7b": Rate(_QWEN_7B, "vllm PR #15748, Qwen2-VL-7B"),
    "qwen2-vl-72b": Rate(_QWEN_7B * 73.4 / 8.29 / 3, _PARAMETERS),
    "llava-34b": Rate(_QWEN_7B * 34.75 / 8.29, _PARAMETERS),
    "hf:Qwen/Qwen3-VL-4B-Instruct": Rate(1 / 9.82, "vllm PR #25337, A100"),
    "mmie-score": Rate(1 / 9.82, "vllm PR #25337 for Qwen3-VL-4B, A100"),
    "clip": Rate(1 / 10128, "timm, ViT-B/32 on an RTX 4090"),
    "openjourney": Rate(1.604, f"{_FAL}, Stable Diffusion 1.5, A100"),
    "sd3": Rate(4.762, "huggingface.co/blog/sd3, A100"),
    "sdxl": Rate(5.93, f"{_FAL}, A100"),
    "flux": Rate(6.57 * 50 / 28, "sayakpaul/diffusers-torchao, H100, scaled to 50 steps"),
    "anole-draft": Rate(200 / 8, "SJTU-DENG-Lab/Orthus#5, A100, as if for a batch of 8"),
    "anole-render": Rate(0.1, "assumed"),
    "gill-draft": Rate(_QWEN_7B, f"{_PARAMETERS}: 7 B"),
    "gill-render": Rate(1.604, f"{_FAL}, Stable Diffusion 1.5, A100"),
    "minigpt5-draft": Rate(_QWEN_7B, f"{_PARAMETERS}: 7 B"),
    "minigpt5-render": Rate(1.604, f"{_FAL}, Stable Diffusion 1.5 for 2.1, A100"),
    "emu2-chat": Rate(_QWEN_7B * 37 / 8.29 / 2, f"{_PARAMETERS}: 37 B"),
    "emu2-gen-lm": Rate(_QWEN_7B * 37 / 8.29, f"{_PARAMETERS}: 37 B"),
    "emu2-gen-unet": Rate(5.93, f"{_FAL}, SDXL, A100"),
}
"""Seconds of one worker for one record, by the stage's name."""


def plan_of(queries: int) -> Plan:
    """Return MMIE's plan, or one of fewer queries in its proportions.

    The queries are those of the sample set, each worded anew.
    """
    task = load("sample")
    weights = Models(weights="dummy")
    total = sum(CATEGORIES.values())
    samples: list[Query] = []
    for category, most in CATEGORIES.items():
        own = [s for s in task.samples if isinstance(s, Query) and s.category == category]
        some = islice(cycle(own), round(queries * most / total))
        samples += [_word_anew(query, number) for number, query in enumerate(some)]
    random.Random(0).shuffle(samples)
    systems = [*(f"{one}+{two}" for one, two in product(LVLMS, T2I_MODELS)), *NATIVES]
    return Plan(
        systems=[resolve(name, weights) for name in systems],
        queries=samples,
        scorers=[
            resolve_scorer(s, "dummy", {}, 80.0, lambda model: chat_spec(model, weights))
            for s in SCORERS
        ],
        prompt=task.prompt,
    )


def _word_anew(query: Query, number: int) -> Query:
    """Return another query of the same form, whose records no other query shares."""
    first = Turn("user", (Text(f"Query {number}. "), *query.turns[0].content))
    turns = (first, *query.turns[1:])
    return replace(query, id=f"{query.category}-{number}", turns=turns)


class AnsweringWorker(CountingWorker):
    """Answers with records that were never computed."""

    def __init__(self, given: tuple[Any, ...]) -> None:
        super().__init__(given)
        self._root = Path(given[1])

    def describe(self, samples: Sequence[Any]) -> WorkerInfo:
        """Show the driver a token, as it shares its folder with real workers."""
        folder = self._root / TOKEN_FOLDER
        folder.mkdir(exist_ok=True)
        (folder / "token").touch()
        return WorkerInfo(token="token", sees_data=True)

    def run_all(self, batches: Sequence[Sequence[Item]]) -> list[Receipt]:
        """Answer batches."""
        return [self._answer(items) for items in batches]

    def _answer(self, items: Sequence[Item]) -> Receipt:
        return Receipt("done", rows={item.key: self._row(item) for item in items})

    def _row(self, item: Item) -> RecordRow:
        light: tuple[Any, ...] = (self._light(item.key),)
        match self.spec.kind:
            case Kind.SCORE:
                light = (0.5, "{}")
            case Kind.EMBED:
                light = (_VECTOR,)
        return RecordRow(OutcomeName.DONE, None, None, 0, light, "nowhere.parquet", 0)

    def _light(self, key: str) -> str:
        name = hashlib.sha256(key.encode()).hexdigest()
        if self.spec.kind is not Kind.DRAFT:
            return name
        text = {"type": "text", "text": f"Answer {key}.\nScore: 4"}
        image = {"type": "image", "prompt": key, "payload": None}
        if self.spec.name.endswith("-draft"):
            image |= {"prompt": None, "payload": name}
        draws = self.spec.name.removesuffix("-draft").removesuffix("-chat") in NATIVES
        return json.dumps([text, image] if draws else [text])


@dataclass(frozen=True)
class PublishedSpeeds(Speeds):
    """How long calls take; adds up what GPUs do."""

    gpu_s: dict[str, float] = field(default_factory=lambda: {"load": 0.0, "run": 0.0})
    """GPU-seconds."""

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        """Return the time of a call, and count it."""
        seconds = self.seconds(spec, method, records)
        name = "run" if method == "run_all" else "load"
        self.gpu_s[name] += seconds * spec.placement.num_gpus
        return seconds

    def seconds(self, spec: StageSpec, method: str, records: int) -> float:
        """Return the time of a call."""
        match method:
            case "describe":
                return START_S
            case "load" | "host":
                return spec.placement.gpu_memory_gib / READ_GIB_PER_S
            case "run_all":
                share = min(1.0, spec.placement.num_gpus)
                return records * RATES[spec.name].seconds / share
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One run on the virtual clock."""

    gpus: int
    coming_and_going: bool
    queries: int
    systems: int
    records: int
    seconds: float
    """Virtual."""
    ideal_s: float
    """Virtual: a lower bound, see `ideal_s`."""
    loading_gpu_s: float
    loading: float
    """Part of the time in which GPUs load or compute."""
    cpu_ms: float
    """Of the driver and of the simulation, for each record."""

    @property
    def over_ideal(self) -> float:
        """Makespan over the ideal."""
        return self.seconds / self.ideal_s


class Cluster:
    """Nodes of a world that come and go, each with the same number of GPUs."""

    def __init__(self, gpus: int) -> None:
        self.size = min(gpus, GPUS_PER_NODE)
        self._names = map("n{}".format, count())
        self._random = random.Random(gpus)
        self.nodes = [self._node() for _ in range(gpus // self.size)]
        self._absences: list[float] = []
        """When each absence of a node began."""

    def _node(self) -> Node:
        name = next(self._names)
        room = Resources(cpus=16.0 * self.size, gpus=self.size, memory=2.0**41)
        return Node(name, room, name)

    def disturb(self, world: World) -> None:
        """Have each node leave at some time, and another come in its place."""
        for node in self.nodes:
            self._leave_later(world, node)

    def _leave_later(self, world: World, node: Node) -> None:
        def leave() -> None:
            world.lose(node)
            self._absences.append(world.now)
            world.at(world.now + AWAY_S, come)

        def come() -> None:
            other = self._node()
            world.join(other)
            self._leave_later(world, other)

        world.at(world.now + self._random.expovariate(1 / STAY_S), leave)

    def absent_gpus(self, until: float) -> float:
        """Return how many GPUs were away, on average over the time `until`."""
        seconds = sum(min(AWAY_S, until - began) for began in self._absences)
        return seconds * self.size / until


def run_plan(plan: Plan, gpus: int, *, coming_and_going: bool) -> Ran:
    """Run a plan on so many GPUs, without systems of which a stage needs more."""
    most = min(gpus, GPUS_PER_NODE)
    plan = replace(plan, systems=[s for s in plan.systems if _widest(s) <= most])
    cluster = Cluster(gpus)
    speeds = PublishedSpeeds()
    world = World(cluster.nodes, speeds, make_worker=AnsweringWorker)
    if coming_and_going:
        cluster.disturb(world)
    with TemporaryDirectory() as nowhere, world.driver() as executor:
        store = Store(Path(nowhere))
        options = EngineOptions(placement_timeout_s=inf)
        scheduler = Scheduler(plan, store, options, executor)
        began = time.process_time()
        scheduler.run()
        cpu_s = time.process_time() - began
    _check(scheduler, plan)
    made = {stage.name: stage.made for stage in scheduler.progress().stages}
    present = gpus - cluster.absent_gpus(world.now)
    return Ran(
        gpus=gpus,
        coming_and_going=coming_and_going,
        queries=len(plan.queries),
        systems=len(plan.systems),
        records=sum(made.values()),
        seconds=world.now,
        ideal_s=ideal_s(plan, present, speeds, made),
        loading_gpu_s=speeds.gpu_s["load"],
        loading=speeds.gpu_s["load"] / sum(speeds.gpu_s.values()),
        cpu_ms=1000 * cpu_s / sum(made.values()),
    )


def _widest(system: System) -> float:
    """Return how many GPUs the largest stage of a system needs."""
    return max((stage.placement.num_gpus for stage in system.stages), default=0.0)


def _check(scheduler: Scheduler, plan: Plan) -> None:
    """Raise RuntimeError where the engine did not make every record once."""
    for stage in scheduler.progress().stages:
        if not stage.total == stage.made == stage.outcomes.get("done", 0):
            raise RuntimeError(f"records were lost, doubled or failed: {stage}")
    if scheduler.finished != {OutcomeName.DONE: len(plan)}:
        raise RuntimeError(f"of {len(plan)} documents came {scheduler.finished}")


def ideal_s(
    plan: Plan, gpus: float, speeds: PublishedSpeeds, made: Mapping[str, int]
) -> float:
    """Return a time that no schedule can be shorter than, on so many GPUs.

    In a run of T seconds a worker of a stage computes for at most T - a - b: `a` is when it
    has loaded and the first record can be there, `b` what the last record still needs. So
    W seconds of work take k = ceil(W / (T - a - b)) workers, each of which loads for L
    seconds, and GPUs are held for g (W + k L), g being those of one worker. T is the least
    for which these add up to no more than T times all GPUs.
    """
    windows = list(windows_of(plan, speeds))
    soon = max(window.least_s for window in windows)

    def is_too_short(seconds: float) -> bool:
        needed = sum(window.gpu_seconds(seconds, speeds, made) for window in windows)
        return needed > gpus * seconds

    # The longer a run, the fewer GPU-seconds go into loading: once one is long enough, so
    # are all longer ones, and halving finds the shortest.
    late = soon + 1.0
    while is_too_short(late):
        late *= 2
    while late - soon > 0.01:
        middle = (soon + late) / 2
        if is_too_short(middle):
            soon = middle
        else:
            late = middle
    return late


@dataclass(frozen=True)
class Window:
    """When a stage can compute at best, in seconds from the start and before the end."""

    spec: StageSpec
    load_s: float
    opens_s: float
    """Its first worker has loaded, and its first record can be there."""
    closes_s: float
    """For so long the last record still needs other stages."""

    @property
    def least_s(self) -> float:
        """Time for any record."""
        return self.opens_s + self.closes_s

    def gpu_seconds(
        self, seconds: float, speeds: PublishedSpeeds, made: Mapping[str, int]
    ) -> float:
        """Return the least GPU-seconds that its workers take in a run of so many."""
        work_s = speeds.seconds(self.spec, "run_all", made[self.spec.name])
        open_s = seconds - self.least_s
        workers = math.ceil(work_s / open_s) if open_s > 0 else inf
        return (work_s + workers * self.load_s) * self.spec.placement.num_gpus


def windows_of(plan: Plan, speeds: PublishedSpeeds) -> Iterator[Window]:
    """Yield the window of each stage: the earliest and the latest of all its uses.

    Stages load side by side. An answer may have no image, and is scored all the same.
    """
    opens: dict[str, float] = {}
    closes: dict[str, float] = {}
    scored_s = max(_one_record_s(scorer.stages, speeds) for scorer in plan.scorers)

    def note(spec: StageSpec, opens_s: float, closes_s: float) -> None:
        digest = spec.digest
        opens[digest] = min(opens_s, opens.get(digest, inf))
        closes[digest] = min(closes_s, closes.get(digest, inf))

    answered_s = inf
    for system in plan.systems:
        at = 0.0
        for spec in system.stages:
            ready_s = max(at, loading_s(spec, speeds))
            at = ready_s + speeds.seconds(spec, "run_all", 1)
            note(spec, ready_s, scored_s)
            answered_s = min(answered_s, at)
    for scorer in plan.scorers:
        at = answered_s
        for spec in scorer.stages:
            ready_s = max(at, loading_s(spec, speeds))
            at = ready_s + speeds.seconds(spec, "run_all", 1)
            note(spec, ready_s, 0.0)
    for spec in plan.stages:
        load_s = loading_s(spec, speeds)
        yield Window(spec, load_s, opens[spec.digest], closes[spec.digest])


def _one_record_s(stages: Iterable[StageSpec], speeds: PublishedSpeeds) -> float:
    """Return how long one record of each stage takes, one after another."""
    return sum(speeds.seconds(spec, "run_all", 1) for spec in stages)


def loading_s(spec: StageSpec, speeds: PublishedSpeeds) -> float:
    """Return how long a new worker of a stage takes to be ready."""
    return sum(speeds.seconds(spec, name, 0) for name in ("describe", "load"))


# ----------------------------------------------------------------------------- a report

HEAD = [
    *("GPUs", "nodes", "queries", "systems", "records", "makespan h", "ideal h"),
    *("makespan / ideal", "GPU-hours loading", "share loading", "CPU ms / record"),
]


def table_of(runs: Sequence[Ran]) -> ResultTable:
    """Return a row for each run."""
    rows = [_row_of(run) for run in runs]
    return ResultTable.of("Virtual times, measured CPU time", HEAD, rows, list(_notes()))


def _row_of(run: Ran) -> list[str]:
    return [
        str(run.gpus),
        MOVING if run.coming_and_going else "stay",
        f"{run.queries:,}",
        f"{run.systems:,}",
        f"{run.records:,}",
        f"{run.seconds / 3600:.2f}",
        f"{run.ideal_s / 3600:.2f}",
        f"{run.over_ideal:.3f}",
        f"{run.loading_gpu_s / 3600:.1f}",
        f"{run.loading:.1%}",
        f"{run.cpu_ms:.2f}",
    ]


def _notes() -> Iterator[str]:
    yield (
        "No GPU was used. Scheduler, allocation, queues, walks and keys are those of a "
        "run; nodes, processes and stages are simulated, records are made up and stay in "
        "memory. Hours are of the virtual clock; CPU time is real: the driver's and the "
        "simulation's."
    )
    yield (
        "Ideal: the least time T in which the GPUs that were there can hold all work and "
        "its loading. A stage with W seconds of work, ready after a seconds at best and "
        "followed by b seconds, takes k = ceil(W / (T - a - b)) workers, each of which "
        "loads for L seconds: g (W + k L) GPU-seconds for g GPUs a worker. No schedule is "
        "shorter, whatever it knows."
    )
    yield (
        f"{GPUS_PER_NODE} GPUs a node. Coming and going: a node stays {STAY_S / 60:g} min "
        f"on average, the next comes {AWAY_S / 60:g} min later. On one GPU, systems with "
        "a stage that needs several are left out."
    )
    yield (
        f"Assumed: {START_S:g} s to start a process, weights read at "
        f"{READ_GIB_PER_S:g} GiB/s; a stage with a share of a GPU is as much slower."
    )
    yield from (f"{name}: {r.seconds:.3g} s, {r.source}" for name, r in RATES.items())


def plot(runs: Sequence[Ran], file: Path) -> None:
    """Draw makespan over ideal, and the driver's CPU time, by GPUs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    labels = {"over_ideal": "makespan / ideal (virtual)", "cpu_ms": "CPU ms per record"}
    for axes, (name, label) in zip(figure.subplots(1, 2), labels.items(), strict=True):
        for nodes in NODES:
            own = [run for run in runs if run.coming_and_going == (nodes == MOVING)]
            gpus = [r.gpus for r in own]
            values = [getattr(r, name) for r in own]
            axes.plot(gpus, values, "o-", label=f"nodes {nodes}")
        axes.set_xscale("log", base=2)
        axes.set(xlabel="simulated GPUs", title=label, ylim=(name == "over_ideal", None))
        axes.legend(frameon=False)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main(words: Sequence[str] | None = None) -> int:
    """Run on each number of GPUs, print the table and write files."""
    script = Script(__doc__, "many_gpus", words)
    script.parser.add_argument("--gpus", type=int, action="append", help="repeatable")
    script.parser.add_argument("--queries", type=int, help="on any number of GPUs")
    script.parser.add_argument("--nodes", choices=NODES, action="append", help="repeatable")
    script.parser.add_argument("--plot", type=Path, help="a file of matplotlib's formats")
    options = script.options()
    runs = []
    for gpus in options.gpus or QUERIES_ON:
        plan = plan_of(options.queries or QUERIES_ON.get(gpus, sum(CATEGORIES.values())))
        for nodes in options.nodes or NODES:
            runs.append(run_plan(plan, gpus, coming_and_going=nodes == MOVING))
            print(runs[-1], flush=True)
    script.report("Many GPUs, simulated", table_of(runs), environment())
    if options.plot:
        plot(runs, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
