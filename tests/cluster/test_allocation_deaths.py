"""Deaths of workers and their nodes, and what becomes of their work, on paper."""

from __future__ import annotations

from dataclasses import replace

from allocation_helpers import (
    GPU,
    PaperPool,
    node,
    place,
    stage,
    workers,
)

from cluster.actors import cause_of_death
from cluster.worker import Receipt


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
