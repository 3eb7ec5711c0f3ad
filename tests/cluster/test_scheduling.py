"""Who gets a worker, whose worker leaves, and what a death is charged to.

The real scheduler and workers on a virtual clock; see `executors/simulated.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from stages import Writer
from trial import (
    LIGHT,
    Witness,
    as_asked,
    outcomes,
    painter,
    plan_of,
    rebuild,
    run,
    sample,
    system_of_stages,
    writer,
)

from plait.cluster.executors.base import Executor, HostLost
from plait.cluster.executors.simulated import (
    SimulatedExecutor,
    SimulatedHost,
    Speeds,
    World,
)
from plait.cluster.placement import Node, Resources
from plait.cluster.plan import Plan
from plait.cluster.run import RunResult
from plait.generators.base import Placement, StageSpec
from plait.generators.system import System
from plait.generators.work import FigureRange, Work
from plait.pipelines.composition import text_only

pytestmark = pytest.mark.contract

GPU = Placement(num_gpus=1, batch_size=1)
CPU = Placement(num_cpus=1, batch_size=1)
HOUR = 3600.0


def node(gpus: float = 0, cpus: float = 8, name: str = "n") -> Node:
    return Node(name, Resources(cpus, gpus), f"address of {name}")


@dataclass(frozen=True)
class Told(Speeds):
    """Remembers what hosts were told: the method and the stage, in order."""

    told: list[tuple[str, str]] = field(default_factory=list)

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        self.told.append((method, spec.name))
        return super().of(spec, method, records)

    def count(self, method: str) -> Counter[str]:
        return Counter(name for what, name in self.told if what == method)


@dataclass
class Ran:
    """A run that has ended."""

    result: RunResult
    world: World
    speeds: Told
    witness: Witness

    @property
    def loads(self) -> list[str]:
        """The stages in the order in which hosts were told to load them."""
        return [name for method, name in self.speeds.told if method in ("load", "host")]

    @property
    def kinds(self) -> list[str]:
        return [failure.kind for failure in self.witness.failures]


def ran(
    plan: Plan,
    root: Path,
    *nodes: Node,
    speeds: Told | None = None,
    at: Sequence[tuple[float, Callable[[World], Any]]] = (),
    executor: type[SimulatedExecutor] = SimulatedExecutor,
    **options: Any,
) -> Ran:
    """Run a plan on nodes to which things happen at moments of the clock."""
    speeds = speeds or Told()
    world, witness = World(nodes, speeds), Witness()
    world.at(2 * HOUR, lambda: pytest.fail("still not at its end"))
    for moment, what in at:
        world.at(moment, lambda what=what: what(world))
    result = run(plan, root, witness, executor=nullcontext(executor(world)), **options)
    assert not world.overbooked
    return Ran(result, world, speeds, witness)


def job(
    queries: int, write: Placement, draw: Placement = CPU, *, own: bool = True, **about: Any
) -> Plan:
    """Stages that write, draw and measure; with `own` they are plait's own classes."""
    specs = [writer(write), painter(0, draw)]
    if own:
        specs = [replace(spec, stage=spec.name, **about) for spec in specs]
    samples = [sample(i) for i in range(queries)]
    return plan_of(samples, write=specs[0], paint=specs[1:], measure=CPU)


def writing(queries: int, place: Placement, **about: Any) -> Plan:
    """One stage alone."""
    system = alone("writer", place, **about)
    samples = [sample(i) for i in range(queries)]
    return Plan(systems=[system], queries=samples, scorers=[], prompt=as_asked)


def alone(name: str, place: Placement, **about: Any) -> System:
    """A system that writes only."""
    return system_of_stages(
        name=name, draft=replace(writer(place), name=name, **about), compose=text_only
    )


# -------------------------------------------------------------------- who gets a worker


@pytest.mark.parametrize("gpus", [1, 2])
def test_stages_with_gpus_take_turns_or_stand_side_by_side(
    tmp_path: Path, gpus: int
) -> None:
    """Where one fits, the first is drained before it leaves."""
    made = ran(job(3, GPU, GPU), tmp_path, node(gpus), speeds=Told(record_s=30.0))
    assert made.result.counts["scored"] == 3
    assert made.loads == ["writer", "painter0", "measure"]
    told = [name for method, name in made.speeds.told if method == "run_all"]
    on_gpus = [name for name in told if name != "measure"]
    assert (on_gpus == sorted(on_gpus, reverse=True)) == (gpus == 1)


