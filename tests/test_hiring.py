"""Who gets a worker and whose worker leaves, decided on paper: no Ray, no processes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trial import LIGHT, painter, writer

from cluster.crew import Crew, _cause
from cluster.hiring import Hiring
from cluster.options import EngineOptions
from cluster.placement import Need, Node
from cluster.pool import StagePool
from cluster.replica import Replica
from cluster.worker import Receipt
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


class PaperCrew(Crew):
    """Counts rooms and workers as the real one does; starts no process."""

    def __init__(self, *nodes: Node, **options: Any) -> None:
        self.notices: list[str] = []
        super().__init__(Path(), EngineOptions(**options), [], self.notices.append)
        self.nodes = list(nodes)

    def look_at_nodes(self, *, now: bool = False) -> None:
        pass

    def start(self, pool: StagePool, node: str) -> None:
        self.working(pool, node).become("starting")

    def working(self, pool: StagePool, node: str = "n") -> Replica:
        """One more worker of a stage, ready, and idle for long enough to leave."""
        replica = Replica(pool, PaperHandle(node), "ready")  # type: ignore[arg-type]
        replica.heard = time.monotonic() - 60
        self.replicas.append(replica)
        return replica


GPU = replace(LIGHT, num_gpus=1, num_cpus=1)


def node(gpus: float = 1, cpus: float = 8, name: str = "n") -> Node:
    return Node(name, Need(cpus, gpus))


def stage(rank: int, placement: Placement = GPU, jobs: int = 0) -> StagePool:
    pool = StagePool(painter(rank, placement), rank)
    for i in range(jobs):
        request = Request((Turn("user", (Text(str(i)),)),))
        pool.add(Job(writer(), request, str(i)))
    return pool


def place(crew: Crew, *pools: StagePool, growing: bool = False) -> list[Any]:
    return Hiring(crew, lambda pool: growing).place(pools)


def leaving(crew: Crew) -> list[int]:
    return [r.pool.rank for r in crew.replicas if r.state == "leaving"]


def workers(crew: Crew, pool: StagePool) -> int:
    return len(crew.of(pool))


def test_stages_before_others_are_placed_first() -> None:
    crew, first, second = PaperCrew(node()), stage(0, jobs=1), stage(1, jobs=1)
    place(crew, second, first)
    assert (workers(crew, first), workers(crew, second)) == (1, 0)


def test_a_drained_worker_leaves_and_its_room_counts_as_taken_until_it_is_gone() -> None:
    crew, drained, waiting = PaperCrew(node()), stage(0), stage(1, jobs=1)
    old = crew.working(drained)
    place(crew, drained, waiting)
    assert leaving(crew) == [0]
    place(crew, drained, waiting)
    assert workers(crew, waiting) == 0
    crew.replicas.remove(old)
    place(crew, drained, waiting)
    assert workers(crew, waiting) == 1


@pytest.mark.parametrize("busy", ["pending", "in flight"])
def test_a_worker_with_work_stays(busy: str) -> None:
    crew, waiting = PaperCrew(node()), stage(1, jobs=1)
    other = stage(0, jobs=1 if busy == "pending" else 0)
    replica = crew.working(other)
    if busy == "in flight":
        replica.in_flight["ref"] = None  # type: ignore[assignment]
    place(crew, other, waiting)
    assert leaving(crew) == []
    assert workers(crew, waiting) == 0


def test_a_worker_that_may_soon_get_more_stays_for_a_moment() -> None:
    crew, other, waiting = PaperCrew(node()), stage(0), stage(1, jobs=1)
    replica = crew.working(other)
    replica.heard = time.monotonic()
    place(crew, other, waiting, growing=True)
    assert leaving(crew) == []
    replica.heard -= 60
    place(crew, other, waiting, growing=True)
    assert leaving(crew) == [0]


def test_only_workers_whose_room_is_needed_leave() -> None:
    """A stage that waits for a GPU does not send away an endpoint or a scorer on CPUs."""
    crew = PaperCrew(node(gpus=2))
    on_cpu, first, second = stage(0, LIGHT), stage(1), stage(2)
    for pool in (on_cpu, first, second):
        crew.working(pool)
    place(crew, on_cpu, first, second, stage(3, jobs=1))
    assert leaving(crew) == [1]


def test_nobody_leaves_where_that_would_not_be_enough() -> None:
    crew = PaperCrew(node(gpus=2), node(gpus=2, name="m"))
    crew.working(stage(0), "n")
    crew.working(stage(1), "m")
    busy = stage(2, jobs=1)
    for name in ("n", "m"):
        crew.working(busy, name)
    place(crew, busy, stage(3, replace(GPU, num_gpus=2), jobs=1))
    assert leaving(crew) == []


def test_room_is_made_on_the_node_where_fewest_must_leave() -> None:
    crew = PaperCrew(node(gpus=2), node(gpus=2, name="m"))
    crew.working(stage(0), "n")
    crew.working(stage(1), "n")
    crew.working(stage(2, replace(GPU, num_gpus=2)), "m")
    place(crew, stage(3, replace(GPU, num_gpus=2), jobs=1))
    assert leaving(crew) == [2]


def test_a_stage_with_much_work_grows_only_when_no_other_waits_for_room() -> None:
    crew, long = PaperCrew(node(gpus=2)), stage(0, jobs=400)
    crew.working(long)
    place(crew, long)
    assert workers(crew, long) == 2
    crew = PaperCrew(node(gpus=2))
    crew.working(long)
    place(crew, long, stage(1, replace(GPU, num_gpus=2), jobs=1))
    assert workers(crew, long) == 1


def test_a_stage_that_fits_on_no_node_does_not_keep_others_small() -> None:
    crew = PaperCrew(node(gpus=2), address="auto")
    long, huge = stage(0, jobs=400), stage(1, replace(GPU, num_gpus=8), jobs=1)
    crew.working(long)
    assert place(crew, long, huge) == []
    assert workers(crew, long) == 2


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
    crew, huge = PaperCrew(node(), address=address), stage(0, replace(GPU, num_gpus=8), 3)
    crew.working(stage(1))
    events = place(crew, huge)
    assert bool(huge.unusable) is given_up
    assert [len(failed) for _, failed in events] == ([3] if given_up else [])
    assert "needs 8 GPU" in crew.notices[0]


def test_an_endpoint_has_one_worker_and_a_limit_is_kept() -> None:
    crew = PaperCrew(node(gpus=8, cpus=80))
    endpoint = stage(0, replace(LIGHT, endpoint="http://x/v1"), jobs=400)
    two = stage(1, replace(LIGHT, workers=2), jobs=400)
    for _ in range(4):
        place(crew, endpoint, two)
    assert (workers(crew, endpoint), workers(crew, two)) == (1, 2)


def test_one_worker_that_cannot_load_does_not_cost_the_stage_the_others() -> None:
    crew, pool = PaperCrew(node(gpus=4)), stage(0, jobs=400)
    crew.working(pool)
    late = crew.working(pool)
    late.become("loading")
    assert crew._loaded(late, "no such file") == []
    assert pool.unusable is None
    assert "goes on with fewer workers" in crew.notices[0]
    crew.replicas.remove(late)
    place(crew, pool)
    assert workers(crew, pool) == 1  # one more was tried in vain

    last = crew.of(pool)[0]
    [(_, failed)] = crew._loaded(last, "no such file")
    assert len(failed) == 400  # type: ignore[arg-type]
    assert pool.unusable == "no such file"


def test_room_that_others_hold_is_waited_for_while_own_workers_may_make_some() -> None:
    """On a cluster that is shared, what a node has in all says little."""
    crew = PaperCrew(node(gpus=2), placement_timeout_s=5)
    writing, drawing = stage(0, jobs=400), stage(1, jobs=1)
    busy = crew.working(writing)
    place(crew, writing, drawing)
    (late,) = crew.of(drawing)
    late.since -= 6
    assert crew._overdue() == []
    assert (late.state, drawing.unusable) == ("leaving", None)
    crew.replicas.remove(late)
    place(crew, writing, drawing)
    assert workers(crew, drawing) == 0  # for now the second GPU counts as taken
    writing.drain()
    place(crew, writing, drawing)
    assert busy.state == "leaving"
    crew.replicas.remove(busy)
    place(crew, writing, drawing)
    assert workers(crew, drawing) == 1


@pytest.mark.parametrize("at_work", [True, False])
def test_room_is_not_waited_for_when_nobody_is_at_work(at_work: bool) -> None:
    crew, pool = PaperCrew(node(gpus=2), placement_timeout_s=5), stage(1, jobs=3)
    other = crew.working(stage(0, LIGHT))
    if at_work:
        other.in_flight["ref"] = None  # type: ignore[assignment]
        other.heard = time.monotonic()
    for _ in range(3):
        late = crew.working(pool)
        late.become("starting")
        late.since -= 6
        events = crew._overdue()
        crew.replicas.remove(late)
        if events:
            break
    assert (pool.unusable is None) is at_work
    assert pool.unplaced == (3 if at_work else 2)


def test_room_that_others_held_is_tried_again_after_a_while() -> None:
    crew, pool = PaperCrew(node(gpus=2), placement_timeout_s=60), stage(0, jobs=400)
    crew.working(pool)
    crew._held.append((time.monotonic() - 50, "n", Need(1, 1)))
    assert crew.room()["n"].gpus == 0
    crew._held[0] = (time.monotonic() - 61, "n", Need(1, 1))
    assert crew.room()["n"].gpus == 1


def test_deaths_while_loading_count_only_in_a_row() -> None:
    crew, pool = PaperCrew(node(gpus=8)), stage(0, jobs=4)

    def die_loading() -> None:
        replica = crew.working(pool)
        replica.become("loading")
        crew._lost(replica, "the process was killed")

    for _ in range(2):
        die_loading()
    loaded = crew.working(pool)
    crew._loaded(loaded, None)
    crew.replicas.remove(loaded)
    for _ in range(2):
        die_loading()
    assert pool.unusable is None
    die_loading()
    assert pool.unusable == (
        "worker died: the process was killed, 3 times in a row while loading"
    )


class Preemptible:
    """A cluster whose nodes come and go, and a clock that is set by hand."""

    def __init__(self, *names: str) -> None:
        self.now = 0.0
        self.crew = PaperCrew(*(node(name=name) for name in names), address="auto")
        self.crew._loading_deaths.clock = lambda: self.now
        self.pool = stage(0, jobs=4)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.crew.collect(0)

    def die_loading(self) -> str:
        """The stage's next worker is killed while it loads; the node it was on."""
        place(self.crew, self.pool)
        (replica,) = self.crew.of(self.pool)
        replica.become("loading")
        self.crew._lost(replica, "the process was killed")
        return replica.handle.node

    def replace_node(self, gone: str, new: str) -> None:
        kept = [n for n in self.crew.nodes if n.id != gone]
        self.crew.nodes = [*kept, node(name=new)]


