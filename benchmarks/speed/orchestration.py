"""What orchestration costs: plait beside a loop, ray.util.ActorPool and Ray Data.

    plait bench orchestration

The stage sleeps for a given time per batch and returns its input, so whatever is not
sleep is overhead. All four run the same stage class and write the same records with the
same writer (Parquet, fsync, rename). Sleeping hides contention for the processor, so
CPU seconds per record (driver, raylet, GCS and workers together) are shown beside it.
This measures the scheduler; it predicts nothing about the speed of a model.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from rich.console import Console

from benchmarks.bench_program import announce, check_outs, write_outs
from benchmarks.speed.orchestration_table import page_of, table_of
from cluster.manifest import CHECKOUT, environment
from generators.base import Job, Kind, Outcome, Placement, Result, StageSpec
from generators.document import Draft, Request, Sample, Text, Turn
from generators.system import System

METHODS = ("plait", "loop", "ActorPool", "Ray Data")
SLEEPS_MS = (0, 10, 50, 200)
ACTORS = 2
BATCH_SIZE = 8


class Sleeper:
    """Sleeps once per batch and repeats its inputs."""

    def __init__(self, sleep_s: float, **_: Any) -> None:
        self.sleep_s = sleep_s

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """The requests' own text, noting when the batch began."""
        notes = {"began": time.time()}
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return [Result(Draft(r.turns[0].content), notes=notes) for r in inputs]