@pytest.mark.parametrize(
    ("batch_size", "queries", "workers"),
    [(1, 16, 1), (1, 18, 2), (8, 120, 1), (8, 160, 2), (64, 128, 1)],
)
def test_what_is_worth_a_second_worker_is_a_number_of_batches_or_of_records(
    tmp_path: Path, batch_size: int, queries: int, workers: int
) -> None:
    """16 batches or 128 records, whichever is less, but two batches at least."""
    plan, fast = writing(queries, replace(GPU, batch_size=batch_size)), Told(record_s=0.01)
    made = ran(plan, tmp_path, node(2), speeds=fast)
    assert made.speeds.count("load") == {"writer": workers}


@pytest.mark.parametrize(
    ("record_s", "workers"), [(0.05, 1), (0.15, 2), (0.3, 3), (8.0, 8)]
)
def test_a_timed_stage_grows_while_its_records_take_longer_than_its_loading(
    tmp_path: Path, record_s: float, workers: int
) -> None:
    """10 s to start and load; some 90 of 100 records wait after the first batch."""
    plan = writing(100, replace(GPU, batch_size=8))
    made = ran(plan, tmp_path, node(8), speeds=Told(record_s=record_s))
    assert made.speeds.count("load") == {"writer": workers}


def test_the_next_worker_goes_to_the_stage_with_most_to_do_for_each_of_its_own(
    tmp_path: Path,
) -> None:
    systems = [alone("fast", GPU), alone("slow", GPU, version=2)]
    plan = replace(writing(100, GPU), systems=systems)
    joins = (60.0, lambda world: world.join(node(10, name="m")))
    made = ran(plan, tmp_path, node(2), speeds=Slow(slow=4.0), at=[joins])
    assert made.speeds.count("load") == {"slow": 9, "fast": 2}
    assert made.world.now < 113


def fed(queries: int, root: Path, gpus: int, **seconds: float) -> Ran:
    """One writer feeds stages that draw and measure, each with GPUs."""
    plan = job(queries, replace(GPU, workers=1), GPU)
    (measure,) = plan.scorers
    measure = replace(measure, stage=replace(measure.stage, placement=GPU))
    plan = replace(plan, scorers=[measure])
    made = ran(plan, root, node(gpus), speeds=Slow(**seconds))
    assert made.result.counts["scored"] == queries
    return made


def test_a_stage_that_gave_up_its_room_returns_only_for_much_work(tmp_path: Path) -> None:
    """Else two stages that share a GPU would be loaded in turns for every few records."""
    made = fed(60, tmp_path, 2, writer=10.0)
    assert made.speeds.count("load") == {"writer": 1, "painter0": 2, "measure": 2}
    assert made.world.now < 690


def test_a_worker_with_little_to_do_gives_way_to_one_that_is_worth_both_loads(
    tmp_path: Path,
) -> None:
    """While drawing takes 1,600 s of one GPU, measuring takes 400 s of another."""
    made = fed(100, tmp_path / "three", 3, writer=4.0, painter0=16.0, measure=4.0)
    assert made.world.now < 900
    made = fed(400, tmp_path / "four", 4, writer=2.0, painter0=4.0)
    assert made.speeds.count("load") == {"writer": 1, "painter0": 2, "measure": 1}
    assert made.world.now < 829


def test_a_stage_is_loaded_while_those_that_feed_it_work(tmp_path: Path) -> None:
    """Where there is room, and only so many workers as its jobs will need."""
    made = fed(20, tmp_path, 8, writer=10.0)
    assert made.loads[:3] == ["writer", "painter0", "measure"]
    assert made.speeds.count("load") == {"writer": 1, "painter0": 1, "measure": 1}
    assert made.world.now < 10 + 20 * 10 + 3


class Weighed(Told):
    """Loads 1 GB a second, after a start of 15 s; the wide stage takes 40 s a record."""

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        super().of(spec, method, records)
        weights = spec.work.weight_bytes / 1e9 if spec.work else 0.0
        seconds = {
            "describe": 15.0,
            "load": weights,
            "run_all": records * RECORD_S[spec.name],
        }
        return seconds.get(method, 0.0)


