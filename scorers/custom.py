"""A user's own scorer, named `module:Class`: a stage of kind "score" and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from generators.base import Job, Kind, StageSpec, Walk, Weights
from generators.custom import custom_spec
from generators.document import Candidate, Document, Sample, Score
from scorers.base import OneStage


@dataclass(frozen=True, slots=True)
class CustomScorer(OneStage):
    """Gives the stage everything there is to know of an answer."""

    name: str
    stage: StageSpec
    scale: str

    def judge(self, sample: Sample, document: Document) -> Walk[Score]:
        """One job per document."""
        candidate = Candidate(document, sample.question, sample.reference, sample.criteria)
        return (yield [Job(self.stage, candidate, sample.id)])[0]


def custom_scorer(
    name: str, weights: Weights, overrides: Mapping[str, Any]
) -> CustomScorer:
    """The scorer of `module:Class`; its attribute `scale` heads the table."""
    stage, cls = custom_spec(name, weights, overrides, [Kind.SCORE])
    return CustomScorer(name, stage, str(getattr(cls, "scale", "its own")))
