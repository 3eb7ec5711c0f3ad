"""Settings of the stage that reads documents of the miniature world."""

from __future__ import annotations

from typing import ClassVar

from generators.base import Kind
from generators.settings import WeightlessSettings, unkeyed

NOT_APPLICABLE, UNSCORED = "not_applicable", "unscored"
"""Names in the stage's `parts` of a reason that stands in place of a value."""

SHOWN = "shown"
"""Name in `parts` of what each picture of the document shows, in words."""


class TruthSettings(WeightlessSettings):
    """How documents of the miniature world are read."""

    kind: ClassVar[Kind] = Kind.SCORE
    stage: ClassVar[str] = "truth"
    target: ClassVar[str] = "scorers.truth.stage:TruthReader"

    batch_size: int = unkeyed(64, ge=1)
    """Documents read at once."""
    num_cpus: float = unkeyed(0.5, ge=0)
    """CPU cores of one replica."""
