"""Histograms and disagreements of the page, by hand."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from benchmarks.results.report.plots import disagreements_of, distributions_of
from benchmarks.results.wording import absent_intervals
from report_helpers import board, board_of, evaluation, sample

from benchmarks.results.leaderboard import leaderboard
from benchmarks.results.report.panels import panel_of
from generators.base import Unscored


@pytest.mark.parametrize(
    ("scores", "scale", "bins", "ends"),
    [
        ({"a": [0, 6, 6, 3], "b": [1, None, Unscored("no"), 1]}, "0-6", 7, (-0.5, 6.5)),
        ({"a": [20.5, 25.25, 31.0], "b": [22.0, 22.1, 29.0]}, "0-100", 12, (20.5, 31)),
        ({"a": [0.5, 0.5]}, "0-6", 12, (0, 6)),
        ({"a": [1e78, -1e78]}, "0-6", 12, (-1e78, 1e78)),
        ({"a": [1e-90, 2e-90]}, "0-6", 12, (1e-90, 2e-90)),
        ({"a": [7, 9, -1]}, "0-6", 11, (-1.5, 9.5)),
    ],
)
def test_histograms_hold_every_score_in_common_bins(scores, scale, bins, ends):
    spread = distributions_of(board_of(scores), "judge", scale)
    assert len(spread.edges) == bins + 1
    assert (spread.edges[0], spread.edges[-1]) == pytest.approx(ends)
    (row,) = spread.counts.values()
    for name, own in scores.items():
        assert row[name].sum() == sum(isinstance(s, int | float) for s in own)


def test_whole_scores_have_a_bar_each_and_nothing_is_drawn_without_scores():
    made = board_of({"a": [0, 6, 6, 3], "b": [None, None, Unscored("no"), None]})
    (row,) = distributions_of(made, "judge", "0-6").counts.values()
    assert {name: n.tolist() for name, n in row.items()} == {"a": [1, 0, 0, 1, 0, 0, 2]}
    assert distributions_of(board_of({"a": [None]}), "judge", "0-6") is None


def test_means_and_histograms_are_drawn_for_every_system(tmp_path):
    scores = {"a": [1, 2, 3, 2, 1, 3], "b": [5, 5, 4, 5, 4, None], "c": [None] * 6}
    made = board_of(scores)
    (panel,) = [panel_of(made, leaderboard(made), s, []) for s in made.scorers]
    root = ElementTree.fromstring(panel.plot.replace("xlink:href", "href"))
    texts = [e.text for e in root.iter("text")]
    assert {"a", "b", "c", "situational analysis"[:17] + "…"} <= set(texts)
    filled = [e for e in root.iter("path") if "fill: var(--accent)" in e.get("style", "")]
    assert len(filled) == 2  # a histogram for each system with scores


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


def test_an_address_may_hold_any_id():
    asked = replace(sample(0), id="a/b c#?")
    found = [evaluation(n, asked, v) for n, v in (("a", 1), ("b", 5))]
    (entry,) = disagreements_of(board(found), "judge", ["a/b c#?"])
    assert entry.link == "#a%2Fb%20c%23%3F"


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