def test_deaths_on_nodes_that_vanish_after_them_do_not_count() -> None:
    """A preempted machine kills the worker some seconds before it is off the list."""
    cluster = Preemptible("n0")
    for i in range(5):
        assert cluster.die_loading() == f"n{i}"
        cluster.wait(20)
        cluster.replace_node(f"n{i}", f"n{i + 1}")
    cluster.wait(60)
    assert cluster.pool.unusable is None
    place(cluster.crew, cluster.pool)
    assert workers(cluster.crew, cluster.pool) == 1


def test_deaths_while_loading_on_different_nodes_do_not_add_up() -> None:
    cluster = Preemptible("a", "b", "c")
    assert {cluster.die_loading() for _ in range(3)} == {"a", "b", "c"}
    cluster.wait(60)
    assert cluster.pool.unusable is None


def test_deaths_while_loading_on_a_node_that_lives_on_end_the_stage() -> None:
    cluster = Preemptible("n")
    for _ in range(3):
        assert cluster.pool.unusable is None
        assert cluster.die_loading() == "n"
        place(cluster.crew, cluster.pool)
        assert workers(cluster.crew, cluster.pool) == 0  # the node may be going
        cluster.wait(60)
    assert cluster.pool.unusable == (
        "worker died: the process was killed, 3 times in a row while loading"
    )
    assert not cluster.crew.notices[1:]  # nobody is told that room is missing


