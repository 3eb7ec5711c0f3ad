"""The order of ground truth and controls on a board: whether a judge is valid."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_helpers import Judge, board, evaluation, sample

from benchmarks.results.validity import checks
from benchmarks.tasks.controls import CONTROLS
from generators.base import NotApplicable, Skip, Unscored

SHUFFLED, NO_IMAGES, OTHER, REPEATED = CONTROLS


def judged(table, **options):
    """A board of scores by system and query; None for a skipped answer."""
    found = []
    for name, scores in table.items():
        for i, score in enumerate(scores):
            about = sample(i)
            skipped = Skip("cannot be made") if score is None else None
            found.append(evaluation(name, about, score, document=skipped))
    return board(found, **options)


def test_order_by_hand():
    made = judged(
        {
            "gt": [5, 6, 4, 5, 6, 3, 5],
            SHUFFLED: [4, 5, 3, 4, 5, 2, 4],
            NO_IMAGES: [5, 6, 4, 5, 6, 3, 5],
            OTHER: [6, 8, 5, 6, 7, 4, None],
            REPEATED: [5, 6, None, Unscored("?"), 5, None, NotApplicable("no")],
            "anole": [1, 1, 1, 1, 1, 1, 1],
        }
    )
    found = {c.control: c for c in checks(made)}
    assert list(found) == list(CONTROLS)
    assert {n: c.order for n, c in found.items()} == {
        SHUFFLED: "right",
        NO_IMAGES: "blind",
        OTHER: "wrong",
        REPEATED: "undecided",
    }
    shuffled = found[SHUFFLED]
    assert (shuffled.above, shuffled.below, shuffled.difference.n) == (7, 0, 7)
    assert shuffled.difference.value == pytest.approx(1.0)
    assert shuffled.truth.value == pytest.approx(34 / 7)
    assert shuffled.made.value == pytest.approx(27 / 7)
    other = found[OTHER]
    assert (other.above, other.below, other.difference.n) == (0, 6, 6)
    # both means are of the queries that have both
    assert other.truth.value == pytest.approx(29 / 6)
    few = found[REPEATED]
    assert (few.difference.n, few.difference.value) == (3, pytest.approx(1 / 3))
    assert few.difference.ci95 is None
    assert few.as_json()["equal"] == 2
    assert json.dumps([c.as_json() for c in checks(made)], allow_nan=False)


def test_nothing_scored_and_nothing_to_compare_with():
    assert checks(judged({SHUFFLED: [1, 2]})) == []
    (check,) = checks(judged({"gt": [1, None], SHUFFLED: [None, 2]}))
    assert (check.order, check.difference.n) == ("not scored", 0)


@pytest.mark.parametrize("scale", ["0-6", "-1-1", "no bounds"])
@pytest.mark.parametrize("noise", [2e-16, 1e-14, -1e-12])
def test_the_last_bits_of_a_score_decide_nothing(scale, noise):
    values = np.linspace(0.1, 0.9, 20)
    scorers = (Judge("judge", scale),)
    for moved in (values + noise, np.where(np.arange(20) % 7, values, values + noise)):
        table = {"gt": moved.tolist(), SHUFFLED: values.tolist()}
        (check,) = checks(judged(table, scorers=scorers))
        assert (check.order, check.above, check.below) == ("blind", 0, 0)
        assert check.difference.value == 0
    table = {"gt": (values + 1e-6).tolist(), SHUFFLED: values.tolist()}
    (check,) = checks(judged(table, scorers=scorers))
    assert (check.order, check.above) == ("right", 20)


@pytest.mark.parametrize(("n", "order"), [(5, "undecided"), (6, "right"), (30, "right")])
def test_where_all_differences_are_equal_their_signs_decide(n, order):
    (check,) = checks(judged({"gt": [3.0] * n, SHUFFLED: [2.0] * n}))
    assert check.difference.ci95 is None
    assert check.order == order


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_swapping_the_two_turns_the_order(pairs):
    names = {"right": "wrong", "wrong": "right"}
    first, second = ([float(p[i]) for p in pairs] for i in (0, 1))
    (one,) = checks(judged({"gt": first, SHUFFLED: second}))
    (two,) = checks(judged({"gt": second, SHUFFLED: first}))
    assert two.order == names.get(one.order, one.order)
    assert (one.above, one.below) == (two.below, two.above)
    assert two.difference.value == pytest.approx(-one.difference.value)
