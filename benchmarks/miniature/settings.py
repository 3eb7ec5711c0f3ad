"""What `plait bench miniature` is asked, and the names of what it measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.local import LocalScorer, LocalSystem
from benchmarks.tasks.mmie.prompts import prompts
from generators.base import WeightsName
from pipelines.systems import Models

WRITER, ARTISTS, NATIVE = "qwen2-vl-7b", ("openjourney", "sdxl"), "anole"
BEST, WEAKER = "openjourney", "openjourney-early"
"""An artist, and an earlier checkpoint of its training, which must score lower."""
JUDGE, TRUTH, CLIP = "judge:mmie-score", "truth:answer", "clipscore"
Say = Callable[[str], None]
"""Is given a line of progress."""


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """How much is measured, and of which weights."""

    weights: WeightsName
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings by the model's name, as `[models.NAME]` of a config."""
    out: Path
    """Folder of the runs and of the results."""
    scenes: int = 200
    """Pictures and captions, and drawings of each artist."""
    queries: int = 60
    """Of the run of all systems."""
    repeats: int = 6
    """Answers per query, to see whether intervals cover."""
    seed: int = 0

    @property
    def asked(self) -> Models:
        """As systems are resolved."""
        return Models(weights=self.weights, overrides=self.models)

    def scorer(self, name: str) -> LocalScorer:
        """A scorer in this process; PlaitError where it is not to be had."""
        return LocalScorer.named(name, weights=self.weights, models=self.models)

    def system(self, name: str) -> LocalSystem:
        """A system in this process, asked as in a run; PlaitError where it is not there."""
        return LocalSystem.named(
            name,
            weights=self.weights,
            models=self.models,
            seed=self.seed,
            prompt=prompts(),
        )
