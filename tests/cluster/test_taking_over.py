"""A process whose stage has no more work loads the next one: on paper, and on Ray."""

from __future__ import annotations

import gc
import time
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from allocation_helpers import (
    CPU,
    GPU,
    PaperPool,
    built_in,
    end,
    node,
    place,
    stage,
    stopping,
    workers,
)
from trial import LIGHT, Witness, as_asked, outcomes, run, sample, writer

from cluster.allocation import Allocator
from cluster.plan import Plan
from cluster.tracing.sessions import read_sessions
from cluster.worker import Worker, WorkerInfo
from generators.base import Failure, Fault, Result, StageSpec
from generators.system import System

# ------------------------------------------------------------------------- on paper


def test_the_process_of_a_finished_worker_loads_the_next_stage() -> None:
    pool, ended, waiting = PaperPool(node(0, 1)), built_in(0), built_in(1, jobs=1)
    former = pool.working(ended)
    place(pool, ended, waiting)
    (replica,) = pool.replicas
    assert (replica.queue, replica.state) == (waiting, "loading")
    assert replica.handle is former.handle
    assert not former.handle.killed  # type: ignore[attr-defined]
    assert pool.free()["n"].cpus == 0


def test_the_time_of_a_new_process_is_told_from_that_of_one_taken_over() -> None:
    pool, ended, waiting = PaperPool(node(0, 1)), built_in(0, jobs=1), built_in(1, jobs=1)
    ready: list[tuple[str, bool]] = []

    def on_ready(folder: str, seconds: float, *, taken_over: bool) -> None:
        ready.append((folder, taken_over))

    pool._on_ready = on_ready
    for queue in (ended, waiting):
        place(pool, queue)
        (replica,) = pool.of(queue)
        replica.info = WorkerInfo(None, False)
        pool._loaded(replica, None)
        queue.drain()
    assert ready == [(ended.spec.folder, False), (waiting.spec.folder, True)]


def test_no_process_is_started_where_one_has_nothing_more_to_do() -> None:
    pool, ended, waiting = PaperPool(node(0, 8)), built_in(0), built_in(1, jobs=1)
    pool.working(ended)
    place(pool, ended, waiting)
    assert len(pool.replicas) == workers(pool, waiting) == 1


def test_a_process_that_may_get_more_work_is_left_alone_where_there_is_room() -> None:
    pool, other, waiting = PaperPool(node(0, 8)), built_in(0), built_in(1, jobs=1)
    pool.working(other)
    place(pool, other, waiting, growing=True)
    assert (workers(pool, other), workers(pool, waiting)) == (1, 1)


def test_a_process_that_may_get_more_work_is_taken_over_after_a_moment() -> None:
    pool, other, waiting = PaperPool(node(0, 1)), built_in(0), built_in(1, jobs=1)
    replica = pool.working(other)
    replica.last_heard = time.monotonic()
    place(pool, other, waiting, growing=True)
    assert workers(pool, waiting) == 0
    replica.last_heard -= 60
    place(pool, other, waiting, growing=True)
    assert workers(pool, waiting) == 1


BATCH = CPU.batch_size


@pytest.mark.parametrize(
    ("jobs", "growing", "helps"),
    [
        (2 * BATCH + 1, True, True),
        (2 * BATCH, True, False),  # too little to load the stage for
        (2 * BATCH + 1, False, False),  # nothing comes before what the stage waits with
    ],
)
def test_a_process_at_hand_first_helps_the_stage_that_feeds_the_next(
    jobs: int, growing: bool, helps: bool
) -> None:
    pool = PaperPool(node(0, 2))
    busy, ended, fed = built_in(0, jobs=jobs), built_in(1), built_in(2, jobs=1)
    for queue in (busy, ended):
        pool.working(queue)
    Allocator(pool, lambda queue: queue is fed and growing).allocate([busy, ended, fed])
    assert (workers(pool, busy), workers(pool, fed)) == ((2, 0) if helps else (1, 1))


def test_no_process_is_started_for_as_little_work() -> None:
    pool, busy = PaperPool(node(0, 2)), built_in(0, jobs=2 * BATCH + 1)
    pool.working(busy)
    place(pool, busy)
    assert workers(pool, busy) == 1


def test_one_process_at_hand_helps_one_stage_and_none_is_started_for_the_other() -> None:
    pool, ended = PaperPool(node(0, 8)), built_in(0)
    first, second = (built_in(rank, jobs=2 * BATCH + 1) for rank in (1, 2))
    for queue in (ended, first, second):
        pool.working(queue)
    place(pool, ended, first, second)
    assert (workers(pool, first), workers(pool, second)) == (2, 1)
    assert len(pool.replicas) == 3


