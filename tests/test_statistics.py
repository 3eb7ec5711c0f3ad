"""Intervals against scipy, known formulas and simulated coverage; invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.results.statistics import (
    Estimate,
    combined,
    estimates,
    resample,
    stratified,
)


def keys(n: int, prefix: str = "q") -> list[str]:
    return [f"{prefix}{i}" for i in range(n)]


def one(values, prefix: str = "q", **options) -> Estimate:
    """The estimate of a single series."""
    column = np.asarray(values, dtype=float)[:, None]
    return estimates(resample(keys(len(column), prefix), column, **options))[0]


def test_mean_and_count_are_of_known_values_only():
    nothing = float("nan")
    estimate = one([1.0, nothing, 2.0, 6.0, nothing, 3.0, 4.0])
    assert estimate.mean == pytest.approx(16 / 5)
    assert estimate.n == 5
    assert estimate.ci95 is not None


def test_no_value_has_no_mean_and_few_have_no_interval():
    assert one([float("nan")] * 3) == Estimate(None, None, 0, "no scored query")
    for n in range(1, 5):
        found = one(np.arange(n))
        assert (found.mean, found.n, found.ci95) == (np.arange(n).mean(), n, None)
        assert "too few" in found.reason
    assert one(np.arange(5)).ci95 is not None
    assert one(np.arange(5)).reason == ""


def test_equal_values_have_an_interval_without_width():
    assert one([4.0] * 20) == Estimate(4.0, (4.0, 4.0), 20)


def test_a_draw_that_takes_no_query_has_no_mean():
    found = resample(
        keys(3), np.array([[2.0, 5.0], [4.0, np.nan], [9.0, np.nan]]), draws=1000
    )
    empty = found.weights == 0
    assert 20 < empty[:, 0].sum() < 90  # e^-3 of 1000 draws
    assert 300 < empty[:, 1].sum() < 440  # e^-1
    assert (np.isnan(found.means) == empty).all()
    assert (found.means[~empty[:, 1], 1] == 5.0).all()


def test_draws_without_a_query_do_not_pull_an_interval_to_0():
    # 5 of 25 queries have a value: one draw in 150 takes none of them.
    values = [7.0] * 5 + [float("nan")] * 20
    assert one(values, draws=4000).ci95 == (7.0, 7.0)


@pytest.mark.parametrize(("n", "skew"), [(60, False), (60, True), (400, True)])
def test_agrees_with_scipy_percentile_bootstrap(n, skew):
    rng = np.random.default_rng(n)
    values = rng.exponential(2.0, n) if skew else rng.normal(3.0, 1.0, n)
    level = 1 - 2 * stats.norm.sf(stats.t.isf(0.025, n - 1))
    theirs = stats.bootstrap(
        (values,),
        np.mean,
        confidence_level=level,
        method="percentile",
        n_resamples=20_000,
        rng=rng,
    ).confidence_interval
    ours = one(values, draws=20_000)
    width = theirs.high - theirs.low
    # Poisson weights widen by sqrt(n / (n - 1)); the rest is the noise of the draws.
    assert ours.ci95 == pytest.approx((theirs.low, theirs.high), abs=0.025 * width)


def test_approaches_the_formula_for_normal_data():
    values = np.random.default_rng(3).normal(10.0, 2.0, 3000)
    half = 1.96 * values.std(ddof=1) / np.sqrt(3000)
    low, high = one(values, draws=8000).ci95
    assert low == pytest.approx(values.mean() - half, abs=0.05 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.05 * half)


@pytest.mark.parametrize("n", [6, 12, 40])
def test_covers_the_true_mean_in_95_percent_of_samples(n):
    """800 samples at a time as columns: the standard error of the share is 0.8%."""
    values = np.random.default_rng(n).choice(
        7, (n, 800), p=[0.1, 0.1, 0.2, 0.3, 0.2, 0.05, 0.05]
    )
    truth = 0.1 + 0.4 + 0.9 + 0.8 + 0.25 + 0.3
    found = estimates(resample(keys(n), values.astype(float), draws=1000))
    covered = np.mean([e.ci95[0] <= truth <= e.ci95[1] for e in found])
    assert 0.92 <= covered <= 0.985


def test_strata_are_weighted_by_their_published_counts_not_by_their_sizes():
    small, large = np.full((6, 1), 1.0), np.full((60, 1), 5.0)
    strata = [(3.0, resample(keys(6), small)), (1.0, resample(keys(60, "r"), large))]
    assert stratified(strata)[0].mean == pytest.approx((3 * 1 + 1 * 5) / 4)


def test_stratified_interval_has_the_width_of_the_known_formula():
    rng = np.random.default_rng(5)
    sizes, weights = (300, 500, 200), np.array([5005, 11482, 3616])
    samples = [rng.normal(i, 1 + i, n) for i, n in enumerate(sizes)]
    strata = [
        (w, resample(keys(len(x), f"{w}-"), x[:, None], draws=8000))
        for w, x in zip(weights, samples, strict=True)
    ]
    low, high = stratified(strata)[0].ci95
    shares = weights / weights.sum()
    errors = [s**2 * x.var(ddof=1) / len(x) for s, x in zip(shares, samples, strict=True)]
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(sum(errors)), rel=0.04)


def test_an_empty_stratum_leaves_the_mean_undefined():
    strata = [
        (1.0, resample(keys(9), np.ones((9, 1)))),
        (1.0, resample(keys(9, "r"), np.full((9, 1), np.nan))),
    ]
    assert stratified(strata)[0].mean is None


def test_a_stratum_of_one_query_leaves_no_interval():
    many = resample(keys(50), np.arange(50.0)[:, None])
    single = resample(keys(1, "r"), np.ones((1, 1)))
    found = stratified([(1.0, many), (1.0, single)])[0]
    assert found.mean == pytest.approx((24.5 + 1) / 2)
    assert found.ci95 is None


def test_sets_add_up_to_the_whole():
    values = np.random.default_rng(0).normal(size=(30, 2))
    whole = estimates(resample(keys(30), values))
    parts = [resample(keys(30)[a:b], values[a:b]) for a, b in ((0, 7), (7, 20), (20, 30))]
    for joined, expected in zip(estimates(combined(parts)), whole, strict=True):
        assert joined.mean == pytest.approx(expected.mean, abs=1e-12)
        assert joined.ci95 == pytest.approx(expected.ci95, abs=1e-12)


scores = st.lists(
    st.one_of(st.none(), st.integers(0, 6).map(float)), min_size=6, max_size=25
)


@given(scores, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_order_of_queries_changes_nothing(values, rng):
    column = np.array([[np.nan if v is None else v] for v in values])
    order = list(range(len(values)))
    rng.shuffle(order)
    names = keys(len(values))
    before = estimates(resample(names, column, draws=200))[0].as_json()
    after = estimates(resample([names[i] for i in order], column[order], draws=200))[0]
    assert after.as_json() == before


@given(scores)
@settings(max_examples=40, deadline=None)
def test_other_series_and_unscored_queries_change_nothing(values):
    column = np.array([[np.nan if v is None else v] for v in values])
    alone = estimates(resample(keys(len(values)), column, draws=200))[0].as_json()
    other = np.arange(len(values), dtype=float)[:, None]
    more = np.vstack([np.hstack([column, other]), [[np.nan, 3.0]]])
    beside = estimates(resample(keys(len(more)), more, draws=200))[0].as_json()
    assert beside == alone


def test_long_sets_are_drawn_in_chunks_that_agree(monkeypatch):
    values = np.random.default_rng(1).normal(size=(50, 3))
    whole = estimates(resample(keys(50), values))
    monkeypatch.setattr("benchmarks.results.statistics._CHUNK", 7)
    for chunked, expected in zip(estimates(resample(keys(50), values)), whole, strict=True):
        assert chunked.as_json() == expected.as_json()


def test_the_seed_changes_the_draws_and_not_the_mean():
    values = np.random.default_rng(1).normal(size=40)
    assert one(values, seed=1).mean == one(values).mean
    assert one(values, seed=1).ci95 != one(values).ci95
