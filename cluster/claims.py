"""Which stages a turn of allocation serves, from what is known of their queues.

The engine (`cluster.allocation`) and the forecast of a run both ask here, so that a
forecast knows what the engine will do. A process at hand rather helps a stage with much
work than that it begins one which that work will feed: else the last stages would wait for
one worker of the stage before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from cluster.placement import may_follow, worth_another
from generators.base import StageSpec

Queue = TypeVar("Queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A stage with jobs that wait, and its claim to a worker."""

    spec: StageSpec
    rank: int
    """Position in the chains: lower ranks feed higher ones."""
    pending: float
    workers: int
    """That it has."""
    batch_size: int
    at_hand: bool
    """Whether a process whose stage has ended may load the stage."""
    growing: bool
    """Whether stages before it may give it more jobs."""
    max_workers: int | None = None
    """How many it can have, once that has turned out."""

    @property
    def is_worth_another(self) -> bool:
        """Whether enough work waits to start another worker."""
        if self.max_workers is not None and self.workers >= self.max_workers:
            return False
        return worth_another(
            self.spec.placement,
            self.pending,
            self.workers,
            self.batch_size,
            at_hand=self.at_hand,
        )

    @property
    def _is_helped(self) -> bool:
        """Whether a process at hand is worth being another of its workers."""
        return self.at_hand and self.workers > 0 and self.is_worth_another

    def _comes_after(self, helped: Claim) -> bool:
        """Whether it has no worker yet, and a process first helps the one before it."""
        follows = helped.rank < self.rank and may_follow(helped.spec, self.spec)
        return follows and self.growing and not self.workers


def served(claims: Mapping[Queue, Claim]) -> dict[Queue, Claim]:
    """Those that may get a worker in this turn, in the order of their stages."""
    helped = [claim for claim in claims.values() if claim._is_helped]
    ordered = sorted(claims.items(), key=lambda item: item[1].rank)
    return {
        queue: claim
        for queue, claim in ordered
        if not any(claim._comes_after(other) for other in helped)
    }
