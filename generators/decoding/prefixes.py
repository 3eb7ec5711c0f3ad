"""Which prompts are read together: what they share once, and like lengths in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Marks = npt.NDArray[np.int64]
"""A number for every position of a prompt: equal ones have equal numbers."""

WORTH = 256
"""Fewest positions to save: a pass more costs about as much as reading these."""
_WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int32}
"""Whole numbers of as many bytes; two for 8, whose first bit would vanish in a sum."""


@dataclass(frozen=True, slots=True)
class PrefixPart:
    """Positions `start` to `end` of some prompts, which begin alike up to there."""

    members: tuple[int, ...]
    """Indices of the prompts; for the first of them it is read, for the others copied."""
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def marks(prompt: Tensor, position_ids: Tensor | None = None) -> Marks:
    """Return the marks of embeddings (positions, width) and position ids (positions, axes).

    Weighted sums of the values' bits, in whole numbers, which no order of summation
    changes; different embeddings have the same mark only by chance, one in 2**64.
    """
    bits = prompt.contiguous().view(_WHOLE[prompt.element_size()]).long()
    if position_ids is not None:
        bits = torch.cat([bits, position_ids.to(bits.device)], dim=1)
    random = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**63), 2**63 - 1, (bits.shape[1],), generator=random)
    sums: Marks = (bits * weights.to(prompt.device)).sum(dim=-1).cpu().numpy()
    return sums


def levels(prompts: Sequence[Marks]) -> Iterator[list[PrefixPart]]:
    """Yield all prompts in parts: what most share, then what fewer do, then the rest.

    A part follows what its members read at earlier levels.
    """
    groups = [(tuple(range(len(prompts))), 0)]
    while groups:
        level: list[PrefixPart] = []
        for members, start in groups:
            rest = {member: prompts[member][start:] for member in members}
            level += _iter_shared(rest, start)
        yield [part for part in level if len(part)]
        groups.clear()
        for part in level:
            # Of one member alone, the part is all the rest.
            if len(part.members) > 1:
                groups.append((part.members, part.end))


def _iter_shared(prompts: Mapping[int, Marks], start: int) -> Iterator[PrefixPart]:
    """Yield what the first prompt shares with most others, then the next one, and so on.

    `prompts` are by index, from position `start` on. A part is as long as its least alike
    member allows, and shared if that is worth a pass; what its members share with fewer of
    them follows at the next level. A prompt that shares too little is a part, whole.
    """
    left = list(prompts)
    while left:
        leader, *others = left
        part = PrefixPart((leader,), start, start + len(prompts[leader]))
        shared: dict[int, int] = {}
        for other in others:
            shared[other] = _in_common(prompts[leader], prompts[other])
        # The shortest length that is worth it has the most members.
        for length in sorted(set(shared.values())):
            alike = [other for other in others if shared[other] >= length]
            if length * len(alike) >= WORTH:
                part = PrefixPart((leader, *alike), start, start + length)
                break
        yield part
        left = [index for index in left if index not in part.members]


def _in_common(one: Marks, other: Marks) -> int:
    """Return the number of positions up to which two prompts are equal."""
    shorter = min(len(one), len(other))
    unlike = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(unlike[0]) if len(unlike) else shorter


def passes(level: Iterable[PrefixPart]) -> list[list[PrefixPart]]:
    """Return the parts of one level, the longest first, in passes of little padding."""
    batches: list[list[PrefixPart]] = []
    padding = 0
    for part in sorted(level, key=len, reverse=True):
        more = len(batches[-1][0]) - len(part) if batches else WORTH
        if padding + more >= WORTH:
            batches.append([])
            padding = more = 0
        batches[-1].append(part)
        padding += more
    return batches
