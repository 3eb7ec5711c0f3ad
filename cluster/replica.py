"""One worker process as the driver sees it, from being asked for until it is gone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from cluster.actors import Handle
from cluster.placement import Need
from cluster.pool import Batch, StagePool
from cluster.worker import Hello

State = Literal["starting", "loading", "ready", "leaving"]

_IN_FLIGHT = 2
"""Batches per worker: one computes while the next one's inputs are read."""
_SHORT_BATCH_S = 0.02
_IN_FLIGHT_SHORT = 6
"""As above where a batch computes for less time than a message takes both ways."""
_HANG_MARGIN_S = 60.0


@dataclass(eq=False)
class Replica:
    """A worker of one stage."""

    pool: StagePool
    handle: Handle
    state: State = "starting"
    since: float = field(default_factory=time.monotonic)
    """When it entered its state."""
    heard: float = field(default_factory=time.monotonic)
    """When it last gave a receipt, or was given work after idleness."""
    hello: Hello | None = None
    shared: bool = True
    """Whether driver and worker see the same run directory."""
    in_flight: dict[Any, Batch] = field(default_factory=dict)
    busy_s: float = 1.0
    """How long its last batch computed."""
    exclusive: bool = False
    """It has a batch that must not share the worker with another."""

    def become(self, state: State) -> None:
        """Enter a state."""
        self.state, self.since = state, time.monotonic()

    @property
    def need(self) -> Need:
        """What it takes of its node."""
        return Need.of_placement(self.pool.spec.placement)

    @property
    def idle(self) -> bool:
        """Ready, with nothing to do and nothing waiting for it."""
        return self.state == "ready" and not self.in_flight and not self.pool.pending

    @property
    def patience_s(self) -> float:
        """Silence after which it counts as hung: it enforces its own limit before."""
        return _IN_FLIGHT * self.pool.spec.placement.batch_timeout_s + _HANG_MARGIN_S

    def depth(self, others: int) -> int:
        """Batches it may have in flight, `others` being those of its endpoint elsewhere."""
        placement = self.pool.spec.placement
        if placement.endpoint is not None:
            return placement.concurrency - others
        return _IN_FLIGHT if self.busy_s > _SHORT_BATCH_S else _IN_FLIGHT_SHORT
