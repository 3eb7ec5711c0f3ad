"""What the records of a batch write next, decided for all of them at once on the device.

Rules hold tensors with a row for each record of the batch, and work on those of the records
in flight. None of their operations waits for the device, asks the host for a value, or is
done once for each record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from plait.generators.decoding.sampling import NONE
from plait.generators.decoding.streams import Stream


class Change(IntEnum):
    """What a step changed about a record, besides its token."""

    NOTHING = 0
    END = 1
    BROKEN = 2
    """There were no numbers to choose a token by."""
    PAUSE = 3
    """The host has to open or close streams before the record goes on."""


@dataclass(frozen=True, slots=True)
class Move:
    """What records do in a step: tensors (records,)."""

    tokens: Tensor
    """What each writes; NONE where it writes nothing."""
    fed: Tensor
    """Ids that are read next."""
    ends: Tensor
    """Which records end here, with or without a token."""
    broken: Tensor
    """Which had no numbers to choose by: they write nothing and end."""
    pauses: Tensor | None = None
    """Which wait for the host; None where none ever does."""


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens of which the first is chosen, and the others always follow."""

    first: int
    tokens: int
    """How many, the first included."""


class Rules(ABC):
    """How the records of one batch are written."""

    run: Run | None = None
    """What is computed in one pass where all records are within it; for records without
    guides only, of which none ends before the last but one of its tokens."""

    def __init__(self, records: int, device: torch.device) -> None:
        self.device = device
        self.records = records
        self.goes_on = torch.ones(records, dtype=torch.bool, device=device)
        """Whether a record writes: (records,). Ended and paused ones do not."""

    @abstractmethod
    def move(self, states: Tensor, at: Tensor, going: Tensor) -> Move:
        """Return the moves of the records `at` (records,) by their states.

        These are (streams, records, width): of each record's own stream, then of its
        guides. Records that are not `going` (records,) on have no move, and what is
        returned for them is not used: whatever a later move depends on stays as it is.
        """

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings (records, width) of what is fed (records,)."""

    def rest(self, at: Tensor, tokens: int) -> Tensor:
        """Return embeddings (records, tokens, width) of what is fed next within a run."""
        raise NotImplementedError

    def pass_by(self, states: Tensor, at: Tensor) -> None:
        """Take the states (records, tokens, width) within a run before its next move."""
        raise NotImplementedError

    def resume(self, paused: Mapping[int, list[int]]) -> dict[int, tuple[Stream, ...]]:
        """Return the guides of paused records from now on; `paused` are their tokens."""
        raise NotImplementedError

    def count(self, values: Sequence[int] | int = 0) -> Tensor:
        """Return whole numbers (records,) on the device: given ones, or a constant."""
        if isinstance(values, int):
            return torch.full((self.records,), values, device=self.device)
        return torch.tensor(list(values), dtype=torch.long, device=self.device)


Chooser = Callable[[Tensor, Tensor], Tensor]
"""Tokens (records,), NONE where there are no numbers, from states (streams, records, width)
and the records (records,) that these are of."""
Embedder = Callable[[Tensor], Tensor]
"""Embeddings (tokens, width) of token ids (tokens,)."""


class TextRules(Rules):
    """Texts that end at certain tokens, or at their limits."""

    def __init__(
        self,
        choose: Chooser,
        embed: Embedder,
        limits: Sequence[int],
        ends: Collection[int],
        device: torch.device,
    ) -> None:
        """`limits` are the most tokens of each record, at least one."""
        super().__init__(len(limits), device)
        self._choose = choose
        self._embed = embed
        self._room = self.count(limits)
        """How many tokens each may still write: (records,)."""
        self._ends = torch.tensor(sorted(ends), dtype=torch.long, device=device)

    def move(self, states: Tensor, at: Tensor, going: Tensor) -> Move:
        """Return what was chosen, and whether it ends a text."""
        tokens = self._choose(states, at)
        room = self._room[at] - 1
        self._room[at] = room
        is_end = (tokens[:, None] == self._ends).any(dim=-1)
        broken = tokens == NONE
        return Move(tokens, tokens, is_end | (room <= 0), broken)

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings of tokens."""
        return self._embed(ids)
