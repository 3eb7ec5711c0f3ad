r"""What orchestration costs: plait beside a loop and Ray Data.

    python -m plait.benchmarks.speed.scripts.orchestration \
        --batches 40 --out orchestration.md

Run it in the checkout. A stage sleeps for a given time per batch and returns its input, so
whatever is not sleep is overhead. All three run the same stage and write the same records.
Sleeping hides contention for the processor, so CPU seconds per record (driver, raylet, GCS
and workers together) are shown beside it. This measures the scheduler; it predicts nothing
about the speed of a model.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import ray

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.speed.scripts.common import CpuClock, Script
from plait.cluster.manifest import environment
from plait.cluster.plan import EngineOptions, Plan
from plait.cluster.ray_data import BatchStage, as_rows
from plait.cluster.run import execute
from plait.cluster.watcher import Watcher
from plait.generators.base import Job, Kind, Outcome, Placement, Result, StageSpec
from plait.generators.document import Draft, Query, Request, Text, Turn
from plait.generators.writing import NativeSystem

SLEEPS_MS = (0, 10, 50, 200)
ACTORS = 2
BATCH_SIZE = 8
HEAD = [
    *("sleep", "method", "records/s", "range", "ideal/wall"),
    *("CPU ms/record", "start-up s"),
]


class Sleeper:
    """Sleeps once per batch and repeats its inputs."""

    def __init__(self, sleep_s: float, **_: Any) -> None:
        self.sleep_s = sleep_s

    def __call__(self, inputs: Sequence[Request]) -> list[Outcome[Draft]]:
        """Return the requests' own text, noting when the batch began."""
        notes = {"began": time.time()}
        time.sleep(self.sleep_s)
        return [Result(Draft(r.turns[0].content), notes=notes) for r in inputs]


def spec_of(sleep_ms: int) -> StageSpec:
    """Return the sleeping stage, placed so that it fits however few cores there are."""
    return StageSpec(
        name=f"sleep-{sleep_ms}ms",
        kind=Kind.DRAFT,
        target="plait.benchmarks.speed.scripts.orchestration:Sleeper",
        settings={"sleep_s": sleep_ms / 1000},
        placement=Placement(batch_size=BATCH_SIZE, workers=ACTORS, num_cpus=0.0),
    )


def samples_of(batches: int) -> list[Query]:
    """Make queries of about 1,000 characters."""
    texts = [Text(f"query {i} " + "words " * 165) for i in range(batches * BATCH_SIZE)]
    turns = [(Turn("user", (text,)),) for text in texts]
    about: dict[str, Any] = {"category": "SA", "field": "-"}
    return [Query(id=f"s{i}", turns=t, **about) for i, t in enumerate(turns)]


def with_plait(spec: StageSpec, samples: Sequence[Query], root: Path) -> None:
    """Run the engine as `plait run` does: lock, manifest, walks, resume."""
    system = NativeSystem(name="sleeper", draft=spec)
    plan = Plan(systems=[system], queries=samples, scorers=[], prompt=lambda s, _: s.turns)
    execute(plan, root, EngineOptions(), {}, Watcher())


def _rows(spec: StageSpec, samples: Sequence[Query]) -> list[dict[str, Any]]:
    return as_rows(Job(spec, Request(s.turns), s.id) for s in samples)


def with_loop(spec: StageSpec, samples: Sequence[Query], root: Path) -> None:
    """Run one batch after another in this process, without Ray."""
    stage = BatchStage(spec, root)
    items = [row["item"] for row in _rows(spec, samples)]
    for start in range(0, len(items), BATCH_SIZE):
        stage({"item": items[start : start + BATCH_SIZE]})


