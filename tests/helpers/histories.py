"""Runs on a virtual clock whose hosts, nodes, drivers and disks fail, by a seed.

    python tests/helpers/histories.py --seeds 10000     each, and the seeds that failed
    python tests/helpers/histories.py --first 4711      one again

With `--checkpoint FILE` what came of each seed is kept, and the same command goes on.
The scheduler, the workers and the store are the real ones; see `executors/simulated.py`.
"""

from __future__ import annotations

import errno
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import typer

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from checkpoint import Checkpoint
from stages import Writer
from trial import LIGHT, Witness, board, painter, plan_of, sample, writer

from plait.cluster.executors.simulated import (
    EndOfProcess,
    SimulatedExecutor,
    SimulatedHost,
    Speeds,
    World,
)
from plait.cluster.lock import RunInUse
from plait.cluster.parts import Committer, StoreError
from plait.cluster.placement import Node, Resources
from plait.cluster.plan import EngineOptions, Plan
from plait.cluster.run import RunResult, execute
from plait.cluster.stage_queue import DEATHS_TO_QUARANTINE
from plait.cluster.store import Store
from plait.generators.base import Outcome
from plait.generators.document import Draft, Request, Text

MOST_COMMANDS = 40
MOST_HOURS = 6.0
FAST_FOLDER = next((p for p in ("/dev/shm",) if Path(p).is_dir()), None)


class Mortal(Writer):
    """Ends its process where the other one is ended by a signal."""

    def _draft(self, request: Request) -> Outcome[Draft]:
        content = request.turns[-1].content
        if any("!end" in s.text for s in content if isinstance(s, Text)):
            raise EndOfProcess
        return super()._draft(request)


class DriverKilled(BaseException):
    """What ends a command without a word."""


@dataclass(frozen=True)
class Size:
    """What a history's plan is made of."""

    queries: int
    batch: int
    gpus: float
    poison: bool

    def plan(self) -> Plan:
        """Two painters share one writer, and all is measured."""
        words = {1: "!raise", 3: "!refuse", 4: "!skip", 6: "!end"} if self.poison else {}
        wide = replace(LIGHT, num_cpus=1, num_gpus=self.gpus, batch_size=self.batch)
        light = replace(LIGHT, num_cpus=1, batch_size=self.batch)
        write = replace(writer(wide), target="histories:Mortal")
        samples = [sample(i, words.get(i, "")) for i in range(self.queries)]
        return plan_of(
            samples, write=write, paint=[painter(0, wide), painter(1, light)], measure=light
        )


SIZES = (
    Size(3, 1, 1, poison=False),
    Size(7, 2, 1, poison=True),
    Size(6, 4, 0, poison=False),
    Size(7, 4, 0.5, poison=True),
)


