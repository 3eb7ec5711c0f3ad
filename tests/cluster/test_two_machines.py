"""Runs on two machines with Ray over them, whose faults are real ones.

The machines are namespaces with an address each; see `helpers/two_machines.py`. Whatever
happens to a run, its tables are those of one that nothing disturbs. `make soak` tries many
more (`helpers/machine_faults.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from machine_faults import (
    AHEAD_S,
    FAULTS,
    HELD,
    RECORDS,
    Run,
    Way,
    World,
    printed,
    wait_until,
)
from two_machines import missing

WHY_NOT = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.machines,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]


@pytest.fixture(scope="module")
def world(nodes: Path) -> Iterator[World]:
    with World(nodes) as world:
        yield world


@pytest.fixture(scope="module")
def calm(world: World, nodes: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that nothing disturbs."""
    run = Run(tmp_path_factory.mktemp("calm"))
    run.allow(2)
    driver = world.start(run, nodes)
    run.wait_for(2)
    run.allow()
    printed(driver)
    return run


def start_new_cluster(world: World) -> None:
    """Start both nodes anew.

    Ray goes on to list a node that an earlier test has ended for a minute, and a worker
    that is sent there is lost.
    """
    world.end_head()
    world.heal()


def test_each_machine_has_a_worker_and_a_clock_of_its_own(calm: Run) -> None:
    calm.check_finished()
    assert calm.each_has(2)
    assert len(calm.seen) == RECORDS
    assert calm.failures() == set()
    plain, ahead = (max(t for h, t in calm.seen if h == host) for host in ("n1", "n2"))
    assert ahead - plain > AHEAD_S / 2


@pytest.mark.parametrize(
    ("fault", "way"),
    [
        ("cut off for 40 s", "checkout"),
        ("raylet killed", "job"),
        ("machine killed", "checkout"),
        ("head killed", "checkout"),
    ],
)
def test_a_fault_changes_no_result(
    fault: str, way: Way, world: World, nodes: Path, calm: Run, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run", way)
    run.allow(HELD)
    driver = world.start(run, nodes)
    run.wait_for(HELD)
    world.disturb(fault, driver)
    run.allow()
    lost = FAULTS[fault].loses
    if lost == "head":
        assert "the Ray head" in printed(driver, 1)
        assert run.manifest()["status"] == "interrupted"
        driver = world.start(run, nodes)
    printed(driver)
    run.check_finished()
    if lost == "second":
        assert run.failures() == {("lost with its node", world.second.address)}
    assert run.tables() == calm.tables()


def test_a_folder_may_be_full_and_unseen_by_a_node(
    world: World, nodes: Path, calm: Run, tmp_path: Path
) -> None:
    """Results of the second machine come by the driver, which says so at once."""
    run, first = Run(tmp_path / "run"), world.first
    run.root.mkdir()
    first.run("mount", "-t", "tmpfs", "-o", "size=96k", "none", str(run.root))
    run.allow(2)
    driver = world.start(run, nodes)
    run.wait_for(2)
    run.allow()
    said = printed(driver, 1)
    assert "No space left on device" in said
    assert f"{world.second.address} does not share" in said
    before = len(run.seen)
    assert 0 < before < RECORDS
    first.run("mount", "-o", "remount,size=64m", str(run.root))
    printed(world.start(run, nodes))
    run.root = Path(f"/proc/{first.pid}/root{run.root}")  # as the first machine sees it
    run.check_finished()
    assert run.tables() == calm.tables()
    assert len(run.seen) < before + RECORDS


def test_a_node_that_can_start_no_worker_says_why(
    world: World, nodes: Path, calm: Run, tmp_path: Path
) -> None:
    """The other one does it all."""
    start_new_cluster(world)
    unpacked = "/tmp/ray/session_latest/runtime_resources/py_modules_files"
    world.second.run("mount", "-t", "tmpfs", "-o", "size=64k", "none", unpacked)
    run = Run(tmp_path / "run")
    run.allow(2)
    log = run.root / "run.log"
    try:
        driver = world.start(run, nodes)
        wait_until(lambda: log.exists() and world.second.address in log.read_text())
        run.allow()
        printed(driver)
    finally:
        world.second.off()
        world.end_second()
    run.check_finished()
    assert {host for host, _ in run.seen} == {"n1"}
    # A start whose end Ray cannot explain is tried again before the node is left alone.
    assert run.failures() == {("died", world.second.address)}
    listed = run.manifest()["worker_failures"]["listed"]
    reasons = [failure["reason"] for failure in listed]
    assert any("py_modules_files" in why or "No space" in why for why in reasons), reasons
    assert run.tables() == calm.tables()


def test_a_driver_is_alone_outlives_a_short_cut_and_stops_when_told_to(
    world: World, installed: Path, calm: Run, tmp_path: Path
) -> None:
    """Its user has the wheel. A second one is on the machine whose clock is another."""
    start_new_cluster(world)
    run = Run(tmp_path / "run", "wheel")
    run.allow(HELD)
    driver = world.start(run, installed)
    run.wait_for(HELD)
    assert "in use by process" in printed(world.start(run, installed, world.second), 2)
    world.disturb("cut off for 5 s", driver)
    run.allow(HELD + 2)
    run.wait_for(HELD + 2)
    (process,) = psutil.Process(driver.pid).children()
    process.terminate()
    wait_until(lambda: run.stops > 0)
    run.allow()  # batches in flight end
    printed(driver, 143)
    assert run.failures() == set()
    done, before = run.check_stopped(), len(run.seen)
    printed(world.start(run, installed))
    run.check_finished()
    assert len(run.seen) - before == RECORDS - done
    assert run.tables() == calm.tables()
