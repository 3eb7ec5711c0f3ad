"""Progress and failures of a run as a watcher sees them, and `run.log` of its directory.

The log holds notices, failures of workers, and what workers write to stderr. Every worker
writes its stderr to a file of its own, which costs it nothing; a thread of the driver
gathers these files into the log. Workers that share no folder with the driver, and those
of a run in a bucket, leave theirs to Ray's own logs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from plait.cluster.manifest import LOADS, TAKEOVERS, now
from plait.generators.buckets import AnyPath
from plait.generators.files import AppendedFile, safe_name
from plait.generators.secrets import MaskedStream, without_known_keys
from plait.generators.visible import visible

if TYPE_CHECKING:  # plans need all scorers, and a worker writes to the log without any
    from plait.cluster.counts import StageCount

FailureKind = Literal["died", "timed out", "lost with its node"]
RunPhase = Literal["running", "paused", "stopping"]


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Progress of one stage."""

    name: str
    total: int
    outcomes: Mapping[str, int]
    made: int
    """Records made by this command."""
    workers: int
    state: str
    """`waiting`, `loading`, `running`, `idle` or `unusable`."""
    seconds: float
    """Since the stage's first record was made."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Tokens, images, steps and cost of the records made by this command."""
    waiting: int = 0
    """Requests that wait in a provider's batch for a later command."""


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """One worker that has not ended."""

    stage: str
    node: str
    """Its address."""
    state: str
    """`starting`, `loading`, `running`, `idle` or `stopping`."""
    records: int
    """That it has made of its stage."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What is shown of a run under way, where it runs and by `plait ctl`."""

    state: RunPhase
    elapsed_s: float
    """Since it began to make records."""
    stages: Sequence[StageProgress]
    """In chain order."""
    workers: Sequence[WorkerProgress] = ()
    max_cost: float | None = None
    """The ceiling of what all commands of the run may spend together, if there is one."""
    spent: float = 0.0
    """What they have spent; without a ceiling, this command alone."""


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A worker that was lost, with batches in flight or before it had any."""

    at: str
    """UTC, ISO 8601."""
    stage: str
    host: str
    kind: FailureKind
    reason: str
    records: int
    """How many records it had in flight."""

    def __str__(self) -> str:
        text = f"worker of {self.stage} on {self.host} {self.kind}: {self.reason}"
        if not self.records:
            return text
        return f"{text} ({self.records:,} record{'s' * (self.records > 1)} in flight)"


class Watcher:
    """Is notified of what happens in a run; this one ignores it all."""

    def starting(self, counts: Sequence[StageCount]) -> None:
        """Called once, before the executor is opened, with the jobs that are planned."""

    def turn(self, progress: RunProgress) -> None:
        """Called a few times a second."""

    def notice(self, text: str) -> None:
        """Called with a message for the user."""

    def worker_failed(self, failure: WorkerFailure) -> None:
        """Called when a worker died or timed out; it is replaced where possible."""

    def worker_ready(self, folder: str, seconds: float, taken_over: bool) -> None:
        """Called when a worker has loaded the stage in `folder`, after some seconds.

        `taken_over`: its process had hosted another stage, and was not started for this.
        """


FAILURES = "worker_failures"
"""The manifest's entry."""
LOG = "run.log"
STDERR_FOLDER = ".stderr"
"""Of a run directory: what its workers write, in a file each."""
_GATHERED_EVERY_S = 2.0
_LARGEST_READ = 1 << 20
"""Bytes of a file that are put into the log at a time."""
_MOST_LISTED = 1000
"""Failures of workers that the manifest lists, the latest ones; the log has them all."""


def redirect_stderr(root: Path, stage: str, host: str) -> None:
    """Send the stderr of this process, native libraries included, to the run's log."""
    with contextlib.suppress(OSError):
        folder = root / STDERR_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{safe_name(stage)[:60]} {host} {os.getpid()}"
        # What native libraries write is searched for keys only when it is gathered.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, 2)
        os.close(handle)
    with contextlib.suppress(AttributeError, OSError):
        sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        if not isinstance(sys.stderr, MaskedStream):
            sys.stderr = MaskedStream(sys.stderr)


