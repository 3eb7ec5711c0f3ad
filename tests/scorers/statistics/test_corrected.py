"""Corrected means: against the authors' program, formulas, and simulated coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from rating_simulation import (
    JUDGES,
    SCALE,
    Design,
    Floats,
    draw_rated,
    levels,
    quality_of,
    sides,
    simulate,
)
from scipy import stats

from plait.scorers.statistics.corrected import (
    Corrected,
    RatedAnswers,
    correct_difference,
    correct_mean,
)
from plait.scorers.statistics.means import mean, of_differences
from plait.scorers.statistics.power import paired_power

RATED = 40
OTHERS = 200


class Sample(NamedTuple):
    """Ratings of the first answers, and a judge's scores of all."""

    rated: Floats
    judged: Floats


def sample(slope: float, noise: float) -> Sample:
    """One answer to each of 240 queries, whose quality the judge sees in this way."""
    rng = np.random.default_rng(23)
    quality = rng.normal(3, 1, RATED + OTHERS)
    judged = slope * quality + rng.normal(0, noise, RATED + OTHERS) + 1
    return Sample(np.clip(np.round(quality), 0, 6)[:RATED], judged)


def answers(
    rated: Sequence[float] | Floats, judged: Sequence[float] | Floats, stratum: str = ""
) -> RatedAnswers:
    """Answers to a query each, the first of which were rated."""
    everything = np.full(len(judged), np.nan)
    everything[: len(rated)] = rated
    names = [f"{stratum}{number:04}" for number in range(len(judged))]
    return RatedAnswers(names, np.asarray(judged, dtype=float), everything, stratum)


class Published(NamedTuple):
    """What ppi_python says of a sample."""

    slope: float
    noise: float
    value: float
    low: float
    high: float


PPI = {
    "good": Published(0.9, 0.5, 2.9568761175024223, 2.7186167281725098, 3.195135506832335),
    "poor": Published(0.3, 1.5, 2.9499985971319993, 2.5902637731320275, 3.309733421131971),
    "against": Published(-0.9, 0.5, 2.95, 2.590265175410924, 3.3097348245890763),
    "small": Published(0.2, 0.05, 2.953863921431369, 2.65332251494188, 3.25440532792085),
}
"""ppi_python 0.2.3: `ppi_mean_pointestimate(Y, Yhat, Yhat_unlabeled, lam=None)` and
`ppi_mean_ci(..., alpha=0.05, lam=None)`. Lambda is clipped to 0 of the one against, and
to 1 of the small one; with `lam=0` all four are as the one against."""


@pytest.mark.parametrize("name", PPI)
def test_agrees_with_the_authors_program(name):
    theirs = PPI[name]
    rated, judged = sample(theirs.slope, theirs.noise)
    found = correct_mean([answers(rated, judged)])
    assert found.corrected.value == pytest.approx(theirs.value, rel=1e-12)
    assert found.ratings.value == pytest.approx(PPI["against"].value, rel=1e-12)
    # Their interval, made of the two variances by its own formula ...
    of_rated = np.var(rated - found.lam * judged[:RATED]) / RATED
    of_others = np.var(found.lam * judged[RATED:]) / OTHERS
    half = stats.norm.ppf(0.975) * math.sqrt(of_rated + of_others)
    assert theirs.high - theirs.low == pytest.approx(2 * half, rel=1e-9)
    # ... and ours, of the same ones without bias, by Student's t.
    tuned = 0 < found.lam < 1
    of_rated *= RATED / (RATED - 1) * ((RATED - 1) / (RATED - 2) if tuned else 1)
    of_others *= OTHERS / (OTHERS - 1)
    parts = of_rated**2 / (RATED - 1) + of_others**2 / (RATED + OTHERS - 1)
    freedom = (of_rated + of_others) ** 2 / parts - tuned
    reach = stats.t.ppf(0.975, freedom) * math.sqrt(of_rated + of_others)
    assert found.corrected.ci95 == pytest.approx(
        (theirs.value - reach, theirs.value + reach), rel=1e-9
    )
    assert found.variance == pytest.approx(of_rated + of_others, rel=1e-9)
    alone = np.var(rated, ddof=1) / RATED
    assert found.effective == pytest.approx(RATED * alone / found.variance, rel=1e-9)
    assert {"against": 0.0, "small": 1.0}.get(name, found.lam) == found.lam


