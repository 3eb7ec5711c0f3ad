"""Krippendorff's alpha: how far people agree with one another beyond chance.

K. Krippendorff, Computing Krippendorff's Alpha-Reliability (2011). 1 is perfect agreement,
0 that of chance. People need not have rated the same, and what one alone has rated is left
out. Intervals resample queries with all that is known of them, as Zapf et al. (2016, BMC
Medical Research Methodology 16:93) resample units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from plait.scorers.statistics.estimate import (
    DRAWS,
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)

Level = Literal["nominal", "interval"]
"""Of measurement: two values differ or do not; or by the square of their distance."""


def krippendorff(
    ratings: Sequence[tuple[str, Mapping[str, float | str]]],
    level: Level,
    draws: int = DRAWS,
) -> Estimate:
    """Return alpha of `ratings`, (query, value by annotator) of each rated unit.

    `n` is the number of units that several have rated.
    """
    units = []
    values = set[float | str]()
    for rated, by_annotator in ratings:
        # What one alone has rated is no evidence of agreement.
        if len(by_annotator) > 1:
            units.append((rated, sorted(by_annotator.values())))
            values.update(by_annotator.values())
    if not units:
        return Estimate(None, None, 0, "nothing is rated by two")
    # In one order, since sums of floats must not depend on it.
    units.sort()
    levels = sorted(values)
    counts = np.zeros((len(units), len(levels)))
    for row, (_, given) in enumerate(units):
        counts[row] = [given.count(value) for value in levels]
    apart = 1 - np.eye(len(levels))
    if level == "interval":
        apart = np.subtract.outer(levels, levels).astype(float) ** 2
    rated_queries = [rated for rated, _ in units]
    queries, query = np.unique(rated_queries, return_inverse=True)
    plain = float(_alpha(counts, apart, np.ones((1, len(units))))[0])
    if np.isnan(plain):
        return Estimate(None, None, len(units), "undefined: all values are the same")
    resampled = bootstrap_weights(queries.tolist(), draws)[:, query]
    value = bootstrap_estimate(plain, _alpha(counts, apart, resampled), len(queries))
    return replace(value, n=len(units))


def _alpha(counts: Floats, apart: Floats, w: Floats) -> Floats:
    """Return (draws,) alpha where each unit is drawn as often as `w` (draws, units) says.

    `counts` (units, levels) is how many gave a unit each value, `apart` (levels, levels)
    how different two values are. NaN where all values are the same.

        alpha = 1 - D_observed / D_expected

    Of n values in all, D_observed is the mean difference within units, and D_expected
    that of any two of the n values: `within` over n, and `chance` over n (n - 1).
    """
    # A value is compared with the others of its unit and not with itself: 1 is taken off,
    # and likewise below, of all values.
    within = ((counts @ apart) * counts).sum(1) / (counts.sum(1) - 1)
    totals = w @ counts
    chance = ((totals @ apart) * totals).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = (totals.sum(1) - 1) * (w @ within)
        return np.where(chance > 0, 1 - observed / chance, np.nan)