def with_ray_data(spec: StageSpec, samples: Sequence[Query], root: Path) -> None:
    """Run `Dataset.map_batches` with an actor pool of the same size."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = _rows(spec, samples)
    data = ray.data.from_items(rows, override_num_blocks=len(rows) // BATCH_SIZE)
    pool = ray.data.ActorPoolStrategy(size=ACTORS)
    made = {"fn_constructor_args": [spec, str(root)], "compute": pool, "num_cpus": 0}
    data.map_batches(BatchStage, batch_size=BATCH_SIZE, **made).materialize()


METHODS: Mapping[str, Callable[[StageSpec, Sequence[Query], Path], None]] = {
    "plait": with_plait,
    "loop": with_loop,
    "Ray Data": with_ray_data,
}


class Timing(NamedTuple):
    """One method at one duration, from the first batch's start to the last commit."""

    rate: float  # records per second
    ideal: float  # wall time if nothing but sleeping took time, over the wall time
    cpu_ms: float  # processor time of all processes, per record
    startup_s: float  # from the call to the start of the first batch


def measure(method: str, sleep_ms: int, batches: int) -> Timing:
    """Measure once in this process, on the Ray it is connected to."""
    spec = spec_of(sleep_ms)
    samples = samples_of(batches)
    with tempfile.TemporaryDirectory() as folder, CpuClock() as clock:
        called = time.time()
        METHODS[method](spec, samples, Path(folder))
        began, ended, records = _span(Path(folder))
        time.sleep(0.1)  # one more sample of the clock
    if records != len(samples):
        raise RuntimeError(f"{method} wrote {records} of {len(samples)} records")
    wall_s = ended - began
    turns = -(-batches // (1 if method == "loop" else ACTORS))
    cpu_ms = 1000 * (clock.at(ended) - clock.at(began)) / records
    ideal = turns * sleep_ms / 1000 / wall_s
    return Timing(records / wall_s, ideal, cpu_ms, began - called)


def _span(root: Path) -> tuple[float, float, int]:
    """Return start of the first batch, end of the last commit, number of records."""
    parts = root.glob("stages/*/part-*.parquet")
    rows: list[dict[str, Any]] = []
    for part in parts:
        rows += pq.read_table(part, columns=["key", "notes", "at"]).to_pylist()
    began = min(json.loads(row["notes"])["began"] for row in rows)
    return began, max(r["at"] for r in rows) / 1e6, len({r["key"] for r in rows})


def measure_all(batches: int, repeats: int) -> dict[tuple[int, str], list[Timing]]:
    """Measure every method at every duration, each with a Ray of its own."""
    timings: dict[tuple[int, str], list[Timing]]
    timings = {key: [] for key in product(SLEEPS_MS, METHODS)}
    for method in repeats * list(METHODS):
        if method != "loop":
            ray.init(address="local", include_dashboard=False, log_to_driver=False)
        for sleep_ms in SLEEPS_MS:
            timings[sleep_ms, method].append(measure(method, sleep_ms, batches))
        ray.shutdown()
    return timings


def row_of(sleep_ms: int, method: str, timings: Sequence[Timing]) -> list[str]:
    """Return medians over the repeats of one method at one duration."""
    rates, ideals, cpus, startups = zip(*timings, strict=True)
    return [
        f"{sleep_ms} ms",
        method,
        f"{median(rates):,.0f}",
        f"{min(rates):,.0f}-{max(rates):,.0f}",
        f"{median(ideals):.1%}" if sleep_ms else "-",
        f"{median(cpus):.2f}",
        f"{median(startups):.1f}",
    ]


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write files where `--out` says."""
    script = Script(__doc__, "orchestration", words)
    script.parser.add_argument("--batches", type=int, default=100)
    script.parser.add_argument("--repeats", type=int, default=3)
    options = script.options()
    timings = measure_all(options.batches, options.repeats)
    title = f"{options.batches} batches of {BATCH_SIZE}, median of {options.repeats}"
    table = ResultTable.of(title, HEAD, [row_of(*key, t) for key, t in timings.items()])
    script.report("What orchestration costs", table, environment())


if __name__ == "__main__":
    main()
