"""The order of ground truth and controls on a board: whether a judge is valid."""

from __future__ import annotations

import numpy as np
import pytest
from report_helpers import Judge, board_of

from plait.benchmarks.results.leaderboard_tables import controls_table
from plait.benchmarks.results.validity import checks
from plait.benchmarks.tasks.controls import CONTROLS
from plait.generators.base import NotApplicable, Unscored

pytestmark = pytest.mark.contract

SHUFFLED, NO_IMAGES, OTHER, REPEATED = CONTROLS


def test_order_by_hand():
    made = board_of(
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
    orders = ["right", "blind", "wrong", "undecided"]
    assert {n: c.order for n, c in found.items()} == dict(
        zip(CONTROLS, orders, strict=True)
    )
    shuffled, other, few = found[SHUFFLED], found[OTHER], found[REPEATED]
    assert (shuffled.above, shuffled.below, shuffled.difference.n) == (7, 0, 7)
    assert shuffled.difference.value == pytest.approx(1.0)
    assert shuffled.truth.value == pytest.approx(34 / 7)
    assert shuffled.made.value == pytest.approx(27 / 7)
    assert (other.above, other.below, other.difference.n) == (0, 6, 6)
    # Both means are of the queries that have both.
    assert other.truth.value == pytest.approx(29 / 6)
    assert (few.difference.n, few.difference.value) == (3, pytest.approx(1 / 3))
    assert few.difference.ci95 is None
    assert [row[-1].text for row in controls_table(made).rows] == orders


def test_nothing_scored_and_nothing_to_compare_with():
    assert checks(board_of({SHUFFLED: [1, 2]})) == []
    (check,) = checks(board_of({"gt": [1, None], SHUFFLED: [None, 2]}))
    assert (check.order, check.difference.n) == ("not scored", 0)
    assert controls_table(board_of({"gt": [1, 2]})) is None


@pytest.mark.parametrize(
    ("scale", "noise"), [("0-6", -1e-12), ("-1-1", 2e-16), ("no bounds", 1e-14)]
)
def test_the_last_bits_of_a_score_decide_nothing(scale, noise):
    values, scorers = np.linspace(0.1, 0.9, 20), (Judge("judge", scale),)

    def check(moved):
        table = {"gt": moved.tolist(), SHUFFLED: values.tolist()}
        (found,) = checks(board_of(table, scorers=scorers))
        return found.order, found.above, found.below

    some = np.where(np.arange(20) % 7, values, values + noise)
    assert check(values + noise) == check(some) == ("blind", 0, 0)
    assert check(values + 1e-6) == ("right", 20, 0)


@pytest.mark.parametrize(
    ("n", "orders"), [(5, ("undecided", "undecided")), (6, ("right", "wrong"))]
)
def test_where_all_differences_are_equal_their_signs_decide(n, orders):
    for scores, order in zip([(3.0, 2.0), (2.0, 3.0)], orders, strict=True):
        table = {name: [s] * n for name, s in zip(("gt", SHUFFLED), scores, strict=True)}
        (check,) = checks(board_of(table))
        assert (check.difference.ci95, check.order) == (None, order)
