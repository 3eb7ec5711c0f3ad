"""Axis, histograms and disagreements of the page, by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
from report_helpers import Judge, board, board_of, evaluation, sample, system

from benchmarks.results.axis import axis_of
from benchmarks.results.report import write_report
from benchmarks.results.report.plots import disagreements_of, distributions_of
from benchmarks.results.wording import absent_intervals
from generators.base import Unscored


def cell(mean, low=None, high=None) -> dict:
    return {"mean": mean, "ci95": None if low is None else [low, high]}


@pytest.mark.parametrize(
    ("cells", "ticks"),
    [
        ([cell(2, 1, 3), cell(4, 3, 5)], (1, 2, 3, 4, 5)),
        ([cell(0.31, 0.28, 0.33)], (0.28, 0.3, 0.32)),
        ([cell(0.1746), cell(0.1782)], (0.176, 0.178)),
        ([cell(-5, -10, 0)], (-10, -8, -6, -4, -2, 0)),
        ([cell(1e78), cell(3e78)], (1e78, 2e78, 3e78)),
    ],
)
def test_axis_holds_all_intervals_and_has_round_ticks(cells, ticks):
    axis = axis_of(cells)
    ends = [end for c in cells for end in (c["mean"], *(c["ci95"] or ()))]
    assert axis.low < min(ends)
    assert axis.high > max(ends)
    assert axis.ticks == pytest.approx(ticks)
    assert all(axis.low <= t <= axis.high for t in axis.ticks)
    assert 0 < float(axis.percent(ends[0]).rstrip("%")) < 100


@pytest.mark.parametrize(
    "cells", [[], [cell(None)], [cell(3), cell(3)], [cell(-1.7e308), cell(1.7e308)]]
)
def test_no_axis_where_nothing_can_be_told_apart(cells):
    assert axis_of(cells) is None


def test_whole_scores_have_a_bar_each():
    made = board_of({"a": [0, 6, 6, 3], "b": [1, None, Unscored("no"), 1]})
    found = distributions_of(made, "judge", "0-6")
    (row,) = found.histograms.values()
    assert row["a"].counts == (1, 0, 0, 1, 0, 0, 2)
    assert row["a"].label == "0: 1, 3: 1, 6: 2"
    assert row["b"].counts == (0, 2, 0, 0, 0, 0, 0)
    assert (found.low, found.high, found.highest) == ("0", "6", 1.0)
    assert found.height(row["a"], 2) == 50


def test_other_scores_share_bins_over_all_systems():
    made = board_of({"a": [20.5, 25.25, 31.0], "b": [22.0, 22.1, 29.0]})
    found = distributions_of(made, "judge", "0-100")
    (row,) = found.histograms.values()
    assert {len(h.counts) for h in row.values()} == {12}
    assert [sum(h.counts) for h in row.values()] == [3, 3]
    assert (found.low, found.high) == ("20.5", "31")


@pytest.mark.parametrize("scores", [[0.5, 0.5], [1e78, -1e78], [1e-90, 2e-90], [7, 9, -1]])
def test_no_score_is_left_out_however_odd(scores):
    found = distributions_of(board_of({"a": scores}), "judge", "0-6")
    (row,) = found.histograms.values()
    assert sum(row["a"].counts) == len(scores)


def test_nothing_is_drawn_without_scores():
    assert distributions_of(board_of({"a": [None]}), "judge", "0-6") is None
    made = board([evaluation("a", sample(0), 1)], systems=[system("a"), system("b")])
    (row,) = distributions_of(made, "judge", "0-6").histograms.values()
    assert row["b"] is None


def test_widest_disagreements_come_first():
    made = board_of(
        {
            "a": [3, 6, 5, 1, None],
            "b": [3, 0, 1, 5, 6],
            "c": [3, 3, 1, 1, Unscored("no")],
        }
    )
    keys = [f"Q-{i:04d}" for i in range(5)]
    found = disagreements_of(made, "judge", keys)
    assert [d.query for d in found] == ["Q-0001", "Q-0002", "Q-0003"]
    assert (found[0].best, found[0].worst) == (("a", 6.0), ("b", 0.0))
    assert found[0].link == "#Q-0001"
    assert [d.query for d in disagreements_of(made, "judge", keys[2:])] == keys[2:4]


def test_controls_take_no_part_where_there_are_two_other_systems():
    scores = {"gt": [6, 6], "gt:no-images": [0, 0], "a": [3, 4], "b": [3, 2]}
    keys = ["Q-0000", "Q-0001"]
    (found,) = disagreements_of(board_of(scores), "judge", keys)
    assert (found.query, found.best, found.worst) == ("Q-0001", ("a", 4.0), ("b", 2.0))
    del scores["b"]
    assert len(disagreements_of(board_of(scores), "judge", keys)) == 2


def test_an_id_that_no_address_can_hold_is_still_listed():
    asked = [replace(sample(i), id=id) for i, id in enumerate(("\ud800", "a/b c#?"))]
    found = [evaluation(n, s, v) for s in asked for n, v in (("a", 1), ("b", 5))]
    links = {d.query: d.link for d in disagreements_of(board(found), "judge", ["\ud800"])}
    assert links == {"\ud800": "#section-answers"}
    (other,) = disagreements_of(board(found), "judge", ["a/b c#?"])
    assert other.link == "#a%2Fb%20c%23%3F"


@dataclass(frozen=True)
class Distance(Judge):
    """A scorer of which less is better."""

    direction: str = "lower"


def test_page_says_direction_method_and_why_there_is_no_interval(tmp_path):
    made = replace(board_of({"a": [1, 2], "b": [5, 4]}), scorers=[Distance()])
    html = write_report(made, tmp_path, {}, lambda image: image.read()).read_text()
    assert "lower is better" in html
    why = "No interval for per query and situational analysis: too few values (n=2, fewer"
    assert f'class="remarks">{why} than 5).</p>' in html


def test_one_line_says_which_means_have_no_interval_and_why(tmp_path):
    """The means of fields stand apart, and so does what is said of them."""
    numbers = {"art": 7, "health": 1, "finance": 3}
    fields = [name for name, n in numbers.items() for _ in range(n)]
    asked = [sample(i, "project-based learning", f) for i, f in enumerate(fields)]
    asked += [sample(20 + i, "multi-step reasoning", "physics") for i in range(2)]
    asked += [sample(30 + i) for i in range(6)]
    made = board([evaluation(n, s, i % 4) for n in ("a", "b") for i, s in enumerate(asked)])
    html = write_report(made, tmp_path, {}, lambda image: image.read()).read_text()
    few = "too few values (n={}, fewer than 5)."
    reasoning = "multi-step reasoning"
    main = f"fixed weights (because of {reasoning}) and {reasoning}: {few.format(2)}"
    by_field = f"health, finance and physics: {few.format('1 to 3')}"
    remarks = re.findall('class="remarks">No interval for (.*?)</p>', html)
    assert remarks == [main, by_field]
    assert html.index(main) < html.index("<summary>By field") < html.index(by_field)


def test_each_reason_for_no_interval_names_its_means():
    few = "too few values (n=1, fewer than 5)"
    cells = [
        ("art", {"mean": 1.0, "ci95": None, "reason": few}),
        ("health", {"mean": 1.0, "ci95": None, "reason": "all values are equal (n=9)"}),
        ("finance", {"mean": 1.0, "ci95": [0.5, 1.5]}),
        ("physics", {"mean": None, "ci95": None, "reason": "no scored query"}),
        ("reading", {"mean": 1.0, "ci95": None, "reason": "not applicable"}),
    ]
    line = f"No interval for art: {few}; for health: all values are equal (n=9)."
    assert absent_intervals(cells) == line
    assert absent_intervals(cells[2:]) == ""
