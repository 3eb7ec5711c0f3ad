"""Variance components: against restricted maximum likelihood, and known variances."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import special

from plait.scorers.statistics.components import RESIDUAL, variance_components
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.judge_error import TERMS, JudgeErrors

# Scores of 2 systems x 8 queries x 4 judges x 2 repeats.
SCORES = """
-2.986 -2.178 -2.408 -1.098 -2.519 -2.785 -5.035 -4.383 -1.071 -1.335 1.131 -0.203 0.714
0.261 -3.96 -1.69 -0.606 0.529 1.425 -0.607 -0.214 -0.236 -0.525 -2.668 0.249 -1.588 0.066
-0.443 0.484 -0.397 -0.039 -1.829 3.765 3.761 3.2 3.736 3.795 2.048 1.127 0.917 0.182 -0.793
0.306 0.701 -0.801 -1.769 -1.514 -3.708 -2.313 -2.394 0.741 -0.586 -2.559 -2.724 -2.673
-4.149 -2.679 -0.792 -1.717 -0.843 -1.889 -2.328 -3.443 -2.05 -1.228 -1.97 -1.662 -0.03
-1.539 -0.922 -3.157 -3.172 -0.957 -0.756 0.81 0.27 -0.611 1.189 -1.739 -3.794 2.91 1.524
1.121 2.969 0.718 0.085 -1.439 -1.799 1.93 2.951 2.443 3.189 3.282 0.192 0.158 -0.406 3.453
3.487 5.383 5.832 3.505 4.091 3.253 2.827 3.833 3.425 4.338 5.677 3.111 2.617 1.692 0.063
-1.666 -0.535 0.189 1.106 -1.794 -3.266 -1.363 -2.217 -1.188 1.247 0.79 -1.057 -1.025 -1.114
-0.52 -2.903
"""
# statsmodels 0.15.0: mixedlm("y ~ C(system)", groups=1, vc_formula={"query": "0+C(query)",
# "sq": "0+C(system):C(query)", "judge": "0+C(judge)"}).fit(reml=True), vcomp and scale.
REML = {
    "query": 3.0051634,
    "system x query": 0.5802245,
    "judge": 1.1892639,
    RESIDUAL: 0.8301474,
}


def design(*sizes: int) -> dict[str, np.ndarray]:
    """The factors of a whole design: systems, queries, judges, wordings, repeats."""
    rows = np.array([*product(*map(range, sizes))])
    names = ("system", "query", "judge", "wording", "repeat")
    return dict(zip(names, rows.T, strict=False))


def test_of_a_whole_design_they_are_those_of_restricted_maximum_likelihood() -> None:
    values = np.array(SCORES.split(), dtype=float)
    terms = {name: TERMS[name] for name in REML if name != RESIDUAL}
    found = variance_components(values, design(2, 8, 4, 2), terms, "system", draws=50)
    assert found.variances == pytest.approx(REML, rel=1e-3)
    assert found.groups == {"query": 8, "system x query": 16, "judge": 4, RESIDUAL: 128}
    for term, (low, high) in found.intervals.items():
        assert 0 <= low <= found.variances[term] <= high


def test_what_cannot_be_told_from_something_else_is_named() -> None:
    values = np.random.default_rng(0).normal(size=24)
    found = variance_components(values, design(2, 12, 1, 1), TERMS, "system", draws=20)
    assert set(found.variances) == {"query", RESIDUAL}
    assert "one judge" in found.unidentified["judge"]
    assert "residual" in found.unidentified["system x query"]
    # The wordings of a single judge are told all the same.
    alone = variance_components(
        np.random.default_rng(0).normal(size=72),
        design(2, 12, 1, 3),
        TERMS,
        "system",
        draws=20,
    )
    assert {"wording", "system x wording"} <= {*alone.variances}
    assert "one judge" in alone.unidentified["judge"]
    assert "system" in alone.unidentified["system x judge"]
    assert alone.unidentified["query x judge"] == "it cannot be told from query"
    factors = design(2, 12, 3, 1)
    twin = {"judge": ("judge",), "again": ("judge",)}
    values = np.random.default_rng(0).normal(size=72)
    found = variance_components(values, factors, twin, "system", draws=20)
    assert found.unidentified == {"again": "it cannot be told from judge"}


KNOWN = {
    "query": 4.0,
    "system x query": 2.0,
    "judge": 1.0,
    "system x judge": 0.5,
    "query x judge": 1.5,
    "wording": 0.3,
    RESIDUAL: 3.0,
}


def draw(rng: np.random.Generator, factors: dict[str, np.ndarray]) -> np.ndarray:
    """Scores with the variances above, and means of the systems besides."""
    n = len(factors["system"])
    values = factors["system"] * 3.0 + KNOWN[RESIDUAL] ** 0.5 * rng.normal(size=n)
    for term, variance in KNOWN.items():
        if term != RESIDUAL:
            columns = np.array([factors[name] for name in TERMS[term]])
            _, group = np.unique(columns, axis=1, return_inverse=True)
            values += variance**0.5 * rng.normal(size=group.max() + 1)[group]
    return values


@pytest.mark.slow
@pytest.mark.parametrize("kept", [1.0, 0.8], ids=["whole", "a fifth missing"])
def test_known_variances_are_found_on_average(kept: float) -> None:
    rng = np.random.default_rng(7)
    whole = design(3, 12, 4, 2, 2)
    terms = {name: TERMS[name] for name in KNOWN if name != RESIDUAL}
    sums = dict.fromkeys(KNOWN, 0.0)
    squares = dict.fromkeys(KNOWN, 0.0)
    samples = 100
    for _ in range(samples):
        there = rng.random(len(whole["system"])) < kept
        factors = {name: column[there] for name, column in whole.items()}
        found = variance_components(draw(rng, factors), factors, terms, "system", draws=1)
        for term, variance in found.variances.items():
            sums[term] += variance
            squares[term] += variance**2
    for term, truth in KNOWN.items():
        mean = sums[term] / samples
        error = ((squares[term] / samples - mean**2) / samples) ** 0.5
        assert abs(mean - truth) < 4 * error, term


@pytest.mark.slow
@pytest.mark.parametrize("own", [0, 5], ids=["judge of the pilot", "another judge"])
def test_the_interval_with_the_judge_holds_the_mean_of_all_judges(own: int) -> None:
    """That by query alone misses it mostly, and the more queries the more."""
    rng = np.random.default_rng(11)
    terms = {name: TERMS[name] for name in ("query", "judge", "query x judge")}
    factors = design(1, 40, 5)
    alone = 0
    held = 0
    samples = 200
    for _ in range(samples):
        judges = rng.normal(0, 2, 6)
        queries = rng.normal(0, 4, 200)
        scores = queries[:, None] + judges + rng.normal(0, 2, (200, 6))
        pilot = scores[:40, :5].ravel()
        found = variance_components(pilot, factors, terms, "system", draws=60)
        given = scores[:, own]
        reach = special.stdtrit(199, 0.975) * given.std(ddof=1) / 200**0.5
        mean = Estimate(
            float(given.mean()), (given.mean() - reach, given.mean() + reach), 200
        )
        alone += mean.ci95[0] <= 0 <= mean.ci95[1]
        low, high = JudgeErrors.of(found).interval(mean, (-math.inf, math.inf))
        held += low <= 0 <= high
    assert alone / samples < 0.5
    # One of the pilot's own judges is among those that its variance is estimated from.
    assert 0.93 <= held / samples <= (0.999 if own == 0 else 0.985)


def test_of_judges_that_nobody_measured_nothing_is_said() -> None:
    errors = JudgeErrors(variances={"query": 4.0, RESIDUAL: 1.0}, freedom=math.inf)
    mean = Estimate(50.0, (40.0, 60.0), 40)
    assert errors.interval(mean, (0.0, 100.0)) is None
    assert {option.of for option in errors.options(1.0, 40)} == {"queries", "repeats"}
    worded = JudgeErrors(variances={"wording": 0.0, RESIDUAL: 1.0}, freedom=math.inf)
    assert worded.interval(mean, (0.0, 100.0)) == mean.ci95


def test_what_to_buy_is_the_least_that_is_enough() -> None:
    variances = {"system x query": 8.0, "system x judge": 1.0, RESIDUAL: 4.0, "judge": 50.0}
    variances["wording"] = 0.0
    errors = JudgeErrors(variances=variances, freedom=math.inf)
    reach = special.ndtri(0.975) + special.ndtri(0.8)
    difference = 1.000001 * reach * math.sqrt(2 * (8 / 100 + 1 / 2 + 4 / 200))
    options = {option.of: option for option in errors.options(difference, 100)}
    # 2 (8/100 + 1/J + 4/100J) = 2 (0.08 + 0.5 + 0.02) holds from J = 2 on.
    assert options["judges"].needed == 2
    # Of more queries, replies or wordings the judges' favours stay.
    assert [options[n].needed for n in ("queries", "wordings", "repeats")] == [None] * 3
    plain = JudgeErrors.from_json(errors.as_json)
    assert plain.of_difference(100) == errors.of_difference(100)
    assert errors.of_level == 51.0