RECORD_S = {"short": 0.5, "long": 5.0, "painter7": 40.0}


def weighed(name: str, gb: float, flops: float) -> dict[str, Any]:
    return {"work": Work(weight_bytes=gb * 1e9, flops=FigureRange.exact(flops))}


def test_stages_have_workers_by_their_work_and_loading_before_any_is_timed(
    tmp_path: Path,
) -> None:
    """Of 16 GPUs: a short stage whose weights take long, one of 10 times its work, and one
    of 80 times that is fed by it."""
    short = alone("short", GPU, version=2, **weighed("short", 60, 1e14))
    long = alone("long", GPU, version=3, **weighed("long", 10, 1e15))
    fed_one = replace(painter(7, GPU), **weighed("painter7", 10, 8e15))
    system = system_of_stages(name="both", draft=short.draft, render=fed_one)
    plan = replace(writing(40, GPU), systems=[system, long])
    made = ran(plan, tmp_path, node(16, 16), speeds=Weighed())
    loads = made.speeds.count("load")
    assert loads["short"] == 1
    assert loads["long"] < loads["painter7"]
    work_s = 40 * 0.5 + 40 * 5.0 + 40 * 40.0
    assert made.world.now < 1.8 * work_s / 16 + 75


def test_a_stage_grows_only_when_no_other_waits_for_resources(tmp_path: Path) -> None:
    systems = [alone("long", GPU), alone("wide", replace(GPU, num_gpus=2), version=2)]
    plan = replace(writing(20, GPU), systems=systems)
    made = ran(plan, tmp_path, node(3))
    assert made.speeds.count("load") == {"long": 1, "wide": 1}
    made = ran(replace(plan, systems=systems[:1]), tmp_path / "alone", node(3))
    assert made.speeds.count("load") == {"long": 2}


def test_limits_of_workers_and_endpoints_are_kept(tmp_path: Path) -> None:
    two = writing(60, replace(CPU, workers=2))
    assert ran(two, tmp_path / "a", node()).speeds.count("load") == {"writer": 2}
    remote = writing(60, replace(CPU, endpoint="http://x/v1"))
    assert ran(remote, tmp_path / "b", node()).speeds.count("load") == {"writer": 1}


def test_only_workers_whose_resources_are_needed_leave(tmp_path: Path) -> None:
    """What waits for a GPU sends no stage on CPUs away, and it is not loaded again."""
    samples = [sample(i) for i in range(4)]
    plan = plan_of(
        samples, write=writer(GPU), paint=[painter(0, CPU), painter(1, GPU)], measure=GPU
    )
    loads = Counter(ran(plan, tmp_path, node(1)).loads)
    assert loads["painter0"] == 1


def test_room_is_made_where_fewest_must_leave(tmp_path: Path) -> None:
    """Two small workers stand on one node, one that is as wide as needed on the other."""
    wide = replace(GPU, num_gpus=2)
    small = [alone("a", GPU), alone("b", GPU, version=2)]
    slowest = replace(writer(version=4), name="e")
    last = system_of_stages(name="d", draft=slowest, render=painter(7, wide))
    systems = [*small, alone("c", wide, version=3), last]
    plan = replace(writing(2, GPU), systems=systems)
    ends: list[str] = []

    class Watched(SimulatedExecutor):
        def start(self, placement: Placement, place: Node, given: Any) -> SimulatedHost:
            host = super().start(placement, place, given)
            kill = host.kill
            host.kill = lambda: ends.append(host.worker.spec.name) or kill()  # type: ignore
            return host

    nodes, slow = (node(2), node(2, name="m")), Slow(e=100.0)
    assert ran(plan, tmp_path, *nodes, speeds=slow, executor=Watched).result.failed == 0
    assert ends[0] == "c"


