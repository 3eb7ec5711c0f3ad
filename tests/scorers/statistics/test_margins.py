"""Verdicts of non-inferiority: by formulas, by other libraries and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from plait.generators.errors import UsageError
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.margins import (
    Margin,
    Verdict,
    more_for_share,
    more_queries,
    parse_margin,
    share_verdict,
    verdict_of,
    wilson_share,
)
from plait.scorers.statistics.means import mean
from plait.scorers.statistics.power import paired_power


@pytest.mark.parametrize(
    ("text", "margin"),
    [
        ("clipscore=0.5%", Margin("clipscore", 0.5, percent=True)),
        ("lpips=0.02", Margin("lpips", 0.02)),
        (" exact = 98 % ", Margin("exact", 98.0, percent=True)),
        ("judge:gpt-4.1=1e-1", Margin("judge:gpt-4.1", 0.1)),
        ("own:Class=x=2", Margin("own:Class=x", 2.0)),
    ],
)
def test_a_margin_is_a_measure_and_a_number(text: str, margin: Margin) -> None:
    assert parse_margin(text) == margin
    assert parse_margin(f"{margin.measure}={margin.text}") == margin


@pytest.mark.parametrize(
    "text", ["", "lpips", "=0.1", "lpips=", "lpips=small", "lpips=nan", "lpips=inf%"]
)
def test_what_is_no_margin_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="MEASURE=VALUE"):
        parse_margin(text)


@pytest.mark.parametrize("text", ["lpips=0", "lpips=-0.1", "clipscore=-1%"])
def test_a_margin_is_more_than_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="more than 0"):
        parse_margin(text)


@pytest.mark.parametrize(
    ("ends", "higher", "lower"),
    [
        ((-0.9, 0.2), "shown", "worse"),
        ((-1.1, 0.2), "not shown", "not shown"),
        ((-3.0, -1.1), "worse", "shown"),
        ((-1.0, 0.2), "not shown", "not shown"),
        (None, "not shown", "not shown"),
    ],
)
def test_the_whole_interval_is_on_one_side(
    ends: tuple[float, float] | None, higher: Verdict, lower: Verdict
) -> None:
    estimate = Estimate(-0.5, ends, 10)
    assert verdict_of(estimate, -1.0, "higher") == higher
    assert verdict_of(estimate, -1.0, "lower") == lower
    if ends is not None:
        mirrored = Estimate(0.5, (-ends[1], -ends[0]), 10)
        assert verdict_of(mirrored, 1.0, "lower") == higher


@pytest.mark.parametrize(("count", "n"), [(0, 7), (7, 7), (189, 189), (3, 40), (97, 100)])
def test_the_interval_of_a_share_is_wilsons(count: int, n: int) -> None:
    found = wilson_share(count, n)
    theirs = stats.binomtest(count, n).proportion_ci(0.95, method="wilson")
    assert found.value == count / n
    assert found.ci95 == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert wilson_share(0, 0).ci95 is None


def test_as_many_more_queries_as_all_equal_ones_take() -> None:
    for least in (0.5, 0.8, 0.9, 0.98, 0.995):
        seen = wilson_share(5, 5)
        more = more_for_share(seen, least)
        assert more is not None
        assert share_verdict(5 + more, 5 + more, least) == "shown"
        assert share_verdict(4 + more, 4 + more, least) == "not shown"


def test_more_queries_decide_a_share_at_the_power() -> None:
    share, least, n = 0.97, 0.93, 50
    more = more_for_share(Estimate(share, (0.9, 0.99), n), least)
    assert more is not None
    counts = np.arange(n + more + 1)
    shown = [share_verdict(int(count), n + more, least) == "shown" for count in counts]
    power = float(stats.binom.pmf(counts, n + more, share) @ shown)
    assert power == pytest.approx(0.8, abs=0.06)
    assert more_for_share(Estimate(0.93, (0.9, 0.95), n), 0.93) is None
    assert more_for_share(Estimate(0.93000001, (0.9, 0.95), n), 0.93) is None


def test_more_queries_decide_a_mean_at_the_power() -> None:
    estimate = Estimate(-0.2, (-1.5, 1.1), 20)
    more = more_queries(estimate, -1.0, 2.8)
    assert more is not None
    assert paired_power(0.8, 2.8, 20 + more) >= 0.8 > paired_power(0.8, 2.8, 19 + more)
    assert more_queries(estimate, -0.2, 2.8) is None
    assert more_queries(Estimate(None, None, 0), -1.0, 2.8) is None
    assert more_queries(estimate, -50.0, 0.01) == 1


# --------------------------------------------------------------------------- the level


def binomial_slack(rate: float, trials: int) -> float:
    """Three standard errors of a simulated rate."""
    return 3 * math.sqrt(rate * (1 - rate) / trials)


@pytest.mark.parametrize(
    "noise", ["normal", "laplace", "bounded"], ids=["normal", "heavy", "bounded"]
)
def test_at_the_margin_a_mean_passes_in_a_fortieth_of_cases(noise: str) -> None:
    trials, n, margin = 1500, 40, 0.05
    rng = np.random.default_rng(3)
    draws = {
        "normal": rng.normal(0.0, 0.1, (trials, n)),
        "laplace": rng.laplace(0.0, 0.07, (trials, n)),
        "bounded": rng.uniform(-0.2, 0.2, (trials, n)),
    }[noise]
    passed = 0
    for row in draws - margin:
        passed += verdict_of(mean(row, (-1.0, 1.0)), -margin, "higher") == "shown"
    assert passed / trials <= 0.025 + binomial_slack(0.025, trials)
    assert passed / trials >= 0.025 - binomial_slack(0.025, trials)


@pytest.mark.parametrize("least", [0.5, 0.6, 0.75, 0.9, 0.98])
def test_at_the_margin_a_share_passes_in_at_most_a_fortieth_of_cases(least: float) -> None:
    """Exactly, by the binomial distribution."""
    worst = 0.0
    for n in [*range(5, 90), 189, 290, 400]:
        counts = np.arange(n + 1)
        shown = [share_verdict(int(count), n, least) == "shown" for count in counts]
        worst = max(worst, float(stats.binom.pmf(counts, n, least) @ shown))
    assert 0.0 < worst <= 0.025
