"""Workers as threads of this process: no Ray, for a laptop, a notebook and tests.

One stage computes at a time, since all share torch's random numbers and switches; those of
endpoints, which only wait, do so beside it. Nothing can be ended by force: a thread that
hangs is left behind, and what exhausts the memory ends the command.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent import futures
from concurrent.futures import FIRST_COMPLETED, Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import psutil  # type: ignore[import-untyped]

from plait.cluster.executors.base import Executor, HostLost, Ref
from plait.cluster.placement import Node, Resources
from plait.cluster.records import Item
from plait.cluster.threads import ComputeThread, in_background
from plait.cluster.worker import Computed, Receipt, Worker, WorkerInfo
from plait.generators.base import Outcome, Placement, Result, StageSpec
from plait.generators.images import Drawing
from plait.generators.secrets import MaskedStream
from plait.generators.unicode import with_valid_text


class _Share(futures.Executor):
    """The thread that computes, as a worker uses it that takes so many processors."""

    def __init__(self, thread: ComputeThread, cpus: int) -> None:
        self.thread = thread
        self.cpus = cpus

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        return self.thread.submit(self._call, partial(call, *args, **named))

    def _call(self, call: Callable[[], Any]) -> Any:
        # As Ray has its workers do. More threads than processors take ten times as long.
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(self.cpus)
        return call()


class _ThreadWorker(Worker):
    """A worker of this process, which computes in a thread that it shares with others."""

    owns_process = False
    batches = 0
    """That it reads, computes or writes; one that is overdue goes on computing."""

    def __init__(self, given: tuple[Any, ...], compute: futures.Executor) -> None:
        super().__init__(*given)
        self._compute = compute

    def run_all(self, batches: Sequence[list[Item]]) -> list[Receipt]:
        """Compute and commit batches."""
        self.batches += 1
        receipts = super().run_all(batches)
        if receipts[-1].status != "timeout":  # else its thread still computes
            self.batches -= 1
        return receipts


class _InlineWorker(_ThreadWorker):
    """A worker whose stage was loaded by others, and who hands its records back."""

    def __init__(self, spec: StageSpec, stage: Any, thread: ComputeThread) -> None:
        super().__init__((spec, tempfile.gettempdir()), thread)
        self._stage = stage

    def describe(self, samples: Sequence[tuple[str, str]]) -> WorkerInfo:
        """It is where the driver is, and writes nothing there."""
        return WorkerInfo(None, sees_data=True)

    def load(self, shared: bool) -> str | None:
        """Nothing is to be loaded."""
        return None

    def unload(self) -> None:
        """The stage is kept."""

    def _encode(self, batch: Computed) -> Receipt:
        """A receipt with the outcomes themselves: nothing is stored here."""
        made: dict[str, Outcome[Any]] = {}
        for item, outcome in zip(batch.items, batch.outcomes, strict=True):
            # As records hold it: images are encoded, and text is valid.
            if isinstance(outcome, Result) and isinstance(outcome.value, Drawing):
                outcome = replace(outcome, value=outcome.value.encoded())
            made[item.key] = with_valid_text(outcome)
        return batch.receipt(outcomes=made)


class ThreadHost:
    """A worker of this process."""

    def __init__(self, node: Node, thread: ComputeThread, worker: _ThreadWorker) -> None:
        self.node = node
        self._thread = thread
        self._worker = worker
        self._ended = False

    def call(self, method: str, *args: Any, control: bool = False) -> Ref:
        """Start a method of the worker."""
        return in_background(self._answer, method, args)

    def _answer(self, method: str, args: tuple[Any, ...]) -> Any:
        answer = None if self._ended else getattr(self._worker, method)(*args)
        if self._ended:
            raise HostLost("it was stopped")
        return answer

    def kill(self) -> None:
        """Forget the stage, or leave the thread behind that still computes it."""
        if not self._ended:
            self._ended = True
            is_busy = self._worker.batches > 0
            if is_busy:
                self._thread.abandon()
            else:
                in_background(self._worker.unload)


class LocalExecutor(Executor):
    """The one node that this process is."""

    def __init__(self, total: Resources | None = None) -> None:
        """`total` is what the machine has, unless it is to be found out."""
        if total is None:
            # One GPU at most: threads cannot be given one each.
            has_gpu = any(Path("/dev").glob("nvidia[0-9]*"))
            memory = float(psutil.virtual_memory().total)
            total = Resources(float(os.cpu_count() or 1), float(has_gpu), memory)
        self._node = Node("local", total, "127.0.0.1")
        self._thread = ComputeThread()

    def nodes(self) -> list[Node]:
        """This machine."""
        return [self._node]

    def most_workers(self, placement: Placement) -> int | None:
        """One of what computes in this process; others each have a server of their own."""
        return 1 if placement.server is None else None

    def start(self, placement: Placement, node: Node, given: tuple[Any, ...]) -> ThreadHost:
        """Make a worker."""
        share = _Share(self._thread, max(1, int(placement.num_cpus)))
        return ThreadHost(node, self._thread, _ThreadWorker(given, share))

    def wait(self, refs: Collection[Ref], timeout_s: float) -> list[Ref]:
        """Return those that are ready."""
        if not refs:
            time.sleep(timeout_s)
            return []
        return list(futures.wait(refs, timeout_s, FIRST_COMPLETED).done)

    def wait_for_all(self, refs: Sequence[Ref], timeout_s: float) -> None:
        """Wait until all are ready."""
        futures.wait(refs, timeout_s)

    def result(self, ref: Ref) -> Any:
        """Return the value of a ready reference."""
        return ref.result()

    def close(self) -> None:
        """Let go of the thread that computes."""
        self._thread.close()


class InlineExecutor(LocalExecutor):
    """For stages that this process has loaded, all of which there is room for."""

    def __init__(self, stage_of: Callable[[StageSpec], Any]) -> None:
        """`stage_of` gives the loaded stage."""
        super().__init__(Resources(math.inf, math.inf, math.inf))
        self._stage_of = stage_of
        weakref.finalize(self, self._thread.close)

    def most_workers(self, placement: Placement) -> int | None:
        """There is one of each."""
        return 1

    def start(self, placement: Placement, node: Node, given: tuple[Any, ...]) -> ThreadHost:
        """Make a worker of a loaded stage."""
        spec: StageSpec = given[0]
        worker = _InlineWorker(spec, self._stage_of(spec), self._thread)
        return ThreadHost(node, self._thread, worker)


@contextlib.contextmanager
def running() -> Iterator[LocalExecutor]:
    """Yield an executor; what a stage prints to stderr meanwhile holds no key."""
    masked = cast(TextIO, MaskedStream(sys.stderr))
    executor = LocalExecutor()
    with contextlib.redirect_stderr(masked), contextlib.closing(executor):
        yield executor
