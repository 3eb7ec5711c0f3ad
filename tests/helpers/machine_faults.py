"""Runs on two machines that are disturbed: a machine is cut off or lost, or the head is.

`test_two_machines.py` and `test_slurm.py` do it one by one,
`faults.py --machines` at random.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import pyarrow.parquet as pq
from paths import CHECKOUT, SOURCE
from ray_cluster import (
    RayCluster,
    RayNode,
    clone,
    environment,
    users_environ,
    wheel,
)
from two_machines import Machine, TwoMachines, missing

from plait.cluster.verify import verify

RECORDS = 40
AHEAD_S = 600
"""By how much the clock of the second machine is ahead."""
MOST_COMMANDS, MOST_S = 8, 300.0
HELD = 8
"""Records of each machine after which a run waits until it has been disturbed."""
MINE = """
import socket, time
from pathlib import Path
from plait.generators.base import Result
from plait.generators.document import Draft, Text

SEEN, ALLOWED = Path("{seen}"), Path("{allowed}")

class Slow:
    kind, version, seeded = "draft", 1, False
    def __init__(self, **_): ...
    def __call__(self, requests):
        time.sleep(0.2)
        host = socket.gethostname()
        while SEEN.read_text().count(host) >= int(ALLOWED.read_text()):
            time.sleep(0.05)
        with SEEN.open("a") as file:
            file.write(f"{host} {time.time():.0f}\\n" * len(requests))
        return [Result(Draft((Text("slowly"),))) for _ in requests]
