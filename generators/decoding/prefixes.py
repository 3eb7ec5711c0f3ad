"""Which prompts are read together: what they share once, and like lengths in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Marks = npt.NDArray[np.int64]
_WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers of as many bytes."""
WORTH = 256
"""Fewest positions to save: a pass more costs about as much as reading these."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What some prompts begin with; a prompt of no company is its own prefix, whole."""

    members: tuple[int, ...]
    """Indices of the prompts."""
    length: int
    """Positions they share."""


def shared_prefixes(prompts: Sequence[Tensor]) -> list[Prefix]:
    """Every prompt of embeddings (positions, width) in exactly one prefix.

    The first prompt gathers all that share enough with it, then the first of the others,
    and so on; a prefix is as long as its least alike member allows.
    """
    if len(prompts) == 1:
        return [Prefix((0,), len(prompts[0]))]
    marks = [_marks(prompt) for prompt in prompts]
    left = list(range(len(prompts)))
    found: list[Prefix] = []
    while left:
        leader, *others = left
        found.append(_led(marks, leader, others))
        left = [i for i in others if i not in found[-1].members]
    return found


def _led(marks: Sequence[Marks], leader: int, others: Sequence[int]) -> Prefix:
    """The prefix of the leader that saves most."""
    shared = {i: _in_common(marks[leader], marks[i]) for i in others}
    most = Prefix((leader,), len(marks[leader]))
    saved = WORTH - 1
    for length in sorted(set(shared.values()), reverse=True):
        alike = [i for i in others if shared[i] >= length]
        if length * len(alike) > saved:
            saved = length * len(alike)
            most = Prefix((leader, *alike), length)
    return most


def _marks(prompt: Tensor) -> Marks:
    """A number for every position, the same for the same embedding.

    A weighted sum of the values' bits, in whole numbers, which no order of summation
    changes; unlike embeddings meet in one of 2**64 numbers by chance only.
    """
    bits = prompt.contiguous().view(_WHOLE[prompt.element_size()]).long()
    random = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**63), 2**63 - 1, (prompt.shape[1],), generator=random)
    marks: Marks = (bits * weights.to(prompt.device)).sum(dim=-1).cpu().numpy()
    return marks


def _in_common(one: Marks, other: Marks) -> int:
    """Positions from the first on at which two prompts are equal."""
    shorter = min(len(one), len(other))
    unlike = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(unlike[0]) if len(unlike) else shorter


def like_lengths(prompts: Mapping[int, Tensor]) -> list[list[int]]:
    """Indices of the prompts that are not empty, in passes of little padding.

    `prompts` are embeddings (positions, width) by index; the longest come first.
    """
    lengths = {i: len(prompt) for i, prompt in prompts.items() if len(prompt)}
    passes: list[list[int]] = []
    padding = 0
    for index in sorted(lengths, key=lambda i: -lengths[i]):
        more = lengths[passes[-1][0]] - lengths[index] if passes else WORTH
        if padding + more >= WORTH:
            passes.append([])
            padding = more = 0
        passes[-1].append(index)
        padding += more
    return passes
