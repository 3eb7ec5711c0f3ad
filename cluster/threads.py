"""Threads that answer calls with a `Future`, and that never keep the process from ending.

`concurrent.futures.ThreadPoolExecutor` waits for its threads when the interpreter ends: a
stage that hangs would keep a stopped command alive. Nor can it leave a hung thread behind
and go on with the next call in another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple


class _Call(NamedTuple):
    future: Future[Any]
    """Is given what `function` returns or raises."""
    function: Callable[[], Any]

    def answer(self) -> None:
        """Compute it in this thread."""
        try:
            self.future.set_result(self.function())
        except BaseException as error:
            self.future.set_exception(error)


class ComputeThread(Executor):
    """A thread that computes one call at a time."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        """What is to be computed; None where the thread is to end."""
        self._thread: threading.Thread | None = None

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Return the answer to a call, once those before it have been computed."""
        future: Future[Any] = Future()
        self._calls.put(_Call(future, partial(call, *args, **named)))
        if self._thread is None:
            self._start()
        return future

    def abandon(self) -> None:
        """Go on with the next call in another thread, whatever this one does."""
        self._start()

    def close(self) -> None:
        """End the thread, once it has computed what was submitted."""
        self._calls.put(None)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._compute, daemon=True)
        self._thread.start()

    def _compute(self) -> None:
        # A thread that was abandoned ends as soon as its call returns after all.
        while self._thread is threading.current_thread():
            call = self._calls.get()
            if call is None:
                return
            call.answer()
            del call  # and with it what was computed, while there is nothing to do


def in_background(function: Callable[..., Any], *args: Any) -> Future[Any]:
    """Return the answer of a thread of its own."""
    call = _Call(Future(), partial(function, *args))
    threading.Thread(target=call.answer, daemon=True).start()
    return call.future