"""
# A worker takes all CPUs of its node, so that each machine has one.
SLOW = "mine:Slow"
CONFIG = """
data = "sample"
systems = ["{slow}@text"]
scorers = []
weights = "tiny"
out = "{out}"
models."{slow}" = {{ workers = 2, batch_size = 2, num_cpus = 2 }}
cluster = {{ nodes = 2, time = "0:05:00" }}
"""
CONFIG_FILE = "mmie.toml"
Way = Literal["checkout", "wheel", "job"]


def submission(dashboard: str, checkout: Path = CHECKOUT) -> list[str]:
    """The command by which docs/cluster.md submits a job to Ray, from any folder."""
    page = (CHECKOUT / "docs" / "cluster.md").read_text()
    (printed,) = re.findall(r"^\$ (ray job submit (?:.*\\\n)*.*)$", page, re.MULTILINE)
    words = shlex.split(printed.replace("\\\n", ""), comments=True)
    assert {"http://HEAD:8265", CONFIG_FILE} < set(words)
    here = {"HEAD:8265": dashboard, "CHECKOUT/": f"{checkout}/"}
    for said, meant in here.items():
        words = [word.replace(said, meant) for word in words]
    return words


def wait_until(condition: Callable[[], bool], limit_s: float = 240.0) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def printed(driver: subprocess.Popen[str], status: int = 0) -> str:
    """What a driver that ended with this status has printed."""
    said = driver.communicate(timeout=240)[0]
    assert driver.returncode == status, said[-3000:]
    return said


class World:
    """Two machines with a node of Ray on each, the head on the first; a context manager.

    The clock of the second is ahead.
    """

    def __init__(self, nodes: Path) -> None:
        """`nodes` has the programs of the nodes."""
        self.two, self._nodes = TwoMachines(), nodes
        self.first, self.second = self.two.machines
        self._head, self._joined = contextlib.ExitStack(), contextlib.ExitStack()
        self.cluster: RayCluster | None = None
        self.node: RayNode | None = None
        """Of the second machine."""

    def __enter__(self) -> World:
        self.two.__enter__()
        self.two.set_clock(self.second, AHEAD_S)
        return self

    def __exit__(self, *_: Any) -> None:
        self.end_head()
        self.two.__exit__()

    def heal(self) -> None:
        """Start what was ended."""
        if self.cluster is None:
            host, within = self.first.address, self.first.inside
            own = "--temp-dir=/tmp/ray"
            head = RayCluster(self._nodes, 2, own, host=host, within=within)
            self.cluster = self._head.enter_context(head)
        if self.node is None:
            if self.second.is_off:
                self.two.start_again(self.second)
            joined = self.cluster.joined(2, within=self.second.inside)
            self.node = self._joined.enter_context(joined)

    def start(
        self, run: Run, programs: Path, machine: Machine | None = None
    ) -> subprocess.Popen[str]:
        """Start a run's command, on the first machine unless another is named.

        `programs` are those of its user.
        """
        self.heal()
        assert self.cluster is not None
        return (machine or self.first).start(
            *run.command(self.cluster.address),
            folder=run.folder,
            env=users_environ(programs, **run.variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def disturb(self, fault: str, driver: subprocess.Popen[str]) -> None:
        """Bring a fault about; what it ends is started again before the next command."""
        FAULTS[fault].cause(self, driver)
        match FAULTS[fault].loses:
            case "second":
                self.end_second()
            case "head":
                self.end_head()

    def end_second(self) -> None:
        """End the node of the second machine, whatever is left of it."""
        self._joined.close()
        self.node = None

    def end_head(self) -> None:
        """End both nodes."""
        self.end_second()
        self._head.close()
        self.cluster = None


class Run:
    """A folder with a module of the user's and a config, and the run that they make."""

    def __init__(self, folder: Path, way: Way = "checkout") -> None:
        self.folder, self.way, self.root = folder, way, folder / "out"
        folder.mkdir(exist_ok=True)
        self._seen, self._allowed = folder / "seen", folder / "allowed"
        self._seen.touch()
        self.allow()
        mine = MINE.replace("{seen}", str(self._seen))
        (folder / "mine.py").write_text(mine.replace("{allowed}", str(self._allowed)))
        (folder / CONFIG_FILE).write_text(CONFIG.format(out=self.root, slow=SLOW))

    def allow(self, records: int = 10 * RECORDS) -> None:
        """Let each machine compute about so many; by default all it wants."""
        new = self._allowed.with_suffix(".new")
        new.write_text(str(records))
        new.replace(self._allowed)

    def command(self, address: str) -> list[str]:
        """What its user types, on the cluster at this address."""
        if self.way == "job":
            return submission("127.0.0.1:8265")
        return [*self.program, "run", CONFIG_FILE, "--address", address]

    @property
    def program(self) -> list[str]:
        """What starts plait."""
        return ["plait"] if self.way == "wheel" else ["python", "-m", "plait"]

    @property
    def variables(self) -> dict[str, str]:
        """What its user's shell sets: where the code is that is not installed."""
        return {"PYTHONPATH": str(SOURCE)} if self.way == "checkout" else {}

    @property
    def seen(self) -> list[tuple[str, float]]:
        """The host and its time of each record that was computed, in order."""
        lines = (line.split() for line in self._seen.read_text().splitlines())
        return [(host, float(moment)) for host, moment in lines]

    @property
    def most(self) -> int:
        """How many the machine has computed that has computed most."""
        return max(Counter(host for host, _ in self.seen).values(), default=0)

    def each_has(self, records: int) -> bool:
        """Whether each machine has computed so many."""
        count = Counter(host for host, _ in self.seen)
        return min(count["n1"], count["n2"]) >= records

    def wait_for(self, records: int) -> None:
        """Wait until each machine has computed so many."""
        wait_until(lambda: self.each_has(records))

    def manifest(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.root / "manifest.json").read_text())
        return content

    def keys(self) -> list[str]:
        """Of all records in its parts."""
        parts = self.root.glob("stages/*/part-*.parquet")
        return [
            k for p in parts for k in pq.read_table(p, columns=["key"])["key"].to_pylist()
        ]

    @property
    def stops(self) -> int:
        """How often its drivers have begun to stop."""
        return sum(log.read_text().count("stopping") for log in self.root.rglob("run.log"))

    def failures(self) -> set[tuple[str, str]]:
        """Kind and host of the workers that were lost."""
        listed = self.manifest()["worker_failures"]["listed"]
        return {(failure["kind"], failure["host"]) for failure in listed}

    def tables(self) -> bytes:
        return (self.root / "leaderboard.json").read_bytes()

    def check_stopped(self) -> int:
        """That it ended in order, with some of its records; how many."""
        about = self.manifest()
        assert about["status"] == "interrupted"
        done: int = about["counts"]["done"]
        assert 0 < done == len(self.keys()) < RECORDS
        assert not {"run.lock", ".stderr"} & {file.name for file in self.root.iterdir()}
        return done

    def check_finished(self) -> None:
        """That every record is there, once in the tables, and no part is damaged."""
        about = self.manifest()
        counts = (about["counts"]["done"], about["counts"]["failed"])
        assert (about["status"], *counts) == ("finished", RECORDS, 0)
        assert len(set(self.keys())) == RECORDS
        (stage,) = verify(self.root)
        assert (stage.damaged, stage.undecodable, stage.lost) == ([], [], 0)


