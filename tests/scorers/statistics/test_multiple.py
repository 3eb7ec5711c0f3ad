"""P-values of pairs of systems, corrected for all of them, and ranks that hold at once."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from plait.scorers.statistics.means import UNBOUNDED, mean, of_differences
from plait.scorers.statistics.multiple import (
    LEVEL,
    correct,
    paired_p_value,
    rank_ranges,
)

UNIT = (-1.0, 1.0)


def test_differences_of_any_size_are_tested_as_by_students_t() -> None:
    rng = np.random.default_rng(1)
    sample = rng.normal(0.2, 1, 40)
    expected = stats.ttest_1samp(sample, 0).pvalue
    assert paired_p_value(sample) == pytest.approx(expected, rel=1e-12)
    # Neither large numbers nor queries without a score change it.
    gaps = np.concatenate([1e300 * sample, [np.nan] * 3])
    assert paired_p_value(gaps) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("better", "worse", "equal"), [(9, 1, 20), (4, 0, 21), (3, 3, 0)])
def test_right_and_wrong_answers_are_tested_exactly(
    better: int, worse: int, equal: int
) -> None:
    sample = np.array([1.0] * better + [-1.0] * worse + [0.0] * equal)
    expected = stats.binomtest(better, better + worse).pvalue
    assert paired_p_value(sample, UNIT) == pytest.approx(expected, rel=1e-12)


def test_no_p_value_is_below_what_exchangeable_systems_allow() -> None:
    sample = np.array([1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 0.0])
    signs = np.array([*product((-1, 1), repeat=6)])
    flipped = (signs * sample[:6]).mean(axis=1)
    exact = float((np.abs(flipped) >= sample[:6].mean() - 1e-12).mean())
    assert paired_p_value(sample) == exact == 2 / 2**6
    assert paired_p_value(np.zeros(9)) == 1.0
    assert paired_p_value(np.array([np.nan])) is None


def test_the_interval_is_the_inversion_of_the_test() -> None:
    rng = np.random.default_rng(2)
    apart = 0
    for _ in range(300):
        shift = rng.uniform(-0.2, 0.2)
        sample = np.clip(rng.normal(shift, 0.4, 40), -1, 1)
        estimate = mean(sample, UNIT)
        p = paired_p_value(sample, UNIT)
        assert estimate.ci95 is not None
        assert p is not None
        low, high = estimate.ci95
        assert (p < LEVEL) == (low > 0 or high < 0)
        apart += p < LEVEL
    assert 50 < apart < 250


def test_holm_is_that_of_statsmodels() -> None:
    # statsmodels 0.15.0, multipletests([...], method="holm")[1].
    p_values = [0.01, 0.04, 0.03, None, 0.005, 0.2, 0.2]
    expected = [0.05, 0.12, 0.12, None, 0.03, 0.4, 0.4]
    assert correct(p_values) == [None if p is None else pytest.approx(p) for p in expected]
    assert correct(p_values, "none") == p_values
    assert correct([]) == []


def test_ranks_are_those_that_the_pairs_leave() -> None:
    better = {("a", "b"), ("a", "d"), ("c", "d")}
    assert rank_ranges("abcd", better) == {
        "a": (1, 2),
        "b": (2, 4),
        "c": (1, 3),
        "d": (3, 4),
    }
    assert rank_ranges("ab", set()) == {"a": (1, 2), "b": (1, 2)}


SCALES = {"unbounded": UNBOUNDED, "0-6": of_differences((0.0, 6.0)), "0-1": UNIT}


def equal_systems(rng: np.random.Generator, n: int, systems: int, scale: str) -> np.ndarray:
    """(queries, systems) scores that differ by chance only, queries being hard or easy."""
    values = rng.normal(0, 1, (n, 1)) + rng.normal(0, 0.7, (n, systems))
    if scale == "0-6":
        return np.clip(np.round(3 + 1.5 * values), 0, 6)
    return (values > 0).astype(float) if scale == "0-1" else values


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("systems", "samples"), [(5, 3000), (16, 400)])
def test_of_equal_systems_none_is_shown_to_be_better(
    systems: int, samples: int, scale: str
) -> None:
    rng = np.random.default_rng([systems, len(scale)])
    pairs = [*combinations(range(systems), 2)]
    wrong = 0
    alone = 0
    for _ in range(samples):
        values = equal_systems(rng, 40, systems, scale)
        p_values = [
            paired_p_value(values[:, i] - values[:, j], SCALES[scale]) for i, j in pairs
        ]
        alone += min(p_values) < LEVEL
        wrong += min(correct(p_values)) < LEVEL
    assert wrong / samples <= 0.055
    assert alone / samples > 0.1, "without a correction some pair differs by chance"


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_repeats_of_a_query_are_not_more_queries(correlation: float) -> None:
    """The interval of means over repeats holds the truth; that of all answers would not."""
    rng = np.random.default_rng(int(10 * correlation))
    shared = correlation**0.5
    own = (1 - correlation) ** 0.5
    held = 0
    as_queries = 0
    for _ in range(3000):
        values = shared * rng.normal(size=(60, 1)) + own * rng.normal(size=(60, 4))
        low, high = mean(values.mean(axis=1)).ci95 or (1, 0)
        held += low <= 0 <= high
        low, high = mean(values.ravel()).ci95 or (1, 0)
        as_queries += low <= 0 <= high
    assert 0.93 <= held / 3000 <= 0.97
    assert correlation == 0 or as_queries / 3000 < 0.85