@dataclass
class History:
    """One run, from its first command to the one that finds nothing to do."""

    seed: int
    folder: Path
    faults: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    wrong: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    """Of the hosts that were lost."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.size = SIZES[self.seed % len(SIZES)]
        self.plan = self.size.plan()
        self.root = self.folder / f"run-{self.seed}"
        speeds = Speeds(record_s=self.random.choice((0.1, 2.0, 8.0)))
        self._names = map("n{}".format, count())
        nodes = [self._node() for _ in range(self.random.randint(1, 3))]
        self.world = World(nodes, speeds, tick_s=5.0)
        self.driver: SimulatedExecutor | None = None

    def _node(self) -> Node:
        name = next(self._names)
        room = Resources(cpus=self.random.choice((2, 4)), gpus=self.random.choice((1, 2)))
        return Node(name, room, f"address of {name}")

    def run(self) -> History:
        """Disturb the run, then let it end in peace; see what is wrong."""
        for _ in range(self.random.randint(1, 8)):
            fault = self.random.choice(FAULTS)
            moment = self.random.uniform(2.0, 90.0)
            self.world.at(moment, partial(self._disturb, fault))
        self.world.at(MOST_HOURS * 3600, self._overdue)
        self._command_until(lambda result: self._is_calm())
        self._command()  # failures that may pass are tried again
        self._check()
        return self

    def _is_calm(self) -> bool:
        """Whether nothing more happens, once the hosts of the last command have ended."""
        self.world.pass_time(1.0)
        return self.world.pending() <= 1

    def _overdue(self) -> None:
        raise AssertionError(f"still not at its end after {MOST_HOURS:g} h")

    def _disturb(self, fault: Callable[[History], bool]) -> None:
        name = fault.__name__
        self.faults[name] += 1
        if not fault(self):
            self.faults[name] -= 1

    def _command_until(self, ended: Callable[[RunResult], bool]) -> None:
        while self.commands < MOST_COMMANDS:
            self.commands += 1
            result = self._command()
            if result is not None and ended(result):
                return
            self.world.pass_time(60.0)
        raise AssertionError(f"not at its end after {MOST_COMMANDS} commands")

    def _command(self) -> RunResult | None:
        """The result of one command; None where it did not come to its end."""
        leaving_s = self.random.choice((0.2, 5.0, 60.0))
        witness = Witness()
        try:
            with self.world.driver(leaving_s) as self.driver:
                options = EngineOptions(executor=nullcontext(self.driver))
                result = execute(self.plan, self.root, options, {"config": {}}, witness)
        except (DriverKilled, StoreError):
            return None
        finally:
            self.driver = None
            self.kinds.update(failure.kind for failure in witness.failures)
        if result.interrupted:
            return None
        # Innocent records fail only where hosts have died again and again.
        deaths = self.faults["a_host_dies"] + self.faults["a_host_dies_after_its_commit"]
        counts = undisturbed(self.size)["counts"]
        if deaths < DEATHS_TO_QUARANTINE and result.counts != counts:
            self.wrong.append(f"records failed: {result.counts}, not {counts}")
        return result

    def _check(self) -> None:
        expected = undisturbed(self.size)
        found = summary(self.plan, self.root)
        for name, value in found.items():
            if expected[name] != value:
                self.wrong.append(f"{name} differ")
        if self.world.overbooked:
            self.wrong.append(f"resources given twice on {self.world.overbooked}")
        self.world.pass_time(120.0)
        if self.world.hosts:
            self.wrong.append(f"{len(self.world.hosts)} hosts never ended")
        deaths = [name for name, n in self.faults.items() if n and "host_dies" in name]
        if "died" in self.kinds and not deaths and not self.size.poison:
            self.wrong.append("the end of a node was taken for the death of a host")


def summary(plan: Plan, root: Path) -> dict[str, Any]:
    """The results of a run, the keys of all its records by stage, and those that failed."""
    store = Store(root)
    rows = {spec.name: store.rows(spec) for spec in plan.stages}
    all_rows = [item for of in rows.values() for item in of.items()]
    failed = [key for key, row in all_rows if row.outcome == "failed"]
    return {
        "results": board(plan, root),
        "records": {name: sorted(of) for name, of in rows.items()},
        "failed": sorted(failed),
    }


@cache
def undisturbed(size: Size) -> dict[str, Any]:
    """The same of a run that nothing disturbs."""
    with tempfile.TemporaryDirectory(dir=FAST_FOLDER) as folder:
        root, plan = Path(folder), size.plan()
        world = World([Node("n", Resources(cpus=8, gpus=8), "address of n")])
        with world.driver() as driver:
            options = EngineOptions(executor=nullcontext(driver))
            result = execute(plan, root, options, {"config": {}}, Witness())
        return summary(plan, root) | {"counts": result.counts}


# ------------------------------------------------------------------------------- faults


def _some_host(history: History) -> SimulatedHost | None:
    hosts = history.world.hosts
    return history.random.choice(hosts) if hosts else None


def a_host_dies(history: History) -> bool:
    if host := _some_host(history):
        host.end("the process was killed")
    return host is not None


def a_host_dies_after_its_commit(history: History) -> bool:
    if host := _some_host(history):
        host.ends_after_batch = True
    return host is not None


def a_host_is_slow(history: History) -> bool:
    if host := _some_host(history):
        host.slowness = 20.0
    return host is not None


def a_disk_is_full(history: History) -> bool:
    if host := _some_host(history):
        host.worker._committer = FullDisk(host.worker._committer)  # type: ignore[assignment]
    return host is not None


class FullDisk:
    """Refuses one commit."""

    def __init__(self, committer: Committer) -> None:
        self._committer, self._full = committer, True

    def commit(self, table: Any) -> Any:
        if self._full:
            self._full = False
            raise StoreError(f"[Errno {errno.ENOSPC}] No space left on device")
        return self._committer.commit(table)


def a_node_is_lost(history: History) -> bool:
    world, fresh = history.world, history._node()
    if world.listed:
        world.lose(history.random.choice(world.listed))
        world.at(world.now + history.random.uniform(0, 90), partial(world.join, fresh))
    return bool(world.listed)


def a_node_is_cut_off(history: History) -> bool:
    world, fresh = history.world, history._node()
    if world.listed:
        seconds = history.random.choice((5.0, 25.0, 40.0, 120.0))
        world.cut(history.random.choice(world.listed), seconds)
        world.at(world.now + 150, partial(world.join, fresh))
    return bool(world.listed)


def the_driver_is_killed(history: History) -> bool:
    if history.driver is None:
        return False
    history.driver.killed = True
    raise DriverKilled


def the_driver_is_interrupted(history: History) -> bool:
    if history.driver is None:
        return False
    raise KeyboardInterrupt


def a_second_driver_comes(history: History) -> bool:
    if history.driver is None:
        return False
    try:
        execute(history.plan, history.root, EngineOptions(), {"config": {}}, Witness())
    except RunInUse:
        return True
    history.wrong.append("a second driver was let in")
    return True


FAULTS = (
    a_host_dies,
    a_host_dies,
    a_host_dies_after_its_commit,
    a_host_is_slow,
    a_disk_is_full,
    a_node_is_lost,
    a_node_is_cut_off,
    the_driver_is_killed,
    the_driver_is_interrupted,
    a_second_driver_comes,
)


def history_of(seed: int) -> History:
    """The history of a seed; its `wrong` says what must not be."""
    folder = Path(tempfile.mkdtemp(dir=FAST_FOLDER))
    history = History(seed, folder)
    try:
        history.run()
    except Exception:
        history.wrong.append(traceback.format_exc())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return history


def result_of(seed: int) -> dict[str, Any]:
    """What is counted of a seed's history."""
    history = history_of(seed)
    faults = {name: n for name, n in history.faults.items() if n}
    return {"faults": faults, "wrong": history.wrong}


def main(seeds: int = 1000, first: int = 0, checkpoint: Path | None = None) -> None:
    """Live through one history a seed; 1 where one ended wrong."""
    faults: Counter[str] = Counter()
    known, bad = Checkpoint(checkpoint), []
    for seed in range(first, first + seeds):
        result = known.result(seed, partial(result_of, seed))
        faults.update(result["faults"])
        if result["wrong"]:
            bad.append(seed)
            print(f"seed {seed}: {'; '.join(result['wrong'])}", flush=True)
    print(f"{seeds} histories with {dict(faults)}; wrong: {bad or 'none'}")
    raise typer.Exit(bool(bad))


if __name__ == "__main__":
    typer.run(main)