def test_ratings_alone_have_the_interval_of_a_mean():
    rated, judged = sample(0.9, 0.5)
    found = correct_mean([answers(rated, judged)], SCALE)
    theirs = mean(rated, SCALE)
    assert found.ratings.ci95 == pytest.approx(theirs.ci95, rel=1e-12)
    assert (found.ratings.n, found.rated, found.answers) == (RATED, RATED, 240)
    for useless in (np.zeros(240), -judged):
        nothing = correct_mean([answers(rated, useless)], SCALE)
        assert (nothing.lam, nothing.effective) == (0.0, RATED)
        assert nothing.corrected.ci95 == pytest.approx(theirs.ci95, rel=1e-12)
    everything = correct_mean([answers(rated, judged[:RATED])], SCALE)
    assert everything.corrected.ci95 == pytest.approx(theirs.ci95, rel=1e-12)


def test_ratings_of_both_systems_on_the_same_queries_are_paired():
    rng = np.random.default_rng(4)
    common = rng.normal(3, 1, 50)
    first = common + rng.normal(0, 0.3, 50)
    second = common + rng.normal(0, 0.3, 50)
    judged = np.zeros(300)
    found = correct_difference(
        [answers(first, judged)], [answers(second, judged)], (-9.0, 9.0)
    )
    theirs = mean(first - second, of_differences((-9.0, 9.0)))
    assert found.ratings.value == pytest.approx(theirs.value, rel=1e-12)
    assert found.ratings.ci95 == pytest.approx(theirs.ci95, rel=1e-12)
    assert found.ratings.n == 50


def test_ratings_of_other_queries_have_welchs_interval():
    rng = np.random.default_rng(5)
    first = rng.normal(3, 1, 12)
    second = rng.normal(3, 2, 30)
    late = RatedAnswers([f"late {i}" for i in range(30)], np.zeros(30), second)
    found = correct_difference([answers(first, np.zeros(12))], [late])
    theirs = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert found.ratings.ci95 == pytest.approx((theirs.low, theirs.high), rel=1e-9)


def test_repeats_that_are_alike_count_once():
    rated, judged = sample(0.9, 0.5)
    one = answers(rated, judged)
    twice = RatedAnswers(
        [*one.queries, *one.queries],
        np.concatenate([one.judged, one.judged]),
        np.concatenate([one.rated, one.rated]),
    )
    alone = correct_mean([one], SCALE)
    both = correct_mean([twice], SCALE)
    assert both.ratings.ci95 == pytest.approx(alone.ratings.ci95, rel=1e-12)
    assert both.judge.ci95 == pytest.approx(alone.judge.ci95, rel=1e-12)
    assert both.lam == pytest.approx(alone.lam, rel=0.01)
    assert both.corrected.ci95 == pytest.approx(alone.corrected.ci95, rel=0.01)
    assert (both.rated, both.ratings.n) == (80, 40)


def test_strata_weigh_what_they_have_of_all_answers():
    rng = np.random.default_rng(6)
    sizes = {"a": (60, 300), "b": (20, 900)}
    parts = []
    for place, (name, (rated, size)) in enumerate(sizes.items()):
        quality = rng.normal(2 + place, 1, size)
        judged = quality + rng.normal(0, 0.5, size)
        parts.append(answers(quality[:rated], judged, name))
    found = correct_mean(parts)
    shares = [0.25, 0.75]
    cov, spread, alone = 0.0, 0.0, 0.0
    value, variance = 0.0, 0.0
    for share, part in zip(shares, parts, strict=True):
        y, f, g = part.rated[part.is_rated], part.judged[part.is_rated], part.judged
        rest = len(g) - len(y)
        cov += share**2 * np.mean((y - y.mean()) * (f - f.mean())) / len(y)
        spread += share**2 * np.var(g, ddof=1) * (1 / len(y) + 1 / rest)
        alone += share**2 * np.var(y, ddof=1) / len(y)
    lam = cov / spread
    for share, part in zip(shares, parts, strict=True):
        y, f, u = (
            part.rated[part.is_rated],
            part.judged[part.is_rated],
            part.judged[~part.is_rated],
        )
        value += share * (y.mean() + lam * (u.mean() - f.mean()))
        variance += share**2 * np.var(y - lam * f, ddof=1) / len(y) * 79 / 78
        variance += share**2 * lam**2 * np.var(u, ddof=1) / len(u)
    assert found.lam == pytest.approx(lam, rel=0.05)
    assert found.corrected.value == pytest.approx(value, abs=0.01)
    assert found.variance == pytest.approx(variance, rel=0.02)
    # Pooled, the mean would be that of the stratum with most ratings.
    assert abs(found.corrected.value - 2.75) < 0.3
    pooled = np.concatenate([part.rated[part.is_rated] for part in parts])
    assert abs(pooled.mean() - 2.75) > 0.4


