"""Several comparisons at once: p-values, their correction, and the ranks that they leave.

    p = paired_p_value(differences, ends)       # of one pair of systems
    adjusted = correct([p, ...])                # of all pairs, Holm's
    rank_ranges(["a", "b", "c"], {("a", "b")})  # a is better than b: {"a": (1, 2), ...}

Of all pairs of `k` systems some differ by chance. Holm's procedure keeps the probability
of a single wrong "differs" among all of them at 5%, whichever systems are equal, and
compares every pair, so that it also holds for the pairs with the system that happens to be
the best. statsmodels computes the same adjustment, but needs pandas and takes seconds to
import.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import numpy as np

from plait.scorers.statistics.estimate import CONFIDENCE, EQUAL, Floats
from plait.scorers.statistics.means import UNBOUNDED, Ends

Correction = Literal["holm", "none"]
CORRECTIONS: dict[Correction, str] = {"holm": "Holm", "none": "not corrected"}
"""With how they are named in tables."""
LEVEL = 1 - CONFIDENCE


def paired_p_value(differences: Floats, ends: Ends = UNBOUNDED) -> float | None:
    """Return the two-sided p-value of paired differences whose mean would be 0.

    `differences` are (n,), one per query, NaN for a query without both scores; None where
    there is none. `ends` are the least and the greatest possible difference.

    The test of which the intervals of `means.mean` are the inversion: the error of the mean
    is the one that it would have at 0. Where all differences that are not 0 are of one
    size, such as of answers that are right or wrong, it is the exact sign test (McNemar
    1947, Psychometrika 12:153). Of `k` differences that are not 0, no test that takes two
    equal systems for exchangeable gives less than 2 / 2^k, and neither does this one.
    """
    sample = np.sort(differences[~np.isnan(differences)])
    if not len(sample):
        return None
    sizes = np.abs(sample[np.abs(sample) > EQUAL])
    if not len(sizes):
        return 1.0
    positive = int((sample > EQUAL).sum())
    if np.ptp(sizes) <= EQUAL * sizes.max():
        return _sign_test(positive, len(sizes))
    return max(_t_test(sample, ends), 2.0 ** (1 - len(sizes)))


def _sign_test(positive: int, n: int) -> float:
    """Return the exact p-value of so many positive ones among `n` that are not 0."""
    from scipy import special

    tail = float(special.bdtr(min(positive, n - positive), n, 0.5))
    return min(1.0, 2 * tail)


def _t_test(sample: Floats, ends: Ends) -> float:
    """Return the p-value of a mean of 0, by the variance that such a mean would have."""
    from scipy import special

    n = len(sample)
    # In units of a power of two, in which nothing overflows or vanishes.
    unit = math.frexp(float(np.abs(sample).max()))[1]
    sample = np.ldexp(sample, -unit)
    mean = float(np.add.reduce(sample)) / n
    deviations = sample - mean
    variance = float(np.add.reduce(deviations * deviations)) / (n - 1) / n
    greatest = math.ldexp(ends[1], -unit)
    # On a scale from -g to g the variance goes with (g + m) (g - m): back from m to 0.
    if math.isfinite(greatest) and abs(mean) < greatest:
        variance *= greatest**2 / (greatest**2 - mean**2)
    if variance <= 0:
        return 0.0
    return float(2 * special.stdtr(n - 1, -abs(mean) / math.sqrt(variance)))


def correct(
    p_values: Sequence[float | None], correction: Correction = "holm"
) -> list[float | None]:
    """Return the adjusted p-values of one family of comparisons, None where there is none.

    A pair differs at 5% where its adjusted p-value is below 0.05. Holm 1979, Scandinavian
    Journal of Statistics 6:65: the i-th smallest of m is multiplied by m - i + 1, and none
    is below the one before it.
    """
    known = [i for i, p in enumerate(p_values) if p is not None]
    adjusted: list[float | None] = [*p_values]
    if correction == "none":
        return adjusted
    least = 0.0
    known.sort(key=lambda i: p_values[i] or 0.0)
    for place, i in enumerate(known):
        # A larger p-value has a smaller factor, and must not come out below the one before.
        least = max(least, min(1.0, (len(known) - place) * (p_values[i] or 0.0)))
        adjusted[i] = least
    return adjusted


def rank_ranges(
    names: Iterable[str], better: Collection[tuple[str, str]]
) -> dict[str, tuple[int, int]]:
    """Return the best and the worst rank that each of `names` may have.

    `better` holds the pairs of which the first is shown to be better than the second. Where
    all pairs are shown together with a probability of 95% (`correct`), so are all ranks
    (Mogstad, Romano, Shaikh and Wilhelm 2024, Review of Economic Studies 91:476).
    """
    every = [*names]
    ranges = {}
    for name in every:
        above = sum((other, name) in better for other in every)
        below = sum((name, other) in better for other in every)
        ranges[name] = 1 + above, len(every) - below
    return ranges
