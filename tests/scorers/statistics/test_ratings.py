"""Ratings against closed forms, an independent float64 fit, and theory; the bootstrap."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from scipy.stats import norm

from plait.scorers.statistics.estimate import bootstrap_estimate, bootstrap_weights
from plait.scorers.statistics.means import pooled_mean
from plait.scorers.statistics.ratings import (
    POINTS,
    Battle,
    PairedModel,
    bradley_terry,
    online_elo,
)

NAMES = ("base", "a", "b", "c")


def battle(question: str, first: str, second: str, score: float, **about: object) -> Battle:
    return Battle(question=question, first=first, second=second, score=score, **about)


def league(seed: int, n: int = 80, ties: float = 0.2) -> list[Battle]:
    """Games of four systems on `n` questions, with order and two style features."""
    rng = random.Random(seed)
    strength = {"base": 0.0, "a": 0.6, "b": -0.5, "c": 0.1}
    games = []
    for i in range(n):
        first, second = rng.sample(NAMES, 2)
        gaps = (rng.gauss(0.2, 0.5), rng.gauss(0, 0.3))
        for order in (1, -1):
            score = 0.5
            if rng.random() > ties:
                odds = strength[first] - strength[second] + 0.4 * order + gaps[0]
                score = float(rng.random() < 1 / (1 + math.exp(-odds)))
            weight = rng.choice([1.0, 3.0])
            about = {"order": order, "style": gaps, "weight": weight}
            games.append(battle(f"q{i}", first, second, score, **about))
    return games


def reference(games: Sequence[Battle]) -> dict[str, float]:
    """The same model minimised over plain float64 sums, with no shared code."""
    scale = [math.sqrt(np.mean([g.style[k] ** 2 for g in games])) for k in range(2)]

    def loss(parameters: np.ndarray) -> float:
        b = dict(zip(NAMES, [0.0, *parameters[:3]], strict=True))
        order, *style = parameters[3:]
        total = 0.0
        for g in games:
            x = b[g.first] - b[g.second] + order * g.order
            x += sum(c * s / r for c, s, r in zip(style, g.style, scale, strict=True))
            win, lose = np.logaddexp(0, -x), np.logaddexp(0, x)
            total += g.weight * (g.score * win + (1 - g.score) * lose)
        return total

    result = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-7}).x
    return dict(zip((*NAMES, "order", "s", "t"), (0.0, *result), strict=True))


def test_ratings_equal_an_independent_fit() -> None:
    games = league(1)
    target = reference(games)
    result = bradley_terry(games, "base", ("s", "t"), draws=2)
    for name in NAMES:
        rating = 1000 + POINTS * target[name]
        assert result.systems[name].value == pytest.approx(rating, abs=0.01)
    for name in ("order", "s", "t"):
        assert result.effects[name].value == pytest.approx(target[name], abs=1e-4)


@given(seed=st.integers(0, 10**6))
@example(seed=1)  # a draw of which nothing more runs off than of all games
@settings(max_examples=5, deadline=None)
def test_order_and_naming_of_battles_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    games = league(seed, 20)
    changed = [g.flipped if rng.random() < 0.5 else g for g in games]
    rng.shuffle(changed)
    one, other = (bradley_terry(g, "base", ("s", "t"), draws=4) for g in (games, changed))
    assert one == other


def test_one_loss_in_one_order_leaves_the_interval_open() -> None:
    # Over a third of the draws miss the one question that bounds rating and order.
    games = [battle(f"q{i}", "base", "a", float(i > 0), order=1) for i in range(40)]
    games += [battle(f"q{i}", "base", "a", i % 2, order=-1) for i in range(40)]
    result = bradley_terry(games, "base", draws=40)
    assert result.systems["a"].value == pytest.approx(1000 - POINTS * math.log(39) / 2)
    assert result.systems["a"].reason == "interval not bounded below"
    assert result.effects["order"].value == pytest.approx(math.log(39) / 2)
    assert result.effects["order"].reason == "interval not bounded above"


def unbounded(table: PairedModel, k: int) -> bool:
    """Whether a direction moves column `k` and makes no outcome less likely."""
    sides = np.concatenate([table.x[table.score > 0], -table.x[table.score < 1]])
    for sign in (1, -1):
        goal = np.zeros(table.x.shape[1])
        goal[k] = -sign
        solved = linprog(goal, A_ub=-sides, b_ub=np.zeros(len(sides)), bounds=(-1, 1))
        if -solved.fun > 1e-7:
            return True
    return False


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_exactly_the_coefficients_without_bound_have_no_value(seed: int) -> None:
    rng = random.Random(seed)
    games = []
    for i in range(rng.randint(3, 20)):
        first, second = rng.sample(NAMES, 2)
        for order in (1, -1)[: rng.randint(1, 2)]:
            score, style = rng.choice([0, 0, 0, 0.5, 1, 1, 1]), (rng.choice([-1.0, 0, 1]),)
            games.append(battle(f"q{i}", first, second, score, order=order, style=style))
    table = PairedModel(games, "base", ("s",))
    result = bradley_terry(games, "base", ("s",), draws=1)
    ratings = [result.systems[s] for s in table.systems]
    ratings += [result.effects[e] for e in table.effects]
    target = [unbounded(table, k) for k in range(table.x.shape[1])]
    assert [e.value is None for e in ratings] == target
    assert result.win_rates.keys() == result.systems.keys() - {"base"}


def test_systems_out_of_reach_are_named() -> None:
    games = [*league(3, 20), battle("q", "x", "y", 1)]
    result = bradley_terry(games, "base", draws=3).systems
    assert (result["x"].value, result["x"].n) == (None, 0)
    assert result["x"].reason == "no game leads from 'base' to it"
    assert result["a"].value is not None
    assert bradley_terry([], "base", draws=3).systems["base"].value == 1000


def test_intervals_have_the_width_of_theory_and_draw_questions() -> None:
    # 200 questions of one game each: the logit's standard error is 1/sqrt(n p (1-p)).
    n, p = 200, 0.6
    games = [battle(f"q{i}", "a", "base", float(i < p * n)) for i in range(n)]
    low, high = bradley_terry(games, "base", draws=300).systems["a"].ci95
    target = 2 * norm.ppf(0.975) * POINTS / math.sqrt(n * p * (1 - p))
    assert high - low == pytest.approx(target, rel=0.2)
    # Games of one question are drawn together.
    once, thrice = (bradley_terry(games * k, "base", draws=9).systems["a"] for k in (1, 3))
    assert thrice.value == pytest.approx(once.value, abs=1e-6)
    assert thrice.ci95 == pytest.approx(once.ci95, abs=1e-3)


def test_an_interval_never_ends_between_a_number_and_infinity() -> None:
    # The 97.5th percentile falls between the 97th and the 98th of 100 draws.
    samples = np.array([float(i) for i in range(97)] + [math.inf] * 3)
    assert bootstrap_estimate(1.0, samples, 1000).reason == "interval not bounded above"
    assert bootstrap_estimate(1.0, -samples, 1000).reason == "interval not bounded below"
    samples[97] = 97.0
    assert bootstrap_estimate(1.0, samples, 1000).ci95 == (2.0, 97.0)
    samples[:11] = math.nan
    assert bootstrap_estimate(1.0, samples, 1000).ci95 is None


def test_online_elo_by_hand() -> None:
    games = [battle("q", "a", "b", 1), battle("q", "b", "a", 0.5, weight=2)]
    result = online_elo(games, k=32)
    step = 64 * (0.5 - 1 / (1 + 10 ** ((1016 - 984) / 400)))
    assert result == pytest.approx({"a": 1016 - step, "b": 984 + step})
    assert online_elo(games[::-1], k=32) != pytest.approx(result)


def test_a_pooled_mean_of_unequal_questions_has_the_width_of_the_bootstrap() -> None:
    rng = random.Random(4)
    names = [f"q{i}" for i in range(300) for _ in range(rng.randint(1, 5))]
    level = {name: rng.gauss(0, 1) for name in names}
    values = [level[name] + rng.gauss(0, 0.5) for name in names]
    result = pooled_mean(names, values)
    own = {n: [v for m, v in zip(names, values, strict=True) if m == n] for n in level}
    sums = np.array([[sum(v), len(v)] for v in own.values()])
    samples = bootstrap_weights(list(own), 4000) @ sums
    target = np.quantile(samples[:, 0] / samples[:, 1], [0.025, 0.975])
    assert result.value == pytest.approx(np.mean(values))
    assert result.ci95 == pytest.approx(target, abs=0.01)
