"""Who works on a run directory: lock files, or objects in a bucket, with heartbeats.

One driver has all of it, or each of its shards has a driver of its own. A driver makes
its lock file first and then looks for those that exclude it, in the same folder: a client
of NFS that has changed a folder asks the server for it anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from plait.cluster.shard import Shard
from plait.generators.buckets import AnyPath, BucketPath, matching, refuse_unconditional
from plait.generators.errors import PlaitError
from plait.generators.files import write_error

_WHOLE = "run.lock"
"""Of a driver that has all of the run; shards have `shard-K-of-N.lock`."""
_SETTLING_S = 0.3
_BEAT_S = 5.0
"""How often a holder gives a sign of life."""
_STALE_S = 60.0
"""After how long without one it counts as dead, wherever it runs."""
_PATIENCE_S = 3.0
"""How long a shard waits for a driver of the whole run, which may just be giving way."""
_SLACK_S = 1.0
"""The clock may be set between reading the time of boot and that of a start."""


class RunInUse(PlaitError, RuntimeError):
    """Another process is working on the run directory."""

    exit_status = 2


def self_description() -> dict[str, Any]:
    """Who holds the lock. The last two tell where the process id is valid.

    psutil knows neither: two containers of one host share its name and time of boot.
    """
    boot = namespace = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started_s": _process_start(os.getpid()),
        "boot": boot,
        "namespace": namespace,
    }


def _process_start(pid: int) -> float | None:
    """When a process started, in seconds since boot; None where there is none.

    One that has ended and that its parent has not asked about (a zombie) is none either.
    It tells a process from a later one with the same id, and unlike the time of day it
    stays the same when the clock is set.
    """
    try:
        # In this order: older versions of psutil add the time of boot that was read last.
        boot = psutil.boot_time()
        process = psutil.Process(pid)
        since_boot: float = process.create_time() - boot
        ended = process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return None
    return None if ended else round(since_boot, 2)


class RunLock:
    """Held inside a `with` block; RunInUse when a running process excludes it.

    Without a shard the driver has the whole run directory to itself. With one it has that
    shard, beside drivers of other shards that divide the queries into as many and make the
    same `run` (a digest). WriteError names the run directory and the cause where the lock
    cannot be written, UsageError a store that cannot hold one.
    """

    def __init__(self, root: AnyPath, shard: Shard | None = None, run: str = "") -> None:
        self.shard = shard
        self.path = root / (f"shard-{shard.name}.lock" if shard else _WHOLE)
        self.lost = False
        """Set when another driver has taken over the lock."""
        about = {"shard": str(shard), "run": run} if shard else {}
        self._run = run
        self._mine = self_description() | about | {"token": uuid.uuid4().hex}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "RunLock":
        for attempt in range(5):
            if self._acquire():
                if attempt:
                    # Others may be moving a stale lock out of the way: one of them may have
                    # moved this one instead, and a third have come between.
                    time.sleep(_SETTLING_S)
                    if not self._is_mine():
                        continue
                try:
                    self._exclude_others()
                except BaseException:
                    self._release()
                    raise
                self._thread.start()
                return self
        raise RunInUse(f"{self.path} keeps changing; try again in a moment")

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._release()

    def _release(self) -> None:
        if self._is_mine():
            # On a disk that became read-only the lock stays; the cause is reported.
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _acquire(self) -> bool:
        """Take the lock, or clear the way for the next attempt; RunInUse, WriteError."""
        try:
            if _file_at(self.path).create(self._mine) or self._is_mine():
                return True
            self._refuse_or_break(self.path)
        except OSError as error:
            # Users should read about the disk, not about an internal file.
            raise write_error(self.path.parent, error) from error
        return False

    def _exclude_others(self) -> None:
        """Break what is left of drivers that this one excludes; RunInUse if one lives."""
        until = time.monotonic() + (_PATIENCE_S if self.shard else 0.0)
        while rivals := self._rivals():
            try:
                for path in rivals:
                    self._refuse_or_break(path)
            except RunInUse:
                if time.monotonic() >= until:
                    raise
                time.sleep(_SETTLING_S)

    def _rivals(self) -> list[AnyPath]:
        """Return the locks of drivers that this one excludes, whether or not they live."""
        rivals: list[AnyPath] = []
        for path in locks_in(self.path.parent):
            if path == self.path:
                continue
            with contextlib.suppress(FileNotFoundError):  # given back meanwhile
                if not self._works_beside(path):
                    rivals.append(path)
        return rivals

    def _works_beside(self, path: AnyPath) -> bool:
        """Whether the holder of a lock has another shard of the same run."""
        if self.shard is None:
            return False
        holder = _holder(path)
        return self._divides_as(holder) and holder.get("run") == self._run

    def _divides_as(self, holder: Mapping[str, Any]) -> bool:
        """Whether a holder has one of as many shards."""
        other = Shard.of(holder.get("shard"))
        return bool(other and self.shard and other.count == self.shard.count)

    def _refuse_or_break(self, path: AnyPath) -> None:
        """Raise when the holder lives; else remove its lock, and no other."""
        try:
            age = age_s(path)
            holder = _holder(path)
        except FileNotFoundError:
            time.sleep(0.1)
            return
        if _lives(holder, age):
            raise RunInUse(
                f"run directory {path.parent} is in use by {_name(holder)} (last "
                f"heartbeat {max(age, 0):.0f} s ago). {self._advice(holder)}"
            )
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            _file_at(path).remove(holder, self._mine)

    def _advice(self, holder: Mapping[str, Any]) -> str:
        wait = "Wait for it, stop it, or name another directory with --out."
        if self.shard is None or holder.get("shard") in (None, str(self.shard)):
            return wait
        if not self._divides_as(holder):
            return f"All shards that run at the same time have the same N. {wait}"
        return f"It was started with other systems, scorers, queries or settings. {wait}"

    def _is_mine(self) -> bool:
        try:
            return bool(_holder(self.path).get("token") == self._mine["token"])
        except FileNotFoundError:
            return False
        except OSError:
            # A file server that fails for a moment gives the lock to nobody.
            return True

    def _beat(self) -> None:
        """Give signs of life until the lock is given back, or another has taken it over."""
        while not self._stop.wait(_BEAT_S):
            if not self._is_mine():
                self.lost = True
                return
            with contextlib.suppress(OSError):
                _file_at(self.path).renew(self._mine)


def age_s(path: AnyPath) -> float:
    """Seconds since a file was written, by the file system's own clock.

    It may differ from this machine's.
    """
    probe = path.with_suffix(f".{uuid.uuid4().hex}")
    probe.write_bytes(b"")
    now = probe.stat().st_mtime
    probe.unlink(missing_ok=True)
    return now - path.stat().st_mtime


def locks_in(root: AnyPath) -> list[AnyPath]:
    """Return the lock files of a run directory, whether or not their drivers live."""
    return [*root.glob(_WHOLE), *matching(root, "shard-*.lock")]


def drivers_of(root: AnyPath) -> list[str]:
    """Who works on a run directory, in words."""
    named = []
    for path in locks_in(root):
        with contextlib.suppress(FileNotFoundError):
            age = age_s(path)
            holder = _holder(path)
            if _lives(holder, age):
                named.append(_name(holder))
    return named


def _name(holder: Mapping[str, Any]) -> str:
    shard = f"shard {holder['shard']}, " if "shard" in holder else ""
    return f"{shard}process {holder.get('pid')} on {holder.get('host')}"


def _lives(holder: Mapping[str, Any], age: float) -> bool:
    return age < _STALE_S and not is_dead(holder)


class _LockFile:
    """A lock in a folder; a heartbeat is its time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, holder: Mapping[str, Any]) -> bool:
        """Write it where there is none; whether there was none."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = self.path.open("x")
        except FileExistsError:
            return False
        try:
            with file:
                json.dump(holder, file)
        except OSError:
            # An empty lock would block the directory until it is stale.
            self.path.unlink(missing_ok=True)
            raise
        return True

    def remove(self, former: Mapping[str, Any], holder: Mapping[str, Any]) -> None:
        """Remove that of `former`."""
        removed = self.path.with_suffix(f".{uuid.uuid4().hex}")
        self.path.rename(removed)
        if _holder(removed) != former:
            # Another driver broke it first and holds it now: give it back.
            os.link(removed, self.path)
        removed.unlink(missing_ok=True)

    def renew(self, holder: Mapping[str, Any]) -> None:
        """Give a sign of life."""
        os.utime(self.path)


class _LockObject:
    """A lock in a bucket, written on conditions; each heartbeat is another content."""

    def __init__(self, path: BucketPath) -> None:
        self.path = path

    def create(self, holder: Mapping[str, Any]) -> bool:
        """Write it where there is none; whether there was none."""
        refuse_unconditional(self.path.parent)
        return self.path.create(_beating(holder)) is not None

    def remove(self, former: Mapping[str, Any], holder: Mapping[str, Any]) -> None:
        """Remove that of `former`, unless it has given another sign of life.

        Removing knows no condition: it is made one of `holder`, which lives, before.
        """
        data, version = self.path.read_version()
        if _parse(data) == former and self.path.replace(_beating(holder), version):
            self.path.unlink()

    def renew(self, holder: Mapping[str, Any]) -> None:
        """Give a sign of life, unless another driver has taken it over meanwhile."""
        data, version = self.path.read_version()
        if _parse(data).get("token") == holder["token"]:
            self.path.replace(_beating(holder), version)


def _beating(holder: Mapping[str, Any]) -> bytes:
    return json.dumps({**holder, "beat": time.time_ns()}).encode()


def _file_at(path: AnyPath) -> _LockFile | _LockObject:
    if isinstance(path, BucketPath):
        return _LockObject(path)
    assert isinstance(path, Path)  # no job works on a pack
    return _LockFile(path)


def _holder(path: AnyPath) -> dict[str, Any]:
    """Who holds the lock; empty for a holder that crashed while writing it."""
    return _parse(path.read_bytes())


def _parse(data: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        holder = json.loads(data)
        return holder if isinstance(holder, dict) else {}
    return {}


def is_dead(holder: Mapping[str, Any]) -> bool:
    """Return whether the holder is a process of this very system that has ended."""
    here = self_description()
    if any(holder.get(k) != here[k] for k in ("host", "boot", "namespace")):
        return False
    if not isinstance(holder.get("started_s"), float):
        return False  # written by an earlier version: its heartbeat decides
    start_s = _process_start(int(holder["pid"]))
    return start_s is None or abs(start_s - holder["started_s"]) > _SLACK_S
