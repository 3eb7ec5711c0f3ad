"""Bars: what is reached, what is not, and what could not be measured."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.miniature.bars import Bar, BenchPart
from benchmarks.miniature.bench import summary
from benchmarks.miniature.captions import area
from benchmarks.miniature.repeats import coverage
from scorers.statistics.estimate import Estimate


def test_a_bar_is_reached_at_its_aim() -> None:
    assert Bar.at_least("x", Estimate(0.97), 0.97).state == "reached"
    assert Bar.at_least("x", Estimate(0.9699), 0.97).state == "not reached"
    assert Bar(name="x", estimate=Estimate(0.1)).state == "reported"


def test_what_has_no_value_is_never_reached() -> None:
    nothing = Estimate(None, None, 0, "nothing is scored")
    assert Bar.at_least("x", nothing, 0.5).state == "not reached"
    absent = BenchPart.not_there("Artists", "mini has no model named sdxl")
    assert absent.bars[0].state == "not there"
    assert "mini has no model named sdxl" in absent.all_tables[0].markdown
    reached = BenchPart(title="x", bars=(Bar.at_least("x", Estimate(1.0), 0.5),))
    assert summary([absent, reached]) == "1 reached, 0 not reached, 1 not there"


def test_the_area_is_that_of_all_pairs_of_scores() -> None:
    rng = np.random.default_rng(0)
    right, wrong = rng.normal(1, 1, 40).round(1), rng.normal(0, 1, 40).round(1)
    pairs = [float(a > b) + 0.5 * (a == b) for a in right for b in wrong]
    ones = np.ones((1, 40))
    assert area(right, wrong, ones)[0] == pytest.approx(np.mean(pairs))
    # A scene that is drawn twice counts as if it stood there twice.
    weights = np.zeros((1, 40))
    weights[0, [0, 1]] = 2, 1
    both = [0, 0, 1]
    drawn = [
        float(right[i] > wrong[j]) + 0.5 * (right[i] == wrong[j])
        for i in both
        for j in both
    ]
    assert area(right, wrong, weights)[0] == pytest.approx(np.mean(drawn))


def test_intervals_by_query_cover_and_those_of_dependent_repeats_do_not() -> None:
    rng = np.random.default_rng(1)
    queries = rng.normal(0.5, 0.2, (200, 1))
    values = queries + rng.normal(0, 0.02, (200, 4))
    by_query = coverage(values)
    naive = coverage(values, by_query=False)
    assert by_query.value is not None
    assert naive.value is not None
    assert 0.93 < by_query.value < 0.97
    assert naive.value < 0.8
    assert by_query.n == 1000


def test_without_an_interval_no_study_counts() -> None:
    assert coverage(np.ones((20, 2))).value is None