@pytest.mark.parametrize(
    ("fixed", "after"),
    [(True, range(60)), (False, range(600, 800))],
    ids=["fixed", "grows"],
)
def test_what_fits_nowhere_is_given_up_and_the_rest_goes_on(
    tmp_path: Path, fixed: bool, after: range
) -> None:
    """At once only where no node can come."""

    class Fixed(SimulatedExecutor):
        pass

    Fixed.fixed = fixed
    plan = job(3, CPU, replace(GPU, num_gpus=8))
    made = ran(plan, tmp_path, node(1), executor=Fixed)
    assert (made.result.counts["failed"], int(made.world.now) in after) == (3, True)
    assert "needs 8 GPU" in made.witness.notices[0]
    assert made.speeds.count("run_all")["writer"] == 3


# --------------------------------------------------------------- idle workers load stages


def test_an_idle_worker_loads_the_next_stage(tmp_path: Path) -> None:
    """No process is started for it, though there would be room."""
    plan = job(3, CPU)
    made = ran(plan, tmp_path, node(0, 1))
    assert made.speeds.count("describe") == {"writer": 1, "measure": 1}
    assert made.speeds.count("host") == {"painter0": 1}
    assert made.result.counts["scored"] == 3


@pytest.mark.parametrize(
    ("which", "change"),
    [
        (0, {"stage": ""}),
        (1, {"stage": ""}),
        (0, {"secrets": ("API_KEY",)}),
        (1, {"placement": GPU}),
        (0, {"placement": replace(CPU, endpoint="http://x/v1")}),
        (1, {"placement": replace(CPU, num_cpus=0.5)}),
        (1, {"placement": replace(CPU, memory_gib=1)}),
    ],
)
def test_what_a_process_must_not_share(
    tmp_path: Path, which: int, change: dict[str, Any]
) -> None:
    """A user's class, secrets, GPUs, an endpoint, and needs that differ."""
    plan = job(2, CPU)
    system = plan.systems[0]
    changed = replace(system.stages[which], **change)
    part = {"draft": changed} if which == 0 else {"render": changed}
    plan = replace(plan, systems=[rebuild(system, **part)], scorers=[])
    place = Node("n", Resources(8, 1, 2**30), "n")
    made = ran(plan, tmp_path, place)
    assert made.speeds.count("describe").total() == 2
    assert made.speeds.count("host").total() == 0


@pytest.mark.parametrize(
    ("queries", "seconds", "workers"),
    [
        (2, 15.0, 1),  # too little to load the stage for
        (16, 15.0, 2),  # the writer's process helps to draw
    ],
)
def test_an_idle_worker_helps_a_stage_with_much_work(
    tmp_path: Path, queries: int, seconds: float, workers: int
) -> None:
    plan = job(queries, CPU)
    speeds = Slow(painter0=seconds)
    made = ran(replace(plan, scorers=[]), tmp_path, node(0, 2), speeds=speeds)
    assert Counter(made.loads)["painter0"] == workers
    assert made.speeds.count("describe").total() == 2


class Slow(Told):
    """Some stages take other times for a record than the rest."""

    def __init__(self, **seconds: float) -> None:
        super().__init__()
        object.__setattr__(self, "seconds", seconds)

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        usual = super().of(spec, method, records)
        seconds = self.seconds.get(spec.name)  # type: ignore[attr-defined]
        return usual if method != "run_all" or seconds is None else records * seconds


class Picky(Writer):
    """Cannot load in a process that has hosted another stage."""

    hosts = 0

    def __init__(self, **settings: Any) -> None:
        type(self).hosts += 1
        if type(self).hosts == 1:
            raise MemoryError("no memory left")
        super().__init__(**settings)


def test_a_stage_that_cannot_load_after_another_gets_a_process_of_its_own(
    tmp_path: Path,
) -> None:
    Picky.hosts = 0
    target = f"{__name__}:Picky"
    systems = [
        alone("first", CPU, stage="a"),
        alone("second", CPU, stage="b", target=target),
    ]
    plan = replace(writing(2, CPU), systems=systems)
    made = ran(plan, tmp_path, node(0, 1))
    assert made.result.counts["done"] == 4
    assert made.speeds.count("host") == {"second": 1}
    assert made.speeds.count("describe") == {"first": 1, "second": 1}
    assert any("no memory left" in notice for notice in made.witness.notices)


# ----------------------------------------------------------------- workers that never load


class Unloadable(Writer):
    """Cannot be loaded, but for the first `good` times."""

    good = loads = 0

    def __init__(self, **settings: Any) -> None:
        type(self).loads += 1
        if type(self).loads > type(self).good:
            raise FileNotFoundError("no such file")
        super().__init__(**settings)


