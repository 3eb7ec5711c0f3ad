"""What the ways do to a leaderboard: each way's mean score, and paired differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.fidelity.answers import Documents, FaultTolerantStages, WayAnswers, release
from benchmarks.fidelity.ways import ResolvedWay
from benchmarks.results.board import score_value
from cluster.local import drive
from cluster.store import read_blob
from cluster.walks import together
from generators.base import Failure, Fault, Outcome, Result
from generators.document import Document, Sample, Score
from scorers.base import Scorer, admitted
from scorers.statistics.estimate import Estimate, Floats
from scorers.statistics.means import mean, paired

Answer = tuple[str, Document]
"""A sample's id and one answer to it: equal answers are scored once."""
Verdicts = tuple[Outcome[Any], ...]
"""One per sample: of the scorer, or of the way where there is no answer."""
"""A sample's id and one answer to it: equal answers are scored once."""


@dataclass(frozen=True, kw_only=True)
class WayScore:
    """One scorer on one way."""

    scorer: str
    scale: str
    direction: str
    way: str
    mean: Estimate
    difference: Estimate | None
    """Mean of this way's score minus the reference's, paired by query; None for the
    reference itself."""
    repeat: Estimate | None
    """The same of the second round minus the first; None where there was one round."""
    without: Mapping[str, int]
    """Queries without a score in the first round, by reason."""

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        about = {"scorer": self.scorer, "scale": self.scale, "direction": self.direction}
        estimates = {"mean": self.mean, "difference": self.difference}
        estimates["repeat"] = self.repeat
        values = {k: None if e is None else e.as_json() for k, e in estimates.items()}
        return {**about, "way": self.way, **values, "without_score": dict(self.without)}


def scores_of(
    scorer: Scorer, samples: Sequence[Sample], ways: Sequence[WayAnswers]
) -> list[WayScore]:
    """The scores of every way, the reference first; one that did not run has none."""
    documents = {
        way.way.label: [_scored(way.way, samples, d) for d in way.rounds[:2]]
        for way in ways
    }
    known = judged(scorer, samples, [d for rounds in documents.values() for d in rounds])
    verdicts = {
        label: [_verdicts(samples, d, known) for d in rounds or [_not_run(samples)]]
        for label, rounds in documents.items()
    }
    reference = _column(verdicts[ways[0].way.label][0])
    return [
        _way_score(scorer, label, own, None if i == 0 else reference)
        for i, (label, own) in enumerate(verdicts.items())
    ]


def _way_score(
    scorer: Scorer, label: str, verdicts: list[Verdicts], reference: Floats | None
) -> WayScore:
    own = [_column(column) for column in verdicts]
    reasons = Counter(v.reason for v in verdicts[0] if not isinstance(v, Result))
    return WayScore(
        scorer=scorer.name,
        scale=scorer.scale,
        direction=scorer.direction,
        way=label,
        mean=mean(own[0]),
        difference=None if reference is None else mean(paired(own[0], reference)),
        repeat=mean(paired(own[1], own[0])) if len(own) > 1 else None,
        without=dict(reasons.most_common()),
    )


def _scored(way: ResolvedWay, samples: Sequence[Sample], documents: Documents) -> Documents:
    return tuple(
        replace(outcome, value=way.scored(sample, outcome.value))
        if isinstance(outcome, Result)
        else outcome
        for sample, outcome in zip(samples, documents, strict=True)
    )


def _not_run(samples: Sequence[Sample]) -> Documents:
    return tuple(Failure("the way could not be run", Fault.ERROR) for _ in samples)


def judged(
    scorer: Scorer, samples: Sequence[Sample], rounds: Sequence[Documents]
) -> Mapping[Answer, Outcome[Score]]:
    """The verdict on every different answer; a judge that raises makes failures."""
    asked: dict[Answer, Sample] = {}
    for documents in rounds:
        for sample, outcome in zip(samples, documents, strict=True):
            if isinstance(outcome, Result):
                asked[sample.id, outcome.value] = sample
    stages = FaultTolerantStages(read_blob, in_batches=True)
    walks = [scorer.judge(sample, document) for (_, document), sample in asked.items()]
    try:
        outcomes = drive(together(walks), stages.outcomes)
    finally:
        release(stages)
    return {a: admitted(o, scorer.scale) for a, o in zip(asked, outcomes, strict=True)}


def _verdicts(
    samples: Sequence[Sample], documents: Documents, known: Mapping[Answer, Outcome[Score]]
) -> Verdicts:
    """The verdict on each answer, or why there is no answer."""
    return tuple(
        known[sample.id, outcome.value] if isinstance(outcome, Result) else outcome
        for sample, outcome in zip(samples, documents, strict=True)
    )


def _column(verdicts: Verdicts) -> Floats:
    """(samples,) scores; NaN where there is none."""
    values = (score_value(verdict) for verdict in verdicts)
    return np.array([np.nan if v is None else v for v in values], dtype=np.float64)
