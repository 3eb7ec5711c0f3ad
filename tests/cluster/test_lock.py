"""One driver per run directory, and no lock outlives its holder."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from paths import CHECKOUT

from plait.cluster import lock
from plait.cluster.lock import RunInUse, RunLock, drivers_of
from plait.cluster.shard import Shard
from plait.generators.buckets import AnyPath
from plait.generators.files import write_whole


@pytest.mark.processes
def test_a_second_driver_is_refused_and_no_lock_is_left(root: AnyPath) -> None:
    for _ in range(2):
        with RunLock(root), pytest.raises(RunInUse) as refused, RunLock(root):
            pass
        assert f"process {os.getpid()}" in str(refused.value)
        assert not list(root.iterdir())


@pytest.mark.processes
@pytest.mark.parametrize("reaped", [True, False])
def test_a_holder_that_was_killed_is_no_holder(tmp_path: Path, reaped: bool) -> None:
    """Nor is one whose parent never asks for its status, as in many containers."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from plait.cluster.lock import RunLock\n"
        f"with RunLock(Path({str(tmp_path)!r})): print('held', flush=True); time.sleep(600)"
    )
    checkout = CHECKOUT
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=checkout
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RunInUse), RunLock(tmp_path):
        pass
    holder.kill()
    while not reaped and psutil.Process(holder.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    if reaped:
        holder.wait()
    with RunLock(tmp_path):
        pass
    holder.wait()


def held_by(root: Path, **changes: object) -> None:
    """A lock of this very process, with `changes`; None drops a field."""
    holder = lock.self_description() | changes
    present = {name: value for name, value in holder.items() if value is not None}
    (root / "run.lock").write_text(json.dumps(present))


def test_a_process_with_the_holders_id_is_the_holder_only_if_it_started_then(
    tmp_path: Path,
) -> None:
    for changes in ({}, {"started_s": None, "started": "of an earlier version"}):
        held_by(tmp_path, **changes)
        with pytest.raises(RunInUse), RunLock(tmp_path):
            pass
    started = lock.self_description()["started_s"]
    held_by(tmp_path, started_s=started - 60.0)
    with RunLock(tmp_path):
        pass


def test_a_holder_lives_on_when_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_by(tmp_path)
    boot = psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot + 3600)
    with pytest.raises(RunInUse), RunLock(tmp_path):
        pass


ELSEWHERE = json.dumps({"host": "elsewhere", "pid": 1, "boot": "x", "namespace": "y"})


@pytest.mark.processes
@pytest.mark.parametrize("content", [ELSEWHERE, "", "{", "[1]", "\udcff"])
def test_a_lock_of_unknown_processes_is_broken_only_when_it_shows_no_life(
    root: AnyPath, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """One from elsewhere, and one that cannot be read."""
    path = root / "run.lock"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(RunInUse), RunLock(root):
        pass
    monkeypatch.setattr(lock, "_STALE_S", -60.0)
    with RunLock(root):
        pass


@pytest.mark.processes
def test_a_holder_notices_that_it_was_robbed(
    root: AnyPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_BEAT_S", 0.01)
    with RunLock(root) as held:
        (root / "run.lock").write_bytes(b"{}")
        held._thread.join(60)
        assert held.lost
    assert (root / "run.lock").read_text() == "{}"


def _try(
    root: str,
    barrier: "multiprocessing.synchronize.Barrier",
    tried: "multiprocessing.synchronize.Barrier",
    won: "multiprocessing.Queue[int]",
) -> None:
    barrier.wait()
    try:
        with RunLock(Path(root)):
            won.put(os.getpid())
            # However slow the machine, none may find the lock released.
            tried.wait()
    except RunInUse:
        tried.wait()


def test_of_many_that_try_at_once_one_wins_even_over_a_stale_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    os.utime(path, (1.0, 1.0))
    context = multiprocessing.get_context("fork")
    barrier, tried, won = context.Barrier(6), context.Barrier(6), context.Queue()
    given = (str(tmp_path), barrier, tried, won)
    tries = [context.Process(target=_try, args=given) for _ in range(6)]
    for process in tries:
        process.start()
    for process in tries:
        process.join()
    assert won.get(timeout=60)
    assert won.empty()


def test_a_file_server_that_falters_has_not_given_the_lock_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_BEAT_S", 0.01)
    read = threading.Semaphore(0)

    def falter(path: Path) -> bytes:
        read.release()
        raise OSError(errno.EIO, "Input/output error")

    with RunLock(tmp_path) as held:
        monkeypatch.setattr(Path, "read_bytes", falter)
        for _ in range(2):  # it goes on after the first
            assert read.acquire(timeout=60)
        monkeypatch.undo()
        assert not held.lost
    assert not (tmp_path / "run.lock").exists()


ONE, TWO = (Shard(1, 3), "run"), (Shard(2, 3), "run")
WHOLE = (None, "run")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("holder", "comer", "admitted"),
    [
        (ONE, TWO, True),
        (ONE, ONE, False),
        (ONE, (Shard(2, 3), "another run"), False),
        (ONE, (Shard(2, 4), "run"), False),
        (ONE, WHOLE, False),
        (WHOLE, ONE, False),
    ],
)
def test_shards_are_admitted_beside_those_of_the_same_run(
    root: AnyPath,
    monkeypatch: pytest.MonkeyPatch,
    holder: tuple[Shard | None, str],
    comer: tuple[Shard | None, str],
    admitted: bool,
) -> None:
    monkeypatch.setattr(lock, "_PATIENCE_S", 0.0)
    with RunLock(root, *holder):
        if admitted:
            with RunLock(root, *comer):
                assert len(drivers_of(root)) == 2
        else:
            with pytest.raises(RunInUse) as refused, RunLock(root, *comer):
                pass
            (named,) = drivers_of(root)
            assert named in str(refused.value)
            assert ("shard 1/3" in named) == (holder is ONE)
    assert not list(root.iterdir())


@pytest.mark.processes
def test_what_killed_shards_have_left_stands_in_nobodys_way(root: AnyPath) -> None:
    for shard in (Shard(1, 3), Shard(2, 4)):
        path = RunLock(root, shard).path
        dead = lock.self_description() | {"started_s": -60.0, "shard": str(shard)}
        write_whole(path, json.dumps(dead))
    assert drivers_of(root) == []
    with RunLock(root, *TWO):
        pass
    with RunLock(root):
        pass
    assert not list(root.iterdir())


@pytest.mark.processes
def test_a_shard_waits_for_a_driver_that_gives_way(
    root: AnyPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of the whole run does that finds the shard's lock beside its own."""
    whole = RunLock(root)
    whole.__enter__()
    monkeypatch.setattr(lock, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(lock.time, "sleep", lambda _: whole.__exit__())
    with RunLock(root, *ONE) as held:
        assert not whole.path.exists()
        assert held.path.exists()
