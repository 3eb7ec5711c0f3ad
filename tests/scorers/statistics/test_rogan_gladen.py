"""Rogan and Gladen's share: by its formula, a jackknife over queries, and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rating_simulation import MEANS, SPREAD, Design, draw_rated, quality_of, sides
from scipy import special

from plait.scorers.statistics.corrected import RatedAnswers
from plait.scorers.statistics.rogan_gladen import RoganGladen, rogan_gladen

GOOD_FROM = 3.0
"""The quality from which people say yes."""


def judged_answers(seed: int, design: Design, wrong: float) -> RatedAnswers:
    """The first system's answers, of which a judge misjudges such a share."""
    rng = np.random.default_rng(seed)
    quality = quality_of(rng, design)
    yes = (quality > GOOD_FROM) * 1.0
    judged = np.where(rng.random(yes.shape) < wrong, 1 - yes, yes)
    rated = np.where(draw_rated(rng, design), yes, np.nan)
    return sides(judged, rated)[0]


def by_formula(answers: RatedAnswers, chosen: np.ndarray | None = None) -> float:
    """The share by the formula, of some of the answers."""
    chosen = np.ones(len(answers.rated), bool) if chosen is None else chosen
    judged, rated = answers.judged[chosen], answers.rated[chosen]
    right = judged[rated == 1].mean()
    wrong = 1 - judged[rated == 0].mean()
    return float((judged.mean() + wrong - 1) / (right + wrong - 1))


@pytest.mark.parametrize(
    "design",
    [Design(queries=600, ratings=600), Design(queries=200, repeats=4, ratings=600)],
)
def test_agrees_with_the_formula_and_a_jackknife_over_queries(design):
    answers = judged_answers(3, design, 0.15)
    found = rogan_gladen([answers])
    assert found.share.value == pytest.approx(by_formula(answers), rel=1e-12)
    names = np.array(answers.queries)
    left_out = [by_formula(answers, names != name) for name in np.unique(names)]
    count = len(left_out)
    error = math.sqrt((count - 1) ** 2 / count * np.var(left_out, ddof=1))
    assert found.share.ci95 is not None
    width = found.share.ci95[1] - found.share.ci95[0]
    # A score interval, by Student's t: not 1.96 errors to each side, but nearly so.
    assert width == pytest.approx(2 * 1.96 * error, rel=0.06)
    rated = answers.rated == 1
    assert found.sensitivity.value == pytest.approx(answers.judged[rated].mean())
    assert found.judged == pytest.approx(answers.judged.mean())


def test_intervals_hold_the_truth():
    truth = float(special.ndtr((MEANS[0] - GOOD_FROM) / SPREAD))
    held = 0
    for seed in range(150):
        answers = judged_answers(seed, Design(ratings=200), 0.1)
        ends = rogan_gladen([answers]).share.ci95
        assert ends is not None
        held += ends[0] <= truth <= ends[1]
    assert held / 150 > 0.95 - 3.5 * math.sqrt(0.95 * 0.05 / 150)


def test_strata_weigh_what_they_have_of_all_answers():
    """Three times as many ratings in one stratum, whose answers are the better ones."""
    one = judged_answers(1, Design(queries=400, ratings=300), 0.1)
    other = judged_answers(2, Design(queries=400, ratings=100), 0.1)
    other = RatedAnswers([f"o{q}" for q in other.queries], other.judged, other.rated)
    found = rogan_gladen([one, other])
    rates = []
    for rating in (1.0, 0.0):
        hits, total = 0.0, 0.0
        for part in (one, other):
            weight = 400 / part.is_rated.sum()
            chosen = part.rated == rating
            hits += weight * (part.judged[chosen] == rating).sum()
            total += weight * chosen.sum()
        rates.append(hits / total)
    judged = (one.judged.mean() + other.judged.mean()) / 2
    expected = (judged + rates[1] - 1) / (sum(rates) - 1)
    assert found.share.value == pytest.approx(expected, rel=1e-12)


def judge(yes_of_yes: int, no_of_no: int, of: int = 20) -> RoganGladen:
    """A judge with so many right of 20 answers rated yes, and of 20 rated no."""
    judged = [1.0] * yes_of_yes + [0.0] * (of - yes_of_yes)
    judged += [0.0] * no_of_no + [1.0] * (of - no_of_no)
    rated = [1.0] * of + [0.0] * of
    names = [str(number) for number in range(2 * of)]
    return rogan_gladen([RatedAnswers(names, np.array(judged), np.array(rated))])


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (judge(10, 10), "undefined: sensitivity + specificity <= 1 (0.500 + 0.500)"),
        (judge(5, 10), "undefined: sensitivity + specificity <= 1 (0.250 + 0.500)"),
        (judge(11, 11), "sensitivity + specificity is not shown to exceed 1"),
        (judge(3, 3, of=4), "too few rated yes (queries: 4, fewer than 5)"),
        (rogan_gladen([]), "no scored answer"),
    ],
)
def test_what_is_undefined_has_a_reason_and_no_value(found, reason):
    assert (found.share.value, found.share.ci95) == (None, None)
    assert found.share.reason.startswith(reason)
