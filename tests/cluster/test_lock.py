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

import pytest
from paths import CHECKOUT

from cluster import lock
from cluster.lock import RunInUse, RunLock


def test_a_second_driver_is_refused_with_who_and_what_to_do(tmp_path: Path) -> None:
    with RunLock(tmp_path), pytest.raises(RunInUse) as refused, RunLock(tmp_path):
        pass
    said = str(refused.value)
    assert f"process {os.getpid()}" in said
    assert "--out" in said


def test_the_lock_is_gone_afterwards(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        pass
    with RunLock(tmp_path):
        pass
    assert not list(tmp_path.glob("run.*"))


def test_a_holder_that_was_killed_is_no_holder(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from cluster.lock import RunLock\n"
        f"with RunLock(Path({str(tmp_path)!r})): print('held', flush=True); time.sleep(60)"
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
    holder.wait()
    with RunLock(tmp_path):
        pass


def test_a_lock_from_elsewhere_is_broken_only_when_it_shows_no_life(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    path.write_text(
        json.dumps({"host": "elsewhere", "pid": 1, "boot": "x", "namespace": "y"})
    )
    with pytest.raises(RunInUse, match="elsewhere"), RunLock(tmp_path):
        pass
    old = time.time() - 2 * lock._STALE_S
    os.utime(path, (old, old))
    with RunLock(tmp_path):
        pass


def test_a_holder_notices_that_it_was_robbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_BEAT_S", 0.01)
    with RunLock(tmp_path) as held:
        (tmp_path / "run.lock").write_text("{}")
        deadline = time.monotonic() + 5
        while not held.lost and time.monotonic() < deadline:
            time.sleep(0.01)
        assert held.lost
    assert (tmp_path / "run.lock").read_text() == "{}"


def _try(
    root: str,
    barrier: "multiprocessing.synchronize.Barrier",
    won: "multiprocessing.Queue[int]",
) -> None:
    barrier.wait()
    try:
        with RunLock(Path(root)):
            won.put(os.getpid())
            time.sleep(1.0)
    except RunInUse:
        pass


def test_of_many_that_try_at_once_one_wins_even_over_a_stale_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    os.utime(path, (1.0, 1.0))
    context = multiprocessing.get_context("fork")
    barrier, won = context.Barrier(6), context.Queue()
    tries = [
        context.Process(target=_try, args=(str(tmp_path), barrier, won)) for _ in range(6)
    ]
    for process in tries:
        process.start()
    for process in tries:
        process.join()
    winners = 0
    while not won.empty():
        won.get()
        winners += 1
    assert winners == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff"])
def test_a_lock_that_cannot_be_read_is_held_until_it_is_stale(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "run.lock"
    path.write_bytes(content)
    with pytest.raises(RunInUse, match="in use"), RunLock(tmp_path):
        pass
    old = time.time() - 2 * lock._STALE_S
    os.utime(path, (old, old))
    with RunLock(tmp_path):
        pass


def test_a_file_server_that_falters_has_not_given_the_lock_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_BEAT_S", 0.01)
    asked = threading.Event()

    def falter(path: Path) -> str:
        asked.set()
        raise OSError(errno.EIO, "Input/output error")

    with RunLock(tmp_path) as held:
        monkeypatch.setattr(Path, "read_text", falter)
        assert asked.wait(5)
        time.sleep(0.05)
        monkeypatch.undo()
        assert not held.lost
    assert not (tmp_path / "run.lock").exists()
