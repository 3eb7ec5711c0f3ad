"""Means and their 95% intervals, of one sample or of strata under fixed weights.

mean([3.0, 4.0, 6.0, 1.0, 2.0])                       # Student's t
stratified([Stratum("art", 0.7, a), Stratum("physics", 0.3, b)])

Where a sample has three different values or more, its interval is Student's t; where it
has two (met or not, won or lost), it is Wilson's score interval, since t holds 0.88 of
nominal 0.95 there. Strata are joined by the squared distances from their means to their
own ends (Zou and Donner 2008, Statistics in Medicine 27:10), at the level of t with
Welch and Satterthwaite's degrees of freedom: for strata of many values the usual
stratified interval, and for a single one its own.

No interval is given where none has its nominal coverage: see `LEAST` and `LEAST_OF_TWO`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from scorers.statistics.estimate import CONFIDENCE, EQUAL, LEAST, Estimate, Floats

LEAST_OF_TWO = 25
"""Values that an interval needs where only two different ones occur. Given that both
occur, the coverage of Wilson's interval stays within 0.95 +- 0.03 for shares from 0.1 to
0.9 from 17 values on, in a mean of strata from about 25; no interval for a share does so
at 10."""
STUDENT, WILSON = "Student's t", "Wilson score"
NO_VALUE = "no scored query"


@dataclass(frozen=True, slots=True)
class Stratum:
    """One of the sets whose means are averaged."""

    name: str
    """For the reason why there is no interval; empty for the only one."""
    weight: float
    values: npt.ArrayLike
    """(n,) one per independent unit; NaN for a unit without a value."""


@dataclass(frozen=True, slots=True)
class _Moments:
    """The mean of one stratum and how far it may be off."""

    mean: float
    problem: str = ""
    """Why the values support no interval."""
    below: float = 0.0
    """Variance of the mean that gives the lower end at 1.96 deviations."""
    above: float = 0.0
    freedom: float = 0.0
    method: str = ""


def mean(values: npt.ArrayLike) -> Estimate:
    """Return the mean of independent values, NaN for none, with its interval."""
    return stratified([Stratum("", 1.0, values)])


def paired(x: Floats, y: Floats) -> Floats:
    """`x - y`, 0 where means over repeats differ by rounding only."""
    sizes = np.maximum(np.abs(x), np.abs(y))
    with np.errstate(over="ignore"):
        difference = x - y
    return np.where(np.abs(difference) <= EQUAL * sizes, 0.0, difference)


def mean_by_question(questions: Sequence[str], values: Sequence[float]) -> Estimate:
    """Return the mean over questions; several values of one count as their mean."""
    if not values:
        return Estimate(None, None, 0, "no question judged")
    sums, sizes = _by_question(questions, values)
    return mean(sums / sizes)


def _by_question(
    questions: Sequence[str], values: Sequence[float]
) -> tuple[Floats, Floats]:
    """Return (n,) sums of the values of each question, and (n,) how many they are."""
    several: dict[str, list[float]] = {}
    for question, value in sorted(zip(questions, values, strict=True)):
        several.setdefault(question, []).append(value)
    sums = np.array([math.fsum(own) for own in several.values()])
    return sums, np.array([len(own) for own in several.values()], dtype=np.float64)


def pooled_mean(questions: Sequence[str], values: Sequence[float]) -> Estimate:
    """Return the mean over all values, those of one question not being independent.

    `n` is the number of questions. Questions with as many values as all others count by
    their means; else each by its share in the mean: the sum of its values less that of
    as many average ones (the linearised ratio: Cochran 1977, section 6.3).
    """
    if not values:
        return Estimate(None, None, 0, "no question judged")
    sums, sizes = _by_question(questions, values)
    if (sizes == sizes[0]).all():
        return mean(sums / sizes)
    average = math.fsum(values) / len(values)
    linear = average + (sums - average * sizes) * (len(sums) / len(values))
    return replace(mean(linear), value=average)


def stratified(strata: Sequence[Stratum]) -> Estimate:
    """The mean of the strata's means under their weights; None while one is empty."""
    samples = [_known(stratum.values) for stratum in strata]
    named = zip(strata, samples, strict=True)
    n = sum(len(sample) for sample in samples)
    if not all(len(sample) for sample in samples):
        return Estimate(None, None, n, NO_VALUE)
    extremes = [float(sample[end]) for sample in samples for end in (0, -1)]
    if not all(map(math.isfinite, extremes)):
        return Estimate(None, None, n, "a value is beyond the range of numbers")
    # In units of a power of two, in which nothing overflows or vanishes.
    unit = math.frexp(max(map(abs, extremes)))[1]
    moments = [_moments(s.name, np.ldexp(sample, -unit)) for s, sample in named]
    shares = np.array([stratum.weight for stratum in strata], dtype=np.float64)
    shares /= shares.sum()
    value = float(shares @ [m.mean for m in moments])
    if reason := next((m.problem for m in moments if m.problem), ""):
        return Estimate(math.ldexp(value, unit), None, n, reason)
    with np.errstate(over="ignore"):
        ends = np.ldexp(_ends(value, shares, moments), unit)
    if not np.isfinite(ends).all():
        reason = "an end of the interval is beyond the range of numbers"
        return Estimate(math.ldexp(value, unit), None, n, reason)
    low, high = ends.tolist()
    return Estimate(math.ldexp(value, unit), (low, high), n, "", _method(moments))


