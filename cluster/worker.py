"""Hosts one stage in one process: reads its inputs, computes, commits the results.

While one batch computes, the next one's inputs are read and the last one's results are
written, each in its own thread; only the stage itself is never entered twice at a time
(unless it declares itself `concurrent`, as endpoints do).
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from cluster.local import load_stage
from cluster.parts import Committer
from cluster.records import Item, RecordRow, encode, rows_of
from cluster.server_process import ServerError, ServerProcess, bypass_proxies, log_path
from cluster.store import DamagedPart, StoreError, read_blob
from cluster.watcher import redirect_stderr
from generators.base import (
    Failure,
    Fault,
    Outcome,
    Skip,
    StageInput,
    StageSpec,
    add_usage,
)
from generators.document import Blob, Request, with_blobs

TOKEN_FOLDER = ".nodes"
"""Where workers leave a token to show the driver that they write to the same folder."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """Where a worker runs and what it shares with the driver."""

    host: str
    pid: int
    token: str | None
    """Name of the file it wrote into the run directory; None when it could not."""
    sees_data: bool
    """Whether it can read the task set's own picture files."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of one batch. Results themselves stay where they were committed."""

    status: Literal["done", "raised", "out of memory", "timeout", "broken", "store"]
    """`broken`: the process can no longer be trusted (a CUDA error), or its server has
    ended; replace it."""
    error: str = ""
    rows: Mapping[str, RecordRow] = field(default_factory=dict)
    """Receipts of the committed records, by key."""
    table: pa.Table | None = None
    """The records themselves, where worker and driver share no folder."""
    busy_s: float = 0.0
    damaged: tuple[str, ...] = ()
    """Parts that inputs should have been read from and that are damaged."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """The total usage of its records: tokens, images, cost."""


_NOTICED_S = 0.5
"""How long after a connection was refused the end of a server may be noticed."""
_NO_ITEM = Item("", "", Request(()))


class Worker:
    """One replica of a stage."""

    def __init__(
        self,
        spec: StageSpec,
        root: str,
        secrets: Mapping[str, str] | None = None,
        used: Mapping[str, float] | None = None,
    ) -> None:
        """`used` is the usage of the records that earlier workers have committed."""
        self.spec = spec
        self.root = Path(root)
        self._secrets = dict(secrets or {})
        self._used = dict(used or {})
        self._stage: Any = None
        self._shared = True
        self._server: ServerProcess | None = None
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="compute")
        calls = spec.placement.concurrency
        self._calls = ThreadPoolExecutor(calls, thread_name_prefix="call")
        self._committer = Committer(self.root / "stages" / spec.folder)

    def describe(self, samples: Sequence[tuple[str, str]]) -> WorkerInfo:
        """Say where this process runs; `samples` are (path, digest) of task pictures."""
        token = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"
        try:
            folder = self.root / TOKEN_FOLDER
            folder.mkdir(parents=True, exist_ok=True)
            (folder / token).write_text(token)
        except OSError:
            token = ""
        sees_data = all(_digest_of_file(path) == digest for path, digest in samples)
        return WorkerInfo(socket.gethostname(), os.getpid(), token or None, sees_data)

    def ping(self) -> None:
        """Returns as long as the process is alive."""

    def load(self, shared: bool, logs: bool = False) -> str | None:
        """Load the stage; the error as users read it when it cannot be loaded.

        With `logs`, the process writes its stderr for the run's log from now on.
        """
        self._shared = shared
        if logs and shared:
            redirect_stderr(self.root, self.spec.name)
        try:
            self._stage = self._compute.submit(self._build).result()
        except Exception as error:
            traceback.print_exception(error)
            return _error_text(error)
        # Arrow imports what it needs for its first table; not while a batch waits.
        encode(self.spec.kind, [_NO_ITEM], [Skip("")], 0.0)
        return None

    def close(self) -> None:
        """End the stage's own server, if it has one, and wait until it has ended."""
        if self._server is not None:
            self._server.stop()

    def _build(self) -> Any:
        os.environ.update(self._secrets)
        stage = load_stage(self.spec, **self._served())
        if self._used and hasattr(stage, "continue_from"):
            stage.continue_from(self._used)
        return stage

    def _served(self) -> dict[str, Any]:
        """Start the stage's own server, if it has one; the options that name it."""
        command = self.spec.placement.server
        if command is None:
            return {}
        bypass_proxies()
        folder = self.root if self._shared else Path(tempfile.gettempdir()) / "plait"
        log = log_path(folder, command.name)
        self._server = ServerProcess(command, log, self._secrets)
        self._server.wait_ready()
        return {"base_url": self._server.url}

    def run(self, items: list[Item]) -> Receipt:
        """Compute and commit one batch."""
        inputs, outcomes, damaged = self._read_inputs(items)
        try:
            computed, busy_s = self._computed(inputs)
        except _Overdue as error:
            return Receipt("timeout", str(error))
        except _ServerEnded as error:
            return Receipt("broken", str(error))
        except Exception as error:
            return _receipt_of(error)
        for (position, _), outcome in zip(inputs, computed, strict=True):
            outcomes[position] = outcome
        ordered = [outcomes[i] for i in range(len(items))]
        return replace(self._committed(items, ordered, busy_s), damaged=damaged)

    def _read_inputs(
        self, items: list[Item]
    ) -> tuple[list[tuple[int, StageInput]], dict[int, Outcome[Any]], tuple[str, ...]]:
        """Inputs with all bytes read, by position; failures; parts that are damaged.

        The failures are tried again once the driver has had damaged inputs made again.
        """
        inputs: list[tuple[int, StageInput]] = []
        failed: dict[int, Outcome[Any]] = {}
        damaged: dict[str, None] = {}
        for i, item in enumerate(items):
            try:
                inputs.append((i, with_blobs(item.input, _with_bytes)))
            except (OSError, StoreError) as error:
                failed[i] = Failure(f"input cannot be read: {error}", Fault.ERROR)
                if isinstance(error, DamagedPart):
                    damaged[error.part] = None
        return inputs, failed, tuple(damaged)

    def _computed(
        self, inputs: list[tuple[int, StageInput]]
    ) -> tuple[list[Outcome[Any]], float]:
        if not inputs:
            return [], 0.0
        call = _TimedCall(self._stage, [value for _, value in inputs])
        if self._server is not None:
            return self._asked(call, self._server)
        if getattr(self._stage, "concurrent", False):
            return call(), call.busy_s
        future: Future[list[Outcome[Any]]] = self._compute.submit(call)
        call.started.wait()
        limit = self.spec.placement.batch_timeout_s
        if wait([future], limit).not_done:
            raise _Overdue(f"took longer than {limit:g} s")
        return future.result(), call.busy_s

    def _asked(
        self, call: _TimedCall, server: ServerProcess
    ) -> tuple[list[Outcome[Any]], float]:
        """As `_computed`, of a stage that asks its own server; `_ServerEnded`.

        Without its server no request can succeed, however often it is sent.
        """
        future: Future[list[Outcome[Any]]] = self._calls.submit(call)
        either: list[Future[Any]] = [future, server.ended]
        wait(either, return_when=FIRST_COMPLETED)
        unanswered = not future.done() or any(map(_is_unanswered, future.result()))
        if unanswered and server.has_ended(within_s=_NOTICED_S):
            raise _ServerEnded(
                f"{server.ended.result()}. Its log ends:\n{server.log_end()}"
            )
        return future.result(), call.busy_s

    def _committed(
        self, items: list[Item], outcomes: list[Outcome[Any]], busy_s: float
    ) -> Receipt:
        kind = self.spec.kind
        try:
            table = encode(kind, items, outcomes, busy_s / len(items))
            usage = _used_by(outcomes)
            if not self._shared:
                return Receipt("done", table=table, busy_s=busy_s, usage=usage)
            part, first = self._committer.commit(table)
        except StoreError as error:
            return Receipt("store", str(error))
        except Exception as error:
            return _receipt_of(error)
        rows = rows_of(kind, table, part, first)
        return Receipt("done", rows=rows, busy_s=busy_s, usage=usage)


