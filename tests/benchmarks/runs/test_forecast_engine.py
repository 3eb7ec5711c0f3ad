"""A simulated run has as many workers of each stage as the engine: real runs of toys."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import thread_workers
from forecast_helpers import work
from trial import painter, plan_of, run, sample, writer

from benchmarks.runs.forecast.simulation import WorkerSpeed, simulate
from cluster.placement import Node, Resources
from cluster.plan import Plan
from cluster.tracing.sessions import WorkerTrace, read_sessions
from generators.base import Placement

HALF = Placement(num_cpus=2, batch_size=1)
"""Two of the four CPUs of the node of `thread_workers`: two workers at a time."""
NODE = Node("n", Resources(cpus=4, memory=8 * 2**30))

pytestmark = pytest.mark.usefixtures("worker_threads")


@pytest.fixture(autouse=True)
def workers_compute_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in processes of their own; there is no model here that could mind."""
    monkeypatch.setattr(thread_workers, "_COMPUTING", contextlib.nullcontext())


def job(queries: int, seconds: Sequence[float]) -> Plan:
    """Stages that write, draw and measure, of plait's own, and take so long a record."""
    sleep_s = dict(zip(("write", "draw", "measure"), seconds, strict=True))
    write = replace(writer(HALF, sleep_s=sleep_s["write"]), stage="write")
    draw = replace(painter(0, HALF, sleep_s=sleep_s["draw"]), stage="draw")
    plan = plan_of(
        [sample(i) for i in range(queries)],
        write=write,
        paint=[draw],
        measure=HALF,
        sleep_s=sleep_s["measure"],
    )
    (scorer,) = plan.scorers
    scorer.stage = replace(scorer.stage, stage="measure")
    scorer.stages = (scorer.stage,)
    return plan


def in_simulation(plan: Plan, queries: int, seconds: Sequence[float]) -> list[int]:
    write, draw, measure = plan.stages
    before_measure = frozenset(plan.feeders[measure.digest])
    stages = (
        work(write, 0, queries),
        work(draw, 1, 0, (write, queries)),
        replace(work(measure, 2, 0, (draw, queries)), feeders=before_measure),
    )
    speeds = {
        s.digest: WorkerSpeed(each, 0.02)
        for s, each in zip(plan.stages, seconds, strict=True)
    }
    workers = simulate(stages, speeds, [NODE]).workers
    return [workers[stage.digest] for stage in plan.stages]


def in_the_engine(plan: Plan, root: Path) -> list[int]:
    run(plan, root)
    (session,) = read_sessions(root)
    by_stage = [[w for w in session.workers if w.stage == s.name] for s in plan.stages]
    return [_most_at_once(workers) for workers in by_stage]


def _most_at_once(workers: Sequence[WorkerTrace]) -> int:
    return max(sum(w.begin <= v.begin < w.end for w in workers) for v in workers)


@pytest.mark.parametrize(
    ("queries", "seconds", "expected"),
    [
        (10, (0.02, 0.15, 0.03), [1, 2, 2]),  # the writer's process helps to draw
        (10, (0.03, 0.03, 0.15), [1, 1, 2]),  # measuring needs the help
        (3, (0.02, 0.15, 0.03), [1, 1, 1]),  # nothing is worth a second worker
        (24, (0.1, 0.1, 0.03), [2, 2, 2]),  # one more from the start
    ],
)
def test_the_engine_has_as_many_workers_as_were_forecast(
    tmp_path: Path, queries: int, seconds: tuple[float, ...], expected: list[int]
) -> None:
    plan = job(queries, seconds)
    assert in_simulation(plan, queries, seconds) == expected
    assert in_the_engine(plan, tmp_path) == expected
