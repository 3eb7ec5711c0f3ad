"""Intervals of means against formulas and simulated coverage; what must not change them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import (
    Stratum,
    mean,
    paired_differences,
    stratified_mean,
)

nothing = float("nan")


def strata(*samples: list[float], weights: tuple[float, ...] = ()) -> Estimate:
    named = zip("abcdef", weights or (1.0,) * len(samples), samples, strict=False)
    return stratified_mean([Stratum(*stratum) for stratum in named])


def test_no_value_has_no_mean_and_few_or_equal_ones_have_no_interval():
    assert mean([nothing] * 3) == Estimate(None, None, 0, "no scored query")
    assert strata([1.0] * 9, [nothing] * 9).value is None
    assert (mean([1.0, nothing, 6.0]).value, mean([1.0, nothing, 6.0]).n) == (3.5, 2)
    for n in range(1, 5):
        result = mean(np.arange(n))
        assert (result.value, result.n, result.ci95) == (np.arange(n).mean(), n, None)
        assert result.reason == f"too few values (n={n}, fewer than 5)"
    assert mean(np.arange(5)).ci95 is not None
    equal = mean([4.0] * 20)
    assert equal == Estimate(4.0, None, 20, "all values are equal (n=20)")
    # Means over repeats differ in their last bits.
    assert mean([0.1 + 0.2, 0.3] * 20).ci95 is None


@pytest.mark.parametrize("n", [5, 60, 400])
def test_agrees_with_scipy_on_students_t(n):
    values = np.random.default_rng(n).exponential(2.0, n)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    result = mean(values)
    assert result.ci95 == pytest.approx((theirs.low, theirs.high), rel=1e-9)
    assert result.method == "Student's t"


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-100.0, 100.0), (1.0, 10.0)])
@pytest.mark.parametrize("n", [8, 40, 400])
def test_the_ends_on_a_scale_solve_the_score_equation(n, ends):
    share = np.random.default_rng(n).beta(5, 1, n)
    result = mean(ends[0] + share * (ends[1] - ends[0]), ends)
    m, dispersion = share.mean(), share.var(ddof=1) / (share.mean() * (1 - share.mean()))
    reach = stats.t.ppf(0.975, n - 1) ** 2 * dispersion / n

    def score(mu: float) -> float:
        return (m - mu) ** 2 - reach * mu * (1 - mu)

    solved = optimize.brentq(score, 0, m), optimize.brentq(score, m, 1)
    expected = [ends[0] + end * (ends[1] - ends[0]) for end in solved]
    assert result.ci95 == pytest.approx(expected, rel=1e-9)
    assert result.method == "quasi-binomial score"
    far = mean(ends[0] + share * (ends[1] - ends[0]), (-1e9, 1e9 + 1))
    plain = mean(ends[0] + share * (ends[1] - ends[0]))
    assert far.ci95 == pytest.approx(plain.ci95, abs=1e-5)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1.0] * 20 + [0.5, 0.6, 0.7], "all but 3 values are equal (n=23)"),
        ([1.0] * 4 + [0.9, 0.1], "all but 2 values are equal (n=6)"),
        (
            [0.99, 0.98, 0.97, 1.0, 0.96],
            "all values are too near the end of the scale (n=5)",
        ),
        ([0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8], ""),
    ],
)
def test_too_little_is_seen_of_nearly_perfect_answers(values, reason):
    result = mean(values, (0.0, 1.0))
    assert (result.ci95 is None, result.reason) == (bool(reason), reason)


@pytest.mark.parametrize("low_high", [(0.0, 1.0), (0.0, 100.0), (-1.0, 2.5)])
@pytest.mark.parametrize("k", [1, 7, 29])
def test_agrees_with_scipy_on_wilson_where_two_values_occur(k, low_high):
    low, high = low_high
    result = mean([high] * k + [low] * (30 - k))
    theirs = stats.binomtest(k, 30).proportion_ci(0.95, method="wilson")
    expected = [low + (high - low) * end for end in (theirs.low, theirs.high)]
    assert result.ci95 == pytest.approx(expected, abs=1e-9)
    assert result.method == "Wilson score"


def test_two_strata_of_equal_weight_have_welchs_interval():
    rng = np.random.default_rng(6)
    one, other = rng.normal(0, 1, 9), rng.normal(0, 3, 14)
    result = strata(one, other)
    # The sum of two means is the difference of one and the other turned round.
    theirs = stats.ttest_ind(one, -other, equal_var=False).confidence_interval(0.95)
    assert result.ci95 == pytest.approx((theirs.low / 2, theirs.high / 2), rel=1e-9)


@pytest.mark.parametrize(
    ("thin", "problem"),
    [
        ([1.0, 4.0], "too few values in b (n=2, fewer than 5)"),
        ([2.0] * 30, "all values are equal in b (n=30)"),
        ([0.0, 1.0] * 9, "only two different values in b (n=18, fewer than 25)"),
    ],
)
def test_a_stratum_that_supports_no_interval_leaves_none_to_the_whole(thin, problem):
    result = strata(list(np.arange(50.0)), thin)
    assert result.value == pytest.approx((24.5 + np.mean(thin)) / 2)
    assert (result.ci95, result.method, result.reason) == (None, "", problem)


@pytest.mark.parametrize("size", [1e-300, 1e-90, 1e78, 1e150, 1e300])
def test_numbers_of_any_size_have_a_mean_and_an_interval(size):
    plain = mean([1.0, 2.0, 5.0, 4.0, 3.0])
    result = mean([size, 2 * size, 5 * size, 4 * size, 3 * size])
    assert result.value / size == pytest.approx(plain.value)
    assert [end / size for end in result.ci95] == pytest.approx(plain.ci95)
    assert all(map(math.isfinite, result.as_json()["ci95"]))
    assert result.as_json("mean")["mean"] == pytest.approx(result.value, rel=1e-5)


def test_an_interval_beyond_the_range_of_numbers_is_not_shown():
    result = mean([1.7e308, -1.7e308, 1.6e308, 0.0, 1.1e308])
    assert math.isfinite(result.value)
    assert (result.ci95, bool(result.reason)) == (None, True)
    assert mean([math.inf, 1.0, 2.0, 3.0, 4.0]).value is None


def test_json_says_method_or_reason():
    json = {"mean": 3.0, "ci95": [1.036757, 4.963243], "n": 5, "method": "Student's t"}
    assert mean([1.0, 2.0, 3.0, 4.0, 5.0]).as_json("mean") == json
    few = {"value": 1.0, "ci95": None, "n": 1, "reason": mean([1.0]).reason}
    assert mean([1.0]).as_json() == few


scores = st.lists(
    st.one_of(st.none(), st.integers(0, 6).map(float)), min_size=6, max_size=25
)


@given(scores, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_order_of_queries_changes_nothing(values, rng):
    column = [nothing if v is None else v / 7 for v in values]
    before = mean(column)
    rng.shuffle(column)
    assert mean(column) == before


def test_differences_by_rounding_alone_are_no_differences():
    x, y = np.array([0.1 + 0.2, 1.0, nothing, 1e300]), np.array([0.3, 0.5, 1.0, -1e300])
    assert paired_differences(x, y)[:2].tolist() == [0.0, 0.5]
    assert np.isnan(paired_differences(x, y)[2])
    assert paired_differences(x, y)[3] == 2e300
