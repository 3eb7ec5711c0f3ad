"""A user's own scorer, named `module:Class`: a stage of kind "score" and nothing else.

Class attributes say how to read its values: `scale`, `LOW-HIGH` such as `0-10` (values
beyond it are failures; without it any finite number counts), and `direction`, `higher`
(the default) or `lower`, whichever is better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from generators.base import Job, Kind, Walk, WeightsName, imported
from generators.custom import custom_spec
from generators.document import Candidate, Document, Sample, Score
from generators.names import unknown
from scorers.base import DIRECTIONS, UNBOUNDED, Direction, OneStage


@dataclass(frozen=True, slots=True)
class CustomScorer(OneStage):
    """Gives the stage an answer with its question, ground truth and criteria."""

    scale: str = UNBOUNDED
    direction: Direction = "higher"

    def judge(self, sample: Sample, document: Document) -> Walk[Score]:
        """Return one job per document."""
        candidate = Candidate(document, sample.question, sample.reference, sample.criteria)
        return (yield [Job(self.stage, candidate, sample.id)])[0]


def custom_scorer(
    name: str, weights: WeightsName, overrides: Mapping[str, Any]
) -> CustomScorer:
    """Return the scorer of `module:Class`; UsageError for an invalid direction."""
    stage = custom_spec(name, weights, overrides, [Kind.SCORE])
    cls = imported(stage.target)
    scale, direction = getattr(cls, "scale", UNBOUNDED), getattr(cls, "direction", "higher")
    if direction not in DIRECTIONS:
        raise unknown(f"direction of scorer {name!r}", str(direction), DIRECTIONS)
    return CustomScorer(name, stage, str(scale), direction)
