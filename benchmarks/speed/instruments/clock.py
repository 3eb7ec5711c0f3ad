"""Time on the host and on the device, and attributes replaced while something is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Now = Callable[[], float]
"""Seconds since an arbitrary moment, as `time.perf_counter`."""


class Clock:
    """Marks in the order of the work: device events on CUDA, host times otherwise.

    A device event is passed when the work that was queued before it is done, so that
    steps can be timed without the host waiting for each. An event knows the work of one
    device only: where there are several, a mark waits until all of them are idle.
    """

    def __init__(self, now: Now | None = None) -> None:
        """`now` gives the time; without it, the host's, and device events on CUDA."""
        self.now: Now = now or time.perf_counter
        on_cuda = now is None and torch.cuda.is_available()
        self._devices = torch.cuda.device_count() if on_cuda else 0
        self._events = self._devices == 1

    @property
    def name(self) -> str:
        """What marks are, for readers of the figures."""
        if self._events:
            return "CUDA events"
        return "perf_counter, all GPUs idle" if self._devices else "perf_counter"

    def mark(self) -> Any:
        """This moment."""
        if not self._events:
            for device in range(self._devices):
                torch.cuda.synchronize(device)
            return self.now()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()  # type: ignore[no-untyped-call]
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """Seconds between two marks; waits until the second has passed."""
        if not self._events:
            return float(end - begin)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """`owner.name` is `value` inside; an attribute of its class is back afterwards."""
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
