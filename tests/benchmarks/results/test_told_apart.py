"""What is said of which systems a scorer tells apart."""

from __future__ import annotations

import math

import pytest
from report_helpers import Judge, board_of

from plait.benchmarks.results.comparisons import better_pairs, comparisons
from plait.benchmarks.results.told_apart import Better, by_text, told_apart

pytestmark = pytest.mark.contract

HIGH, CLOSE = [5, 6, 5, 6, 5, 6, 5, 6], [5, 6, 5, 6, 6, 4, 5, 6]
MIDDLE, LOW = [3, 4, 3, 3, 4, 3, 4, 3], [1, 2, 0, 1, 2, 1, 0, 1]


def only(scores, **options):
    (found,) = told_apart(board_of(scores, categories={}, **options))
    return found


def test_of_three_systems_every_pair_is_told_and_the_ground_truth_is_none():
    one = only({"gt": [6] * 8, "low": LOW, "close": CLOSE, "high": HIGH})
    assert one.systems == ["high", "close", "low"]
    assert one.better == [Better(("high", "close"), ("low",))]
    assert one.alike == [("high", "close")]
    assert (one.pairs, one.correction, one.number) == (3, "holm", 0)
    expected = "high and close are better than low; high and close cannot be told apart"
    assert one.text == f"{expected} (Holm, 3 pairs)"


def test_what_is_told_of_three_systems_is_every_pair():
    one = only({"high": HIGH, "middle": MIDDLE, "low": LOW})
    assert one.better == [
        Better(("high",), ("middle", "low")),
        Better(("middle",), ("low",)),
    ]
    assert one.alike == []
    assert "high, middle, low" in one.text
    same = only({"a": HIGH, "b": CLOSE, "c": [*reversed(HIGH)]})
    assert same.better == []
    assert [set(group) for group in same.alike] == [{"a", "b", "c"}]


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_of_many_systems_only_the_best_is_told_of(direction):
    scores = {"a": HIGH, "b": CLOSE, "c": MIDDLE, "d": LOW, "gt": [6] * 8}
    board = board_of(scores, scorers=(Judge(direction=direction),), categories={})
    (one,) = told_apart(board)
    shown = better_pairs(comparisons(board)["judge"])
    best, *others = one.systems
    assert best == ("a" if direction == "higher" else "d")
    beaten = tuple(name for name in others if (best, name) in shown)
    assert one.better == [Better((best,), beaten)]
    tied = {name for name in others if name not in beaten}
    assert set().union(*one.alike) - {best} == tied
    assert one.pairs == math.comb(4, 2)


def test_two_systems_are_one_pair_and_one_alone_is_none():
    one = only({"a": HIGH, "b": LOW})
    assert one.better == [Better(("a",), ("b",))]
    assert one.pairs == 1
    assert only({"a": HIGH, "b": CLOSE}).alike == [("a", "b")]
    assert told_apart(board_of({"a": HIGH, "gt": [6] * 8})) == []
    assert told_apart(board_of({"a": HIGH, "b": [None] * 8})) == []
    assert told_apart(board_of({"a": HIGH, "b": LOW}, scorers=(Judge(of_sets=True),))) == []


def test_uncorrected_pairs_are_said_to_be_so_and_long_lists_are_cut():
    assert "not corrected" in only({"a": HIGH, "b": LOW}, correction="none").text
    worse = {f"s{i}": 4 * LOW for i in range(7)}
    many = only({"best": 4 * HIGH, **worse})
    assert len(many.better[0].others) == 7
    assert many.text.startswith("best is better than all 7 others")
    few = only({"best": 4 * HIGH, "close": 4 * CLOSE, **worse})
    assert few.alike == [("best", "close")]
    assert "4 more" in few.text


def test_scorers_that_tell_the_same_share_a_sentence():
    one = only({"a": HIGH, "b": LOW})
    assert by_text([one, one]) == {one.text: [one, one]}