@pytest.mark.parametrize("good", [0, 1])
def test_one_worker_that_cannot_load_does_not_cost_a_stage_the_others(
    tmp_path: Path, good: int
) -> None:
    Unloadable.good, Unloadable.loads = good, 0
    plan = writing(40, GPU, target=f"{__name__}:Unloadable")
    made = ran(plan, tmp_path, node(3))
    assert made.result.counts["done" if good else "failed"] == 40
    assert made.speeds.count("load")["writer"] == 3, "one on each GPU, and no other after"
    assert any("no such file" in notice for notice in made.witness.notices)


class Dying(SimulatedExecutor):
    """Its hosts end while they load, for a reason that may or may not pass."""

    refused = False

    def start(self, placement: Placement, place: Node, given: Any) -> SimulatedHost:
        host = super().start(placement, place, given)
        self.world.at(self.world.now + 6.0, lambda: self._end(host))
        return host

    def _end(self, host: SimulatedHost) -> None:
        if self.refused:
            for answer in host._pending:
                answer.lost = HostLost("ImportError: no module", refused=True)
                self.ready[answer] = None
            host._pending.clear()
        host.end("the process was killed")


class Refused(Dying):
    refused = True


@pytest.mark.parametrize(
    ("executor", "nodes", "tried"), [(Dying, 1, 3), (Dying, 2, 6), (Refused, 2, 2)]
)
def test_a_stage_whose_workers_die_while_loading_is_given_up(
    tmp_path: Path, executor: type[Dying], nodes: int, tried: int
) -> None:
    """After three deaths on one node, or where it cannot be started on any."""
    names = [node(1, name=f"n{i}") for i in range(nodes)]
    made = ran(writing(2, GPU), tmp_path, *names, executor=executor)
    assert made.result.counts["failed"] == 2
    assert made.speeds.count("describe")["writer"] <= tried
    assert {"died"} == set(made.kinds)
    reason = "ImportError: no module" if executor.refused else "3 times in a row"
    (failed, *_) = outcomes(writing(2, GPU), tmp_path).values()
    assert reason in failed.reason


def test_deaths_on_nodes_that_vanish_after_them_do_not_count(tmp_path: Path) -> None:
    """A preempted machine kills its workers some seconds before it is off the list."""
    plan = writing(2, GPU)

    def preempt(number: int) -> Callable[[World], None]:
        def happens(world: World) -> None:
            gone = world.listed[0]
            for host in list(world.hosts):
                host.end("the process was killed")
            world.at(world.now + 2.0, lambda: world.lose(gone))
            world.at(world.now + 40.0, lambda: world.join(node(1, name=f"m{number}")))

        return happens

    at = [(6.0 + 60 * i, preempt(i)) for i in range(5)]
    made = ran(plan, tmp_path, node(1), at=at)
    assert made.result.counts["done"] == 2
    assert set(made.kinds) == {"lost with its node"}


class Reserved(Told):
    """Resources of the second worker are held by another job for an hour."""

    def of(self, spec: StageSpec, method: str, records: int) -> float:
        usual = super().of(spec, method, records)
        held = method == "describe" and self.count("describe").total() == 2
        return HOUR if held else usual


