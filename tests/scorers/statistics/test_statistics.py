"""Intervals of means against formulas and simulated coverage; what must not change them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scorers.statistics.estimate import Estimate
from scorers.statistics.means import LEAST_OF_TWO, Stratum, mean, paired, stratified

nothing = float("nan")


def strata(*samples: list[float], weights: tuple[float, ...] = ()) -> Estimate:
    named = zip("abcdef", weights or (1.0,) * len(samples), samples, strict=False)
    return stratified([Stratum(*stratum) for stratum in named])


def test_mean_and_count_are_of_known_values_only():
    estimate = mean([1.0, nothing, 2.0, 6.0, nothing, 3.0, 4.0])
    assert estimate.value == pytest.approx(16 / 5)
    assert estimate.n == 5
    assert estimate.ci95 is not None


def test_no_value_has_no_mean_and_few_have_no_interval():
    assert mean([nothing] * 3) == Estimate(None, None, 0, "no scored query")
    for n in range(1, 5):
        result = mean(np.arange(n))
        assert (result.value, result.n, result.ci95) == (np.arange(n).mean(), n, None)
        assert "too few" in result.reason
    assert mean(np.arange(5)).ci95 is not None
    assert mean(np.arange(5)).reason == ""


@pytest.mark.parametrize("n", [5, 6, 20, 500])
def test_equal_values_have_no_interval(n):
    result = mean([4.0] * n)
    assert result == Estimate(4.0, None, n, f"all values are equal (n={n})")
    # Means over repeats differ in their last bits.
    assert mean([0.1 + 0.2, 0.3] * n).ci95 is None


@pytest.mark.parametrize("n", [5, 60, 400])
def test_agrees_with_scipy_on_students_t(n):
    values = np.random.default_rng(n).exponential(2.0, n)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    result = mean(values)
    assert result.ci95 == pytest.approx((theirs.low, theirs.high), rel=1e-9)
    assert result.method == "Student's t"


@pytest.mark.parametrize("low_high", [(0.0, 1.0), (0.0, 100.0), (-1.0, 2.5)])
@pytest.mark.parametrize("k", [1, 7, 29])
def test_agrees_with_scipy_on_wilson_where_two_values_occur(k, low_high):
    low, high = low_high
    result = mean([high] * k + [low] * (30 - k))
    theirs = stats.binomtest(k, 30).proportion_ci(0.95, method="wilson")
    expected = [low + (high - low) * end for end in (theirs.low, theirs.high)]
    assert result.ci95 == pytest.approx(expected, abs=1e-9)
    assert result.method == "Wilson score"


def test_two_values_need_more_queries_than_three():
    few = mean([0.0, 1.0] * 9)
    assert few.ci95 is None
    assert few.reason == "only two different values (n=18, fewer than 25)"
    assert mean([0.0, 1.0] * LEAST_OF_TWO).ci95 is not None
    assert mean([0.0, 1.0, 0.5] * 3).ci95 is not None


def test_strata_are_weighted_by_their_published_counts_not_by_their_sizes():
    result = strata([1.0] * 6, [5.0] * 60, weights=(3.0, 1.0))
    assert result.value == pytest.approx((3 * 1 + 1 * 5) / 4)


def test_stratified_interval_has_the_width_of_the_known_formula():
    rng = np.random.default_rng(5)
    sizes, weights = (300, 500, 200), np.array([5005, 11482, 3616])
    samples = [rng.normal(i, 1 + i, n) for i, n in enumerate(sizes)]
    result = strata(*samples, weights=tuple(weights))
    low, high = result.ci95
    shares = weights / weights.sum()
    errors = [s**2 * x.var(ddof=1) / len(x) for s, x in zip(shares, samples, strict=True)]
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(sum(errors)), rel=0.01)
    assert result.method == "stratified Student's t"


def test_two_strata_of_equal_weight_have_welchs_interval():
    rng = np.random.default_rng(6)
    one, other = rng.normal(0, 1, 9), rng.normal(0, 3, 14)
    result = strata(one, other)
    # The sum of two means is the difference of one and the other turned round.
    theirs = stats.ttest_ind(one, -other, equal_var=False).confidence_interval(0.95)
    assert result.ci95 == pytest.approx((theirs.low / 2, theirs.high / 2), rel=1e-9)


def test_one_stratum_has_the_interval_of_its_mean():
    values = [1.0, 2.0, 5.0, 4.0, 4.0, 6.0]
    assert strata(values, weights=(7.0,)) == mean(values)


def test_an_empty_stratum_leaves_the_mean_undefined():
    assert strata([1.0] * 9, [nothing] * 9).value is None


@pytest.mark.parametrize(
    ("thin", "problem"),
    [
        ([1.0], "too few values in b (n=1, fewer than 5)"),
        ([1.0, 4.0], "too few values in b (n=2, fewer than 5)"),
        ([2.0] * 30, "all values are equal in b (n=30)"),
        ([0.0, 1.0] * 9, "only two different values in b (n=18, fewer than 25)"),
    ],
)
def test_a_stratum_that_supports_no_interval_leaves_none_to_the_whole(thin, problem):
    result = strata(list(np.arange(50.0)), thin)
    assert result.value == pytest.approx((24.5 + np.mean(thin)) / 2)
    assert (result.ci95, result.method) == (None, "")
    assert result.reason == problem


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
    assert result.ci95 is None
    assert "beyond the range of numbers" in result.reason
    assert mean([math.inf, 1.0, 2.0, 3.0, 4.0]).value is None


def test_json_says_method_or_reason():
    assert mean([1.0, 2.0, 3.0, 4.0, 5.0]).as_json("mean") == {
        "mean": 3.0,
        "ci95": [1.036757, 4.963243],
        "n": 5,
        "method": "Student's t",
    }
    assert mean([1.0]).as_json()["reason"].startswith("too few")
    assert "method" not in mean([1.0]).as_json()


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


@given(scores)
@settings(max_examples=40, deadline=None)
def test_unscored_queries_change_nothing(values):
    column = [nothing if v is None else v for v in values]
    assert mean([*column, nothing]) == mean([v for v in column if not math.isnan(v)])


@given(scores, st.floats(-50, 50), st.sampled_from([-2.0, 0.5, 100.0]))
@settings(max_examples=40, deadline=None)
def test_an_interval_moves_with_its_values(values, shift, factor):
    known = np.array([v for v in values if v is not None])
    plain, moved = mean(known), mean(shift + factor * known)
    assert (plain.ci95 is None) == (moved.ci95 is None)
    if plain.ci95 is not None:
        expected = sorted(shift + factor * end for end in plain.ci95)
        assert moved.ci95 == pytest.approx(expected, abs=1e-9)


def test_differences_by_rounding_alone_are_no_differences():
    x, y = np.array([0.1 + 0.2, 1.0, nothing, 1e300]), np.array([0.3, 0.5, 1.0, -1e300])
    assert paired(x, y)[:2].tolist() == [0.0, 0.5]
    assert np.isnan(paired(x, y)[2])
    assert paired(x, y)[3] == 2e300
