"""Deaths of workers that were still loading: when they are the stage's own fault.

A model too large for a machine's memory kills its worker on any machine, at every attempt.
A machine that is taken away kills one as well, and may still be listed for some seconds;
that says nothing of the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from cluster.stage_queue import StageQueue

MOST_DEATHS = 3
"""Deaths while loading, on one node that lives on, after which a stage is not loadable."""
SETTLING_S = 45.0
"""How long a node must outlive a worker before the death counts; Ray takes up to half a
minute to notice that a node is gone."""


@dataclass
class _Deaths:
    """Deaths of one stage's workers on one node."""

    counted: int = 0
    last_at: float | None = None
    """When the last of them was noticed, while it is not counted yet."""
    reason: str = ""


@dataclass
class LoadingDeaths:
    """Counts deaths by stage and node; forgets nodes that have gone."""

    clock: Callable[[], float]
    settling_s: float = SETTLING_S
    """0 where nodes do not come and go."""
    _deaths: dict[tuple[StageQueue, str], _Deaths] = field(default_factory=dict)

    def add(self, stage: StageQueue, node: str, reason: str) -> None:
        """A worker of `stage` died on `node` before it was ready."""
        deaths = self._deaths.setdefault((stage, node), _Deaths())
        deaths.last_at, deaths.reason = self.clock(), reason

    def clear(self, stage: StageQueue) -> None:
        """A worker of `stage` has loaded: it can be done."""
        for key in [key for key in self._deaths if key[0] is stage]:
            del self._deaths[key]

    def avoided(self, stage: StageQueue) -> set[str]:
        """Nodes on which a death has yet to prove the stage's own fault."""
        return {
            node
            for (own, node), deaths in self._deaths.items()
            if own is stage and deaths.last_at is not None
        }

    def hopeless(self, alive: Collection[str]) -> dict[StageQueue, str]:
        """Stages that died too often on a node still `alive`, with the reason."""
        now = self.clock()
        for key in [key for key in self._deaths if key[1] not in alive]:
            del self._deaths[key]
        for deaths in self._deaths.values():
            if deaths.last_at is not None and now - deaths.last_at >= self.settling_s:
                deaths.counted, deaths.last_at = deaths.counted + 1, None
        return {
            stage: f"{deaths.reason}, {MOST_DEATHS} times in a row while loading"
            for (stage, _), deaths in self._deaths.items()
            if deaths.counted >= MOST_DEATHS
        }
