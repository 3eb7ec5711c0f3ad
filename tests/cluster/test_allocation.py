"""Who gets a worker and whose worker leaves, decided on paper: no Ray, no processes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trial import LIGHT, painter, writer

from cluster import actors
from cluster.actors import cause_of_death
from cluster.allocation import Allocator
from cluster.placement import Node, Resources
from cluster.plan import EngineOptions
from cluster.replica import Replica
from cluster.stage_queue import StageQueue
from cluster.worker import Receipt
from cluster.workers import WorkerPool
from generators.base import Job, Placement
from generators.document import Request, Text, Turn


class PaperHandle:
    """A worker that exists on paper only."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.killed = False

    def call(self, method: str, *args: Any, control: bool = False) -> object:
        return object()

    def kill(self) -> None:
        self.killed = True


class PaperPool(WorkerPool):
    """Counts rooms and workers as the real one does; starts no process."""

    def __init__(self, *nodes: Node, **options: Any) -> None:
        self.notices: list[str] = []
        super().__init__(Path(), EngineOptions(**options), [], self.notices.append)
        self.nodes = list(nodes)

    def refresh_nodes(self, *, now: bool = False) -> None:
        pass

    def start(self, queue: StageQueue, node: str) -> None:
        self.working(queue, node).enter("starting")

    def working(self, queue: StageQueue, node: str = "n") -> Replica:
        """One more worker of a stage, ready, and idle for long enough to leave."""
        replica = Replica(queue, PaperHandle(node), "ready")  # type: ignore[arg-type]
        replica.last_heard = time.monotonic() - 60
        self.replicas.append(replica)
        return replica


GPU = replace(LIGHT, num_gpus=1, num_cpus=1)


def node(gpus: float = 1, cpus: float = 8, name: str = "n") -> Node:
    return Node(name, Resources(cpus, gpus))


def stage(rank: int, placement: Placement = GPU, jobs: int = 0) -> StageQueue:
    queue = StageQueue(painter(rank, placement), rank)
    for i in range(jobs):
        request = Request((Turn("user", (Text(str(i)),)),))
        queue.add(Job(writer(), request, str(i)))
    return queue


def place(pool: WorkerPool, *queues: StageQueue, growing: bool = False) -> list[Any]:
    return Allocator(pool, lambda queue: growing).allocate(queues)


def stopping(pool: WorkerPool) -> list[int]:
    return [r.queue.rank for r in pool.replicas if r.state == "stopping"]


def workers(pool: WorkerPool, queue: StageQueue) -> int:
    return len(pool.of(queue))


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


def test_a_stage_that_fits_on_no_node_does_not_keep_others_small() -> None:
    pool = PaperPool(node(gpus=2), address="auto")
    long, huge = stage(0, jobs=400), stage(1, replace(GPU, num_gpus=8), jobs=1)
    pool.working(long)
    assert place(pool, long, huge) == []
    assert workers(pool, long) == 2