@dataclass(frozen=True)
class Timing:
    """One method at one duration."""

    method: str
    sleep_ms: int
    records: int
    wall_s: float
    """From the start of the first batch to the last record on disk."""
    startup_s: float
    """From the call to the start of the first batch."""
    cpu_s: float
    """Processor time of all processes during `wall_s`."""

    @property
    def ideal_s(self) -> float:
        """Wall time if nothing but sleeping took time."""
        batches = -(-self.records // BATCH_SIZE)
        actors = 1 if self.method == "loop" else ACTORS
        return -(-batches // actors) * self.sleep_ms / 1000


def spec_of(sleep_ms: int) -> StageSpec:
    """The sleeping stage, placed so that Ray admits it however few cores there are."""
    return StageSpec(
        name=f"sleep-{sleep_ms}ms",
        kind=Kind.DRAFT,
        target="benchmarks.speed.orchestration:Sleeper",
        settings={"sleep_s": sleep_ms / 1000},
        placement=Placement(batch_size=BATCH_SIZE, workers=ACTORS, num_cpus=0.0),
    )


def samples_of(batches: int) -> list[Sample]:
    """Queries of about 1,000 characters."""
    texts = (f"query {i} " + "words " * 165 for i in range(batches * BATCH_SIZE))
    return [
        Sample(id=f"s{i}", category="SA", field="-", turns=(Turn("user", (Text(t),)),))
        for i, t in enumerate(texts)
    ]


def jobs_of(spec: StageSpec, samples: Sequence[Sample]) -> list[Job]:
    """One job a sample."""
    return [Job(spec, Request(s.turns), s.id) for s in samples]


# ------------------------------------------------------------------- the four methods


def with_plait(spec: StageSpec, samples: list[Sample], root: Path) -> None:
    """The engine as `plait run` uses it: lock, manifest, walks, resume."""
    from cluster.plan import EngineOptions, Plan
    from cluster.run import execute
    from cluster.watcher import Watcher

    system = System(name="sleeper", draft=spec)
    plan = Plan(systems=[system], samples=samples, scorers=[], prompt=_as_asked)
    execute(plan, root, EngineOptions(), {}, Watcher())


def _as_asked(sample: Sample, variant: str) -> tuple[Turn, ...]:
    return sample.turns


def with_loop(spec: StageSpec, samples: list[Sample], root: Path) -> None:
    """No Ray: one process, one batch after another."""
    from cluster.records import Item
    from cluster.worker import Worker

    worker = Worker(spec, str(root))
    worker.load(shared=True)
    items = [Item(j.key, j.label, j.input) for j in jobs_of(spec, samples)]
    for at in range(0, len(items), BATCH_SIZE):
        worker.run(items[at : at + BATCH_SIZE])


def with_actor_pool(spec: StageSpec, samples: list[Sample], root: Path) -> None:
    """`ray.util.ActorPool.map_unordered` over actors of the same worker class."""
    import ray
    from ray.util import ActorPool

    from cluster.records import Item
    from cluster.worker import Worker

    remote = ray.remote(num_cpus=0)(Worker)
    actors = [remote.remote(spec, str(root)) for _ in range(ACTORS)]
    ray.get([actor.load.remote(True) for actor in actors])
    items = [Item(j.key, j.label, j.input) for j in jobs_of(spec, samples)]
    batches = [items[at : at + BATCH_SIZE] for at in range(0, len(items), BATCH_SIZE)]
    for receipt in ActorPool(actors).map_unordered(lambda a, b: a.run.remote(b), batches):
        assert receipt.status == "done", receipt.error
    for actor in actors:
        ray.kill(actor)


def with_ray_data(spec: StageSpec, samples: list[Sample], root: Path) -> None:
    """`Dataset.map_batches` with an actor pool of the same size."""
    import ray

    from cluster.ray_data import BatchStage, as_rows

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    jobs = as_rows(jobs_of(spec, samples))
    rows = ray.data.from_items(jobs, override_num_blocks=len(jobs) // BATCH_SIZE)
    mapped = rows.map_batches(
        BatchStage,
        fn_constructor_args=[spec, str(root)],
        batch_size=BATCH_SIZE,
        compute=ray.data.ActorPoolStrategy(size=ACTORS),
        num_cpus=0,
    )
    done = sum(len(batch["key"]) for batch in mapped.iter_batches(batch_size=None))
    assert done == len(samples)


RUNNERS: dict[str, Callable[[StageSpec, list[Sample], Path], None]] = {
    "plait": with_plait,
    "loop": with_loop,
    "ActorPool": with_actor_pool,
    "Ray Data": with_ray_data,
}


# ------------------------------------------------------------------------- measuring


class CpuClock:
    """Processor time of this process and all its descendants, sampled in a thread."""

    def __init__(self, every_s: float = 0.05) -> None:
        self.points: list[tuple[float, float]] = []
        self._every_s = every_s
        self._seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "CpuClock":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._sample()

    def _sample(self) -> None:
        for pid, used in _descendants():
            self._seen[pid] = used  # a process that has ended keeps its last reading
        self.points.append((time.time(), sum(self._seen.values())))

    def at(self, moment: float) -> float:
        """Seconds used until `moment`, to the sampling step."""
        before = [used for when, used in self.points if when <= moment]
        return before[-1] if before else self.points[0][1]


def _descendants() -> Iterator[tuple[int, float]]:
    """(pid, CPU seconds) of this process and every process that it started."""
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            yield process.pid, times.user + times.system


@contextmanager
def _ray_for(method: str) -> Iterator[None]:
    if method == "loop":
        yield
        return
    from cluster.actors import start_local, stop_local

    start_local()
    try:
        yield
    finally:
        stop_local()


def measure(method: str, sleep_ms: int, batches: int) -> Timing:
    """One measurement in this process, on the Ray it is connected to."""
    spec, samples = spec_of(sleep_ms), samples_of(batches)
    with tempfile.TemporaryDirectory() as folder, CpuClock() as clock:
        called = time.time()
        RUNNERS[method](spec, samples, Path(folder))
        began, ended, records = _span(Path(folder))
        time.sleep(0.1)  # one more sample of the clock
    assert records == len(samples), f"{method} wrote {records} of {len(samples)} records"
    cpu_s = clock.at(ended) - clock.at(began)
    return Timing(method, sleep_ms, records, ended - began, began - called, cpu_s)


def _span(root: Path) -> tuple[float, float, int]:
    """Start of the first batch, end of the last commit, number of records."""
    import pyarrow.parquet as pq

    began, keys, ended = [], set(), 0.0
    for part in root.glob("stages/*/part-*.parquet"):
        table = pq.read_table(part, columns=["key", "notes", "at"])
        keys |= set(table.column("key").to_pylist())
        began += [json.loads(n)["began"] for n in table.column("notes").to_pylist()]
        ended = max(ended, max(table.column("at").to_pylist()) / 1e6)
    return min(began), ended, len(keys)


def main(out: Sequence[Path], batches: int, console: Console, repeats: int = 3) -> int:
    """Measure every method at every duration, each repeat in its own process.

    Each .md file of `out` gets the table, each .json file all figures; UsageError for
    another one, before anything is measured.
    """
    check_outs(out)
    timings: list[Timing] = []
    for repeat in range(repeats):
        for method in METHODS:
            if console.is_terminal:
                console.print(f"repeat {repeat + 1} of {repeats}: {method}", end="\r")
            timings += _in_own_process(method, batches)
    about = {"batches": batches, "batch_size": BATCH_SIZE, "actors": ACTORS}
    content = {
        "about": about | {"repeats": repeats} | environment(),
        "summary": [_summary(m, s, timings) for s in SLEEPS_MS for m in METHODS],
        "measurements": [asdict(timing) for timing in timings],
    }
    console.print(table_of(content).rich)
    write_outs(out, lambda: content, lambda: page_of(content))
    for place in out:
        announce(console, place)
    return 0


def _in_own_process(method: str, batches: int) -> list[Timing]:
    command = [sys.executable, "-m", "benchmarks.speed.orchestration", method, str(batches)]
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"measuring {method} failed:\n{done.stderr[-2000:]}")
    lines = done.stdout.strip().splitlines()[-len(SLEEPS_MS) :]
    return [Timing(**json.loads(line)) for line in lines]


def _summary(method: str, sleep_ms: int, timings: Sequence[Timing]) -> dict[str, Any]:
    same = [m for m in timings if (m.method, m.sleep_ms) == (method, sleep_ms)]
    rates = sorted(m.records / m.wall_s for m in same)
    return {
        "method": method,
        "sleep_ms": sleep_ms,
        "records_per_s": statistics.median(rates),
        "records_per_s_range": [rates[0], rates[-1]],
        "ideal_over_wall": statistics.median(m.ideal_s / m.wall_s for m in same),
        "cpu_ms_per_record": statistics.median(1000 * m.cpu_s / m.records for m in same),
        "startup_s": statistics.median(m.startup_s for m in same),
    }


if __name__ == "__main__":
    chosen, number = sys.argv[1], int(sys.argv[2])
    with _ray_for(chosen):
        for duration in SLEEPS_MS:
            print(json.dumps(asdict(measure(chosen, duration, number))), flush=True)
