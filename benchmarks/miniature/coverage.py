"""Do intervals cover? Many small studies drawn from one large set of answers."""

from __future__ import annotations

import numpy as np

from scorers.statistics.estimate import Estimate, Floats
from scorers.statistics.means import mean

STUDIES = 1000
"""Small studies that are drawn."""
QUERIES, REPEATS = 30, 3
"""Queries of one study, and answers to each."""


def coverage(values: Floats, seed: int = 0, *, by_query: bool = True) -> Estimate:
    """The share of small studies whose interval holds the mean over everything.

    Args:
        values: (queries, repeats) scores of all answers; none missing.
        seed: Of the draw.
        by_query: Whether a study's answers to one query count as their mean, as they do
            in every table; otherwise as if they were independent, which they are not.

    Returns:
        Over the studies that have an interval, which are `n`.
    """
    rng, whole = np.random.default_rng(seed), float(values.mean())
    hits = [_covers(_study(values, rng, by_query), whole) for _ in range(STUDIES)]
    known = [float(hit) for hit in hits if hit is not None]
    return mean(known) if known else Estimate(None, None, 0, "no study has an interval")


def _study(values: Floats, rng: np.random.Generator, by_query: bool) -> Estimate:
    """Queries drawn one by one from all, each with some of its answers."""
    rows = rng.integers(len(values), size=QUERIES)
    few = min(REPEATS, values.shape[1])
    answers = np.stack([rng.permutation(values[row])[:few] for row in rows])
    return mean(answers.mean(axis=1) if by_query else answers.ravel())


def _covers(estimate: Estimate, whole: float) -> bool | None:
    if estimate.ci95 is None:
        return None
    return estimate.ci95[0] <= whole <= estimate.ci95[1]
