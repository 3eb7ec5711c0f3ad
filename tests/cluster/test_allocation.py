"""Who gets a worker and whose worker leaves, decided on paper: no Ray, no processes."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from allocation_helpers import (
    GPU,
    PaperPool,
    node,
    place,
    stage,
    stopping,
    workers,
)
from trial import LIGHT

from cluster.executors import local, on_ray
from cluster.executors.node_watch import NodeWatch
from cluster.placement import Node, Resources


def test_stages_before_others_are_placed_first() -> None:
    pool, first, second = PaperPool(node()), stage(0, jobs=1), stage(1, jobs=1)
    place(pool, second, first)
    assert (workers(pool, first), workers(pool, second)) == (1, 0)


def test_a_drained_worker_leaves_and_its_room_counts_as_taken_until_it_is_gone() -> None:
    pool, drained, waiting = PaperPool(node()), stage(0), stage(1, jobs=1)
    old = pool.working(drained)
    place(pool, drained, waiting)
    assert stopping(pool) == [0]
    place(pool, drained, waiting)
    assert workers(pool, waiting) == 0
    pool.replicas.remove(old)
    place(pool, drained, waiting)
    assert workers(pool, waiting) == 1


@pytest.mark.parametrize("busy", ["pending", "in flight"])
def test_a_worker_with_work_stays(busy: str) -> None:
    pool, waiting = PaperPool(node()), stage(1, jobs=1)
    other = stage(0, jobs=1 if busy == "pending" else 0)
    replica = pool.working(other)
    if busy == "in flight":
        replica.in_flight["ref"] = None  # type: ignore[assignment]
    place(pool, other, waiting)
    assert stopping(pool) == []
    assert workers(pool, waiting) == 0


def test_a_worker_that_may_soon_get_more_stays_for_a_moment() -> None:
    pool, other, waiting = PaperPool(node()), stage(0), stage(1, jobs=1)
    replica = pool.working(other)
    replica.last_heard = time.monotonic()
    place(pool, other, waiting, growing=True)
    assert stopping(pool) == []
    replica.last_heard -= 60
    place(pool, other, waiting, growing=True)
    assert stopping(pool) == [0]


def test_only_workers_whose_room_is_needed_leave() -> None:
    """A stage that waits for a GPU does not send away an endpoint or a scorer on CPUs."""
    pool = PaperPool(node(gpus=2))
    on_cpu, first, second = stage(0, LIGHT), stage(1), stage(2)
    for queue in (on_cpu, first, second):
        pool.working(queue)
    place(pool, on_cpu, first, second, stage(3, jobs=1))
    assert stopping(pool) == [1]


def test_nobody_leaves_where_that_would_not_be_enough() -> None:
    pool = PaperPool(node(gpus=2), node(gpus=2, name="m"))
    pool.working(stage(0), "n")
    pool.working(stage(1), "m")
    busy = stage(2, jobs=1)
    for name in ("n", "m"):
        pool.working(busy, name)
    place(pool, busy, stage(3, replace(GPU, num_gpus=2), jobs=1))
    assert stopping(pool) == []


def test_room_is_made_on_the_node_where_fewest_must_leave() -> None:
    pool = PaperPool(node(gpus=2), node(gpus=2, name="m"))
    pool.working(stage(0), "n")
    pool.working(stage(1), "n")
    pool.working(stage(2, replace(GPU, num_gpus=2)), "m")
    place(pool, stage(3, replace(GPU, num_gpus=2), jobs=1))
    assert stopping(pool) == [2]


def test_a_stage_with_much_work_grows_only_when_no_other_waits_for_room() -> None:
    pool, long = PaperPool(node(gpus=2)), stage(0, jobs=400)
    pool.working(long)
    place(pool, long)
    assert workers(pool, long) == 2
    pool = PaperPool(node(gpus=2))
    pool.working(long)
    place(pool, long, stage(1, replace(GPU, num_gpus=2), jobs=1))
    assert workers(pool, long) == 1


@pytest.mark.parametrize(
    ("batch_size", "jobs", "wanted"),
    [
        *((1, 16, 1), (1, 17, 2), (8, 128, 1), (8, 129, 2)),
        *((64, 128, 1), (64, 129, 2), (100, 200, 1), (100, 201, 2)),
    ],
)
def test_what_is_much_work_is_a_number_of_batches_or_of_records(
    batch_size: int, jobs: int, wanted: int
) -> None:
    """16 batches or 128 records, whichever is less, but two batches at least."""
    pool = PaperPool(node(gpus=2))
    queue = stage(0, replace(GPU, batch_size=batch_size), jobs=jobs)
    pool.working(queue)
    place(pool, queue)
    assert workers(pool, queue) == wanted


def test_a_stage_with_much_work_gets_the_room_of_stages_that_have_ended() -> None:
    pool, ended, long = PaperPool(node(gpus=3)), stage(0), stage(1, jobs=400)
    for _ in range(2):
        pool.working(ended)
    pool.working(long)
    place(pool, ended, long)
    assert stopping(pool) == [0]
    pool.replicas = [r for r in pool.replicas if r.state != "stopping"]
    place(pool, ended, long)
    assert workers(pool, long) == 2


def test_a_stage_that_may_get_more_work_keeps_its_workers_while_another_grows() -> None:
    pool, idle, long = PaperPool(node(gpus=2)), stage(0), stage(1, jobs=400)
    pool.working(idle).last_heard -= 60
    pool.working(long)
    place(pool, idle, long, growing=True)
    assert stopping(pool) == []


def test_a_stage_that_fits_on_no_node_does_not_keep_others_small() -> None:
    pool = PaperPool(node(gpus=2), watched=NodeWatch())
    long, huge = stage(0, jobs=400), stage(1, replace(GPU, num_gpus=8), jobs=1)
    pool.working(long)
    assert place(pool, long, huge) == []
    assert workers(pool, long) == 2


@pytest.mark.parametrize(
    ("address", "env", "fixed"),
    [(None, {}, True), ("auto", {}, False), (None, {"RAY_ADDRESS": "auto"}, False)],
)
def test_a_ray_that_a_run_starts_for_itself_never_grows(
    monkeypatch: pytest.MonkeyPatch, address: str | None, env: dict[str, str], fixed: bool
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert on_ray.is_local(address) is fixed


@pytest.mark.parametrize("given_up", [True, False])
def test_what_fits_nowhere_is_given_up_at_once_only_where_no_node_can_come(
    given_up: bool,
) -> None:
    pool = PaperPool(node(), watched=None if given_up else NodeWatch())
    huge = stage(0, replace(GPU, num_gpus=8), 3)
    pool.working(stage(1))
    events = place(pool, huge)
    assert bool(huge.unusable) is given_up
    assert [len(failed) for _, failed in events] == ([3] if given_up else [])
    assert "needs 8 GPU" in pool.notices[0]


def test_an_endpoint_has_one_worker_and_a_limit_is_kept() -> None:
    pool = PaperPool(node(gpus=8, cpus=80))
    endpoint = stage(0, replace(LIGHT, endpoint="http://x/v1"), jobs=400)
    two = stage(1, replace(LIGHT, workers=2), jobs=400)
    for _ in range(4):
        place(pool, endpoint, two)
    assert (workers(pool, endpoint), workers(pool, two)) == (1, 2)


def test_one_worker_that_cannot_load_does_not_cost_the_stage_the_others() -> None:
    pool, queue = PaperPool(node(gpus=4)), stage(0, jobs=400)
    pool.working(queue)
    late = pool.working(queue)
    late.enter("loading")
    assert pool._loaded(late, "no such file") == []
    assert queue.unusable is None
    assert "continues with fewer workers" in pool.notices[0]
    pool.replicas.remove(late)
    place(pool, queue)
    assert workers(pool, queue) == 1  # one more was tried in vain

    last = pool.of(queue)[0]
    [(_, failed)] = pool._loaded(last, "no such file")
    assert len(failed) == 400  # type: ignore[arg-type]
    assert queue.unusable == "no such file"


def test_room_that_others_hold_is_waited_for_while_own_workers_may_make_some() -> None:
    """On a cluster that is shared, what a node has in all says little."""
    pool = PaperPool(node(gpus=2), placement_timeout_s=5)
    writing, drawing = stage(0, jobs=400), stage(1, jobs=1)
    busy = pool.working(writing)
    place(pool, writing, drawing)
    (late,) = pool.of(drawing)
    late.since -= 6
    assert pool._check_limits() == []
    assert (late.state, drawing.unusable) == ("stopping", None)
    pool.replicas.remove(late)
    place(pool, writing, drawing)
    assert workers(pool, drawing) == 0  # for now the second GPU counts as taken
    writing.drain()
    place(pool, writing, drawing)
    assert busy.state == "stopping"
    pool.replicas.remove(busy)
    place(pool, writing, drawing)
    assert workers(pool, drawing) == 1


@pytest.mark.parametrize("at_work", [True, False])
def test_room_is_not_waited_for_when_nobody_is_at_work(at_work: bool) -> None:
    pool, queue = PaperPool(node(gpus=2), placement_timeout_s=5), stage(1, jobs=3)
    other = pool.working(stage(0, LIGHT))
    if at_work:
        other.in_flight["ref"] = None  # type: ignore[assignment]
        other.last_heard = time.monotonic()
    for _ in range(3):
        late = pool.working(queue)
        late.enter("starting")
        late.since -= 6
        events = pool._check_limits()
        pool.replicas.remove(late)
        if events:
            break
    assert (queue.unusable is None) is at_work
    assert queue.unplaced == (3 if at_work else 2)


def test_room_that_others_held_is_tried_again_after_a_while() -> None:
    pool, queue = PaperPool(node(gpus=2), placement_timeout_s=60), stage(0, jobs=400)
    pool.working(queue)
    pool._occupied.append((time.monotonic() - 50, "n", Resources(1, 1)))
    assert pool.free()["n"].gpus == 0
    pool._occupied[0] = (time.monotonic() - 61, "n", Resources(1, 1))
    assert pool.free()["n"].gpus == 1


def test_stages_of_one_endpoint_share_its_limit() -> None:
    pool = PaperPool(node(cpus=80))
    remote = replace(LIGHT, endpoint="http://x/v1", concurrency=4, batch_size=1)
    queues = [stage(i, remote, jobs=10) for i in range(2)]
    queues.append(stage(2, replace(remote, endpoint="http://y/v1"), jobs=10))
    replicas = [pool.working(queue) for queue in queues]
    for _ in range(6):
        pool.dispatch(lambda queue: False)
        flying = [len(r.in_flight) for r in replicas]
        assert flying[0] + flying[1] == 4
        assert flying[2] == 4
        busiest = max(replicas[:2], key=lambda r: len(r.in_flight))
        busiest.in_flight.popitem()
    assert min(flying[:2]) > 0  # the second is not starved by the first


def test_a_run_that_waits_for_resources_leaves_the_core_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With no worker there is nothing to wait for, and the loop used to spin."""
    pauses: list[float] = []
    monkeypatch.setattr(local.time, "sleep", pauses.append)
    assert PaperPool(Node("n", Resources(cpus=1))).collect(0.1) == []
    assert pauses == [0.1]
