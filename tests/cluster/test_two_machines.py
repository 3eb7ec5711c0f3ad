"""Runs on two machines with a Ray node each: one lost, one cut off, a driver told to stop.

The machines are namespaces with an address each; see `helpers/two_machines.py`.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from paths import CHECKOUT
from ray_cluster import RayCluster, RayNode, environment, users_environ
from two_machines import Machine, TwoMachines, missing

WHY_NOT = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.machines,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]
RECORDS = 40
MINE = """
import os, socket, time
from generators.base import Result
from generators.document import Draft, Text

class Slow:
    kind, version, seeded = "draft", 1, False
    def __init__(self, **_): ...
    def __call__(self, requests):
        time.sleep(0.6)
        with open("{seen}", "a") as file:
            file.write("".join(socket.gethostname() + "\\n" for _ in requests))
        return [Result(Draft((Text("slowly"),))) for _ in requests]
"""
# A worker takes all CPUs of its node, so that each machine has one.
SETTINGS = 'models."mine:Slow"={workers=2,batch_size=2,num_cpus=2}'


class Run:
    """A folder with a module of the user's, and the command that runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "out"
        self.seen_file = folder / "seen"
        folder.mkdir(exist_ok=True)
        (folder / "mine.py").write_text(MINE.replace("{seen}", str(self.seen_file)))

    def command(self, address: str) -> list[str]:
        what = ["--data", "sample", "--system", "mine:Slow@text", "--weights", "tiny"]
        settings = ["--set", "scorers=[]", "--set", SETTINGS]
        where = ["--address", address, "--out", str(self.root)]
        return ["python", str(CHECKOUT / "plait.py"), "run", *what, *settings, *where]

    def start(self, machine: Machine, cluster: RayCluster) -> subprocess.Popen[str]:
        return machine.start(
            *self.command(cluster.address),
            folder=self.folder,
            env=users_environ(cluster.bin_folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def seen(self) -> list[str]:
        """The host that each record was computed on, in order."""
        return self.seen_file.read_text().split() if self.seen_file.exists() else []

    def manifest(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.root / "manifest.json").read_text())
        return content

    def stored(self) -> int:
        """How many records its parts hold."""
        parts = self.root.glob("stages/*/part-*.parquet")
        return sum(pq.read_metadata(part).num_rows for part in parts)

    def failures(self) -> set[tuple[str, str]]:
        """Kind and host of the workers that were lost."""
        listed = self.manifest()["worker_failures"]["listed"]
        return {(failure["kind"], failure["host"]) for failure in listed}

    def tables(self) -> str:
        return (self.root / "leaderboard.json").read_text()

    def wait_for_more(self) -> None:
        before = len(self.seen())
        wait_until(lambda: len(self.seen()) > before)

    def check_stopped(self) -> int:
        """That it ended in order, with some of its records; how many."""
        about = self.manifest()
        assert about["status"] == "interrupted"
        done: int = about["counts"]["done"]
        assert 0 < done == self.stored() < RECORDS
        assert not {"run.lock", ".stderr"} & {file.name for file in self.root.iterdir()}
        return done

    def check_finished(self) -> None:
        about = self.manifest()
        counts = (about["counts"]["done"], about["counts"]["failed"])
        assert (about["status"], *counts) == ("finished", RECORDS, 0)


def wait_until(condition: Callable[[], bool], limit_s: float = 240.0) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)


def printed(driver: subprocess.Popen[str]) -> str:
    """What a driver that ended with success has printed."""
    said = driver.communicate(timeout=240)[0]
    assert driver.returncode == 0, said[-3000:]
    return said


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("nodes"))


@pytest.fixture(scope="module")
def two() -> Iterator[TwoMachines]:
    with TwoMachines() as two:
        yield two


@pytest.fixture(scope="module")
def cluster(two: TwoMachines, nodes: Path) -> Iterator[RayCluster]:
    """A head on the first machine."""
    first = two.machines[0]
    own = "--temp-dir=/tmp/ray"
    head = RayCluster(nodes, 2, own, host=first.address, within=first.inside)
    with head as cluster:
        yield cluster


@pytest.fixture
def second(two: TwoMachines, cluster: RayCluster) -> Iterator[RayNode]:
    """A node on the second machine."""
    with cluster.joined(2, within=two.machines[1].inside) as node:
        yield node


