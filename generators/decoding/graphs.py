"""One-token steps as CUDA graphs: all kernels of a step are launched at once.

A graph repeats kernels over the same memory (`plait.generators.cuda_graphs`), so rows and
columns are rounded up to those of a few graphs, and what a step reads lies in tensors of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from plait.generators.cuda_graphs import try_capture

_COLUMNS = 256
"""A step attends over a multiple of so many columns: each has a graph of its own."""


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
        zeros = [own.new_zeros(rows, *own.shape[1:]) for own in self.tensors]
        return StepInputs(*zeros)

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
            device = inputs.embeddings.device
            replay = try_capture(lambda: forward(inputs, columns), device, "decoding")
            self._steps[rows, columns] = inputs, replay
        inputs, replay = self._steps[rows, columns]
        inputs.fill(given)
        states = forward(inputs, columns) if replay is None else replay()
        # The next replay of any graph may write over its states.
        return states[: len(given.embeddings)].clone()
