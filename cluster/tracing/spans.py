"""Times of one batch in a worker, on a clock that can be compared between processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class WallClock:
    """Nanoseconds since the epoch, which setting the computer's clock does not bend."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.perf_counter_ns()

    def now(self) -> int:
        """Return the time in nanoseconds since the epoch."""
        return self._offset + time.perf_counter_ns()


CLOCK = WallClock()
"""This process's."""


class Span(NamedTuple):
    """Something that took from `begin` until `end`, in nanoseconds since the epoch."""

    phase: str
    """`load`, `server`, `read`, `compute` or `write`."""
    begin: int
    end: int


class SpanList:
    """The spans of one batch, or of loading."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what runs inside, whether or not it raises."""
        begin = CLOCK.now()
        try:
            yield
        finally:
            self.spans.append(Span(name, begin, CLOCK.now()))

    def take(self) -> list[Span]:
        """Return the spans so far and forget them."""
        spans, self.spans = self.spans, []
        return spans