def test_the_order_of_answers_and_unknown_names_change_nothing():
    rated, judged = sample(0.9, 0.5)
    one = answers(rated, judged)
    order = np.random.default_rng(1).permutation(240)
    other = RatedAnswers(
        [one.queries[row] for row in order], one.judged[order], one.rated[order]
    )
    for first, second in (([one], [other]), ([one, answers([], [])], [other])):
        found = correct_mean(first, SCALE)
        again = correct_mean(second, SCALE)
        assert found.corrected.ci95 == pytest.approx(again.corrected.ci95, rel=1e-12)


@pytest.mark.parametrize(
    ("rated", "reason"),
    [
        ([], "no rating"),
        ([1.0, 2.0, 5.0, 3.0], "ratings: too few values (n=4, fewer than 5)"),
        ([4.0] * 30, "ratings: all values are equal (n=30)"),
        ([0.0, 6.0] * 9, "ratings: only two different values (n=18, fewer than 25)"),
    ],
)
def test_too_few_ratings_correct_nothing(rated, reason):
    _, judged = sample(0.9, 0.5)
    found = correct_mean([answers(rated, judged)], SCALE)
    assert (found.corrected.value, found.corrected.reason) == (None, reason)
    assert found.ratings.value == (np.mean(rated) if rated else None)
    assert (found.ratings.ci95, found.effective) == (None, None)
    assert found.judge.ci95 is not None
    assert found.ratings_needed(3.0) is None


def test_no_answer_at_all():
    found = correct_mean([])
    assert (found.judge.value, found.corrected.value, found.answers) == (None, None, 0)


def drawn(seed: int, design: Design, judge: str = "excellent") -> Corrected:
    """The difference of the two systems in one drawing."""
    rng = np.random.default_rng(seed)
    quality = quality_of(rng, design)
    judged = JUDGES[judge](rng, quality)
    rated = np.where(draw_rated(rng, design), levels(quality), np.nan)
    first, second = sides(judged, rated)
    return correct_difference([first], [second], SCALE)


def test_ratings_needed_are_the_fewest_of_that_power():
    design = Design(queries=400, ratings=60)
    undecided = 0
    for seed in range(20):
        found = drawn(seed, design, "biased")
        assert found.corrected.value is not None
        assert found.corrected.ci95 is not None
        low, high = found.corrected.ci95
        needed = found.ratings_needed()
        if low > 0 or high < 0:
            assert needed == 60
            continue
        powers = []
        for n in (800, needed or 800, (needed or 800) - 1):
            sd = math.sqrt(n * found.variance_at(n))
            powers.append(paired_power(found.corrected.value, sd, n))
        if needed is None:
            assert powers[0] < 0.8
        else:
            undecided += 1
            assert 60 < needed <= 800
            assert powers[1] >= 0.8 > powers[2]
    assert undecided > 2


@pytest.mark.parametrize("whole", [False, True])
def test_the_variance_that_more_ratings_give_is_foreseen(whole):
    few = Design(queries=400, ratings=120, whole_queries=whole)
    many = Design(queries=400, ratings=480, whole_queries=whole)
    foreseen = [drawn(seed, few).variance_at(480) for seed in range(30)]
    found = [drawn(seed, many).variance for seed in range(30)]
    assert np.mean(foreseen) == pytest.approx(np.mean(found), rel=0.15)
    at_once = drawn(0, few)
    assert at_once.variance_at(120) == pytest.approx(at_once.variance, rel=1e-9)
    assert at_once.variance_at(800) == pytest.approx(at_once.floor, rel=1e-9)


REPLICATES = 150
SLACK = 3.5 * math.sqrt(0.95 * 0.05 / REPLICATES)
"""Of a share near 0.95; a formula without clusters falls below in several cases."""
DESIGNS = {
    "answers": Design(),
    "whole queries": Design(queries=100, repeats=3, ratings=300, whole_queries=True),
}


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("judge", JUDGES)
def test_intervals_hold_the_truth_whatever_the_judge(judge, design):
    for held in simulate(judge, DESIGNS[design], REPLICATES):
        assert held.shown == REPLICATES
        assert held.coverage > 0.95 - SLACK
        assert held.width < (1.02 if judge in ("useless", "led by the query") else 0.95)