def test_a_stage_that_needs_other_resources_does_not_come_after() -> None:
    pool = PaperPool(node(1, 3))
    busy, ended, fed = built_in(0, jobs=100), built_in(1), built_in(2, GPU, jobs=1)
    for queue in (busy, ended):
        pool.working(queue)
    Allocator(pool, lambda queue: queue is fed).allocate([busy, ended, fed])
    assert workers(pool, fed) == 1


def test_a_process_at_work_is_not_taken_over() -> None:
    pool, other, waiting = PaperPool(node(0, 1)), built_in(0), built_in(1, jobs=1)
    pool.working(other).in_flight["ref"] = None  # type: ignore[assignment]
    place(pool, other, waiting)
    assert workers(pool, waiting) == 0


@pytest.mark.parametrize("which", ["former", "later"])
@pytest.mark.parametrize(
    "change",
    [
        {"stage": ""},
        {"secrets": ("API_KEY",)},
        {"placement": GPU},
        {"placement": replace(CPU, endpoint="http://x/v1")},
        {"placement": replace(CPU, num_cpus=0.5)},
        {"placement": replace(CPU, memory_gib=1)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_a_process_must_not_share(change: dict[str, Any], which: str) -> None:
    """A user's class, secrets, GPUs, an endpoint, and needs that differ."""
    pool, former, later = PaperPool(node(1, 1)), built_in(0), built_in(1, jobs=1)
    queue = former if which == "former" else later
    queue.spec = replace(queue.spec, **change)
    old = pool.working(former)
    place(pool, former, later)
    assert old in pool.replicas
    assert all(r.handle is not old.handle for r in pool.of(later))


def test_a_worker_with_gpus_is_stopped_for_another_one_of_the_same_needs() -> None:
    pool, ended, waiting = PaperPool(node(1, 1)), built_in(0, GPU), built_in(1, GPU, 1)
    pool.working(ended)
    place(pool, ended, waiting)
    assert stopping(pool) == [0]
    assert workers(pool, waiting) == 0


def test_a_stage_that_cannot_load_after_another_gets_a_process_of_its_own() -> None:
    pool, ended, waiting = PaperPool(node(0, 1)), built_in(0), built_in(1, jobs=1)
    pool.working(ended)
    place(pool, ended, waiting)
    (heir,) = pool.replicas
    assert pool._loaded(heir, "no memory left") == []
    assert (heir.state, waiting.unusable) == ("stopping", None)
    pool._remove(heir)
    pool.working(ended)
    place(pool, ended, waiting)
    assert stopping(pool) == [0]  # its process is not taken over again
    pool.replicas.clear()
    place(pool, ended, waiting)
    (own,) = pool.replicas
    [(_, failed)] = pool._loaded(own, "no memory at all")
    assert len(failed) == 1  # type: ignore[arg-type]
    assert waiting.unusable == "no memory at all"


def test_a_stage_whose_worker_dies_loading_after_another_gets_a_process_of_its_own() -> (
    None
):
    pool, ended, waiting = PaperPool(node(0, 1)), built_in(0), built_in(1, jobs=1)
    pool.working(ended)
    place(pool, ended, waiting)
    end(pool, *pool.of(waiting))
    assert "a process of its own: worker died: the process was killed" in pool.notices[-1]
    pool.working(ended)
    place(pool, ended, waiting)
    assert stopping(pool) == [0]  # its process is not taken over again


def test_deaths_while_loading_after_another_stage_count_as_well() -> None:
    pool, ended, waiting = PaperPool(node(0, 1)), built_in(0), built_in(1, jobs=1)
    pool.working(ended)
    for _ in range(3):
        assert waiting.unusable is None
        place(pool, ended, waiting)
        end(pool, *pool.of(waiting))
    assert "3 times in a row while loading" in str(waiting.unusable)


def test_a_stage_that_takes_too_long_to_load_after_another_is_tried_alone() -> None:
    pool, ended, waiting = PaperPool(node(0, 1)), built_in(0), built_in(1, jobs=1)
    pool.working(ended)
    place(pool, ended, waiting)
    (heir,) = pool.replicas
    heir.since -= 1e6
    assert pool._check_limits() == []
    assert (heir.state, waiting.own_process) == ("stopping", True)
    assert waiting.unusable is None


def test_a_user_s_own_stages_still_take_turns() -> None:
    pool, ended, waiting = PaperPool(node(0, 1)), stage(0, CPU), stage(1, CPU, 1)
    pool.working(ended)
    place(pool, ended, waiting)
    assert stopping(pool) == [0]


# ------------------------------------------------------------------------- a process


class Hoarder:
    """A stage of 200 MB in pieces that the allocator keeps when they are freed."""

    def __init__(self) -> None:
        self.pieces = [bytes([i % 256]) * 60_000 for i in range(3500)]
        self.itself = self


def test_a_stage_that_is_followed_leaves_nothing_behind(tmp_path: Path) -> None:
    worker, process = Worker(writer(), str(tmp_path)), psutil.Process()
    worker.load(shared=True)
    worker._drop()  # what earlier tests have freed must not be used again
    before = process.memory_info().rss
    worker._stage = Hoarder()
    rest = bytearray(50_000)  # lies behind the pieces
    gone = weakref.ref(worker._stage)
    assert process.memory_info().rss - before > 150 << 20
    gc.disable()
    try:
        assert worker.host(writer(style="other")) is None
    finally:
        gc.enable()
    assert gone() is None
    assert process.memory_info().rss - before < 50 << 20
    assert (worker.spec.settings["style"], len(rest)) == ("other", 50_000)


# ------------------------------------------------------------------------- on Ray

WIDE = replace(LIGHT, num_cpus=3)
"""The session's Ray has 4 CPUs: one worker at a time."""


def own_writer(style: str, log: Path, **changes: Any) -> StageSpec:
    spec = writer(WIDE, style=style, log=log)
    return replace(spec, name=style, **{"stage": "trial writer", **changes})


def two_writers(texts: list[str], log: Path, **changes: Any) -> Plan:
    systems = [
        System(name=style, draft=own_writer(style, log, **changes), compose=_text_alone)
        for style in ("first", "second")
    ]
    samples = [sample(i, text) for i, text in enumerate(texts)]
    return Plan(systems=systems, samples=samples, scorers=[], prompt=as_asked)


def _text_alone(draft: Any, sample: Any) -> Any:
    return replace(draft, segments=draft.segments[:1])


def loads(log: Path) -> list[int]:
    """The process of each load, in order."""
    return [int(x.split()[1]) for x in log.read_text().splitlines() if "load" in x]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_address")
@pytest.mark.parametrize("own", [True, False])
def test_two_stages_share_a_process_unless_they_are_the_user_s(
    tmp_path: Path, own: bool
) -> None:
    log = tmp_path / "log"
    plan = two_writers([""] * 6, log, **({} if own else {"stage": ""}))
    result = run(plan, tmp_path / "run")
    assert result.counts["done"] == 12
    first, second = loads(log)
    assert (first == second) is own
    (session,) = read_sessions(tmp_path / "run")
    assert [w.stage for w in session.workers] == ["first", "second"]
    assert session.workers[0].end <= session.workers[1].begin
    assert all(w.ready is not None and w.batches for w in session.workers)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_address")
def test_a_death_costs_the_batch_in_flight_and_nothing_of_the_stage_before(
    tmp_path: Path,
) -> None:
    """`second` kills its process, which has hosted `first`, whenever it meets a record."""
    log, witness = tmp_path / "log", Witness()
    plan = two_writers(["", "", "", "", "!kill", "", "", ""], log)
    first = replace(plan, systems=plan.systems[:1], samples=plan.samples[:4])
    lone = replace(plan.systems[0], name="lone")
    plan = replace(plan, systems=[lone, plan.systems[1]])
    run(first, tmp_path / "run")
    result = run(plan, tmp_path / "run", witness)
    ended = outcomes(plan, tmp_path / "run")
    lost = {key: o for key, o in ended.items() if not isinstance(o, Result)}
    killer = plan.samples[4].id
    assert set(lost) == {("lone", killer), ("second", killer)}
    assert all(isinstance(o, Failure) and o.fault is Fault.DIED for o in lost.values())
    assert result.counts["done"] == 14
    deaths = Counter(failure.stage for failure in witness.failures)
    # Batch of four, its half, the record alone: until three deaths are certainly its own.
    assert max(deaths.values()) <= 5
    done = [int(x.split()[1]) for x in log.read_text().splitlines() if "call" in x]
    # The batch whose receipt had not arrived, at each death; nothing of another stage.
    assert sum(done) - 14 <= 4 * deaths.total()
