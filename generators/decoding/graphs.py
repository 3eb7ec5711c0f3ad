"""One-token steps as CUDA graphs: all kernels of a step are launched at once.

A step of a model of some billions of parameters takes a GPU less time than the host needs
to launch its hundreds of kernels one by one. A graph repeats kernels over the same memory,
so rows and columns are rounded up, and what a step reads lies in tensors of its own.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch import Tensor

_COLUMNS = 256
"""A step attends over a multiple of so many columns: each has a graph of its own."""
_eagerly: ContextVar[bool] = ContextVar("eagerly", default=False)


@contextmanager
def eagerly() -> Iterator[None]:
    """Run steps without graphs inside, for hooks and counters, which see no replay."""
    token = _eagerly.set(True)
    try:
        yield
    finally:
        _eagerly.reset(token)


def suits(decoder: Any, device: torch.device) -> bool:
    """Return whether a decoder's steps can be captured: all of it is on one GPU.

    PLAIT_CUDA_GRAPHS=0 in the environment says no.
    """
    unwanted = _eagerly.get() or os.environ.get("PLAIT_CUDA_GRAPHS") == "0"
    if unwanted or device.type != "cuda":
        return False
    return all(parameter.device == device for parameter in decoder.parameters())


def round_rows(rows: int) -> int:
    """Return the rows of the graph for a step of so many, at least one."""
    return 1 << (rows - 1).bit_length() if rows <= 8 else -(-rows // 8) * 8


def round_up(rows: int, columns: int, most: tuple[int, int]) -> tuple[int, int]:
    """Return the rows and columns of the graph for a step of so many; `most` has room."""
    more_columns = -(-columns // _COLUMNS) * _COLUMNS
    return min(round_rows(rows), most[0]), min(more_columns, most[1])


@dataclass(frozen=True)
class StepInputs:
    """What a step reads; rows in excess are zeros, and are computed in vain."""

    embeddings: Tensor
    """(rows, 1, width)."""
    position_ids: Tensor
    """(rows, 1, axes)."""
    stored_at: Tensor
    """(rows, 1): the column of each row's new token."""

    def of_rows(self, rows: int) -> StepInputs:
        """Return zeros for that many rows."""
        return StepInputs(*(t.new_zeros(rows, *t.shape[1:]) for t in self.tensors))

    def fill(self, given: StepInputs) -> None:
        """Take the values of `given`, which has no more rows."""
        for own, new in zip(self.tensors, given.tensors, strict=True):
            own[: len(new)] = new
            own[len(new) :] = 0

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All three."""
        return self.embeddings, self.position_ids, self.stored_at


Forward = Callable[[StepInputs, int], Tensor]
"""Computes hidden states (rows, 1, width), attending over that many columns."""


class StepGraphs:
    """The graphs of one KV cache; `forget` them when it is allocated anew."""

    # None of this holds `forward`: it leads to the cache, whose memory would wait for the
    # garbage collector.
    def __init__(self) -> None:
        self._steps: dict[
            tuple[int, int], tuple[StepInputs, Callable[[], Tensor] | None]
        ] = {}

    def forget(self) -> None:
        """Drop all graphs: the memory they read and write is no longer in use."""
        self._steps.clear()

    def __call__(
        self, forward: Forward, given: StepInputs, rows: int, columns: int
    ) -> Tensor:
        """Compute a step of the rows of `given`, by the graph of `rows` and `columns`."""
        if (rows, columns) not in self._steps:
            inputs = given.of_rows(rows)
            # Capturing runs the step as well: it writes what the replay writes.
            inputs.fill(given)
            with torch.cuda.device_of(inputs.embeddings):  # type: ignore[no-untyped-call]
                replay = _try_capture(lambda: forward(inputs, columns))
            self._steps[rows, columns] = inputs, replay
        inputs, replay = self._steps[rows, columns]
        inputs.fill(given)
        states = forward(inputs, columns) if replay is None else replay()
        # The next replay of any graph may write over its states.
        return states[: len(given.embeddings)].clone()


def _try_capture(run: Callable[[], Tensor]) -> Callable[[], Tensor] | None:
    """Return the graph of `run`; None where a layer cannot be captured."""
    try:
        return capture(run)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        reason = str(error).partition("\n")[0]
        warnings.warn(f"decoding without CUDA graphs: {reason}", stacklevel=2)
        return None


_capturing = Lock()
"""PyTorch allows one capture at a time in a process."""


def capture(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Capture what `run` does on the current GPU; return what repeats it."""
    with _capturing:
        current = torch.cuda.current_stream()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            run()  # libraries allocate what they need at a first call
        current.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            # By default PyTorch captures on a stream of the GPU that was captured first: on
            # another GPU the graph would be empty. Other workers of this process may use
            # the GPU in the meantime.
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                states = run()
        finally:
            # A failed capture leaves its stream the current one.
            torch.cuda.set_stream(current)

    def replay() -> Tensor:
        graph.replay()
        return states

    return replay