STOPS: Mapping[str, Sequence[str]] = {
    "its time is nearly over": ("scancel", "--batch", "--signal=USR1"),
    "queued again": ("scontrol", "requeue"),
    "pre-empted": (),
    "cancelled": ("scancel",),
}
"""What stops a job of Slurm, by the command that does."""
_OFF = ("PENDING", "CANCELLED")
"""States of a job that has left its nodes."""


class Slurm:
    """Slurm on both machines, and what `plait submit` has given it."""

    def __init__(self, two: TwoMachines, home: Path) -> None:
        # Ray finds a token on one node only, as where each has home folders of its own.
        token = home / ".ray" / "auth_token"
        token.parent.mkdir(parents=True)
        token.write_text("0" * 64)
        two.machines[1].run("mount", "-t", "tmpfs", "none", str(token.parent))
        environ = users_environ(home, HOME=str(home))
        del environ["RAY_AUTH_MODE"]
        self.two, self.environ = two, two.start_slurm(environ)

    def submit(self, run: Run, programs: Path, *more: str) -> str:
        """The number of the job."""
        there = ["env", f"--chdir={run.folder}", f"PATH={programs}:{self.environ['PATH']}"]
        there += [f"{name}={value}" for name, value in run.variables.items()]
        words = [*run.program, "submit", CONFIG_FILE, "--to", "slurm", *more]
        return self._run(*there, *words).split()[1].rstrip(":")

    def stop(self, run: Run, job: str, how: str) -> None:
        """Stop a job, and wait until it is queued again or has ended.

        The batches in flight end once plait has been told: when Slurm stops a job, Ray's
        processes are told too, and they leave within seconds.
        """
        told, command = run.stops, STOPS[how]
        higher = None if command else self._submit_higher()
        if command:
            self._run(*command, job)
        # Before plait has started, there is nobody to be told.
        wait_until(lambda: run.stops > told or self.state(job) in _OFF)
        run.allow()
        if higher is not None:
            self.wait_for(higher, "RUNNING")
            self._run("scancel", higher)
        self.wait_for(job, *_OFF)

    def _submit_higher(self) -> str:
        """A job of a higher partition, which takes the place of the others."""
        other = ["--partition=high", "--nodes=2", "--exclusive", "--wrap=sleep 1d"]
        return self._run("sbatch", "--parsable", "--output=/dev/null", *other).strip()

    def cancel_all(self) -> None:
        """Cancel all jobs."""
        self._run("scancel", "--user=root")

    def start_again(self, job: str) -> None:
        """Slurm itself waits for two minutes; nodes refuse it in the second of its end."""
        self._run("scontrol", "update", f"JobId={job}", "StartTime=now+2")

    def wait_for(self, job: str, *states: str) -> None:
        """Wait until it is in one of these states."""
        wait_until(lambda: self.state(job) in states)

    def state(self, job: str) -> str:
        show = ["squeue", "--noheader", "--format=%T", f"--job={job}", "--states=all"]
        return self._run(*show).strip()

    def facts(self, job: str) -> dict[str, str]:
        """What Slurm says of a job, by its own names."""
        shown = self._run("scontrol", "show", "job", job)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def _run(self, *words: str) -> str:
        return self.two.switch.run(*words, env=self.environ)


# ------------------------------------------------------------------------------- faults


@dataclass(frozen=True)
class Fault:
    """What is done to a run."""

    cause: Callable[[World, subprocess.Popen[str]], None]
    loses: Literal["", "second", "head", "driver"] = ""


def cut_off(seconds: float) -> Fault:
    def cause(world: World, driver: subprocess.Popen[str]) -> None:
        world.two.link(world.second, "down")
        try:
            time.sleep(seconds)
        finally:
            world.two.link(world.second, "up")

    return Fault(cause, "" if seconds < 15 else "second")


def _kill_raylet(world: World, driver: subprocess.Popen[str]) -> None:
    assert world.node is not None
    world.node.raylet().kill()


def _kill_second(world: World, driver: subprocess.Popen[str]) -> None:
    world.second.off()