def test_the_cause_of_a_death_is_told_without_rays_advice() -> None:
    said = "The actor died.\n\tWorker killed by SIGKILL. Some common causes include: x"
    assert _cause(said) == "Worker killed by SIGKILL."


def test_a_worker_that_is_silent_for_too_long_is_dead() -> None:
    """It holds the interpreter's lock and cannot notice its own time limit."""
    crew, pool = PaperCrew(node()), stage(0, replace(GPU, batch_timeout_s=5), jobs=1)
    replica = crew.working(pool)
    crew.feed(lambda pool: False)
    assert len(replica.in_flight) == 1
    assert crew._overdue() == []
    replica.heard -= replica.patience_s + 1
    [(_, failed)] = crew._overdue()
    assert failed == []  # the only suspect, but not for the last time
    assert (replica.state, pool.pending) == ("leaving", 1)
    batch = pool.take(idle=True, growing=False, workers=1)
    assert batch is not None
    assert batch.alone


def test_a_suspect_is_sent_to_a_worker_with_nothing_else_and_stays_alone_there() -> None:
    crew, pool = PaperCrew(node()), stage(0, replace(GPU, batch_size=1), jobs=4)
    replica = crew.working(pool)
    batches = [pool.take(idle=True, growing=False, workers=1) for _ in range(2)]
    for batch in batches:
        assert batch is not None
        pool.killed(batch, "worker died", certain=False)
    crew.feed(lambda pool: False)
    assert [b.alone for b in replica.in_flight.values()] == [True]
    crew.feed(lambda pool: False)
    assert len(replica.in_flight) == 1
    (ref, batch), *_ = replica.in_flight.items()
    crew._answered(replica, ref, Receipt("done"))
    crew.feed(lambda pool: False)
    assert [b.alone for b in replica.in_flight.values()] == [True]
    ref = next(iter(replica.in_flight))
    crew._answered(replica, ref, Receipt("done"))
    crew.feed(lambda pool: False)
    assert [b.alone for b in replica.in_flight.values()] == [False, False]


