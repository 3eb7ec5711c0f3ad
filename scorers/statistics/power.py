"""How many queries tell two systems apart: the power of the paired t test.

    queries_needed(difference=2.0, sd=9.0)      # at power 0.8
    detectable(sd=9.0, n=50)                    # the smallest such difference

The t statistic of n paired differences has a noncentral t distribution with n - 1 degrees
of freedom and noncentrality sqrt(n) * difference / sd (Cohen 1988, Statistical Power
Analysis for the Behavioral Sciences, chapter 2). statsmodels computes the same, and takes
two seconds to import. A difference that was seen in few queries is mostly larger than the
true one, so the number of queries needed for it is a guess: compare it with `detectable`.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from plait.scorers.statistics.estimate import CONFIDENCE, LEAST

POWER = 0.8
MOST_QUERIES = 10_000_000
_FAR = 12.0
"""Noncentrality beyond which the power is 1 to 14 digits, for 5 values or more."""
_NEAR = 8.0
"""Noncentrality beyond which the far tail is below 1e-15; scipy gives NaN for it."""


def paired_power(difference: float, sd: float, n: int) -> float:
    """Return the probability that a two-sided paired t test of `n` finds `difference`."""
    from scipy import special

    freedom = n - 1
    centre = math.sqrt(n) * abs(difference) / sd
    if centre > _FAR:
        return 1.0
    critical = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2))
    below = special.nctdtr(freedom, centre, critical)
    far = special.nctdtr(freedom, centre, -critical) if centre < _NEAR else 0.0
    return float(1 - below + far)


def queries_needed(difference: float, sd: float, power: float = POWER) -> int | None:
    """Return the fewest queries that find `difference` with that power.

    At least as many as an interval needs. None where there is nothing to find, or where
    over `MOST_QUERIES` are needed.
    """
    if not difference or not sd > 0:
        return None
    # Power rises with n.
    numbers = range(LEAST, MOST_QUERIES + 1)
    place = bisect_left(numbers, power, key=lambda n: paired_power(difference, sd, n))
    return numbers[place] if place < len(numbers) else None


def detectable(sd: float, n: int, power: float = POWER) -> float | None:
    """Return the smallest difference that `n` queries find with that power, if any."""
    if n < LEAST or not sd > 0:
        return None
    from scipy import optimize

    # Power rises with the difference from 1 - CONFIDENCE at 0 to 1 at `_FAR`: one zero.
    def lacking(share: float) -> float:
        return paired_power(share, 1.0, n) - power

    return sd * float(optimize.brentq(lacking, 0.0, _FAR / math.sqrt(n), xtol=1e-12))
