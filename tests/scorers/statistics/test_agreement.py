"""Coefficients beside scipy and scikit-learn; groups and intervals."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial import distance
from sklearn.metrics import cohen_kappa_score, mean_absolute_error, mean_squared_error

from plait.scorers.statistics.agreement import (
    COEFFICIENTS,
    ScoredPair,
    agreement,
    estimate_with_interval,
)
from plait.scorers.statistics.estimate import bootstrap_weights

LEVELS = range(7)


def plain(name: str, x, y) -> float:
    x, y = np.array(x, dtype=float), np.array(y, dtype=float)
    return float(COEFFICIENTS[name].function(x, y, np.ones((1, len(x))))[0])


LIBRARY = {
    "cosine": lambda x, y: 1 - distance.cosine(x, y),
    "mse": mean_squared_error,
    "mae": mean_absolute_error,
    "pearson": lambda x, y: stats.pearsonr(x, y)[0],
    "spearman": lambda x, y: stats.spearmanr(x, y)[0],
    "kendall": lambda x, y: stats.kendalltau(x, y)[0],
    "kappa": partial(cohen_kappa_score, weights="quadratic", labels=list(LEVELS)),
}


ratings = st.lists(
    st.tuples(st.sampled_from(LEVELS), st.sampled_from(LEVELS), st.integers(0, 3)),
    min_size=2,
    max_size=15,
)
real = st.floats(-5, 5, allow_nan=False).map(lambda v: round(v, 3))
reals = st.lists(st.tuples(real, real, st.integers(0, 3)), min_size=2, max_size=15)


@given(st.one_of(ratings, reals), st.sampled_from([*COEFFICIENTS]))
@settings(max_examples=150, deadline=None)
def test_weights_are_copies_and_values_are_the_libraries(rows, name):
    x, y, weight = (np.array(column) for column in zip(*rows, strict=True))
    assume(name != "kappa" or x.dtype.kind == y.dtype.kind == "i")
    one, two = np.repeat(x, weight), np.repeat(y, weight)
    assume(len(np.unique(one)) > 1 and len(np.unique(two)) > 1)
    with np.errstate(all="ignore"):
        expected = float(LIBRARY[name](one, two))
    samples = np.stack([weight, np.ones(len(x), int)]).astype(float)
    result = COEFFICIENTS[name].function(x.astype(float), y.astype(float), samples)
    if math.isfinite(expected):
        assert result[0] == pytest.approx(expected, abs=1e-7)
        assert result[1] == pytest.approx(plain(name, x, y), nan_ok=True, abs=1e-12)


@pytest.mark.parametrize("name", ["pearson", "spearman", "kendall"])
@pytest.mark.parametrize("flat", [[0.1, 0.1, 0.1], [5, 5, 5], [1 / 3] * 3])
def test_correlations_with_one_score_for_all_are_undefined(name, flat):
    assert math.isnan(plain(name, flat, [1, 2, 3]))
    assert math.isnan(plain(name, [1, 2, 3], flat))
    # also where only a draw is flat
    x, y = np.array([*flat, 7.0]), np.array([1.0, 2, 3, 4])
    assert np.isnan(COEFFICIENTS[name].function(x, y, np.array([[1.0, 2, 1, 0]])))


def pair(query: int, judge: float, human: float, category="SA", kind="integrated"):
    name = f"{category}-{query}"
    return ScoredPair(query=name, category=category, kind=kind, judge=judge, human=human)


def sampled(n: int, noise: float, seed: int = 0, **about) -> list[ScoredPair]:
    rng = np.random.default_rng(seed)
    human = rng.integers(0, 7, n)
    judge = np.clip(human + np.round(rng.normal(0, noise, n)), 0, 6)
    return [pair(i, *scores, **about) for i, scores in enumerate(zip(judge, human))]  # noqa: B905


def test_groups_are_all_kinds_categories_and_both():
    pairs = [
        *sampled(8, 1, category="SA", kind="integrated"),
        *sampled(6, 1, category="PBL", kind="integrated", seed=1),
        *sampled(5, 1, category="PBL", kind="interleaved", seed=2),
    ]
    result = {(a.category, a.kind): a for a in agreement(pairs, draws=50)}
    sizes = {(None, None): 19, (None, "integrated"): 14, (None, "interleaved"): 5}
    sizes |= {("PBL", None): 11, ("PBL", "integrated"): 6, ("PBL", "interleaved"): 5}
    sizes |= {("SA", None): 8, ("SA", "integrated"): 8}
    assert {key: a.pairs for key, a in result.items()} == sizes
    assert result["PBL", None].queries == 6
    for (category, kind), a in result.items():
        chosen = [
            (p.judge, p.human)
            for p in pairs
            if category in (None, p.category) and kind in (None, p.kind)
        ]
        for name, estimate in a.coefficients.items():
            value = plain(name, *zip(*chosen, strict=True))
            assert estimate.value == pytest.approx(value, rel=1e-9)
            assert estimate.n == len(chosen)


def test_order_of_pairs_changes_nothing():
    rng = np.random.default_rng(2)
    pairs = [pair(i // 2, *rng.random(2)) for i in range(60)]
    mixed = random.Random(3).sample(pairs, len(pairs))
    assert agreement(mixed) == agreement(pairs)


def test_queries_are_drawn_with_all_their_answers():
    """Four equal answers to each query tell no more than one of them."""
    once = sampled(40, 1.5)
    copies = [p for p in once for _ in range(4)]
    apart = [replace(p, query=f"{p.query}.{i}") for i, p in enumerate(copies)]
    ends = [agreement(pairs)[0].coefficients for pairs in (once, copies, apart)]
    for name in COEFFICIENTS:
        width, same, narrow = (e[name].ci95[1] - e[name].ci95[0] for e in ends)
        assert same == pytest.approx(width, rel=1e-9)
        assert narrow < 0.7 * width


def test_intervals_cover_pearsons_rho():
    """95% intervals of 60 pairs with rho = 0.6 hold it about as often (90% to 99%)."""
    rng = np.random.default_rng(5)
    held = 0
    pearson = COEFFICIENTS["pearson"].function
    weights = bootstrap_weights([str(i) for i in range(60)], 200)
    for _ in range(200):
        x, e = rng.normal(size=(2, 60))
        low, high = estimate_with_interval(pearson, x, 0.6 * x + 0.8 * e, weights, 60).ci95
        held += low <= 0.6 <= high
    assert 180 <= held <= 198
