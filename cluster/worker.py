"""Hosts one stage in one process: reads its inputs, computes, commits the results.

A process whose stage has no more work may `host` another: what it has imported stays.

While one batch computes, the next one's inputs are read and the last one's results are
written, each in its own thread; only the stage itself is never entered twice at a time
(unless it declares itself `concurrent`, as endpoints do).

The driver starts a `Worker` through an executor (`executors/`), and calls `describe`,
`load`, then `run_all` for each message of batches. It gets a `Receipt` for each batch.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from plait.cluster.energy import EnergyMeter
from plait.cluster.loading import error_text, from_own_code, load_stage, stage_fault
from plait.cluster.memory import release_memory
from plait.cluster.parts import Committer, DamagedPart, StoreError
from plait.cluster.record_values import with_bytes
from plait.cluster.records import Item, RecordRow, encode, rows_of
from plait.cluster.server_process import ServerProcess, bypass_proxies, log_path
from plait.cluster.stage_call import StageCall
from plait.cluster.threads import ComputeThread, in_background
from plait.cluster.tracing.journal import Span, SpanList
from plait.cluster.watcher import redirect_stderr
from plait.generators.base import (
    Failure,
    Fault,
    Outcome,
    Skip,
    StageInput,
    StageSpec,
    add_usage,
)
from plait.generators.batches import Asked, Waiting
from plait.generators.buckets import any_path
from plait.generators.document import Request, with_blobs
from plait.generators.errors import UsageError, WriteError
from plait.generators.secrets import know, print_error, without_keys_in

TOKEN_FOLDER = ".nodes"
"""Where workers leave a token to show the driver that they write to the same folder."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker shares with the driver."""

    token: str | None
    """Name of the file it wrote into the run directory; None when it could not."""
    sees_data: bool
    """Whether it can read the task set's own image files."""


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
    outcomes: Mapping[str, Outcome[Any]] = field(default_factory=dict)
    """By key, where they are stored nowhere."""
    busy_s: float = 0.0
    damaged: tuple[str, ...] = ()
    """Parts that inputs should have been read from and that are damaged."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """The total usage of its records: tokens, images, cost."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """By key, the provider's batch in which a request waits; it has no record yet."""
    spans: Sequence[Span] = ()
    """When it was read, computed and written; of the first batch, loading too."""
    joules: float | None = None
    """Energy that the worker's GPUs have used since it was loaded, where it is known."""

    @property
    def took_s(self) -> float:
        """How long its worker was at the batch: reading, computing and writing."""
        timed_ns = 0
        for span in self.spans:
            if span.phase in _OF_BATCHES:
                timed_ns += span.end - span.begin
        return max(self.busy_s, timed_ns / 1e9)


UNUSABLE = ("timeout", "broken")
"""Receipts after which a worker is not given anything more."""
_OF_BATCHES = ("read", "compute", "write")
"""Phases of the work at a batch; others are of loading."""
_NOTICED_S = 0.5
"""How long after a connection was refused the end of a server may be noticed."""
_NO_ITEM = Item("", "", Request(()))


@dataclass(frozen=True, slots=True)
class Computed:
    """A batch that is not committed yet."""

    items: list[Item]
    outcomes: list[Outcome[Any]]
    busy_s: float
    spans: SpanList
    damaged: tuple[str, ...]
    waiting: Mapping[str, str] = field(default_factory=dict)
    """As of its receipt."""
    status: Literal["done"] = "done"

    def receipt(self, **made: Any) -> Receipt:
        """Return its receipt, with what has become of it."""
        return Receipt(
            self.status,
            busy_s=self.busy_s,
            spans=self.spans,
            damaged=self.damaged,
            waiting=self.waiting,
            **made,
        )


class _OverdueBatch(Exception):
    """A batch is still computing; not a TimeoutError, which a stage may raise itself."""


class _ServerEnded(Exception):
    """The stage's own server has ended while it was asked."""


