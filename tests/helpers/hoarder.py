"""A stage that takes much memory, and a measurement of what it leaves behind.

A module of the import path: a new process finds none below `tests`, which is also the
name of a package that torch-fidelity installs.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psutil
from trial import writer

from plait.cluster.records import Item
from plait.cluster.worker import Worker
from plait.generators.document import Request


class Hoarder:
    """A stage of 200 MB in pieces that the allocator keeps when they are freed."""

    made: list[weakref.ref[Any]] = []  # noqa: RUF012
    kept: list[bytes] = []  # noqa: RUF012

    def __init__(self, **_: Any) -> None:
        self.pieces = [bytes([i % 256]) * 60_000 for i in range(3500)]
        self.kept += self.pieces[::500]  # between those that are freed
        self.itself = self
        self.made.append(weakref.ref(self))

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        raise NotImplementedError


def memory_of_a_stage_that_is_followed(root: str) -> tuple[int, int, bool, str]:
    """Bytes while it is hosted and after; whether it is gone; the status of the next."""
    process = psutil.Process()
    worker = Worker(writer(), root)
    worker.load(shared=True)
    before = process.memory_info().rss
    assert worker.host(replace(writer(), target=f"{__name__}:Hoarder")) is None
    hosted = process.memory_info().rss - before
    gc.disable()
    assert worker.host(writer(style="other")) is None
    left = process.memory_info().rss - before
    gone = Hoarder.made[0]() is None
    return hosted, left, gone, worker.run([Item("k", "label", Request(()))]).status
