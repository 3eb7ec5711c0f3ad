"""Means and their 95% intervals, of one sample or of strata under fixed weights.

    mean([3.0, 4.0, 6.0, 1.0, 2.0])                       # Student's t
    mean([93.0, 70.0, 95.0, 99.0, 80.0], PERCENT)         # on its scale
    stratified_mean([Stratum("art", 0.7, a), Stratum("physics", 0.3, b)], PERCENT)

All are score intervals: the means m that lie within t standard errors of the average,
where the error of m is that seen, times the square root of (m - low) (high - m) over the
same at the average (quasi-likelihood: McCullagh and Nelder 1989, chapter 9). They stay on
the scale from `low` to `high`, and near an end they hold the true mean more often than
Student's t, which they are where the scale has no ends. Where only two values occur (met
or not, won or lost) that is Wilson's interval. Strata are joined by the squared distances
from their means to their own ends (Zou and Donner 2008, Statistics in Medicine 27:10), at
the level of t with Welch and Satterthwaite's degrees of freedom: for strata of many values
the usual stratified interval, and for a single one its own.

No interval is given where none has its nominal coverage: see `LEAST`, `LEAST_OF_TWO`,
`LEAST_OTHERS` and `LEAST_SHORTFALL`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plait.scorers.statistics.estimate import CONFIDENCE, EQUAL, LEAST, Estimate, Floats

LEAST_OF_TWO = 25
"""Values that an interval needs where only two different ones occur. Given that both
occur, the coverage of Wilson's interval stays within 0.95 +- 0.03 for shares from 0.1 to
0.9 from 17 values on, in a mean of strata from about 25; no interval for a share does so
at 10."""
LEAST_OTHERS = 4
"""Values that differ from the most common one, which an interval needs of 8 values or more;
of fewer values half of them. Where nearly all answers are perfect, too little is seen of
the others to tell how far the mean may be off."""
FEW = 30
LEAST_SHORTFALL = 0.7
"""How far from the nearer end of the scale fewer than `FEW` values must be, all together,
in units of the scale: else a single answer at the other end, not seen by chance, would
change everything."""
STUDENT = "Student's t"
WILSON = "Wilson score"
_QUASI = (STUDENT, "quasi-Poisson score", "quasi-binomial score")
"""By the number of ends that the scale has."""
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
    """Why the stratum has no interval, for people; then all else but the mean is empty."""
    below: float = 0.0
    """Variance of the mean that gives the lower end at 1.96 deviations."""
    above: float = 0.0
    """The same of the upper end."""
    freedom: float = 0.0
    """Degrees of freedom with which the variance is known."""
    method: str = ""
    """The interval's name, for people."""


Ends = tuple[float, float]
"""The least and the greatest possible value."""
UNBOUNDED = (-math.inf, math.inf)
AMOUNT = (0.0, math.inf)
SHARE = (0.0, 1.0)
PERCENT = (0.0, 100.0)


def mean(values: npt.ArrayLike, ends: Ends = UNBOUNDED) -> Estimate:
    """Return the mean of independent values, NaN for none, with its interval."""
    return stratified_mean([Stratum("", 1.0, values)], ends)


def of_differences(ends: Ends) -> Ends:
    """Return the ends of differences between two values."""
    return (ends[0] - ends[1], ends[1] - ends[0])


def paired_differences(x: Floats, y: Floats) -> Floats:
    """`x - y`, 0 where means over repeats differ by rounding only."""
    sizes = np.maximum(np.abs(x), np.abs(y))
    with np.errstate(over="ignore"):
        difference = x - y
    return np.where(np.abs(difference) <= EQUAL * sizes, 0.0, difference)


def mean_by_question(
    questions: Sequence[str], values: Sequence[float], ends: Ends = UNBOUNDED
) -> Estimate:
    """Return the mean over questions; several values of one count as their mean."""
    if not values:
        return Estimate(None, None, 0, "no question judged")
    sums, sizes = _by_question(questions, values)
    return mean(sums / sizes, ends)


