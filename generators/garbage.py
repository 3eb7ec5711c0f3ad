"""When Python searches for garbage, which is objects that refer only to each other."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = (50_000, 20, 100)
"""Thresholds of the garbage collector; Python's are 700, 10, 10."""


@contextmanager
def rarer_collections() -> Iterator[None]:
    """Garbage is searched for less often within.

    Libraries of models are hundreds of thousands of objects that stay, as are the records
    of a run. Searching them again and again while they grow takes a sixth of the time of
    an import, and as much of a report's.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
