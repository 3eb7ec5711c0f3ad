"""Jobs of Slurm on two machines, stopped in all the ways in which Slurm stops jobs.

The machines are namespaces with an address each; see `helpers/two_machines.py`. Whatever
happens to a job, its tables are those of a run that nothing disturbs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine_faults import CONFIG_FILE, HELD, RECORDS, SLOW, Run, Slurm, wait_until
from two_machines import TwoMachines, missing

WHY_NOT = missing(slurm=True)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.machines,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of this process's machine that nothing disturbs."""
    run = Run(tmp_path_factory.mktemp("calm"))
    plait = [sys.executable, "-m", "plait"]
    command = [*plait, "run", CONFIG_FILE, "--executor", "local"]
    subprocess.run(command, cwd=run.folder, check=True)
    run.check_finished()
    return run


@pytest.fixture(scope="module")
def slurm_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with TwoMachines() as two:
        yield Slurm(two, tmp_path_factory.mktemp("home"))


@pytest.fixture
def slurm(slurm_of_two: Slurm) -> Iterator[Slurm]:
    yield slurm_of_two
    slurm_of_two.cancel_all()


def test_a_job_of_slurm_is_requeued_pre_empted_cancelled_and_resumed(
    slurm: Slurm, installed: Path, calm: Run, tmp_path: Path
) -> None:
    """Its user has installed the wheel: no checkout is needed.

    To Slurm, and so to plait, pre-emption is what `scontrol requeue` asks for.
    """
    run = Run(tmp_path / "run", "wheel")
    small = ("--set", f'models."{SLOW}".batch_size=1')
    job, done = slurm.submit(run, installed, *small), 0
    for stop in ("its time is nearly over", "pre-empted", "cancelled"):
        allowed = run.most + 1
        run.allow(allowed)
        if done:
            slurm.start_again(job)
        run.wait_for(allowed)
        slurm.stop(run, job, stop)
        former, done = done, run.check_stopped()
        assert former < done
        assert stop != "its time is nearly over" or len(run.seen) == done
    run.allow()
    before = len(run.seen)
    job = slurm.submit(run, installed, *small)
    slurm.wait_for(job, "COMPLETED")
    run.check_finished()
    assert len(run.seen) - before == RECORDS - done
    assert run.tables() == calm.tables()


def test_jobs_of_an_array_make_one_run_and_are_requeued_one_by_one(
    slurm: Slurm, nodes: Path, calm: Run, tmp_path: Path
) -> None:
    """The last of them has the number of the array itself."""
    run = Run(tmp_path / "50% of runs")
    run.allow(HELD)
    array = slurm.submit(run, nodes, "--array", "2", "--set", "executor=local")
    run.wait_for(HELD)
    first, last = f"{array}_1", f"{array}_2"
    slurm.stop(run, last, "its time is nearly over")
    assert slurm.state(first) != "PENDING"
    run.allow()
    slurm.start_again(last)
    for job in (first, last):
        slurm.wait_for(job, "COMPLETED")
    run.check_finished()
    assert len(run.seen) == len(run.keys()) == RECORDS
    assert run.tables() == calm.tables()
    logs = {file.name for file in (run.root / "jobs").glob("slurm-*.log")}
    assert logs == {f"slurm-{array}_1.log", f"slurm-{array}_2.log"}


def test_slurm_takes_the_keys_of_a_site(
    slurm: Slurm, nodes: Path, calm: Run, tmp_path: Path
) -> None:
    """Jobs that share nodes, one of an array at a time, with a folder of their own each."""
    run, scratch = Run(tmp_path / "keys"), tmp_path / "scratch"
    run.allow(HELD)
    keys = {
        "executor": '"local"',
        "cluster.cpus_per_node": "1",
        "cluster.array_throttle": "1",
        "cluster.mail_user": '"somebody@lab"',
        "cluster.mail_type": '["FAIL", "TIME_LIMIT_80"]',
        "cluster.scratch": f'"{scratch}/$SLURM_JOB_ID"',
    }
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    array = slurm.submit(run, nodes, "--array", "2", *words)
    wait_until(lambda: bool(run.seen))
    first, last = slurm.facts(f"{array}_1"), slurm.facts(f"{array}_2")
    assert (first["JobState"], last["JobState"]) == ("RUNNING", "PENDING")
    assert (last["ArrayTaskThrottle"], last["Reason"]) == ("1", "JobArrayTaskLimit")
    assert last["MailUser"] == "somebody@lab"
    assert {*last["MailType"].split(",")} >= {"FAIL", "TIME_LIMIT_80"}
    assert first["OverSubscribe"] == "OK", "others may use the rest of the node"
    run.allow()
    for number in (1, 2):
        slurm.wait_for(f"{array}_{number}", "COMPLETED")
    run.check_finished()
    assert run.tables() == calm.tables()
    assert len([*scratch.iterdir()]) == 2