def _by_question(
    questions: Sequence[str], values: Sequence[float]
) -> tuple[Floats, Floats]:
    """Return (n,) sums of the values of each question, and (n,) how many they are."""
    by_question: dict[str, list[float]] = {}
    for question, value in sorted(zip(questions, values, strict=True)):
        by_question.setdefault(question, []).append(value)
    sums = [math.fsum(own) for own in by_question.values()]
    sizes = [len(own) for own in by_question.values()]
    return np.array(sums), np.array(sizes, dtype=np.float64)


def pooled_mean(
    questions: Sequence[str], values: Sequence[float], ends: Ends = UNBOUNDED
) -> Estimate:
    """Return the mean over all values, those of one question not being independent.

    `n` is the number of questions. Questions with as many values as all others count by
    their means; else each by its share in the mean: the sum of its values less that of
    as many average ones (the linearised ratio: Cochran 1977, section 6.3).
    """
    if not values:
        return Estimate(None, None, 0, "no question judged")
    sums, sizes = _by_question(questions, values)
    if (sizes == sizes[0]).all():
        return mean(sums / sizes, ends)
    average = math.fsum(values) / len(values)
    linear = average + (sums - average * sizes) * (len(sums) / len(values))
    return replace(mean(linear, ends), value=average)


def stratified_mean(strata: Sequence[Stratum], ends: Ends = UNBOUNDED) -> Estimate:
    """Return the weighted mean of the strata's means; None while a stratum is empty."""
    samples = [_sort_known(stratum.values) for stratum in strata]
    n = sum(len(sample) for sample in samples)
    if not all(len(sample) for sample in samples):
        return Estimate(None, None, n, NO_VALUE)
    largest = max(_largest(sample) for sample in samples)
    if not math.isfinite(largest):
        return Estimate(None, None, n, "a value is beyond the range of numbers")
    # In units of a power of two, in which nothing overflows or vanishes.
    _, unit = math.frexp(largest)
    low_end, high_end = ends
    scale = (math.ldexp(low_end, -unit), math.ldexp(high_end, -unit))
    moments = []
    for stratum, sample in zip(strata, samples, strict=True):
        moments.append(_moments(stratum.name, np.ldexp(sample, -unit), scale))
    shares = np.array([stratum.weight for stratum in strata], dtype=np.float64)
    shares /= shares.sum()
    average = float(shares @ [own.mean for own in moments])
    value = math.ldexp(average, unit)
    for own in moments:
        if own.problem:
            return Estimate(value, None, n, own.problem)
    with np.errstate(over="ignore"):
        interval = np.ldexp(_interval(average, shares, moments), unit)
    if not np.isfinite(interval).all():
        reason = "an end of the interval is beyond the range of numbers"
        return Estimate(value, None, n, reason)
    low, high = interval.tolist()
    method = " and ".join(sorted({own.method for own in moments}))
    if len(moments) > 1:
        method = f"stratified {method}"
    return Estimate(value, (low, high), n, "", method)


def score_interval(
    value: float, variance: float, freedom: float, ends: Ends = UNBOUNDED
) -> tuple[float, float]:
    """Return the score interval of an estimate that lies between `ends`.

    `variance` is that of the estimate, known with so many degrees of `freedom`. Where the
    scale has no ends it is Student's t.
    """
    reach = _quantile(freedom)
    below, above = _distances(ends, value, variance, reach)
    return value - reach * math.sqrt(below), value + reach * math.sqrt(above)


def _sort_known(values: npt.ArrayLike) -> Floats:
    """Return the values that are there, so sorted that sums do not depend on the order."""
    sample = np.asarray(values, dtype=np.float64)
    return np.sort(sample[~np.isnan(sample)])


def _largest(sample: Floats) -> float:
    """Return the largest absolute value of (n,) sorted values."""
    return max(abs(float(sample[0])), abs(float(sample[-1])))


