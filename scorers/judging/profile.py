"""The mean of each criterion over many scores (MMIE, Figure 4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from generators.document import Score


class CriterionMean(NamedTuple):
    """How often a criterion is met."""

    mean: float
    """In [0, 1]; for the penalty, the share of answers it is imposed on."""
    n: int
    """Scores with a verdict on it."""


def profile(scores: Iterable[Score]) -> dict[str, CriterionMean]:
    """By criterion, in the rubric's order, `penalty` last; without those never judged."""
    found: dict[str, list[int]] = {}
    for score in scores:
        for name, verdict in _verdicts(score).items():
            if verdict is not None:
                found.setdefault(name, []).append(verdict)
    last = {"penalty": found.pop("penalty")} if "penalty" in found else {}
    return {n: CriterionMean(sum(v) / len(v), len(v)) for n, v in (found | last).items()}


def _verdicts(score: Score) -> dict[str, int | None]:
    criteria = dict(score.parts.get("criteria", {}))
    return criteria | {"penalty": score.parts.get("penalty")}