class _Overdue(Exception):
    """A batch is still computing; not a TimeoutError, which a stage may raise itself."""


class _ServerEnded(Exception):
    """The stage's own server has ended while it was asked."""


def _is_unanswered(outcome: Outcome[Any]) -> bool:
    return isinstance(outcome, Failure) and outcome.fault is Fault.ENDPOINT


class _TimedCall:
    """One call of the stage, which says when it began and how long it took."""

    def __init__(self, stage: Any, inputs: list[StageInput]) -> None:
        self.stage = stage
        self.inputs = inputs
        self.started = threading.Event()
        self.busy_s = 0.0

    def __call__(self) -> list[Outcome[Any]]:
        self.started.set()
        began = time.perf_counter()
        outcomes: list[Outcome[Any]] = self.stage(self.inputs)
        self.busy_s = time.perf_counter() - began
        if len(outcomes) != len(self.inputs):
            raise ValueError(
                f"the stage returned {len(outcomes)} outcomes for {len(self.inputs)} inputs"
            )
        return outcomes


def _with_bytes(blob: Blob) -> Blob:
    if blob.data is not None:
        return blob
    return replace(blob, data=read_blob(blob))


def _digest_of_file(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _used_by(outcomes: Sequence[Outcome[Any]]) -> dict[str, float]:
    """The usage of all outcomes, added up by name."""
    total: dict[str, float] = {}
    for outcome in outcomes:
        add_usage(total, getattr(outcome, "usage", {}))
    return total


def _receipt_of(error: Exception) -> Receipt:
    """The receipt for an exception that a stage raised."""
    traceback.print_exception(error)
    text = str(error)
    names = {c.__name__ for c in type(error).__mro__}
    if "OutOfMemoryError" in names or "out of memory" in text.lower():
        receipt = Receipt("out of memory", _error_text(error))
        # The frames of the error still hold the batch's tensors.
        traceback.clear_frames(error.__traceback__)
        _release_device_memory()
        return receipt
    if "CUDA error" in text:
        return Receipt("broken", _error_text(error))
    return Receipt("raised", _error_text(error))


def _release_device_memory() -> None:
    import gc
    import sys

    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _error_text(error: BaseException) -> str:
    """Kind, message and the innermost line of code of an error.

    One about a server ends with the server's own words instead.
    """
    if isinstance(error, ServerError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
