"""A user's own scorer, named `module:Class`: a stage of kind "score" and nothing else.

Class attributes say how to read its values: `scale`, `LOW-HIGH` such as `0-10` (values
beyond it are failures; without it any finite number counts), and `direction`, `higher`
(the default) or `lower`, whichever is better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from generators.base import Kind, WeightsName, imported
from generators.custom import custom_spec
from generators.document import Candidate, Document, Sample
from generators.errors import UsageError
from generators.names import unknown
from scorers.base import DIRECTIONS, UNBOUNDED, Scorer, bounds


@dataclass(frozen=True, slots=True)
class CustomScorer(Scorer):
    """Scores with a user's stage."""

    def candidate(self, query: Sample, document: Document) -> Candidate:
        """Return an answer with its question, ground truth and criteria."""
        return Candidate(document, query.question, query.reference, query.criteria)


def custom_scorer(
    name: str, weights: WeightsName, overrides: Mapping[str, Any]
) -> CustomScorer:
    """Return the scorer of `module:Class`; UsageError for an invalid scale or direction."""
    stage = custom_spec(name, weights, overrides, [Kind.SCORE])
    cls = imported(stage.target)
    scale, direction = getattr(cls, "scale", UNBOUNDED), getattr(cls, "direction", "higher")
    if direction not in DIRECTIONS:
        raise unknown(f"direction of scorer {name!r}", str(direction), DIRECTIONS)
    if (ends := bounds(str(scale))) and ends[0] >= ends[1]:
        raise UsageError(
            f"scale {scale!r} of scorer {name!r} is not valid: the lower end comes first, "
            "as in '0-10'"
        )
    return CustomScorer(name, stage, str(scale), direction)
