"""What is told of a judge's bias: estimates with their n, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scorers.statistics.bootstrap import estimate, weights
from scorers.statistics.estimate import Estimate, Floats
from scorers.statistics.means import pooled_mean

Observation = tuple[str, float]
"""A question, which is what intervals draw again, and a value observed on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One measure of one judge."""

    judge: str
    measure: str
    estimate: Estimate
    """Its n is the number of questions."""
    judgements: int
    """Comparisons, of one question or several, that the value is made of."""

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        about = {"judge": self.judge, "measure": self.measure}
        return about | self.estimate.as_json() | {"judgements": self.judgements}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One kind of bias."""

    name: str
    title: str
    findings: tuple[Finding, ...]
    absent: tuple[str, ...]
    """What could not be computed, and why."""

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        found = [f.as_json() for f in self.findings]
        return {"title": self.title, "findings": found, "absent": list(self.absent)}


def finding(judge: str, measure: str, observed: Sequence[Observation]) -> Finding:
    """The mean of `observed`, with its interval by question."""
    return Finding(
        judge=judge,
        measure=measure,
        estimate=mean_of(observed),
        judgements=len(observed),
    )


def mean_of(observed: Sequence[Observation]) -> Estimate:
    """The mean over all observations; the question is the independent unit."""
    if not observed:
        return Estimate(None, None, 0, "nothing to compare")
    return pooled_mean(*zip(*observed, strict=True))


def rank_correlation(observed: Sequence[tuple[str, float, float]]) -> Estimate:
    """Spearman's coefficient of two differences within pairs, -1 to 1.

    The naming of a pair's sides is arbitrary, so every pair counts in both directions:
    the ranks are those of the values and their negatives together.
    """
    from scipy.stats import rankdata

    if not observed:
        return Estimate(None, None, 0, "nothing to compare")
    values = np.array([(x, y) for _, x, y in observed])
    both = np.concatenate([values, -values])
    ranks = (rankdata(both, axis=0) - (len(both) + 1) / 2)[: len(values)]
    products = np.column_stack([ranks.prod(1), ranks**2])
    names, sums = _by_question(
        [(o[0], list(p)) for o, p in zip(observed, products, strict=True)]
    )
    value = _cosine(sums.sum(0, keepdims=True))[0]
    if np.isnan(value):
        return Estimate(None, None, len(names), "one of the two does not vary")
    return estimate(float(value), _cosine(weights(names) @ sums), len(names))


def _cosine(sums: Floats) -> Floats:
    """(n,) from (n, 3): sums of x*y, x*x and y*y."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[:, 0] / np.sqrt(sums[:, 1] * sums[:, 2]))


def _by_question(
    rows: Sequence[tuple[str, Sequence[float]]],
) -> tuple[list[str], Floats]:
    """Questions in order, and (questions, columns) sums of their rows."""
    names = sorted({name for name, _ in rows})
    place = {name: i for i, name in enumerate(names)}
    sums = np.zeros((len(names), len(rows[0][1])))
    for name, values in rows:
        sums[place[name]] += values
    return names, sums
