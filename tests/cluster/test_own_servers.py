"""Stages whose workers start servers: nothing is lost, and nothing is left running."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from own_processes import all_end, living
from paths import HELPERS
from trial import Witness, plan_of, run, sample

from plait.cluster.plan import Plan
from plait.cluster.store import Store
from plait.cluster.watcher import RunProgress
from plait.generators.base import ServerCommand, StageSpec
from plait.pipelines.chat.settings import EndpointSettings

pytestmark = [
    pytest.mark.processes,
    pytest.mark.contract,
    pytest.mark.usefixtures("worker_threads"),
]

PATIENCE: Mapping[str, Any] = {"backoff_s": 0.05, "give_up_s": 60.0, "max_attempts": 999}
"""A server is known to have ended long before a request to it is given up."""


def served(marker: Path, *faults: str, replicas: int = 1, **settings: Any) -> StageSpec:
    """A writer whose workers start the faulty server; `marker` is on its command line."""
    server = str(HELPERS / "faulty_server.py")
    argv = (sys.executable, server, "--port", "{port}", "--grandchildren", str(marker))
    command = ServerCommand(name="echo", argv=(*argv, *faults), start_timeout_s=240.0)
    spec = EndpointSettings(
        model="m", concurrency=4, workers=replicas, **{**PATIENCE, **settings}
    ).spec("served", "pretrained")
    placement = replace(spec.placement, endpoint="server:echo", server=command)
    return replace(spec, identity="endpoint:echo", placement=placement)


def pids_in(marker: Path) -> list[int]:
    """What servers have noted of the processes that they started."""
    return [int(pid) for pid in marker.read_text().split()] if marker.exists() else []


def none_left(marker: Path) -> bool:
    return all_end(marker, *pids_in(marker))


def trial(marker: Path, *faults: str, samples: int = 12, **settings: Any) -> Plan:
    return plan_of(
        [sample(i) for i in range(samples)], write=served(marker, *faults, **settings)
    )


def test_a_worker_starts_its_server_and_ends_it(tmp_path: Path) -> None:
    marker = tmp_path / "pids"
    result = run(trial(marker), tmp_path / "run")
    assert result.counts["done"] == 24
    assert not living(marker, *pids_in(marker))  # the run waited for it
    assert list((tmp_path / "run" / "servers").glob("echo-*.log"))


def test_a_server_that_dies_is_started_again_and_no_record_is_lost(tmp_path: Path) -> None:
    marker, lives, witness = tmp_path / "pids", tmp_path / "lives", Witness()
    before = set(threading.enumerate())
    plan = trial(marker, "--die-after", "4", "--lives", str(lives))
    result = run(plan, tmp_path / "run", witness)
    assert result.counts["done"] == 24
    assert lives.exists()
    (failure,) = witness.failures
    assert "killed by signal 9" in failure.reason
    assert "the engine has met its end" in failure.reason
    assert not living(marker, *pids_in(marker))
    # Requests that will never be answered keep no process from ending.
    assert all(thread.daemon for thread in set(threading.enumerate()) - before)


@pytest.mark.slow
def test_a_query_that_kills_the_server_fails_alone(tmp_path: Path) -> None:
    marker, witness = tmp_path / "pids", Witness()
    plan = plan_of(
        [sample(i, "!die" if i == 3 else "") for i in range(6)],
        write=served(marker, "--die-at", "!die"),
    )
    result = run(plan, tmp_path / "run", witness)
    assert (result.counts["done"], result.counts["failed"]) == (10, 2)
    rows = Store(tmp_path / "run").rows(plan.systems[0].stages[0])
    reasons = [r.reason for r in rows.values() if r.outcome == "failed"]
    assert "not tried again after 3 attempts" in str(reasons)


def test_a_server_that_cannot_start_ends_the_stage_with_its_log(tmp_path: Path) -> None:
    marker, witness = tmp_path / "pids", Witness()
    plan = trial(marker, "--exit", "unknown model 'nonsense'", samples=2)
    result = run(plan, tmp_path / "run", witness)
    assert result.counts["failed"] == 4
    assert any("unknown model 'nonsense'" in notice for notice in witness.notices)
    assert run(trial(marker, samples=2), tmp_path / "run").counts["done"] == 4
    assert none_left(marker)


def told(root: Path, what: str) -> set[str]:
    """What the servers of a run say of themselves: GPUs or port."""
    logs = (log.read_text() for log in (root / "servers").glob("echo-*.log"))
    return set(re.findall(rf"{what} (\d+)", " ".join(logs)))


class Opens(Witness):
    """Lets the servers of a run answer once there are two."""

    def __init__(self, root: Path, gate: Path) -> None:
        super().__init__()
        self.root, self.gate = root, gate

    def turn(self, progress: RunProgress) -> None:
        super().turn(progress)
        if len(told(self.root, "port")) == 2:
            self.gate.touch()


def test_two_replicas_share_the_work(tmp_path: Path) -> None:
    marker, gate, root = tmp_path / "pids", tmp_path / "gate", tmp_path / "run"
    held = ("--hold-after", "1", "--gate", str(gate))
    plan = trial(marker, *held, replicas=2, samples=40)
    assert run(plan, root, Opens(root, gate)).counts["done"] == 80
    assert len(told(root, "port")) == 2
    assert none_left(marker)


def driver(root: Path, marker: Path, *more: str) -> subprocess.Popen[str]:
    """A run in a process of its own, in the middle of its work until `go_on`."""
    path = os.pathsep.join([str(HELPERS.parents[1]), str(HELPERS)])
    process = subprocess.Popen(
        [sys.executable, __file__, str(root), str(marker), *more],
        env=dict(os.environ, PYTHONPATH=path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for(process, lambda: list(root.glob("stages/served*/part-*")))
    return process


def wait_for(process: subprocess.Popen[str], condition: Callable[[], object]) -> None:
    until = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)


def gate_of(marker: Path) -> Path:
    return marker.with_suffix(".gate")


def go_on(process: subprocess.Popen[str], marker: Path) -> None:
    """Let a run end that `driver` has started, with all its documents."""
    gate_of(marker).touch()
    out, _ = process.communicate(timeout=240)
    assert json.loads(out.splitlines()[-1])["done"] == 60, out


@pytest.mark.processes
@pytest.mark.parametrize("more", [(), pytest.param(("--ray",), marks=pytest.mark.slow)])
def test_servers_end_with_the_driver(tmp_path: Path, more: tuple[str, ...]) -> None:
    root, marker = tmp_path / "run", tmp_path / "pids"
    process = driver(root, marker, *more)
    assert living(marker)
    process.kill()
    process.communicate(timeout=60)
    assert none_left(marker)
    result = run(trial(marker, samples=30), root)
    assert result.counts["done"] == 60
    assert result.made < 90


@pytest.mark.slow
@pytest.mark.parametrize("which", ["worker", "guardian"])
def test_a_killed_process_is_replaced(tmp_path: Path, which: str) -> None:
    root, marker = tmp_path / "run", tmp_path / "pids"
    process = driver(root, marker, "--ray")
    mine = psutil.Process(process.pid).children(recursive=True)
    if which == "worker":
        workers = [p for p in mine if "Worker" in " ".join(p.cmdline()[:1])]
        next(p for p in workers if list((root / "servers").glob(f"*-{p.pid}.log"))).kill()
    else:
        lines = {p: " ".join(p.cmdline()) for p in living(marker)}
        next(p for p, x in lines.items() if "guardian.py" in x and __file__ not in x).kill()
    go_on(process, marker)
    assert none_left(marker)


@pytest.mark.slow
def test_replicas_on_one_node_get_gpus_and_ports_of_their_own(tmp_path: Path) -> None:
    """By a Ray that is told of two GPUs; CUDA_VISIBLE_DEVICES is all that is needed."""
    root, marker = tmp_path / "run", tmp_path / "pids"
    process = driver(root, marker, "--gpus")
    wait_for(process, lambda: len(told(root, "port")) == 2)
    go_on(process, marker)
    assert told(root, "GPUs") == {"0", "1"}
    assert none_left(marker)


def main(root: Path, marker: Path, *, gpus: bool, ray: bool) -> None:
    """A run that stops for its gate; with `gpus`, of two replicas with a GPU each."""
    held = ("--hold-after", "6", "--gate", str(gate_of(marker)))
    plan = trial(marker, *held, samples=30, replicas=1 + gpus)
    if gpus:
        from plait.cluster.executors.on_ray import start_local

        start_local(num_cpus=4, num_gpus=2)
        system = plan.systems[0]
        place = replace(system.draft.placement, num_gpus=1)
        draft = replace(system.draft, placement=place)
        plan = replace(plan, systems=[replace(s, draft=draft) for s in plan.systems])
    executor = "ray" if gpus or ray else "local"
    print(json.dumps(dict(run(plan, root, executor=executor).counts)))


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        Path(sys.argv[2]),
        gpus="--gpus" in sys.argv,
        ray="--ray" in sys.argv,
    )
