"""Processes are killed for real; running again must end as if nothing had happened.

`make soak` runs many more seeds of the same.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from faults import command, disturbed, undisturbed
from trial import LIGHT, Witness, painter, plan_of, run, sample, writer

from cluster.store import Store
from cluster.watcher import StageProgress

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, trial_env: dict[str, str]) -> bytes:
    return undisturbed(tmp_path_factory.mktemp("calm") / "run", trial_env)


@pytest.mark.parametrize("seed", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_kills_at_random_moments_change_nothing(
    tmp_path: Path, trial_env: dict[str, str], calm: bytes, seed: int
) -> None:
    disturbance = disturbed(tmp_path / "run", trial_env, seed, calm)
    assert disturbance.worker_kills + disturbance.driver_kills >= 1
    assert disturbance.missing == 0
    assert disturbance.duplicated == 0
    assert disturbance.identical


def started(root: Path, log: Path, env: dict[str, str]) -> subprocess.Popen[str]:
    """A driver that has committed its first drafts."""
    driver = subprocess.Popen(
        command(root, log),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(root.glob("stages/writer*/part-*")):
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return driver


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_store_that_resumes(
    tmp_path: Path, trial_env: dict[str, str], calm: bytes, number: signal.Signals
) -> None:
    root, log = tmp_path / "run", tmp_path / "log"
    driver = started(root, log, trial_env)
    driver.send_signal(number)
    assert driver.wait(timeout=60) == 128 + number
    manifest = json.loads((root / "manifest.json").read_text())
    assert manifest["status"] == "interrupted"
    assert manifest["counts"]["missing"] > 0
    assert not (root / "run.lock").exists()
    again = subprocess.run(
        command(root, log), env=trial_env, capture_output=True, check=False
    )
    assert again.returncode == 1  # the poisoned records, as in the calm run
    assert (root / "leaderboard.json").read_bytes() == calm


# Sends TERM to itself before or after a call of Ray's.
TOLD_TO_STOP = """
import os, ray, runpy, signal, sys
name, moment, *sys.argv = sys.argv[1:]
real = getattr(ray, name)
def call(*args, **options):
    if moment == "before":
        os.kill(os.getpid(), signal.SIGTERM)
    answer = real(*args, **options)
    if moment == "after":
        os.kill(os.getpid(), signal.SIGTERM)
    return answer
setattr(ray, name, call)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("name", "moment", "drafted"),
    [("init", "before", 0), ("init", "after", 0), ("shutdown", "before", 6)],
)
def test_a_signal_while_ray_starts_or_ends_is_kept_from_ray(
    tmp_path: Path, trial_env: dict[str, str], name: str, moment: str, drafted: int
) -> None:
    root = tmp_path / "run"
    words = [*command(root, tmp_path / "log"), "--samples", "6"]
    words[1:1] = ["-c", TOLD_TO_STOP, name, moment]
    done = subprocess.run(words, env=trial_env, capture_output=True, text=True, check=False)
    assert done.returncode == 143, done.stderr
    manifest = json.loads((root / "manifest.json").read_text())
    assert manifest["status"] == "interrupted"
    assert len(Store(root).rows(writer())) == drafted
    assert (root / "leaderboard.json").exists()
    assert not (root / "run.lock").exists()
    log = (root / "run.log").read_text()
    assert log.index("stopping") < log.index("run ended")


def test_a_second_driver_is_refused_while_the_first_works_on(
    tmp_path: Path, trial_env: dict[str, str], calm: bytes
) -> None:
    root, log = tmp_path / "run", tmp_path / "log"
    driver = started(root, log, trial_env)
    second = subprocess.run(
        command(root, log), env=trial_env, capture_output=True, text=True, check=False
    )
    # Typer wraps the lines of a traceback, wherever they happen to be full.
    assert f"in use by process {driver.pid}" in " ".join(second.stderr.split())
    assert driver.wait(timeout=120) == 1
    assert (root / "leaderboard.json").read_bytes() == calm


class Backlog(Witness):
    """Watches how much waits and how large this process grows."""

    def __init__(self) -> None:
        super().__init__()
        self.most_ahead = 0
        self.sizes: list[int] = []

    def turn(self, stages: list[StageProgress]) -> None:  # type: ignore[override]
        super().turn(stages)
        by_name = {s.name: sum(s.outcomes.values()) for s in stages}
        ahead = by_name.get("painter0", 0) - by_name.get("measure", 0)
        self.most_ahead = max(self.most_ahead, ahead)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.sizes.append(pages * 4096)


@pytest.mark.slow
def test_memory_stays_bounded_when_the_last_stage_is_slow(
    tmp_path: Path, ray_address: str
) -> None:
    """Pictures wait in the store, not in the driver and not in Ray's object store."""
    import ray

    one = replace(LIGHT, batch_size=4)
    large = painter(0, one, pixels=512)
    plan = plan_of([sample(i) for i in range(120)], paint=[large], measure=one, sleep_s=0.3)
    witness = Backlog()
    result = run(plan, tmp_path, witness)
    assert result.counts["scored"] == 120
    assert witness.most_ahead > 50, "the slow stage was not slow enough to show anything"
    stored = sum(p.stat().st_size for p in tmp_path.glob("stages/painter*/part-*"))
    assert stored > 80 << 20
    assert max(witness.sizes) - witness.sizes[0] < 40 << 20
    used = ray.cluster_resources()["object_store_memory"]
    free = ray.available_resources().get("object_store_memory", used)
    assert used - free < 40 << 20


def test_real_failures_are_listed_with_their_reasons(
    tmp_path: Path, ray_address: str
) -> None:
    plan = plan_of([sample(0, "!raise"), sample(1, "!refuse")], write=writer())
    run(plan, tmp_path)
    reasons = {r.reason for r in Store(tmp_path).rows(writer()).values()}
    assert "the model refused" in reasons
    assert any(r and r.startswith("RuntimeError: cannot draft") for r in reasons)