class RunLog(Watcher):
    """Writes the log and passes everything on to another watcher; a context manager."""

    def __init__(self, root: AnyPath, watcher: Watcher) -> None:
        self._file = AppendedFile(root / LOG)
        self.watcher = watcher
        self.failures: list[WorkerFailure] = []
        self.ready: dict[str, dict[str, list[float]]] = {LOADS: {}, TAKEOVERS: {}}
        """Seconds until workers were ready, by the stage's folder, as the manifest has
        them."""
        self._folder = root / STDERR_FOLDER if isinstance(root, Path) else None
        """Where workers write; None in a bucket."""
        self._offsets: dict[Path, int] = {}
        # The handler of a signal may write while the main thread does.
        self._guard = threading.RLock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._gather_often, daemon=True)

    def __enter__(self) -> "RunLog":
        self._file.path.parent.mkdir(parents=True, exist_ok=True)
        self._write(f"run started by process {os.getpid()} on {socket.gethostname()}")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        # A driver that took the run over has workers that still write.
        from plait.cluster.lock import RunInUse

        self._gather(last=not isinstance(error, RunInUse))
        self._write("run ended" if error is None else f"run ended: {error!r}")
        with contextlib.suppress(OSError):
            self._file.save()

    def starting(self, counts: Sequence[StageCount]) -> None:
        """Pass on."""
        self.watcher.starting(counts)

    def turn(self, progress: RunProgress) -> None:
        """Pass on; the log does not record progress."""
        self.watcher.turn(progress)

    def notice(self, text: str) -> None:
        """Log and pass on."""
        self._write(text)
        self.watcher.notice(text)

    def worker_failed(self, failure: WorkerFailure) -> None:
        """Log, keep for the manifest, and pass on."""
        self._write(str(failure))
        self.failures.append(failure)
        self.watcher.worker_failed(failure)

    def worker_ready(self, folder: str, seconds: float, taken_over: bool) -> None:
        """Keep for the manifest, and pass on."""
        times = self.ready[TAKEOVERS if taken_over else LOADS]
        times.setdefault(folder, []).append(round(seconds, 3))
        self.watcher.worker_ready(folder, seconds, taken_over)

    def all_failures(self, former: Mapping[str, Any] | None) -> dict[str, Any]:
        """The manifest's entry on failed workers of all commands, after a `former` one."""
        known = former or {"total": 0, "listed": []}
        listed = [*known["listed"], *map(asdict, self.failures)]
        total = known["total"] + len(self.failures)
        return {"total": total, "listed": listed[-_MOST_LISTED:]}

    def _gather_often(self) -> None:
        while not self._stop.wait(_GATHERED_EVERY_S):
            self._gather()

    def _gather(self, *, last: bool = False) -> None:
        """Append what workers have written since; with `last`, remove their files."""
        with contextlib.suppress(OSError):
            if self._folder is None:
                with self._guard:
                    self._file.save()
                return
            for file in sorted(self._folder.iterdir()):
                with contextlib.suppress(OSError):
                    chunk = self._read_new(file, last=last)
                    while chunk:
                        self._write(chunk.decode(errors="replace"), file.name)
                        chunk = self._read_new(file, last=last)
                    if last:
                        file.unlink()
            if last:
                self._folder.rmdir()

    def _read_new(self, file: Path, *, last: bool) -> bytes:
        """The next whole lines of a file; its unfinished line too where it is the last."""
        offset = self._offsets.get(file, 0)
        with file.open("rb") as source:
            source.seek(offset)
            chunk = source.read(_LARGEST_READ)
        if not last and len(chunk) < _LARGEST_READ:
            # The rest of a line that is being written comes with the next reading.
            chunk = chunk[: chunk.rfind(b"\n") + 1]
        self._offsets[file] = offset + len(chunk)
        return chunk

    def _write(self, text: str, source: str = "plait") -> None:
        head = f"{now()} {source}: "
        text = visible(without_known_keys(text))
        lines = "".join(f"{head}{line}\n" for line in text.splitlines())
        # A full disk must not end a run because of its log; the store reports it.
        with self._guard, contextlib.suppress(OSError):
            self._file.append(lines)