@pytest.mark.parametrize(
    ("address", "env", "given_up"),
    [(None, {}, True), ("auto", {}, False), (None, {"RAY_ADDRESS": "auto"}, False)],
)
def test_what_fits_nowhere_is_given_up_at_once_only_where_no_node_can_come(
    monkeypatch: pytest.MonkeyPatch,
    address: str | None,
    env: dict[str, str],
    given_up: bool,
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    pool, huge = PaperPool(node(), address=address), stage(0, replace(GPU, num_gpus=8), 3)
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


def test_deaths_while_loading_count_only_in_a_row() -> None:
    pool, queue = PaperPool(node(gpus=8)), stage(0, jobs=4)

    def die_loading() -> None:
        replica = pool.working(queue)
        replica.enter("loading")
        pool._lost(replica, "the process was killed")

    for _ in range(2):
        die_loading()
    loaded = pool.working(queue)
    pool._loaded(loaded, None)
    pool.replicas.remove(loaded)
    for _ in range(2):
        die_loading()
    assert queue.unusable is None
    die_loading()
    assert queue.unusable == (
        "worker died: the process was killed, 3 times in a row while loading"
    )


class Preemptible:
    """A cluster whose nodes come and go, and a clock that is set by hand."""

    def __init__(self, *names: str) -> None:
        self.now = 0.0
        self.pool = PaperPool(*(node(name=name) for name in names), address="auto")
        self.pool._loading_deaths.clock = lambda: self.now
        self.queue = stage(0, jobs=4)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.pool.collect(0)

    def die_loading(self) -> str:
        """The stage's next worker is killed while it loads; the node it was on."""
        place(self.pool, self.queue)
        (replica,) = self.pool.of(self.queue)
        replica.enter("loading")
        self.pool._lost(replica, "the process was killed")
        return replica.handle.node

    def replace_node(self, gone: str, new: str) -> None:
        remaining = [n for n in self.pool.nodes if n.id != gone]
        self.pool.nodes = [*remaining, node(name=new)]


def test_deaths_on_nodes_that_vanish_after_them_do_not_count() -> None:
    """A preempted machine kills the worker some seconds before it is off the list."""
    cluster = Preemptible("n0")
    for i in range(5):
        assert cluster.die_loading() == f"n{i}"
        cluster.wait(20)
        cluster.replace_node(f"n{i}", f"n{i + 1}")
    cluster.wait(60)
    assert cluster.queue.unusable is None
    place(cluster.pool, cluster.queue)
    assert workers(cluster.pool, cluster.queue) == 1


def test_deaths_while_loading_on_different_nodes_do_not_add_up() -> None:
    cluster = Preemptible("a", "b", "c")
    assert {cluster.die_loading() for _ in range(3)} == {"a", "b", "c"}
    cluster.wait(60)
    assert cluster.queue.unusable is None


def test_deaths_while_loading_on_a_node_that_lives_on_end_the_stage() -> None:
    cluster = Preemptible("n")
    for _ in range(3):
        assert cluster.queue.unusable is None
        assert cluster.die_loading() == "n"
        place(cluster.pool, cluster.queue)
        assert workers(cluster.pool, cluster.queue) == 0  # the node may be going
        cluster.wait(60)
    assert cluster.queue.unusable == (
        "worker died: the process was killed, 3 times in a row while loading"
    )
    assert not cluster.pool.notices[1:]  # nobody is told that room is missing


def test_the_cause_of_a_death_is_told_without_rays_advice() -> None:
    message = "The actor died.\n\tWorker killed by SIGKILL. Some common causes include: x"
    assert cause_of_death(message) == "Worker killed by SIGKILL."


def test_a_worker_that_is_silent_for_too_long_is_dead() -> None:
    """It holds the interpreter's lock and cannot notice its own time limit."""
    pool, queue = PaperPool(node()), stage(0, replace(GPU, batch_timeout_s=5), jobs=1)
    replica = pool.working(queue)
    pool.dispatch(lambda queue: False)
    assert len(replica.in_flight) == 1
    assert pool._check_limits() == []
    replica.last_heard -= replica.silence_limit_s + 1
    [(_, failed)] = pool._check_limits()
    assert failed == []  # the only suspect, but not for the last time
    assert (replica.state, queue.pending) == ("stopping", 1)
    batch = queue.take(idle=True, growing=False, workers=1)
    assert batch is not None
    assert batch.alone


def test_a_suspect_is_sent_to_a_worker_with_nothing_else_and_stays_alone_there() -> None:
    pool, queue = PaperPool(node()), stage(0, replace(GPU, batch_size=1), jobs=4)
    replica = pool.working(queue)
    batches = [queue.take(idle=True, growing=False, workers=1) for _ in range(2)]
    for batch in batches:
        assert batch is not None
        queue.worker_died(batch, "worker died", certain=False)
    pool.dispatch(lambda queue: False)
    assert [b.alone for b in replica.in_flight.values()] == [True]
    pool.dispatch(lambda queue: False)
    assert len(replica.in_flight) == 1
    (ref, batch), *_ = replica.in_flight.items()
    pool._replied(replica, ref, Receipt("done"))
    pool.dispatch(lambda queue: False)
    assert [b.alone for b in replica.in_flight.values()] == [True]
    ref = next(iter(replica.in_flight))
    pool._replied(replica, ref, Receipt("done"))
    pool.dispatch(lambda queue: False)
    assert [b.alone for b in replica.in_flight.values()] == [False, False]


def test_what_a_lost_worker_had_not_begun_is_given_to_another() -> None:
    """A batch that overstays its limit dies; the one behind it has done nothing."""
    pool, queue = PaperPool(node()), stage(0, replace(GPU, batch_size=1), jobs=2)
    replica = pool.working(queue)
    pool.dispatch(lambda queue: False)
    ref = next(iter(replica.in_flight))
    pool._replied(replica, ref, Receipt("timeout", "took longer than 5 s"))
    assert replica.state == "stopping"
    waiting = [queue.take(idle=True, growing=False, workers=1) for _ in range(2)]
    assert [b.alone for b in waiting if b] == [False, True]
    assert sorted(b.jobs[0].label for b in waiting if b) == ["0", "1"]


def test_a_worker_that_nobody_has_a_place_for_gives_its_stage_up() -> None:
    queue = stage(0, jobs=400)
    alone = PaperPool(node(gpus=4), placement_timeout_s=5)
    only = alone.working(queue)
    only.enter("starting")
    only.since -= 6
    assert len(alone._check_limits()) == 1
    assert queue.unusable == "a worker was still starting after 6 s"


def test_a_process_that_is_slow_to_end_is_forgotten_whole() -> None:
    """What it says after it was written off must not be taken for news."""
    pool = PaperPool(node())
    replica = pool.working(stage(0))
    pool.stop(replica)
    assert list(pool._refs.values()) == [replica]
    replica.since -= 60
    assert pool._check_limits() == []
    assert pool.replicas == []
    assert not pool._refs


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
    monkeypatch.setattr(actors.time, "sleep", pauses.append)
    assert PaperPool(Node("n", Resources(cpus=1))).collect(0.1) == []
    assert pauses == [0.1]
