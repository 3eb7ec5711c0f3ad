"""Scorers on answers of the miniature world, their stages loaded once in this process."""

from __future__ import annotations

from typing import Any

from plait.benchmarks.tasks.miniature.reader import read_queries
from plait.cluster.local import LocalStages
from plait.cluster.walks import drive
from plait.generators.base import Outcome
from plait.generators.document import Document, Query, Score
from plait.scorers import resolve_scorer
from plait.scorers.base import Scorer

JUDGE = "judge:mmie-score"
SAMPLES = read_queries(12)
STAGES = LocalStages()


def made(name: str, **settings: Any) -> Scorer:
    few = {"max_new_tokens": 8, "retries": 0} if name == JUDGE else {}
    return resolve_scorer(name, "tiny", few | settings)


def scored(name: str, sample: Query, document: Document) -> Outcome[Score]:
    """The outcome of one document."""
    return drive(made(name).judge(sample, document), STAGES.outcomes)


def truth_of(sample: Query) -> Document:
    assert sample.reference is not None
    return sample.reference


def first(category: str, after: int = 0) -> Query:
    """The first query of a category, or one `after` it."""
    return [sample for sample in SAMPLES if sample.category == category][after]
