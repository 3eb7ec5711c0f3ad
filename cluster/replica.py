"""One worker process as the driver sees it, from its start until it has ended."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from cluster.actors import Handle
from cluster.placement import Resources
from cluster.stage_queue import Batch, StageQueue
from cluster.worker import WorkerInfo

State = Literal["starting", "loading", "ready", "stopping"]

_IN_FLIGHT = 2
"""Batches per worker: one is computed while the inputs of the next are read."""
_SHORT_BATCH_S = 0.02
_IN_FLIGHT_SHORT = 6
"""The same, where a batch takes less time than a message and its reply."""
_HANG_MARGIN_S = 60.0


@dataclass(eq=False)
class Replica:
    """A worker of one stage."""

    queue: StageQueue
    handle: Handle
    state: State = "starting"
    since: float = field(default_factory=time.monotonic)
    """When it entered its state."""
    last_heard: float = field(default_factory=time.monotonic)
    """When it last returned a receipt, or was sent a batch after being idle."""
    info: WorkerInfo | None = None
    shared: bool = True
    """Whether driver and worker see the same run directory."""
    in_flight: dict[Any, Batch] = field(default_factory=dict)
    busy_s: float = 1.0
    """How long its last batch computed."""
    exclusive: bool = False
    """It has a batch that must not share the worker with another."""

    def enter(self, state: State) -> None:
        """Enter a state."""
        self.state, self.since = state, time.monotonic()

    @property
    def need(self) -> Resources:
        """The resources it takes of its node."""
        return Resources.of_placement(self.queue.spec.placement)

    @property
    def idle(self) -> bool:
        """Ready, with nothing to do and nothing waiting for it."""
        return self.state == "ready" and not self.in_flight and not self.queue.pending

    @property
    def silence_limit_s(self) -> float:
        """Silence after which it counts as hung; it enforces its own limit earlier."""
        return _IN_FLIGHT * self.queue.spec.placement.batch_timeout_s + _HANG_MARGIN_S

    def depth(self, others: int) -> int:
        """Batches it may have in flight, `others` being those of its endpoint elsewhere."""
        placement = self.queue.spec.placement
        if placement.endpoint is not None:
            return placement.concurrency - others
        return _IN_FLIGHT if self.busy_s > _SHORT_BATCH_S else _IN_FLIGHT_SHORT