@pytest.fixture(scope="module")
def calm(
    two: TwoMachines, cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """A run that nothing disturbs."""
    run, (first, other) = Run(tmp_path_factory.mktemp("calm")), two.machines
    with cluster.joined(2, within=other.inside):
        printed(run.start(first, cluster))
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def test_each_machine_has_a_worker(calm: Run) -> None:
    calm.check_finished()
    assert set(calm.seen()) == {"n1", "n2"}
    assert len(calm.seen()) == RECORDS
    assert calm.failures() == set()


def test_a_machine_that_is_lost_is_not_taken_for_a_death(
    two: TwoMachines, cluster: RayCluster, second: RayNode, run: Run, calm: Run
) -> None:
    first, other = two.machines
    driver = run.start(first, cluster)
    wait_until(lambda: "n2" in run.seen())
    second.raylet().kill()
    printed(driver)
    run.check_finished()
    assert run.failures() == {("lost with its node", other.address)}
    assert run.tables() == calm.tables()


def test_a_machine_that_is_cut_off_loses_its_work_to_others(
    two: TwoMachines, cluster: RayCluster, second: RayNode, run: Run, calm: Run
) -> None:
    """It is named by its address before Ray gives it up, and the run ends without it."""
    first, other = two.machines
    driver = run.start(first, cluster)
    wait_until(lambda: "n2" in run.seen())
    two.link(other, "down")
    try:
        said = printed(driver)
    finally:
        two.link(other, "up")
    assert other.address in said
    run.check_finished()
    assert run.failures() == {("lost with its node", other.address)}
    assert run.tables() == calm.tables()


def test_a_driver_that_is_told_to_stop_is_resumed(
    two: TwoMachines, cluster: RayCluster, run: Run, calm: Run
) -> None:
    first, _ = two.machines
    driver = run.start(first, cluster)
    wait_until(lambda: len(run.seen()) >= 4)
    (process,) = psutil.Process(driver.pid).children()
    process.terminate()
    said = driver.communicate(timeout=120)[0]
    assert driver.returncode == 143, said[-3000:]
    stopped = run.manifest()
    assert stopped["status"] == "interrupted"
    done, before = stopped["counts"]["done"], len(run.seen())
    assert 4 <= done < RECORDS
    printed(run.start(first, cluster))
    run.check_finished()
    assert len(run.seen()) - before == RECORDS - done
    assert run.tables() == calm.tables()


CONFIG = """
data = "sample"
systems = ["mine:Slow@text"]
scorers = []
weights = "tiny"
out = "out"
models."mine:Slow" = { workers = 2, batch_size = 2, num_cpus = 2 }
cluster = { nodes = 2, time = "0:05:00" }
"""


class Slurm:
    """Slurm on both machines, and what `plait submit` has given it."""

    def __init__(self, two: TwoMachines, environ: dict[str, str], run: Run) -> None:
        self.two, self.environ, self.run = two, environ, run
        (run.folder / "run.toml").write_text(CONFIG)

    def submit(self, *more: str) -> str:
        """The number of the job."""
        words = ["submit", "run.toml", "--to", "slurm", *more]
        said = self._run("python", str(CHECKOUT / "plait.py"), *words)
        return said.split()[1].rstrip(":")

    def stop(self, job: str, *words: str, state: str = "PENDING") -> None:
        """Stop the job by a command, and wait until it is queued again or has ended."""
        self._run(*words, job)
        wait_until(lambda: self.state(job) == state)

    def start_again(self, job: str) -> None:
        """Slurm itself waits for two minutes."""
        self._run("scontrol", "update", f"JobId={job}", "StartTime=now")

    def state(self, job: str) -> str:
        show = ["squeue", "--noheader", "--format=%T", f"--job={job}", "--states=all"]
        return self._run(*show).strip()

    def _run(self, *words: str) -> str:
        there = ["env", f"--chdir={self.run.folder}"]
        return self.two.switch.run(*there, *words, env=self.environ)


@pytest.fixture
def slurm(nodes: Path, run: Run) -> Iterator[Slurm]:
    if reason := missing(slurm=True):
        pytest.skip(reason)
    # A token that Ray finds on one node only, as where each has home folders of its own.
    token = run.folder / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("0" * 64)
    environ = users_environ(nodes, HOME=str(run.folder))
    del environ["RAY_AUTH_MODE"]
    with TwoMachines() as two:
        two.machines[1].run("mount", "-t", "tmpfs", "none", str(token.parent))
        yield Slurm(two, two.start_slurm(environ), run)


def test_a_job_of_slurm_is_requeued_cancelled_and_resumed(
    slurm: Slurm, run: Run, calm: Run
) -> None:
    job = slurm.submit()
    wait_until(lambda: set(run.seen()) == {"n1", "n2"})
    slurm.stop(job, "scancel", "--batch", "--signal=USR1")  # its time is nearly over
    done = run.check_stopped()
    assert len(run.seen()) == done
    for stop, state in [("scontrol requeue", "PENDING"), ("scancel", "CANCELLED")]:
        slurm.start_again(job)
        run.wait_for_more()
        slurm.stop(job, *stop.split(), state=state)
        former, done = done, run.check_stopped()
        assert former < done
    before = len(run.seen())
    job = slurm.submit()
    wait_until(lambda: slurm.state(job) == "COMPLETED")
    run.check_finished()
    assert len(run.seen()) - before == RECORDS - done
    assert run.tables() == calm.tables()


def test_jobs_of_an_array_make_one_run_and_are_requeued_one_by_one(
    slurm: Slurm, run: Run, calm: Run
) -> None:
    """The last of them has the number of the array itself."""
    array = slurm.submit("--array", "2", "--set", "executor=local")
    first, last = f"{array}_1", f"{array}_2"
    wait_until(lambda: set(run.seen()) == {"n1", "n2"})
    slurm.stop(last, "scancel", "--batch", "--signal=USR1")
    assert slurm.state(first) != "PENDING"
    slurm.start_again(last)
    for job in (first, last):
        wait_until(lambda job=job: slurm.state(job) == "COMPLETED")  # type: ignore[misc]
    run.check_finished()
    assert len(run.seen()) == RECORDS == run.stored()
    assert run.tables() == calm.tables()
