"""Options of the engine and the progress it reports; imports no Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How the engine runs; none of it changes a result."""

    address: str | None = None
    """Ray address; None for a local Ray that lives as long as the command."""
    placement_timeout_s: float = 600.0
    """How long a stage may wait for resources before it is given up."""
    grace_s: float = 10.0
    """How long an interrupted run waits for batches in flight."""
    max_cost: float | None = None
    """What all endpoints together may cost over the life of the run directory."""
    only_scorers: bool = False
    """Score existing documents and make no new ones."""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Progress of one stage."""

    name: str
    total: int
    outcomes: Mapping[str, int]
    made: int
    """Records made by this command."""
    workers: int
    state: str
    """`waiting`, `loading`, `running`, `idle` or `unusable`."""
    seconds: float
    """Since the stage's first record was made."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Tokens, images, steps and cost of the records made by this command."""