def test_what_a_lost_worker_had_not_begun_is_given_to_another() -> None:
    """A batch that overstays its limit dies; the one behind it has done nothing."""
    crew, pool = PaperCrew(node()), stage(0, replace(GPU, batch_size=1), jobs=2)
    replica = crew.working(pool)
    crew.feed(lambda pool: False)
    ref = next(iter(replica.in_flight))
    crew._answered(replica, ref, Receipt("timeout", "took longer than 5 s"))
    assert replica.state == "leaving"
    waiting = [pool.take(idle=True, growing=False, workers=1) for _ in range(2)]
    assert [b.alone for b in waiting if b] == [False, True]
    assert sorted(b.jobs[0].label for b in waiting if b) == ["0", "1"]


def test_a_worker_that_nobody_has_a_place_for_gives_its_stage_up() -> None:
    pool = stage(0, jobs=400)
    alone = PaperCrew(node(gpus=4), placement_timeout_s=5)
    only = alone.working(pool)
    only.become("starting")
    only.since -= 6
    assert len(alone._overdue()) == 1
    assert pool.unusable == "a worker was still starting after 6 s"


def test_a_process_that_is_slow_to_end_is_forgotten_whole() -> None:
    """What it says after it was written off must not be taken for news."""
    crew = PaperCrew(node())
    replica = crew.working(stage(0))
    crew.dismiss(replica)
    assert list(crew._refs.values()) == [replica]
    replica.since -= 60
    assert crew._overdue() == []
    assert crew.replicas == []
    assert not crew._refs


def test_stages_of_one_endpoint_share_its_limit() -> None:
    crew = PaperCrew(node(cpus=80))
    remote = replace(LIGHT, endpoint="http://x/v1", concurrency=4, batch_size=1)
    pools = [stage(i, remote, jobs=10) for i in range(2)]
    pools.append(stage(2, replace(remote, endpoint="http://y/v1"), jobs=10))
    replicas = [crew.working(pool) for pool in pools]
    for _ in range(6):
        crew.feed(lambda pool: False)
        flying = [len(r.in_flight) for r in replicas]
        assert flying[0] + flying[1] == 4
        assert flying[2] == 4
        busiest = max(replicas[:2], key=lambda r: len(r.in_flight))
        busiest.in_flight.popitem()
    assert min(flying[:2]) > 0  # the second is not starved by the first
