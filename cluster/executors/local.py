"""Workers as threads of this process: no Ray, for a laptop, a notebook and tests.

One stage computes at a time, since all share torch's random numbers and switches; those of
endpoints, which only wait, do so beside it. Nothing can be ended by force: a thread that
hangs is left behind, and what exhausts the memory ends the command.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO, cast

import psutil  # type: ignore[import-untyped]

from cluster.executors.base import HostLost, Ref, SteadyNodes
from cluster.placement import Node, Resources
from cluster.records import Item
from cluster.worker import Receipt, Worker
from generators.base import Placement
from generators.secrets import MaskedStream


def _in_background(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """The answer of a thread that does not keep the process from ending."""
    future: Future[Any] = Future()

    def answer() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=answer, daemon=True).start()
    return future


class Lane:
    """A thread that computes one call at a time."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self.abandon()

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """The answer to a call, once those before it have been computed."""
        future: Future[Any] = Future()
        self._calls.put((future, lambda: function(*args)))
        return future

    def abandon(self) -> None:
        """Go on with the next call in another thread, whatever this one does."""
        self._thread = threading.Thread(target=self._compute, daemon=True)
        self._thread.start()

    def _compute(self) -> None:
        while self._thread is threading.current_thread():
            future, call = self._calls.get()
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)


@dataclass(frozen=True)
class _Share:
    """A lane for a worker that takes so many processors."""

    lane: Lane
    cpus: int

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        return self.lane.submit(self._call, function, args)

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        # As Ray has its workers do. More threads than processors take ten times as long.
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(self.cpus)
        return function(*args)


class _ThreadWorker(Worker):
    """A worker that computes in a lane it shares with others."""

    def __init__(self, lane: Lane, placement: Placement, given: tuple[Any, ...]) -> None:
        spec, root, secrets, used, host = given
        share = _Share(lane, max(1, int(placement.num_cpus)))
        super().__init__(spec, root, secrets, used, host, share)
        self.batches = 0
        """That it reads, computes or writes."""

    def load(self, shared: bool, logs: bool = False) -> str | None:
        """Load the stage; stderr is that of the whole command."""
        return super().load(shared)

    def run(self, items: list[Item]) -> Receipt:
        """Compute and commit one batch."""
        self.batches += 1
        try:
            return super().run(items)
        finally:
            self.batches -= 1


class ThreadHost:
    """A worker of this process."""

    def __init__(
        self, placement: Placement, node: Node, lane: Lane, given: tuple[Any, ...]
    ) -> None:
        self.node = node
        self._lane = lane
        self._worker = _ThreadWorker(lane, placement, given)
        self._ended = False

    def call(self, method: str, *args: Any, control: bool = False) -> Ref:
        """Start a method of the worker."""
        return _in_background(self._answer, method, args)

    def _answer(self, method: str, args: tuple[Any, ...]) -> Any:
        answer = None if self._ended else getattr(self._worker, method)(*args)
        if self._ended:
            raise HostLost("it was stopped")
        return answer

    def kill(self) -> None:
        """Forget the stage, or leave the thread behind that still computes it."""
        if not self._ended:
            self._ended = True
            busy = self._worker.batches
            self._lane.abandon() if busy else _in_background(self._worker.unload)


class LocalExecutor(SteadyNodes):
    """The one node that this process is."""

    def __init__(self, total: Resources | None = None) -> None:
        """`total` is what the machine has, unless it is to be found out."""
        self._node = Node("local", total or _of_this_machine(), "127.0.0.1")
        self._lane = Lane()

    def now(self) -> float:
        """Seconds on the clock of this machine."""
        return time.monotonic()

    def nodes(self) -> list[Node]:
        """This machine."""
        return [self._node]

    def most_workers(self, placement: Placement) -> int | None:
        """One of what computes in this process; others each have a server of their own."""
        return 1 if placement.server is None else None

    def start(self, placement: Placement, node: Node, given: tuple[Any, ...]) -> ThreadHost:
        """Make a worker."""
        return ThreadHost(placement, node, self._lane, given)

    def wait(self, refs: Sequence[Ref], timeout_s: float) -> list[Ref]:
        """Those that are ready."""
        if not refs:
            time.sleep(timeout_s)
            return []
        return list(wait_for(refs, timeout_s, FIRST_COMPLETED).done)

    def wait_for_all(self, refs: Sequence[Ref], timeout_s: float) -> None:
        """Wait until all are ready."""
        wait_for(refs, timeout_s)

    def result(self, ref: Ref) -> Any:
        """The value of a ready reference."""
        return ref.result()


@contextlib.contextmanager
def running() -> Iterator[LocalExecutor]:
    """Yield an executor; what a stage prints to stderr meanwhile holds no key."""
    masked = cast(TextIO, MaskedStream(sys.stderr))
    with contextlib.redirect_stderr(masked):
        yield LocalExecutor()


def _of_this_machine() -> Resources:
    """Its processors and memory, and one GPU: threads cannot be given one each."""
    has_gpu = any(Path("/dev").glob("nvidia[0-9]*"))
    memory = float(psutil.virtual_memory().total)
    return Resources(float(os.cpu_count() or 1), float(has_gpu), memory)
