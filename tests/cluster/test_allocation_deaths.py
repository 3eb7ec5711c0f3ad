"""Deaths of workers and their nodes, and what becomes of their work, on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from allocation_helpers import (
    GPU,
    PaperPool,
    end,
    node,
    place,
    stage,
    workers,
)
from ray.exceptions import RayError, RuntimeEnvSetupError

from cluster.executors.base import HostLost
from cluster.executors.node_watch import NodeWatch
from cluster.executors.on_ray import host_lost
from cluster.replica import Replica
from cluster.watcher import WorkerFailure
from cluster.worker import Receipt


def test_deaths_while_loading_count_only_in_a_row() -> None:
    pool, queue = PaperPool(node(gpus=8)), stage(0, jobs=4)

    def die_loading() -> None:
        replica = pool.working(queue)
        replica.enter("loading")
        end(pool, replica)

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


class PaperCluster:
    """A cluster whose nodes come, go and fall silent, and a clock that is set by hand."""

    def __init__(self, *names: str) -> None:
        self.now = 100.0
        self.watch = NodeWatch(clock=lambda: self.now)
        self.pool = PaperPool(*(node(name=name) for name in names), watched=self.watch)
        self.silent: set[str] = set()
        self.queue = stage(0, replace(GPU, batch_size=1), jobs=4)
        self.failures: list[WorkerFailure] = []
        self.pool._on_failure = self.failures.append
        self.wait(0)

    def wait(self, seconds: float) -> list[Any]:
        """Time passes, and every node is tried at its end."""
        self.now += seconds
        for entry in self.pool.nodes:
            self.watch.note(entry.id, self.now, accepted=entry.id not in self.silent)
        return self.pool.unprompted()

    def loading(self) -> Replica:
        """The stage's next worker, while it loads."""
        place(self.pool, self.queue)
        (replica,) = self.pool.of(self.queue)
        replica.enter("loading")
        return replica

    def computing(self, name: str) -> Replica:
        """A worker on the node of that name with two records in flight."""
        replica = self.pool.working(self.queue, name)
        self.pool.dispatch(lambda queue: False)
        assert len(replica.in_flight) == 2
        return replica

    def replace_node(self, gone: str, new: str) -> None:
        remaining = [n for n in self.pool.nodes if n.id != gone]
        self.pool.nodes = [*remaining, node(name=new)]


def test_deaths_on_nodes_that_vanish_after_them_do_not_count() -> None:
    """A preempted machine kills the worker some seconds before it is off the list."""
    cluster = PaperCluster("n0")
    for i in range(5):
        replica = cluster.loading()
        assert replica.handle.node.id == f"n{i}"
        end(cluster.pool, replica)
        cluster.wait(1)
        cluster.replace_node(f"n{i}", f"n{i + 1}")
        cluster.wait(20)
    assert cluster.queue.unusable is None
    assert [f.kind for f in cluster.failures] == ["lost with its node"] * 5
    place(cluster.pool, cluster.queue)
    assert workers(cluster.pool, cluster.queue) == 1


def test_deaths_while_loading_on_different_nodes_do_not_add_up() -> None:
    cluster = PaperCluster("a", "b", "c")
    nodes = set()
    for _ in range(3):
        replica = cluster.loading()
        nodes.add(replica.handle.node.id)
        end(cluster.pool, replica)
    cluster.wait(60)
    assert nodes == {"a", "b", "c"}
    assert len(cluster.failures) == 3
    assert cluster.queue.unusable is None


def test_deaths_while_loading_on_a_node_that_lives_on_end_the_stage() -> None:
    cluster = PaperCluster("n")
    for _ in range(3):
        assert cluster.queue.unusable is None
        end(cluster.pool, cluster.loading())
        place(cluster.pool, cluster.queue)
        assert workers(cluster.pool, cluster.queue) == 0  # the node may be going
        cluster.wait(6)
    assert cluster.queue.unusable == (
        "worker died: the process was killed, 3 times in a row while loading"
    )
    assert not cluster.pool.notices[1:]  # nobody is told that room is missing


@pytest.mark.parametrize("fate", ["alive", "off the list", "refuses", "never reachable"])
def test_a_death_is_charged_only_once_its_node_has_outlived_it(fate: str) -> None:
    """A node that ends takes its workers along some seconds before it is known to end."""
    cluster = PaperCluster("a", "b")
    if fate == "never reachable":
        cluster.watch._signs.clear()
    end(cluster.pool, cluster.computing("a"))
    assert (cluster.failures, cluster.queue.pending) == ([], 2)
    if fate == "off the list":
        cluster.replace_node("a", "c")
    if fate == "refuses":
        cluster.silent = {"a"}
    if fate != "never reachable":
        cluster.wait(6)
    else:
        cluster.now += 46
        cluster.pool.unprompted()
    charged = fate in ("alive", "never reachable")
    (failure,) = cluster.failures
    assert (failure.kind, failure.host) == (
        "died" if charged else "lost with its node",
        "10.0.0.a",
    )
    assert bool(cluster.queue._suspects) == charged
    assert cluster.queue.pending == 4  # nothing is lost
    assert ("a" in cluster.pool.free_for(stage(1))) == charged  # nor tried there again


def test_the_work_of_a_silent_node_goes_to_others_and_it_may_come_back() -> None:
    cluster = PaperCluster("a", "b")
    cluster.computing("a")
    cluster.silent = {"a"}
    cluster.wait(15)
    assert (cluster.failures, cluster.pool.notices) == ([], [])
    cluster.wait(6)
    assert [f.kind for f in cluster.failures] == ["lost with its node"]
    assert "no sign of node 10.0.0.a for 20 s" in cluster.pool.notices[0]
    assert (cluster.queue.pending, cluster.queue._suspects) == (4, set())
    place(cluster.pool, cluster.queue)
    (replica,) = cluster.pool.of(cluster.queue)
    assert replica.handle.node.id == "b"
    assert set(cluster.pool.free_for(stage(1))) == {"b"}
    cluster.silent = set()
    cluster.wait(2)
    assert set(cluster.pool.free_for(stage(1))) == {"a", "b"}


NO_ENVIRONMENT = RuntimeEnvSetupError("Could not create the actor.\nTypeError: no path")
NO_IMPORT = RayError(
    "The actor died because of an error raised in its creation task, ray::Worker\n"
    "ImportError: no module"
)


KILLED = RayError(
    "The actor died.\n\tWorker killed by SIGKILL. Some common causes include: x"
)


@pytest.mark.parametrize(
    ("error", "reason", "refused"),
    [
        (NO_ENVIRONMENT, "TypeError: no path", True),
        (NO_IMPORT, "ImportError: no module", True),
        (KILLED, "Worker killed by SIGKILL.", False),
    ],
)
def test_what_ray_says_of_a_lost_host(error: Exception, reason: str, refused: bool) -> None:
    lost = host_lost(error)
    assert (str(lost), lost.refused) == (reason, refused)


def test_what_cannot_be_started_is_tried_once_on_each_node() -> None:
    error = HostLost("ImportError: no module", refused=True)
    cluster = PaperCluster("a", "b")
    tried = []
    while cluster.queue.unusable is None:
        replica = cluster.loading()
        replica.enter("starting")
        tried.append(replica.handle.node.id)
        end(cluster.pool, replica, error)
    assert sorted(tried) == ["a", "b"]
    assert cluster.queue.unusable.endswith(str(error))
    assert tried[-1] in cluster.queue.unusable


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
