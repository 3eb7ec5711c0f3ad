"""Coefficients beside scipy, scikit-learn and values by hand; groups and intervals."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
from agreement_helpers import plain
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from scorers.statistics.agreement import COEFFICIENTS, OTHER_SCALE, ScoredPair, agreement

LEVELS = range(7)


X, Y = [1, 2, 3, 4, 6], [2, 1, 3, 6, 6]
HAND = {
    # x.y = 2+2+9+24+36 = 73; |x|^2 = 66, |y|^2 = 86
    "cosine": 73 / math.sqrt(66 * 86),
    "mse": (1 + 1 + 0 + 4 + 0) / 5,
    "mae": (1 + 1 + 0 + 2 + 0) / 5,
    # n = 5, sums 16 and 18: (5*73 - 288) / sqrt((330 - 256) * (430 - 324))
    "pearson": 77 / math.sqrt(74 * 106),
    # ranks 1..5 and 2, 1, 3, 4.5, 4.5: sum of products about 3 is 8.5 of sqrt(10 * 9.5)
    "spearman": 8.5 / math.sqrt(95),
    # 10 pairs: 8 concordant, 1 discordant, 1 tied in y alone
    "kendall": 7 / math.sqrt(10 * 9),
    # 1 - 6 / (66 + 86 - 2 * 16 * 18 / 5)
    "kappa": 1 - 6 / (152 - 115.2),
}


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_values_by_hand(name):
    assert plain(name, X, Y) == pytest.approx(HAND[name], rel=1e-12)


def library(name: str, x, y) -> float:
    if name == "cosine":
        return float(np.dot(x, y) / (np.linalg.norm(x) * np.linalg.norm(y)))
    if name in ("mse", "mae"):
        return float(np.mean(np.abs(x - y) ** {"mse": 2, "mae": 1}[name]))
    if name == "kappa":
        return float(cohen_kappa_score(x, y, weights="quadratic", labels=list(LEVELS)))
    function = {
        "pearson": stats.pearsonr,
        "spearman": stats.spearmanr,
        "kendall": stats.kendalltau,
    }[name]
    return float(function(x, y)[0])


ratings = st.lists(
    st.tuples(st.sampled_from(LEVELS), st.sampled_from(LEVELS), st.integers(0, 3)),
    min_size=2,
    max_size=15,
)
real = st.floats(-5, 5, allow_nan=False).map(lambda v: round(v, 3))
reals = st.lists(st.tuples(real, real, st.integers(0, 3)), min_size=2, max_size=15)


@given(st.one_of(ratings, reals), st.sampled_from([*COEFFICIENTS]))
@settings(max_examples=400, deadline=None)
def test_weights_are_copies_and_values_are_the_libraries(rows, name):
    x, y, weight = (np.array(column) for column in zip(*rows, strict=True))
    assume(name != "kappa" or x.dtype.kind == y.dtype.kind == "i")
    one, two = np.repeat(x, weight), np.repeat(y, weight)
    assume(len(np.unique(one)) > 1 and len(np.unique(two)) > 1)
    with np.errstate(all="ignore"):
        expected = library(name, one, two)
    samples = np.stack([weight, np.ones(len(x), int)]).astype(float)
    result = COEFFICIENTS[name].function(x.astype(float), y.astype(float), samples)
    if math.isfinite(expected):
        assert result[0] == pytest.approx(expected, abs=1e-7)
        assert result[1] == pytest.approx(plain(name, x, y), nan_ok=True, abs=1e-12)


def test_kappa_of_real_values_is_lins_concordance():
    rng = np.random.default_rng(0)
    x, y = rng.normal(3, 1, 50), rng.normal(2, 2, 50)
    covariance = np.cov(x, y, bias=True)
    gap = (x.mean() - y.mean()) ** 2
    lin = 2 * covariance[0, 1] / (covariance[0, 0] + covariance[1, 1] + gap)
    assert plain("kappa", x, y) == pytest.approx(lin, rel=1e-12)


def test_many_values_are_compared_in_blocks():
    rng = np.random.default_rng(1)
    x = rng.random(1300)
    y = x + rng.random(1300)
    assert plain("kendall", x, y) == pytest.approx(stats.kendalltau(x, y)[0], rel=1e-12)


@pytest.mark.parametrize("name", ["pearson", "spearman", "kendall"])
@pytest.mark.parametrize("flat", [[0.1, 0.1, 0.1], [5, 5, 5], [1 / 3] * 3])
def test_correlations_with_one_score_for_all_are_undefined(name, flat):
    assert math.isnan(plain(name, flat, [1, 2, 3]))
    assert math.isnan(plain(name, [1, 2, 3], flat))
    # also where only a draw is flat
    x, y = np.array([*flat, 7.0]), np.array([1.0, 2, 3, 4])
    assert np.isnan(COEFFICIENTS[name].function(x, y, np.array([[1.0, 2, 1, 0]])))


@given(st.floats(0.01, 7), st.lists(st.integers(1, 3), min_size=5, max_size=5))
@settings(deadline=None)
def test_rounding_is_no_spread(level, weight):
    x, y = np.array([level] * 5 + [7.5]), np.arange(6.0)
    for samples in ([*weight, 0], [*weight, 0][::-1]):
        w = np.array([samples], dtype=float)
        ends = (x, y) if samples[-1] == 0 else (x[::-1], y)
        assert np.isnan(COEFFICIENTS["pearson"].function(*ends, w))
        assert np.isnan(COEFFICIENTS["kappa"].function(ends[0], ends[0], w))
    assert math.isnan(plain("pearson", [level] * 5, y[:5]))


def test_kappa_and_cosine_without_spread():
    assert math.isnan(plain("kappa", [2, 2], [2, 2]))
    assert plain("kappa", [2, 2], [3, 3]) == 0.0
    assert math.isnan(plain("cosine", [0, 0], [1, 2]))


@given(reals, st.floats(0.1, 9), st.floats(-3, 3))
@settings(deadline=None)
def test_scale_and_shift_change_what_they_should(rows, scale, shift):
    x, y, _ = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    assume(np.ptp(x) > 0.1 and np.ptp(y) > 0.1)
    for name in ("pearson", "spearman", "kendall"):
        once, moved = plain(name, x, y), plain(name, np.round(scale * x, 9) + shift, y)
        assert moved == pytest.approx(once, abs=1e-6)
        assert plain(name, -x, y) == pytest.approx(-once, abs=1e-9)
    assert plain("cosine", scale * x, y) == pytest.approx(plain("cosine", x, y), abs=1e-9)
    for name in ("mse", "mae", "kappa"):
        both = plain(name, x + shift, y + shift)
        assert both == pytest.approx(plain(name, x, y), abs=1e-6)
    for name in COEFFICIENTS:
        assert plain(name, x, y) == pytest.approx(plain(name, y, x), abs=1e-9)


def pair(
    query: int, judge: float, human: float, category="SA", kind="integrated"
) -> ScoredPair:
    return ScoredPair(
        query=f"{category}-{query}", category=category, kind=kind, judge=judge, human=human
    )


def sampled(n: int, noise: float, seed: int = 0, **about) -> list[ScoredPair]:
    rng = np.random.default_rng(seed)
    human = rng.integers(0, 7, n)
    judge = np.clip(human + np.round(rng.normal(0, noise, n)), 0, 6)
    return [
        pair(i, *scores, **about) for i, scores in enumerate(zip(judge, human, strict=True))
    ]


def test_groups_are_all_kinds_categories_and_both():
    pairs = [
        *sampled(8, 1, category="SA", kind="integrated"),
        *sampled(6, 1, category="PBL", kind="integrated", seed=1),
        *sampled(5, 1, category="PBL", kind="interleaved", seed=2),
    ]
    result = {(a.category, a.kind): a for a in agreement(pairs, draws=50)}
    assert {key: a.pairs for key, a in result.items()} == {
        (None, None): 19,
        (None, "integrated"): 14,
        (None, "interleaved"): 5,
        ("PBL", None): 11,
        ("PBL", "integrated"): 6,
        ("PBL", "interleaved"): 5,
        ("SA", None): 8,
        ("SA", "integrated"): 8,
    }
    assert result["PBL", None].queries == 6
    for (category, kind), a in result.items():
        chosen = [
            p for p in pairs if category in (None, p.category) and kind in (None, p.kind)
        ]
        x, y = ([getattr(p, who) for p in chosen] for who in ("judge", "human"))
        for name, estimate in a.coefficients.items():
            assert estimate.value == pytest.approx(plain(name, x, y), rel=1e-9)
            assert estimate.n == len(chosen)


def test_one_kind_alone_is_not_told_apart():
    result = agreement(sampled(6, 1, category="SA"), draws=50)
    assert [(a.category, a.kind) for a in result] == [(None, None), ("SA", None)]


def test_no_pair_no_group():
    assert agreement([]) == []


def test_order_of_pairs_changes_nothing():
    rng = np.random.default_rng(2)
    pairs = [pair(i // 2, *rng.random(2)) for i in range(60)]
    mixed = random.Random(3).sample(pairs, len(pairs))
    assert agreement(mixed) == agreement(pairs)


def test_a_group_has_the_interval_it_would_have_alone():
    one, two = sampled(20, 1, category="SA"), sampled(20, 2, category="PBL", seed=4)
    together = {a.category: a for a in agreement([*one, *two])}
    alone = agreement(one)[0]
    assert together["SA"].coefficients == alone.coefficients


def test_other_scales_leave_out_what_compares_values():
    (whole, *_) = agreement(sampled(20, 1), one_scale=False, draws=50)
    out = {n for n, e in whole.coefficients.items() if e.value is None}
    assert out == {"mse", "mae", "kappa"}
    assert whole.coefficients["mse"].reason == OTHER_SCALE
    assert whole.coefficients["pearson"].ci95 is not None


def test_undefined_values_have_a_reason_and_no_number():
    flat = agreement([pair(i, 3, i % 5) for i in range(10)], draws=50)[0].coefficients
    assert flat["pearson"].value is None
    assert "judge gave one score to all" in flat["pearson"].reason
    assert flat["mse"].value is not None
    both = agreement([pair(i, 3, 2) for i in range(10)], draws=50)[0].coefficients
    assert "judge and people" in both["kendall"].reason
    assert json.dumps([e.as_json() for e in both.values()], allow_nan=False)


def test_intervals_need_queries_not_pairs():
    answers = [pair(i % 3, i % 7, (i * 3) % 7) for i in range(30)]
    whole = agreement(answers, draws=200)[0]
    assert (whole.pairs, whole.queries) == (30, 3)
    assert all(e.ci95 is None for e in whole.coefficients.values())


def width(pairs: list[ScoredPair], name: str) -> float:
    low, high = agreement(pairs)[0].coefficients[name].ci95
    return high - low


@pytest.mark.parametrize("name", ["mae", "pearson", "kendall"])
def test_queries_are_drawn_with_all_their_answers(name):
    """Four equal answers to each query tell no more than one of them."""
    once = sampled(40, 1.5)
    copies = [p for p in once for _ in range(4)]
    assert width(copies, name) == pytest.approx(width(once, name), rel=1e-9)
    apart = [
        ScoredPair(
            query=f"{p.query}.{i}", category="SA", kind=p.kind, judge=p.judge, human=p.human
        )
        for i, p in enumerate(copies)
    ]
    assert width(apart, name) < 0.7 * width(once, name)


def test_intervals_cover_pearsons_rho():
    """95% intervals of 60 pairs with rho = 0.6 hold it about as often (87% to 99%)."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(100):
        x, e = rng.normal(size=(2, 60))
        y = 0.6 * x + 0.8 * e
        pairs = [pair(i, *v) for i, v in enumerate(zip(x, y, strict=True))]
        low, high = agreement(pairs, draws=300)[0].coefficients["pearson"].ci95
        held += low <= 0.6 <= high
    assert 87 <= held <= 99