class Worker:
    """One replica of a stage."""

    owns_process = True
    """Its process writes stderr for the run's log."""

    def __init__(
        self,
        spec: StageSpec,
        root: str,
        secrets: Mapping[str, str] | None = None,
        used: Mapping[str, float] | None = None,
        host: str = "localhost",
        log_folder: str | None = None,
    ) -> None:
        """`used` is the usage of the records that earlier workers have committed.

        `host` names the machine in files and logs; several may share a host name. The
        driver gathers stderr from `log_folder`, by default `root`.
        """
        self.root = any_path(root)
        self._host = host
        self._log_folder = any_path(log_folder or root)
        self._shared = True
        self._compute: Executor = ComputeThread()
        """In which the stage is loaded and computes."""
        self._assign(spec, secrets, used)

    def _assign(
        self,
        spec: StageSpec,
        secrets: Mapping[str, str] | None = None,
        used: Mapping[str, float] | None = None,
    ) -> None:
        """Begin anew with a stage that is not loaded yet."""
        self.spec = spec
        self._secrets = dict(secrets or {})
        self._used = dict(used or {})
        self._stage: Any = None
        self._desk: Any = None
        """Where the stage hands requests in to batches, if it does."""
        self._server: ServerProcess | None = None
        self._loading = SpanList()
        """How long loading took, until the first receipt tells it."""
        self._meter: EnergyMeter | None = None
        self._told = set[str]()
        """Errors that were printed."""
        self._committer = Committer(self.root / "stages" / spec.folder)

    def describe(self, samples: Sequence[tuple[str, str]]) -> WorkerInfo:
        """Say what this process sees; `samples` are (path, digest) of task images."""
        sees_data = all(_holds(path, digest) for path, digest in samples)
        return WorkerInfo(self._leave_token(), sees_data)

    def _leave_token(self) -> str | None:
        """Write a file that shows the driver whether both see the same run directory."""
        token = f"{self._host}-{os.getpid()}-{time.time_ns()}"
        try:
            folder = self.root / TOKEN_FOLDER
            folder.mkdir(parents=True, exist_ok=True)
            (folder / token).write_bytes(b"")
        except (OSError, UsageError):  # such as a bucket, and no library for it
            return None
        return token

    def ping(self) -> None:
        """Returns as long as the process is alive."""

    def load(self, shared: bool) -> str | None:
        """Load the stage; the error as users read it when it cannot be loaded."""
        self._shared = shared
        if self.owns_process and shared and isinstance(self._log_folder, Path):
            redirect_stderr(self._log_folder, self.spec.name, self._host)
        try:
            self._stage = self._compute.submit(self._build).result()
        except Exception as error:
            self._tell(error)
            return error_text(error)
        # Arrow imports what it needs for its first table; not while a batch waits.
        encode(self.spec.kind, [_NO_ITEM], [Skip("")], 0.0)
        return None

    def host(self, spec: StageSpec) -> str | None:
        """Drop the stage, free its memory, and load `spec` instead; as `load`.

        For stages that share a process (`StageSpec.shares_process`).
        """
        self.unload()
        self._assign(spec)
        return self.load(self._shared)

    def unload(self) -> None:
        """Forget the stage, and give its memory back to the system."""
        self._compute.submit(self._drop).result()

    def _drop(self) -> None:
        if self._stage is not self.spec.given:  # else it is the user's, who may go on
            getattr(self._stage, "close", lambda: None)()
        self._stage = None
        self._desk = None
        gc.collect()  # models refer to themselves
        if not gc.get_freeze_count():
            gc.freeze()  # libraries stay, and the next collection need not search them
        release_memory()

    def close(self) -> None:
        """End the stage's own server, if it has one, and wait until it has ended."""
        if self._server is not None:
            self._server.stop()

    def _build(self) -> Any:
        """The stage, loaded, with its server and its desk where it has any."""
        os.environ.update(self._secrets)
        know(self.spec.secrets)
        gpus = float(self.spec.placement.num_gpus)
        # A counter is of a whole device: workers that share one cannot tell their shares.
        meter = EnergyMeter() if gpus >= 1 and gpus.is_integer() else None
        self._meter = meter if meter and meter.reason is None else None
        served = self._start_server()
        with self._loading.phase("load"):
            stage = load_stage(self.spec, **served)
        if self._used and hasattr(stage, "continue_from"):
            stage.continue_from(self._used)
        if self.spec.placement.batch_api:
            if not self._shared:
                raise UsageError(
                    "batch_api = true needs a worker that sees the run directory, where "
                    "batches are noted: use --executor local, or a folder that all nodes "
                    "share"
                )
            self._desk = stage.desk(self.root, self.spec)
        return stage

    def _start_server(self) -> dict[str, Any]:
        """Start the stage's own server, if it has one; the options that name it."""
        command = self.spec.placement.server
        if command is None:
            return {}
        bypass_proxies()
        own = Path(tempfile.gettempdir()) / "plait"
        folder = self.root if self._shared and isinstance(self.root, Path) else own
        log = log_path(folder, command.name)
        with self._loading.phase("server"):
            self._server = ServerProcess(command, log)
            self._server.wait_ready()
        return {"base_url": self._server.url}

    def run(self, items: list[Item]) -> Receipt:
        """Compute and commit one batch."""
        return self.run_all([items])[0]

    def run_all(self, batches: Sequence[list[Item]]) -> list[Receipt]:
        """Compute several batches in turn, and commit them together.

        Return a receipt for each that was begun: none is after one that leaves the
        process or its server unusable.
        """
        computed: list[Computed | Receipt] = []
        for items in batches:
            computed.append(self._run(items))
            if computed[-1].status in UNUSABLE:
                break
        receipts = self._keep(computed)
        if self._desk is not None:
            # Requests are forgotten only now that they have a committed record.
            for receipt in receipts:
                self._desk.settle(receipt.rows)
        joules = None if self._meter is None else self._meter.joules()
        # The first receipt tells how long loading took, too.
        loading = self._loading
        self._loading = SpanList()
        receipts[0] = replace(receipts[0], spans=(*loading, *receipts[0].spans))
        return [replace(receipt, joules=joules) for receipt in receipts]

    def _run(self, items: list[Item]) -> Computed | Receipt:
        """Read the inputs of a batch and compute it; a receipt where that raised."""
        if self._desk is not None:
            return self._run_at_desk(items)
        spans = SpanList()
        damaged: dict[str, None] = {}
        with spans.phase("read"):
            reads = [_read_input(item, damaged) for item in items]
        inputs = [read for read in reads if not isinstance(read, Failure)]
        try:
            made, busy_s = self._run_stage(inputs, spans)
        except _OverdueBatch as error:
            return Receipt("timeout", str(error), spans=spans)
        except _ServerEnded as error:
            return Receipt("broken", str(error), spans=spans)
        except Exception as error:
            return replace(self._receipt_of(error), spans=spans)
        left = iter(made)
        outcomes = [read if isinstance(read, Failure) else next(left) for read in reads]
        return Computed(items, outcomes, busy_s, spans, tuple(damaged))

    def _run_at_desk(self, items: list[Item]) -> Computed | Receipt:
        """Collect what batches have answered of the requests, and hand in the others.

        Inputs are read one at a time: a batch may have tens of thousands, with images.
        """
        spans = SpanList()
        damaged: dict[str, None] = {}
        asked: dict[str, Asked] = {}
        for item in items:
            asked[item.key] = Asked(item.label, partial(_read_input, item, damaged))
        began = time.perf_counter()
        try:
            with spans.phase("compute"):
                answers = self._desk.answer(asked)
        except (OSError, WriteError) as error:
            return Receipt("store", f"batches cannot be noted: {error}", spans=spans)
        except Exception as error:
            return replace(self._receipt_of(error), spans=spans)
        made: list[Item] = []
        outcomes: list[Outcome[Any]] = []
        waiting: dict[str, str] = {}
        for item in items:
            answer = answers[item.key]
            if isinstance(answer, Waiting):
                waiting[item.key] = answer.batch
            else:
                made.append(item)
                outcomes.append(answer)
        busy_s = time.perf_counter() - began
        outcomes = without_keys_in(outcomes)
        return Computed(made, outcomes, busy_s, spans, tuple(damaged), waiting)

    def _run_stage(
        self, inputs: list[StageInput], spans: SpanList
    ) -> tuple[list[Outcome[Any]], float]:
        """An outcome for each input, and the seconds that the stage took.

        Raises what the stage raises, _OverdueBatch and _ServerEnded.
        """
        if not inputs:
            return [], 0.0
        call = StageCall(self.spec, self._stage, inputs, spans, self._tell)
        if self._server is not None:
            return self._ask_server(call, self._server)
        if getattr(self._stage, "concurrent", False):
            return call(), call.busy_s
        call.meter = self._meter  # batches that overlap cannot tell their shares
        future: Future[list[Outcome[Any]]] = self._compute.submit(call)
        call.started.wait()  # the time limit is of computing, not of waiting for its turn
        limit = self.spec.placement.batch_timeout_s
        if wait([future], limit).not_done:
            raise _OverdueBatch(f"took longer than {limit:g} s")
        return future.result(), call.busy_s

    def _ask_server(
        self, call: StageCall, server: ServerProcess
    ) -> tuple[list[Outcome[Any]], float]:
        """As `_run_stage`, of a stage that asks its own server; `_ServerEnded`.

        Without its server no request can succeed, however often it is sent.
        """
        future: Future[list[Outcome[Any]]] = in_background(call)
        either: list[Future[Any]] = [future, server.ended]
        wait(either, return_when=FIRST_COMPLETED)
        unanswered = not future.done() or any(
            isinstance(outcome, Failure) and outcome.fault is Fault.ENDPOINT
            for outcome in future.result()
        )
        if unanswered and server.has_ended(within_s=_NOTICED_S):
            raise _ServerEnded(
                f"{server.ended.result()}. Its log ends:\n{server.log_end()}"
            )
        return future.result(), call.busy_s

    def _keep(self, computed: Sequence[Computed | Receipt]) -> list[Receipt]:
        """Commit what was computed, as one part; a receipt for each batch."""
        receipts = [batch for batch in computed if isinstance(batch, Receipt)]
        if len(receipts) == len(computed):
            return receipts
        writing = SpanList()
        with writing.phase("write"):
            receipts = []
            for batch in computed:
                if isinstance(batch, Computed):
                    batch = self._encode(batch)
                receipts.append(batch)
            if self._shared:
                receipts = self._commit(receipts)
        # How long all were written is noted with the last of them.
        last = receipts[-1]
        receipts[-1] = replace(last, spans=(*last.spans, *writing))
        return receipts

    def _encode(self, batch: Computed) -> Receipt:
        """Return a receipt with the records of a batch as a table."""
        if not batch.items:
            return batch.receipt()
        seconds_each = batch.busy_s / len(batch.items)
        try:
            table = encode(self.spec.kind, batch.items, batch.outcomes, seconds_each)
        except Exception as error:
            # Such as an image of the stage's that cannot be encoded: the batch is bisected.
            return replace(self._receipt_of(error), spans=batch.spans)
        usage = dict[str, float]()
        for outcome in batch.outcomes:
            add_usage(usage, getattr(outcome, "usage", {}))
        return batch.receipt(table=table, usage=usage)

    def _commit(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        """Write the tables of receipts; the receipts with what was written instead."""
        tables = [receipt.table for receipt in receipts if receipt.table is not None]
        if not tables:
            return list(receipts)
        try:
            part, first = self._committer.commit(pa.concat_tables(tables))
        except StoreError as error:
            return _replace_written(receipts, Receipt("store", str(error)))
        except Exception as error:
            return _replace_written(receipts, self._receipt_of(error))
        committed: list[Receipt] = []
        for receipt in receipts:
            if receipt.table is not None:
                rows = rows_of(self.spec.kind, receipt.table, part, first)
                first += receipt.table.num_rows
                receipt = replace(receipt, rows=rows, table=None)
            committed.append(receipt)
        return committed

    def _receipt_of(self, error: Exception) -> Receipt:
        """The receipt of a batch that raised, after the error was printed."""
        self._tell(error)
        text = error_text(error)
        return Receipt(stage_fault(error), text)

    def _tell(self, error: Exception) -> None:
        """Print an error with its traceback, of equal ones the first: there may be many."""
        text = error_text(error)
        if text not in self._told:
            self._told.add(text)
            print_error(from_own_code(error))


def _replace_written(receipts: Sequence[Receipt], failed: Receipt) -> list[Receipt]:
    """The receipts, with `failed` for those whose records could not be written."""
    replaced: list[Receipt] = []
    for receipt in receipts:
        if receipt.table is not None:
            receipt = replace(failed, spans=receipt.spans)
        replaced.append(receipt)
    return replaced


def _read_input(item: Item, damaged: dict[str, None]) -> StageInput | Failure:
    """Return an item's input with its bytes; damaged parts of the store are noted."""
    try:
        return with_blobs(item.input, with_bytes)
    except (OSError, StoreError) as error:
        if isinstance(error, DamagedPart):
            damaged[error.part] = None
        # Tried again once the driver has had damaged inputs made again.
        return Failure(f"input cannot be read: {error}", Fault.ERROR)


def _holds(path: str, digest: str) -> bool:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == digest
    return False