def test_resources_that_others_hold_are_waited_for_while_own_workers_may_free_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster that is shared, what a node has in all says little."""
    monkeypatch.setattr(Executor, "held_by_others", lambda self: ["1 GPU by process 7"])
    plan = job(30, GPU, GPU, own=False)
    speeds = Reserved(record_s=20.0)
    made = ran(plan, tmp_path, node(2), speeds=speeds, placement_timeout_s=60.0)
    assert made.result.counts["scored"] == 30
    notices = made.witness.notices
    assert any("waits for resources" in notice for notice in notices)
    (held,) = (notice for notice in notices if "1 GPU by process 7" in notice)
    assert "waits for 1 GPU" in held


# -------------------------------------------------------------- deaths, silence, limits


def kill(world: World) -> None:
    """End a host of the first node."""
    host = next(h for h in world.hosts if h.node == world.listed[0])
    host.end("the process was killed")


@pytest.mark.parametrize(
    ("what", "kinds"),
    [
        ([(12.5, kill)], {"died"}),
        ([(12.5, lambda w: w.lose(w.listed[0]))], {"lost with its node"}),
        ([(12.5, lambda w: w.cut(w.listed[0], 15.0))], set()),
        ([(12.5, lambda w: w.cut(w.listed[0], 60.0))], {"lost with its node"}),
        (
            [(12.5, kill), (13.0, lambda w: w.cut(w.listed[0], 25.0))],
            {"lost with its node"},
        ),
    ],
    ids=["killed", "node lost", "cut off for long", "cut off", "killed, then cut off"],
)
def test_a_death_is_charged_only_once_its_node_has_outlived_it(
    tmp_path: Path, what: Any, kinds: set[str]
) -> None:
    """Whatever happens, nothing is lost; work goes on at the other node."""
    names = [node(1), node(1, name="m")]
    made = ran(writing(12, replace(GPU, workers=2)), tmp_path, *names, at=what)
    assert made.result.counts["done"] == 12
    assert set(made.kinds) == kinds
    if "node" in str(kinds):
        assert made.witness.failures[0].host == "address of n"


def test_a_silent_node_is_named_before_it_is_given_up_and_may_come_back(
    tmp_path: Path,
) -> None:
    speeds = Told(record_s=30.0)
    at = [(12.5, lambda world: world.cut(world.listed[0], 25.0))]
    made = ran(writing(8, GPU), tmp_path, node(1), speeds=speeds, at=at)
    assert made.result.counts["done"] == 8
    assert any("no sign of node address of n for 20 s" in n for n in made.witness.notices)
    assert made.speeds.count("describe") == {"writer": 2}  # at the same node again


def test_a_worker_that_is_silent_for_too_long_is_replaced(tmp_path: Path) -> None:
    """It holds the interpreter's lock and cannot notice its own time limit."""
    plan = writing(3, replace(GPU, batch_timeout_s=5.0))

    def hangs(world: World) -> None:
        world.hosts[0].slowness = 1e6

    made = ran(plan, tmp_path, node(1), at=[(10.5, hangs)])
    assert made.result.counts["done"] == 3
    assert made.kinds == ["timed out"]


def test_a_worker_that_loads_for_too_long_ends_its_stage(tmp_path: Path) -> None:
    plan = writing(3, replace(GPU, load_timeout_s=60.0))
    made = ran(plan, tmp_path, node(1), speeds=Told(load_s=1e6))
    assert made.result.counts["failed"] == 3
    assert made.kinds == ["timed out"]
    assert made.world.now < 200


class Immortal(SimulatedExecutor):
    """Its hosts do not end when they are told to."""

    def start(self, placement: Placement, place: Node, given: Any) -> SimulatedHost:
        host = super().start(placement, place, given)
        host.kill = lambda: None  # type: ignore[method-assign]
        host.call = lambda *a, **k: _silent(host, *a, **k)  # type: ignore[method-assign]
        return host


def _silent(host: SimulatedHost, method: str, *args: Any, control: bool = False) -> Any:
    if method == "ping":
        return object()
    return SimulatedHost.call(host, method, *args, control=control)


def test_a_process_that_never_ends_is_forgotten_after_a_while(tmp_path: Path) -> None:
    """Until then its resources count as taken."""
    plan = job(2, GPU, GPU, own=False)
    world = World([node(1)], Told())
    executor = nullcontext(Immortal(world))
    result = run(replace(plan, scorers=[]), tmp_path, Witness(), executor=executor)
    assert (result.counts["done"], world.now > 30) == (2, True)


def test_a_node_that_comes_is_used_and_waited_for_without_work(tmp_path: Path) -> None:
    """A run that waits for resources must not keep a core busy."""
    joins = (300.0, lambda world: world.join(node(1, name="m")))
    made = ran(writing(1, GPU), tmp_path, node(0), at=[joins])
    assert (made.result.counts["done"], made.witness.turns < 1500) == (1, True)


def test_of_equal_keys_one_is_computed_for_all_who_ask(tmp_path: Path) -> None:
    light = replace(LIGHT, num_cpus=1)
    plan = plan_of([sample(0), sample(0)], write=writer(light), paint=[painter(0, light)])
    assert ran(plan, tmp_path, node()).result.made == 3