def _known(values: npt.ArrayLike) -> Floats:
    """In ascending order, so that sums do not depend on the order of the queries."""
    sample = np.asarray(values, dtype=np.float64)
    return np.sort(sample[~np.isnan(sample)])


def _moments(name: str, sample: Floats) -> _Moments:
    n, where = len(sample), f" in {name}" if name else ""
    average = float(np.add.reduce(sample)) / n
    low, high = float(sample[0]), float(sample[-1])
    if n < LEAST:
        return _Moments(average, f"too few values{where} (n={n}, fewer than {LEAST})")
    if high - low <= EQUAL:
        return _Moments(average, f"all values are equal{where} (n={n})")
    # In ascending order, those at the low end come first and those at the high end last.
    at_low = int(np.count_nonzero(sample - low <= EQUAL))
    at_high = int(np.count_nonzero(high - sample <= EQUAL))
    if at_low + at_high < n:
        deviations = sample - average
        variance = float(np.add.reduce(deviations * deviations)) / (n - 1) / n
        return _Moments(average, "", variance, variance, n - 1.0, STUDENT)
    if n < LEAST_OF_TWO:
        few = f"(n={n}, fewer than {LEAST_OF_TWO})"
        return _Moments(average, f"only two different values{where} {few}")
    below, above = (end * (high - low) ** 2 for end in _wilson(at_high, n))
    return _Moments(average, "", below, above, math.inf, WILSON)


def _wilson(k: int, n: int) -> tuple[float, float]:
    """Return squared distances from k/n to its score interval's ends, over z squared."""
    # scipy.stats has it too (a test compares them), but takes a second to import.
    z = _quantile()
    share, squared = k / n, z**2 / n
    centre = (share + squared / 2) / (1 + squared)
    half = math.sqrt(squared * (share * (1 - share) + squared / 4)) / (1 + squared)
    return (share - centre + half) ** 2 / z**2, (centre + half - share) ** 2 / z**2


def _ends(value: float, shares: Floats, moments: Sequence[_Moments]) -> Floats:
    """Return (2,) the interval's ends."""
    below = shares**2 * [m.below for m in moments]
    above = shares**2 * [m.above for m in moments]
    variances = (below + above) / 2
    uncertainty = float((variances**2 / [m.freedom for m in moments]).sum())
    freedom = float(variances.sum() ** 2 / uncertainty) if uncertainty > 0 else math.inf
    reach = _quantile(freedom)
    low, high = value - reach * below.sum() ** 0.5, value + reach * above.sum() ** 0.5
    return np.array([low, high])


def _method(moments: Sequence[_Moments]) -> str:
    """`Student's t`; `stratified Student's t and Wilson score`."""
    methods = " and ".join(sorted({m.method for m in moments}))
    return f"stratified {methods}" if len(moments) > 1 else methods


def _quantile(freedom: float = math.inf) -> float:
    """Return Student's t at the upper end of an interval; the normal's by default."""
    from scipy import special

    tail = (1 + CONFIDENCE) / 2
    limit = math.isinf(freedom)
    return float(special.ndtri(tail) if limit else special.stdtrit(freedom, tail))
