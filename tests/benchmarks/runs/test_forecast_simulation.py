"""A simulated run takes what the scheduler's rules make of known rates."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from forecast_helpers import stage, work

from benchmarks.runs.forecast.machine import Machine
from benchmarks.runs.forecast.simulation import Simulated, WorkerSpeed, simulate
from benchmarks.runs.forecast.work import StageWork
from generators.base import Kind

WRITE, DRAW = stage("write"), stage("draw", Kind.RENDER)
PIPELINE = (work(WRITE, 0, 10), work(DRAW, 1, 0, (WRITE, 10)))


def simulated(
    stages: tuple[StageWork, ...], machine: Machine, seconds: float = 1.0, load: float = 0.0
) -> Simulated:
    speeds = {w.spec.digest: WorkerSpeed(seconds, load) for w in stages}
    return simulate(stages, speeds, machine.resources)


@pytest.mark.parametrize(
    ("cpus", "load_s", "expected"),
    [
        (1, 0.0, 20.0),  # one after the other
        (2, 0.0, 11.0),  # the last picture follows the last text
        (1, 5.0, 30.0),  # 5 + 10, and again
        (2, 5.0, 21.0),  # loads from the first text (6 s) to 11 s, then ten pictures
    ],
)
def test_two_stages_on_one_and_two_cpus(cpus: int, load_s: float, expected: float) -> None:
    run = simulated(PIPELINE, Machine(cpus=cpus), load=load_s)
    assert run.seconds == pytest.approx(expected, abs=0.01)
    assert run.gpu_seconds == 0


@pytest.mark.parametrize(
    ("cpus", "own", "expected"),
    [
        (1, True, 26.0),  # 5 + 10 by a new process, then 1 + 10 by the same
        (1, False, 30.0),  # a user's stages get processes of their own
        (2, True, 19.0),  # side by side; the first process helps the second from 16 s on
        (2, False, 21.0),  # side by side to the end
    ],
)
def test_a_process_whose_stage_has_ended_loads_the_next(
    cpus: int, own: bool, expected: float
) -> None:
    write, draw = (replace(s, stage=s.name if own else "") for s in (WRITE, DRAW))
    stages = (work(write, 0, 10), work(draw, 1, 0, (write, 10)))
    speeds = {w.spec.digest: WorkerSpeed(1.0, 5.0, 1.0) for w in stages}
    run = simulate(stages, speeds, Machine(cpus=cpus).resources)
    assert run.seconds == pytest.approx(expected, abs=0.01)


def test_one_gpu_is_used_by_one_stage_after_the_other() -> None:
    first, second = (stage(n, Kind.RENDER, num_gpus=1.0) for n in ("first", "second"))
    run = simulated(
        (work(first, 0, 10), work(second, 1, 10)), Machine(cpus=8, gpus=1, gpu="A"), 1, 2
    )
    assert run.seconds == pytest.approx(24.0, abs=0.01)
    assert run.gpu_seconds == pytest.approx(24.0, abs=0.01)


def test_two_gpus_run_both_stages_side_by_side() -> None:
    first, second = (stage(n, Kind.RENDER, num_gpus=1.0) for n in ("first", "second"))
    run = simulated(
        (work(first, 0, 10), work(second, 1, 5)), Machine(cpus=8, gpus=2, gpu="A"), 1, 2
    )
    assert run.seconds == pytest.approx(12.0, abs=0.01)
    assert run.gpu_seconds == pytest.approx(24.0, abs=0.01)  # the idle one is held


def test_more_workers_start_where_much_waits() -> None:
    draw = stage("draw", Kind.RENDER, num_gpus=1.0)
    run = simulated((work(draw, 0, 100),), Machine(cpus=8, gpus=4, gpu="A"))
    assert run.workers[draw.digest] == 4
    assert run.seconds == pytest.approx(25.0, abs=1.0)


def test_few_jobs_get_one_worker() -> None:
    draw = stage("draw", Kind.RENDER, num_gpus=1.0)
    run = simulated((work(draw, 0, 16),), Machine(cpus=8, gpus=4, gpu="A"))
    assert (run.workers[draw.digest], run.seconds) == (1, pytest.approx(16.0, abs=0.01))


def test_an_endpoint_answers_several_requests_at_a_time() -> None:
    asked = stage("asked", endpoint="https://x/v1", concurrency=4)
    run = simulated((work(asked, 0, 8),), Machine(cpus=2))
    assert run.seconds == pytest.approx(2.0, abs=0.01)


def test_a_stage_that_fits_nowhere_is_named_and_what_follows_goes_on() -> None:
    wide = stage("wide", num_gpus=8.0)
    follows = work(DRAW, 1, 3, (wide, 5))
    run = simulated((work(wide, 0, 5), follows), Machine(cpus=2, gpus=1, gpu="A"))
    assert list(run.unplaced) == ["wide"]
    assert run.seconds == pytest.approx(8.0, abs=0.01)


def test_a_large_plan_takes_no_longer_than_a_small_one() -> None:
    writers = [stage(f"w{i}", num_gpus=1.0, batch_size=8) for i in range(4)]
    artists = [stage(f"a{i}", Kind.RENDER, num_gpus=1.0, batch_size=4) for i in range(4)]
    stages = [work(w, i, 20_000) for i, w in enumerate(writers)]
    feeders = [(w, 20_000.0) for w in writers]
    stages += [work(a, 4 + i, 0, *feeders) for i, a in enumerate(artists)]
    began = time.process_time()
    run = simulated(tuple(stages), Machine(nodes=2, cpus=64, gpus=8, gpu="A"))
    assert time.process_time() - began < 10.0
    # 80,000 texts and 320,000 pictures of a second each over 16 GPUs
    assert run.seconds == pytest.approx(25_000, rel=0.05)
