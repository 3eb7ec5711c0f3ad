"""A simulated run has as many workers of each stage as the engine, on a virtual clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from forecast_helpers import work
from trial import Witness, painter, plan_of, run, sample, writer

from benchmarks.runs.forecast.simulation import WorkerSpeed, simulate
from cluster.executors.simulated import Speeds, World
from cluster.placement import Node, Resources
from cluster.plan import Plan
from cluster.watcher import StageProgress
from generators.base import Placement, StageSpec

HALF = Placement(num_cpus=2, batch_size=1)
"""Half of a node: two workers at a time."""
NODE = Node("n", Resources(cpus=4, memory=8 * 2**30))
LOAD_S = 2.0


def job(queries: int) -> Plan:
    """Stages that write, draw and measure, of plait's own."""
    write, draw = (replace(s, stage=s.name) for s in (writer(HALF), painter(0, HALF)))
    samples = [sample(i) for i in range(queries)]
    plan = plan_of(samples, write=write, paint=[draw], measure=HALF)
    (scorer,) = plan.scorers
    scorer.stage = replace(scorer.stage, stage="measure")
    scorer.stages = (scorer.stage,)
    return plan


@dataclass(frozen=True)
class Rates(Speeds):
    """Stages that differ in the seconds they take for a record."""

    by_stage: Mapping[str, float] = field(default_factory=dict)

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        times = {"load": LOAD_S, "host": LOAD_S, "run": records * self.by_stage[spec.name]}
        return times.get(method, 0.0)


class MostWorkers(Witness):
    """Counts the workers of each stage that are ready at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.most: Counter[str] = Counter()

    def turn(self, stages: Sequence[StageProgress]) -> None:
        self.most |= Counter({stage.name: stage.workers for stage in stages})


def in_simulation(plan: Plan, queries: int, seconds: Sequence[float]) -> list[int]:
    write, draw, measure = plan.stages
    before_measure = frozenset(plan.feeders[measure.digest])
    stages = (
        work(write, 0, queries),
        work(draw, 1, 0, (write, queries)),
        replace(work(measure, 2, 0, (draw, queries)), feeders=before_measure),
    )
    speeds = {
        s.digest: WorkerSpeed(each, LOAD_S)
        for s, each in zip(plan.stages, seconds, strict=True)
    }
    workers = simulate(stages, speeds, [NODE]).workers
    return [workers[stage.digest] for stage in plan.stages]


def in_the_engine(plan: Plan, root: Path, seconds: Sequence[float]) -> list[int]:
    names = [stage.name for stage in plan.stages]
    world = World([NODE], Rates(by_stage=dict(zip(names, seconds, strict=True))))
    witness = MostWorkers()
    with world.driver() as driver:
        run(plan, root, witness, executor=nullcontext(driver))
    return [witness.most[name] for name in names]


@pytest.mark.parametrize(
    ("queries", "seconds", "expected"),
    [
        (16, (2.0, 15.0, 3.0), [1, 2, 2]),  # the writer's process helps to draw
        (10, (3.0, 3.0, 15.0), [1, 1, 2]),  # measuring needs the help
        (3, (2.0, 15.0, 3.0), [1, 1, 1]),  # nothing is worth a second worker
        (24, (10.0, 10.0, 3.0), [2, 2, 2]),  # one more from the start
    ],
)
def test_the_engine_has_as_many_workers_as_were_forecast(
    tmp_path: Path, queries: int, seconds: tuple[float, ...], expected: list[int]
) -> None:
    plan = job(queries)
    assert in_simulation(plan, queries, seconds) == expected
    assert in_the_engine(plan, tmp_path, seconds) == expected
