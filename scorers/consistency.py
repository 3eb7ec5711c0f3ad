"""Do the pictures of a document look alike? Their mean similarity in CLIP's features.

The value is the mean cosine over all pairs of a document's pictures, from -1 to 1: style
and subject held from picture to picture, as criterion 6 of the MMIE paper asks (appendix
A.9). It reads the record that `clipscore` makes, so with equal settings the two share
every forward pass, and either alone makes the other's records.

It sees no text and no order: pictures all taken from one other answer score as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from generators.base import Job, NotApplicable, Result, StageSpec, Unscored, Walk, Weights
from generators.document import Candidate, Document, Sample, Score
from generators.names import with_overrides
from scorers.base import Direction, OneStage
from scorers.clipscore import ClipSettings


@dataclass(frozen=True, slots=True)
class ConsistencyScorer(OneStage):
    """Scores how alike the pictures of a document are."""

    stage: StageSpec
    name: str = "consistency"
    scale: str = "-1-1"
    direction: Direction = "higher"

    def judge(self, sample: Sample, document: Document) -> Walk[Score]:
        """The job that `clipscore` gives, and another reading of its record.

        A document without text has no such record: it is Unscored.
        """
        if not sample.wants_images:
            return NotApplicable("the query asks for no pictures")
        if len(document.images) < 2:
            return Unscored("the document holds fewer than two pictures")
        outcome = (yield [Job(self.stage, Candidate(document), sample.id)])[0]
        if not isinstance(outcome, Result):
            return outcome
        parts = outcome.value.parts
        if parts["likeness"] is None:
            return Unscored("fewer than two pictures have text beside them")
        return Result(Score(parts["likeness"], {"pictures": parts["scored_pairs"]}))


def consistency(
    weights: Weights, overrides: Mapping[str, Any], gpu_gib: float = 80.0
) -> ConsistencyScorer:
    """The scorer `consistency`; `overrides` are settings of `clipscore`'s stage."""
    settings = with_overrides(ClipSettings(), overrides, "consistency")
    # Named as clipscore's, since a stage's records lie in a folder of its name.
    return ConsistencyScorer(settings.spec("clipscore", weights, gpu_gib))
