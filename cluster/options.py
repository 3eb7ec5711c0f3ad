"""What the engine is told, and what it tells: no Ray in here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How the engine runs; none of it changes a result."""

    address: str | None = None
    """Ray address; None for a local Ray that lives as long as the command."""
    placement_timeout_s: float = 600.0
    """How long a stage may wait for a place on the cluster before it is given up."""
    grace_s: float = 10.0
    """How long an interrupted run waits for batches in flight."""
    max_cost: float | None = None
    """What all endpoints together may cost over the life of the run directory."""
    only_scorers: bool = False
    """Score the documents that are there, and make no new ones."""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Where one stage stands, for whoever watches."""

    name: str
    total: int
    outcomes: Mapping[str, int]
    fresh: int
    """Records made by this command."""
    workers: int
    state: str
    """`waiting`, `loading`, `running`, `idle` or `unusable`."""
    seconds: float
    """Since the stage's first record was made."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Tokens, images, steps and cost of the records made by this command."""