def _kill_head(world: World, driver: subprocess.Popen[str]) -> None:
    assert world.cluster is not None
    for process in psutil.Process(world.cluster.nodes[0].process.pid).children(True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _kill_driver(world: World, driver: subprocess.Popen[str]) -> None:
    for process in psutil.Process(driver.pid).children(True):
        process.kill()


FAULTS: Mapping[str, Fault] = {
    "cut off for 5 s": cut_off(5),
    "cut off for 40 s": cut_off(40),
    "cut off for 120 s": cut_off(120),
    "raylet killed": Fault(_kill_raylet, "second"),
    "machine killed": Fault(_kill_second, "second"),
    "head killed": Fault(_kill_head, "head"),
    "driver killed": Fault(_kill_driver, "driver"),
}


def disturbed(
    world: World, programs: Mapping[Way, Path], folder: Path, seed: int
) -> tuple[Run, list[str], int]:
    """A run with faults at random moments; their names, and how many commands it took."""
    rng = random.Random(seed)
    names = [rng.choice(list(FAULTS)) for _ in range(rng.randint(1, 3))]
    # Who has submitted a job may go; its driver is Ray's.
    ways: list[Way] = ["checkout", "wheel", "job"][: 2 + ("driver killed" not in names)]
    run = Run(folder, rng.choice(ways))
    driver, commands, allowed = None, 0, 0
    for name in names:
        allowed += rng.randint(1, 5)
        run.allow(allowed)
        if driver is None:
            driver, commands = world.start(run, programs[run.way]), commands + 1
        world.heal()
        until = time.monotonic() + rng.uniform(5, 60)
        while not run.each_has(allowed) and time.monotonic() < until:
            time.sleep(0.1)
        world.disturb(name, driver)
        if FAULTS[name].loses in ("head", "driver"):
            driver.communicate(timeout=MOST_S)
            driver = None
    run.allow()
    while driver is None or driver.returncode != 0:
        if driver is None or driver.poll() is not None:
            assert commands < MOST_COMMANDS
            driver, commands = world.start(run, programs[run.way]), commands + 1
        driver.communicate(timeout=MOST_S)
    return run, names, commands


def disturbed_job(
    slurm: Slurm, programs: Mapping[Way, Path], folder: Path, seed: int
) -> tuple[Run, list[str], int]:
    """The same of a job of Slurm, that is stopped."""
    rng = random.Random(seed)
    names = [rng.choice(list(STOPS)) for _ in range(rng.randint(1, 3))]
    run = Run(folder, rng.choice(["checkout", "wheel"]))
    run.allow(0)
    job, allowed, commands = slurm.submit(run, programs[run.way]), 0, 1
    for name in names:
        allowed += rng.randint(1, 5)
        run.allow(allowed)
        slurm.wait_for(job, "RUNNING")
        until = time.monotonic() + rng.uniform(5, 120)
        while not run.each_has(allowed) and time.monotonic() < until:
            time.sleep(0.1)
        slurm.stop(run, job, name)
        if slurm.state(job) == "PENDING":
            slurm.start_again(job)
        else:
            job, commands = slurm.submit(run, programs[run.way]), commands + 1
    run.allow()
    slurm.wait_for(job, "COMPLETED")
    return run, names, commands


def disturb_machines(seeds: Sequence[int]) -> int:
    """Disturb a run for each seed and show what became of it; how many were harmed."""
    if reason := missing():
        sys.exit(reason)
    folder, bad = Path(tempfile.mkdtemp()), 0
    nodes = environment(folder / "nodes")
    installed = environment(folder / "env", wheel(clone(folder / "clone"), folder))
    programs: dict[Way, Path] = {"checkout": nodes, "job": nodes, "wheel": installed}
    with World(nodes) as world, TwoMachines() as two:
        slurm = None if missing(slurm=True) else Slurm(two, folder / "home")
        calm = Run(folder / "calm")
        printed(world.start(calm, nodes))
        for seed in seeds:
            began, own = time.monotonic(), folder / f"seed{seed}"
            try:
                if slurm is not None and seed % 4 == 0:
                    run, names, commands = disturbed_job(slurm, programs, own, seed)
                else:
                    run, names, commands = disturbed(world, programs, own, seed)
                run.check_finished()
                assert run.tables() == calm.tables()
                said = f"{run.way}: {', '.join(names)}; {commands} commands"
                shutil.rmtree(own)
            except Exception:
                world.end_head()  # and with it what still runs
                if slurm is not None:
                    slurm.cancel_all()
                said, bad = f"HARMED, see {own}\n{traceback.format_exc()}", bad + 1
            print(f"{seed:4}  {time.monotonic() - began:4.0f} s  {said}", flush=True)
    print(f"{len(seeds) - bad} of {len(seeds)} disturbed runs ended as if undisturbed")
    if not bad:
        shutil.rmtree(folder)
    return int(bad > 0)
