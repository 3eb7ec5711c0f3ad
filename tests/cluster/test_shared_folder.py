"""Run directories on NFS: what is not used, and folders that are seen as they were."""

from __future__ import annotations

import errno
import fcntl
import io
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from store_helpers import SPEC, draft_table, drafted, rows_of_parts
from trial import board, drive, plan_of, sample

from plait.cluster import lock
from plait.cluster.control import Control, read_state
from plait.cluster.lock import RunInUse, RunLock
from plait.cluster.parts import open_part
from plait.cluster.shard import Shard
from plait.cluster.store import Store, StoreError
from plait.cluster.verify import verify
from plait.cluster.watcher import RunProgress

pytestmark = pytest.mark.contract

CHANGES: list[tuple[ModuleType, str]] = [(io, "open")]
CHANGES += [(os, name) for name in ("open", "unlink", "rename", "replace", "link")]
CHANGES += [(os, name) for name in ("mkdir", "rmdir")]
PLAN = plan_of([sample(i) for i in range(40)])
ONE, TWO = Shard(1, 2), Shard(2, 2)


class LaggingClient:
    """This process as a client that lists a folder as it knows it, and others as itself.

    It asks the server again after it has changed that folder, as clients of NFS do.
    """

    def __init__(self, shared: Path, patch: pytest.MonkeyPatch) -> None:
        self._shared = str(shared)
        self._known: dict[str, list[str]] = {}
        self._others = False
        self._listdir, self._scandir = os.listdir, os.scandir
        patch.setattr(os, "listdir", self._names)
        patch.setattr(os, "scandir", self._entries)
        for module, name in CHANGES:
            patch.setattr(module, name, self._changing(getattr(module, name)))

    @contextmanager
    def others(self) -> Iterator[None]:
        """Whatever is done meanwhile is done by other clients."""
        self._others = True
        yield
        self._others = False

    def catch_up(self) -> None:
        self._known.clear()

    def _names(self, path: Any = ".") -> list[str]:
        names = self._listdir(path)
        if self._others or not str(path).startswith(self._shared):
            return names
        return [*self._known.setdefault(str(path), names)]

    def _entries(self, path: Any = ".") -> Any:
        if not str(path).startswith(self._shared):
            return self._scandir(path)
        known = self._names(path)
        with self._scandir(path) as entries:
            return nullcontext([entry for entry in entries if entry.name in known])

    def _changing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **named: Any) -> Any:
            done = real(*args, **named)
            if not self._others and not (real is io.open and args[1:2] == ("rb",)):
                for path in (a for a in args if isinstance(a, str | Path)):
                    self._known.pop(os.path.dirname(path), None)
            return done

        return change


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaggingClient:
    monkeypatch.setattr(lock, "_PATIENCE_S", 0.0)
    return LaggingClient(tmp_path, monkeypatch)


@pytest.mark.parametrize("mine", [None, TWO])
def test_a_lock_that_is_not_listed_yet_excludes(
    client: LaggingClient, tmp_path: Path, mine: Shard | None
) -> None:
    assert os.listdir(tmp_path) == []
    other = RunLock(tmp_path, ONE if mine is None else None)
    with client.others():
        other.__enter__()
    assert os.listdir(tmp_path) == []
    with pytest.raises(RunInUse), RunLock(tmp_path, mine):
        pass
    with client.others():
        other.__exit__()


def test_records_that_are_not_listed_yet_are_made_again_and_count_once(
    client: LaggingClient, tmp_path: Path
) -> None:
    whole, root = tmp_path / "whole", tmp_path / "run"
    drive(PLAN, whole)
    drive(replace(PLAN, queries=PLAN.queries[:20]), root, ONE)
    with client.others():
        drive(PLAN, root, ONE)
        drive(PLAN, root, TWO)
    unseen = drive(PLAN, root)
    assert unseen.made > 0
    assert unseen.counts["missing"] == 0
    client.catch_up()
    assert set(rows_of_parts(root)) == set(rows_of_parts(whole))
    assert drive(PLAN, root).made == 0
    assert board(PLAN, root) == board(PLAN, whole)
    assert not [check for stage in verify(root) for check in stage.damaged]


def test_parts_that_are_still_listed_are_not_taken_for_lost_records(
    client: LaggingClient, tmp_path: Path
) -> None:
    for name in "ab":
        Store(tmp_path).commit(SPEC, draft_table((name, drafted(name))))
    parts = Store(tmp_path).parts(SPEC)
    with client.others():
        Store(tmp_path).compact(SPEC)
    assert Store(tmp_path).parts(SPEC) == parts
    with pytest.raises(StoreError):
        Store(tmp_path).rows(SPEC)
    client.catch_up()
    assert set(Store(tmp_path).rows(SPEC)) == set("ab")


def test_nothing_is_mapped_or_locked_and_no_open_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it is not safe on NFS")

    real = os.replace

    def replaced(source: Any, target: Any) -> None:
        files = Path("/proc/self/fd").iterdir()
        assert str(target) not in {os.readlink(f) for f in files if f.is_symlink()}
        real(source, target)

    monkeypatch.setattr(os, "replace", replaced)
    for module, name in [(fcntl, "flock"), (fcntl, "lockf"), (mmap, "mmap")]:
        monkeypatch.setattr(module, name, refuse)
    drive(PLAN, tmp_path)
    opened = [open_part(part) for part in tmp_path.glob("stages/*/part-*")]
    assert [file.read().num_rows > 0 for file in opened] == [True] * len(PLAN.stages)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_a_state_that_was_replaced_when_it_had_been_opened_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Control(tmp_path).turn(RunProgress("running", 0.0, ()), str)
    real = Path.read_bytes

    def stale(path: Path) -> bytes:
        monkeypatch.setattr(Path, "read_bytes", real)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(Path, "read_bytes", stale)
    assert read_state(tmp_path) is not None
