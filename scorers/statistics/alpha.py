"""Krippendorff's alpha: how far people agree with one another beyond chance.

K. Krippendorff, Computing Krippendorff's Alpha-Reliability (2011). 1 is perfect agreement,
0 that of chance. People need not have rated the same, and what one alone has rated is left
out. Intervals resample queries with all that is known of them, as Zapf et al. (2016, BMC
Medical Research Methodology 16:93) resample units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
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
    # In one order, since sums of floats must not depend on it.
    units = sorted((q, sorted(by.values())) for q, by in ratings if len(by) > 1)
    if not units:
        return Estimate(None, None, 0, "nothing is rated by two")
    levels = sorted(set(chain.from_iterable(values for _, values in units)))
    rows = []
    for _, values in units:
        rows.append([values.count(level) for level in levels])
    counts = np.array(rows, float)
    apart = 1 - np.eye(len(levels))
    if level == "interval":
        apart = np.subtract.outer(levels, levels).astype(float) ** 2
    queries, query = np.unique([q for q, _ in units], return_inverse=True)
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
    """
    # A value is compared with the others of its unit and not with itself: 1 is taken off,
    # and likewise below, of all values.
    within = ((counts @ apart) * counts).sum(1) / (counts.sum(1) - 1)
    totals = w @ counts
    chance = ((totals @ apart) * totals).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = (totals.sum(1) - 1) * (w @ within)
        return np.where(chance > 0, 1 - observed / chance, np.nan)
