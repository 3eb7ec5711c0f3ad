"""One driver per run directory: a lock file that shows signs of life."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

from generators.errors import PlaitError
from generators.files import write_error

_BEAT_S = 5.0
_STALE_S = 60.0


class RunInUse(PlaitError, RuntimeError):
    """Another process is working on the run directory."""

    exit_status = 2


def _self_description() -> dict[str, Any]:
    """Who holds the lock. The last two say within what the process id means anything."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _process_start(os.getpid()),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "namespace": _link("/proc/self/ns/pid"),
    }


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""


def _process_start(pid: int) -> str:
    """Start time of a process, which tells it from a later one with the same id."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split(" ")
    return fields[20] if len(fields) > 20 else ""


class RunLock:
    """Held from `with` to its end; RunInUse when somebody alive holds it already.

    WriteError names the run directory and the cause where the lock cannot be written.
    """

    def __init__(self, root: Path) -> None:
        self.path = root / "run.lock"
        self.lost = False
        """Set when another driver has taken the lock from this one."""
        self._mine = json.dumps(_self_description() | {"token": uuid.uuid4().hex})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> "RunLock":
        for _ in range(5):
            if self._taken():
                self._thread.start()
                return self
        raise RunInUse(f"{self.path} changes hands; try again in a moment")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._is_mine():
            # On a disk that went read-only the lock stays, and must not hide why.
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _taken(self) -> bool:
        """Take the lock, or make way for the next try; RunInUse, WriteError."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self._create():
                return True
            self._refuse_or_break()
        except OSError as error:
            # The reader wants to know of the disk, not of a file that is ours alone.
            raise write_error(self.path.parent, error) from error
        return False

    def _create(self) -> bool:
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        try:
            with os.fdopen(handle, "w") as file:
                file.write(self._mine)
        except OSError:
            # An empty lock of nobody's would stand in the way until it is stale.
            self.path.unlink(missing_ok=True)
            raise
        return True

    def _refuse_or_break(self) -> None:
        """Raise when the holder lives; else move its lock out of the way, atomically."""
        try:
            age_s = self._now() - self.path.stat().st_mtime
            holder = _holder(self.path)
        except FileNotFoundError:
            time.sleep(0.1)
            return
        if age_s < _STALE_S and not _is_dead(holder):
            raise RunInUse(
                f"run directory {self.path.parent} is in use by process "
                f"{holder.get('pid')} on {holder.get('host')} (last sign of life "
                f"{max(age_s, 0):.0f} s ago). Wait for it, stop it, or name another "
                "directory with --out."
            )
        grave = self.path.with_suffix(f".{uuid.uuid4().hex}")
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            self.path.rename(grave)
            if _holder(grave) != holder:
                # Somebody else broke it first and holds it now: give it back.
                os.link(grave, self.path)
            grave.unlink(missing_ok=True)

    def _now(self) -> float:
        """The file system's own clock, which may differ from this machine's."""
        probe = self.path.with_suffix(f".{uuid.uuid4().hex}")
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink(missing_ok=True)
        return now

    def _is_mine(self) -> bool:
        try:
            return self.path.read_text() == self._mine
        except FileNotFoundError:
            return False
        except OSError:
            # A file server that falters has given the lock to nobody.
            return True

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT_S):
            if not self._is_mine():
                self.lost = True
                return
            with contextlib.suppress(OSError):
                os.utime(self.path)


def _holder(path: Path) -> dict[str, Any]:
    """Who holds the lock; nothing is known of a holder that crashed while writing it."""
    with contextlib.suppress(ValueError):
        holder = json.loads(path.read_bytes())
        return holder if isinstance(holder, dict) else {}
    return {}


def _is_dead(holder: dict[str, Any]) -> bool:
    """Whether the holder is a process of this very system that has ended."""
    here = _self_description()
    if any(holder.get(k) != here[k] for k in ("host", "boot", "namespace")):
        return False
    return _process_start(int(holder.get("pid", 0))) != holder.get("started")
