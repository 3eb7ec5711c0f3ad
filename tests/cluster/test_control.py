"""What can be asked of a run under way, by files in its directory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import invoke
from paths import CHECKOUT
from pydantic import TypeAdapter
from stages import Painter
from trial import Witness, as_asked, painter, plan_of, run, sample, system_of_stages, writer

from plait.cluster.control import (
    FOLDER,
    Control,
    ControlError,
    Request,
    RunState,
    ask,
    next_state,
    read_state,
)
from plait.cluster.executors.simulated import SimulatedExecutor, World
from plait.cluster.lock import self_description
from plait.cluster.placement import Node, Resources
from plait.cluster.plan import Plan
from plait.cluster.run import RunResult
from plait.cluster.shard import Shard
from plait.cluster.store import Store
from plait.cluster.usage import Spending
from plait.cluster.watcher import RunProgress, StageProgress, WorkerProgress
from plait.control import request_of
from plait.generators.base import Outcome, Placement, Result
from plait.generators.document import Image, ImageRequest
from plait.generators.errors import UsageError
from plait.pipelines.composition import text_only

pytestmark = [
    pytest.mark.slow,
]

CPU = Placement(num_cpus=1, batch_size=1)
REMOTE = replace(CPU, endpoint="http://127.0.0.1:9/v1")
PATIENT_S = 60.0


class Asking(threading.Thread):
    """Somebody at another terminal, who waits for the answer."""

    def __init__(self, root: Path, *words: str) -> None:
        super().__init__(daemon=True)
        self.root, self.request = root, request_of(words)
        self.said = ""

    def run(self) -> None:
        state = read_state(self.root)
        assert state is not None
        try:
            self.said = ask(self.root, state.driver, self.request, PATIENT_S)
        except (ControlError, UsageError) as error:
            self.said = f"refused: {error}"

    def begin(self) -> None:
        """Return once the request lies there."""
        before = len(list(self.root.glob(f"{FOLDER}/*.request")))
        self.start()
        while len(list(self.root.glob(f"{FOLDER}/*.request"))) == before:
            assert self.is_alive()
            time.sleep(0.001)


class Day:
    """A run on a virtual clock: what happens at which second, and what was seen then."""

    def __init__(self, root: Path, cpus: float = 1) -> None:
        self.root, self.witness = root, Witness()
        self.world = World([Node("n", Resources(cpus), "address of n")])
        self.world.at(7200, lambda: pytest.fail("still not at its end"))
        self.asked: list[Asking] = []
        self.seen: dict[float, RunProgress] = {}

    def ask(self, second: float, *words: str) -> None:
        """Ask at this second, and have the answer read four seconds later."""
        asking = Asking(self.root, *words)
        self.asked.append(asking)
        self.world.at(second, asking.begin)
        self.world.at(second + 4, asking.join)

    def look(self, second: float) -> None:
        """Keep the progress of this second."""

        def look() -> None:
            self.seen[second] = self.witness.progress

        self.world.at(second, look)

    def run(self, plan: Plan, **options: Any) -> RunResult:
        executor = nullcontext(SimulatedExecutor(self.world))
        result = run(plan, self.root, self.witness, executor=executor, **options)
        for asking in self.asked:
            asking.join()
        assert not (self.root / FOLDER).exists()
        return result

    @property
    def answers(self) -> list[str]:
        return [asking.said for asking in self.asked]


def writing(queries: int, place: Placement = CPU, **about: Any) -> Plan:
    """One stage that makes a record a second, from the tenth second on."""
    spec = replace(writer(place), **about)
    return Plan(
        systems=[system_of_stages(name="s", draft=spec, compose=text_only)],
        queries=[sample(i) for i in range(queries)],
        scorers=[],
        prompt=as_asked,
    )


def made(progress: RunProgress) -> int:
    return sum(stage.made for stage in progress.stages)


def test_a_paused_run_sends_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    day = Day(tmp_path)
    day.ask(20, "pause")
    day.ask(150, "resume")
    for second in (30, 140, 160):
        day.look(second)
    assert day.run(writing(40)).counts["done"] == 40
    at = day.seen
    assert 10 <= made(at[30]) == made(at[140]) < made(at[160])
    assert [p.state for p in at.values()] == ["paused", "paused", "running"]
    (worker,) = at[140].workers
    assert (worker.state, worker.records) == ("idle", made(at[140]))
    (stage,) = day.witness.stages
    assert stage.seconds < 60, "a rate leaves the pause out"
    assert all(text.startswith(("paused", "resumed")) for text in day.answers)


def test_stop_ends_a_run_as_term_does_and_keeps_all_that_was_computed(
    tmp_path: Path,
) -> None:
    day = Day(tmp_path)
    day.ask(20, "pause")
    day.ask(25, "stop")
    result = day.run(writing(40))
    assert (result.exit_status, result.counts["missing"]) == (143, 40 - result.made)
    assert len(Store(tmp_path).rows(writer())) == result.made >= 10
    assert day.witness.progress.state == "paused"
    assert sum("stopping" in notice for notice in day.witness.notices) == 1
    assert Day(tmp_path).run(writing(40)).made == 40 - result.made, "nor is it paused"


@pytest.mark.parametrize("configured", [None, 1])
def test_a_stage_has_as_many_workers_as_were_asked_for_last(
    tmp_path: Path, configured: int | None
) -> None:
    day = Day(tmp_path, cpus=3)
    day.ask(30, "workers", "writer", "1")
    day.look(50)
    day.ask(51, "workers", "writer", "2")
    day.look(80)
    plan = writing(150, replace(CPU, workers=configured))
    assert day.run(plan).counts["done"] == 150
    workers = {second: len(seen.workers) for second, seen in day.seen.items()}
    assert workers == {50: 1, 80: 2}
    assert not day.witness.failures
    assert made(day.seen[80]) > made(day.seen[50])


def test_what_cannot_be_asked_of_workers_is_refused(tmp_path: Path) -> None:
    day = Day(tmp_path)
    day.ask(20, "workers", "wrter", "2")
    day.ask(20, "workers", "writer", "2")
    assert day.run(writing(40, REMOTE)).counts["done"] == 40
    unknown, remote = day.answers
    assert "unknown stage 'wrter'; did you mean 'writer'?" in unknown
    assert "1 worker" in remote


class Priced(Painter):
    """Each image costs 1."""

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Image]]:
        return [Result(self._paint(r), {"cost": 1.0}) for r in inputs]


def test_a_raised_budget_lets_go_on_what_was_given_up_for_it(tmp_path: Path) -> None:
    paint = replace(painter(0, REMOTE), target=f"{__name__}:Priced")
    samples = [sample(i) for i in range(40)]
    write = writer(replace(CPU, workers=1))
    plan = replace(plan_of(samples, write=write, paint=[paint]), scorers=[])
    day = Day(tmp_path, cpus=2)
    day.look(34)
    day.ask(35, "budget", "100")
    result = day.run(plan, max_cost=3.0)
    assert (day.seen[34].max_cost, day.seen[34].spent) == (3.0, 3.0)
    assert 3 < result.counts["done"] < 40
    assert (day.witness.progress.max_cost, day.witness.progress.spent) == (
        100.0,
        result.counts["done"],
    )
    assert Day(tmp_path, cpus=2).run(plan, max_cost=100.0).counts["done"] == 40


def test_a_budget_that_is_set_meanwhile_counts_what_earlier_commands_spent(
    tmp_path: Path,
) -> None:
    options = {"cost": 1.0}
    assert Day(tmp_path).run(writing(4, REMOTE, options=options)).counts["done"] == 4
    day = Day(tmp_path)
    day.ask(10.5, "budget", "6")
    counts = day.run(writing(30, REMOTE, options=options)).counts
    assert 6 <= counts["done"] <= 8
    assert "6" in day.answers[0]


def test_many_may_ask_at_once(tmp_path: Path) -> None:
    day = Day(tmp_path)
    for words in (["pause"], ["budget", "5"], ["workers", "writer", "1"]):
        day.ask(20, *words)
    day.ask(30, "resume")
    assert day.run(writing(40)).counts["done"] == 40
    assert len({*day.answers}) == 4
    assert not any(text.startswith("refused") for text in day.answers)


# ------------------------------------------------------------------------- who is asked


WORKER = WorkerProgress("writer", "n1", "running", 7)
STAGE = StageProgress("writer", 10, {"done": 7}, 7, 1, "running", 3.5)


def progress(seconds: float) -> RunProgress:
    return RunProgress("running", seconds, [STAGE], [WORKER], 50.0, 12.5)


@contextmanager
def driven(own: Path) -> Iterator[list[Request]]:
    """What a driver is asked that lives in a thread of this process."""
    control, asked, stop = Control(own), list[Request](), threading.Event()

    def obey(request: Request) -> str:
        asked.append(request)
        return "so be it"

    control.turn(progress(0), obey)

    def drive() -> None:
        turns = 0
        while not stop.wait(0.01):
            turns += 1
            control.turn(progress(2.0 * turns), obey)

    driver = threading.Thread(target=drive)
    driver.start()
    yield asked
    stop.set()
    driver.join()
    control.close()
    assert not (own / FOLDER).exists()


def test_all_shards_are_asked_or_the_one_that_is_named(tmp_path: Path) -> None:
    shards = [Shard(number, 2) for number in (1, 2)]
    first, second = (shard.folder(tmp_path) for shard in shards)
    wait = ("--wait", "60")
    with driven(first) as of_first, driven(second) as of_second:
        said = invoke("ctl", str(tmp_path), "pause", *wait).output
        assert said == "shard 1-of-2: so be it\nshard 2-of-2: so be it\n"
        said = invoke("ctl", str(tmp_path), "stop", "--shard", "2/2", *wait).output
        assert said == "shard 2-of-2: so be it\n"
        assert [r.action for r in of_first] == ["pause"]
        assert [r.action for r in of_second] == ["pause", "stop"]
        said = invoke("ctl", str(tmp_path), "--json", *wait).output
        assert len(TypeAdapter(list[RunState]).validate_json(said)) == 2
    (tmp_path / "manifest.json").write_text('{"config": {}, "status": "started"}')
    with pytest.raises(ControlError, match="shard 1/2"):
        invoke("ctl", str(tmp_path), "--shard", "1/2")


def test_a_shard_has_its_part_of_a_budget(tmp_path: Path) -> None:
    spending = Spending(None, Shard(1, 4))
    spending.set_ceiling(6.0, Store(tmp_path), [])
    assert spending.ceiling == 1.5


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[list[Request]]:
    with driven(tmp_path) as asked:
        yield asked


def test_the_command_shows_and_asks(asked: list[Request], tmp_path: Path) -> None:
    shown = invoke("ctl", str(tmp_path), "--wait", "60").output
    for text in ("7/10", "2.00/s", "0:00:02", "12.5 of 50 spent", "n1"):
        assert text in shown
    said = invoke("ctl", str(tmp_path), "--json", "--wait", "60").output
    (state,) = TypeAdapter(list[RunState]).validate_json(said)
    assert state.progress.workers == [WORKER]
    assert state.process["pid"] == os.getpid()
    for words in (["pause"], ["budget", "50"], ["workers", "writer", "3"]):
        said = invoke("ctl", str(tmp_path), *words, "--wait", "60").output
        assert said == "so be it\n"
        assert asked.pop() == request_of(words)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["paus"], "'pause'"),
        (["budget"], "budget MAX_COST"),
        (["budget", "nan"], "finite"),
        (["budget", "-1"], "greater than 0"),
        (["workers", "writer"], "workers STAGE WORKERS"),
        (["workers", "writer", "0"], "greater than or equal to 1"),
        (["workers", "writer", "some"], "'some'"),
    ],
)
def test_wrong_requests_are_explained(words: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        request_of(words)


PAUSE = Request(action="pause")


def left_behind(root: Path, **changes: Any) -> RunState:
    """The state of a driver that is no more."""
    Control(root).turn(progress(0), lambda request: "")
    state = read_state(root)
    assert state is not None
    state = state.model_copy(update={"process": self_description() | changes})
    (root / FOLDER / "state.json").write_text(state.model_dump_json())
    return state


def asks(root: Path, state: RunState) -> list[Callable[[], object]]:
    return [
        lambda: next_state(root, state, 0.0),
        lambda: ask(root, state.driver, PAUSE, 0.0),
    ]


def test_a_driver_that_is_silent_is_said_to_be_and_forgets_what_was_asked(
    tmp_path: Path,
) -> None:
    state = left_behind(tmp_path, host="elsewhere")
    path = tmp_path / FOLDER / "state.json"
    os.utime(path, (path.stat().st_mtime - 90_000, path.stat().st_mtime - 90_000))
    for call in asks(tmp_path, state):
        with pytest.raises(ControlError, match=r"within 0 s.* 9\d{4} s ago"):
            call()
    assert [file.name for file in path.parent.iterdir()] == ["state.json"]


@pytest.mark.processes
def test_a_driver_that_was_killed_is_said_to_have_died(tmp_path: Path) -> None:
    code = (
        "import time; from pathlib import Path; from plait.cluster.control import Control\n"
        "from plait.cluster.watcher import RunProgress\n"
        f"control = Control(Path({str(tmp_path)!r}))\n"
        "control.turn(RunProgress('running', 0.0, ()), str)\n"
        "print('written', flush=True); time.sleep(600)"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=CHECKOUT
    )
    assert driver.stdout is not None
    assert driver.stdout.readline() == "written\n"
    state = read_state(tmp_path)
    assert state is not None
    driver.kill()
    driver.wait()
    for call in asks(tmp_path, state):
        with pytest.raises(ControlError, match=f"process {driver.pid} .* has died"):
            call()


def test_nothing_that_was_asked_of_one_driver_reaches_the_next(tmp_path: Path) -> None:
    former = left_behind(tmp_path)
    early, late = (tmp_path / FOLDER / f"{former.driver}-{n}.request" for n in range(2))
    early.write_text(PAUSE.model_dump_json())
    day = Day(tmp_path)

    def come_late() -> None:
        late.write_text(PAUSE.model_dump_json())
        with pytest.raises(ControlError, match="has ended"):
            ask(tmp_path, former.driver, PAUSE, PATIENT_S)

    day.world.at(15, come_late)
    day.world.at(25, late.unlink)
    assert day.run(writing(20)).counts["done"] == 20
    assert day.world.now < 60


def test_a_run_without_a_driver_says_how_it_ended(tmp_path: Path) -> None:
    Day(tmp_path).run(writing(1))
    with pytest.raises(ControlError, match="'finished'"):
        invoke("ctl", str(tmp_path), "pause")
    with pytest.raises(UsageError, match="not a run directory"):
        invoke("ctl", str(tmp_path / "nowhere"))