def _moments(name: str, sample: Floats, ends: Ends) -> _Moments:
    """Return the moments of the stratum `name`, whose (n,) values are sorted."""
    n = len(sample)
    where = f" in {name}" if name else ""
    average = float(np.add.reduce(sample)) / n
    low = float(sample[0])
    high = float(sample[-1])

    # A stratum without an interval keeps its mean, which the mean of all needs.
    def without_interval(problem: str, why: str = "") -> _Moments:
        return _Moments(average, f"{problem}{where} (n={n}{why})")

    if n < LEAST:
        return without_interval("too few values", f", fewer than {LEAST}")
    if high - low <= EQUAL:
        return without_interval("all values are equal")
    # In ascending order, equal values lie side by side: a run of them ends at a step.
    steps = np.flatnonzero(np.diff(sample) > EQUAL) + 1
    runs = np.diff([0, *steps, n])
    low_end, high_end = ends
    width = high_end - low_end
    if len(runs) == 2 and n < LEAST_OF_TWO:
        return without_interval("only two different values", f", fewer than {LEAST_OF_TWO}")
    # Two inner values of a scale have no more to do with each other than three.
    if len(runs) == 2 and (math.isinf(width) or high - low >= width * (1 - EQUAL)):
        # A share: its variance follows from the mean, so that nothing of it is estimated.
        ends = (low, high)
        variance = (average - low) * (high - average) / n
        freedom = math.inf
        method = WILSON
    else:
        others = n - int(runs.max())
        if others < min(LEAST_OTHERS, n // 2):
            return without_interval(f"all but {others} values are equal")
        least = LEAST_SHORTFALL * width if n < FEW and math.isfinite(width) else 0.0
        if n * min(average - low_end, high_end - average) <= least:
            return without_interval("all values are too near the end of the scale")
        deviations = sample - average
        freedom = n - 1.0
        variance = float(np.add.reduce(deviations * deviations)) / freedom / n
        method = _QUASI[math.isfinite(low_end) + math.isfinite(high_end)]
    below, above = _distances(ends, average, variance, _quantile(freedom))
    return _Moments(average, "", below, above, freedom, method)


def _distances(ends: Ends, mean: float, variance: float, z: float) -> tuple[float, float]:
    """Return squared distances from `mean` to the ends of its interval, over z squared."""
    # Zeros of d^2 = z^2 variance (1 + d / from_low) (1 - d / from_high), where d < 0 is
    # below the mean. Of an end at infinity the reciprocal is 0: on that side the variance
    # stays what it is.
    low = 1 / (mean - ends[0])
    high = 1 / (ends[1] - mean)
    squared = z**2 * variance
    # The equation is scale d^2 - 2 shift d - squared = 0.
    scale = 1 + squared * low * high
    shift = squared * (low - high) / 2
    half = math.sqrt(shift**2 + squared * scale)
    below = ((half - shift) / scale) ** 2 / z**2
    above = ((half + shift) / scale) ** 2 / z**2
    return below, above


def _interval(value: float, shares: Floats, moments: Sequence[_Moments]) -> Floats:
    """Return the (2,) ends of the interval of a mean `value` of strata."""
    below = shares**2 * [own.below for own in moments]
    above = shares**2 * [own.above for own in moments]
    # Welch and Satterthwaite's degrees of freedom, by the mean of both sides' variances.
    variances = (below + above) / 2
    uncertainty = float((variances**2 / [own.freedom for own in moments]).sum())
    freedom = float(variances.sum() ** 2 / uncertainty) if uncertainty > 0 else math.inf
    reach = _quantile(freedom)
    low = value - reach * below.sum() ** 0.5
    high = value + reach * above.sum() ** 0.5
    return np.array([low, high])


def _quantile(freedom: float) -> float:
    """Return the quantile of Student's t for the interval; at infinity the normal's."""
    from scipy import special

    tail = (1 + CONFIDENCE) / 2
    if math.isinf(freedom):
        return float(special.ndtri(tail))
    return float(special.stdtrit(freedom, tail))
