"""Who is best, what ties with it, and which answers to look at first."""

from __future__ import annotations

import io

import numpy as np
import pytest
from report_helpers import Judge, board_of

from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.results.headline import (
    furthest_apart,
    headline_table,
    outcome_texts,
    terminal_table,
)
from plait.benchmarks.results.reasons import outcome_groups
from plait.generators.base import NotApplicable, SetMember, Unscored
from plait.scorers.base import MEMBER

pytestmark = [pytest.mark.contract, pytest.mark.figures]


def test_the_best_and_its_ties_are_marked_and_the_ground_truth_is_neither():
    high, close = [5, 6, 5, 6, 5, 6, 5, 6], [5, 6, 5, 6, 6, 4, 5, 6]
    low = [1, 2, 0, 3, 2, 1, 0, 1]
    scores = {"gt": [6] * 8, "close": close, "low": low, "high": high}
    for direction, best, tied in (("higher", "high", {"close"}), ("lower", "low", set())):
        made = board_of(scores, scorers=(Judge(direction=direction),))
        table = headline_table(made)
        names = [row[0].text for row in table.rows]
        assert names[-1] == "gt"
        assert {names[i] for i, _ in table.best} == {best}
        assert {row[0].text for row in table.rows if row[1].tied} == tied
        assert any("≈" in note for note in table.footnotes) == bool(tied)


def test_intervals_are_bars_on_the_axis_of_their_column():
    scores = {"a": [6, 6, 6, 6, 6, 6, 6, 5, 4, 0], "b": [1, 2, 3, 4, 5] * 2}
    table = headline_table(board_of(scores))
    # They take up more than a third of the scale, so that all of it is the axis.
    assert (table.columns[1].bars.low, table.columns[1].bars.high) == (0, 6)
    for (i, j), places in table.bars.items():
        expected = [100 * x / 6 for x in table.rows[i][j].span]
        assert places == pytest.approx(expected, abs=0.06)
    assert table.html.count("<svg") == 2
    assert "<a" not in table.html, "a notebook has no page to lead to"


def test_values_that_are_not_told_apart_are_not_at_opposite_ends():
    rng = np.random.default_rng(0)
    steady = rng.normal(50, 1, 40)
    scores = {
        "a": [*steady],
        "b": [*(steady + rng.normal(0.1, 1, 40))],
        "c": [*(steady + rng.normal(-0.1, 1, 40))],
    }
    scorer = Judge(scale="0-100")
    table = headline_table(board_of(scores, scorers=(scorer,), categories={}))
    places = [table.bars[i, 1] for i in range(3)]
    assert all(0 <= low <= value <= high <= 100 for low, value, high in places)
    values = [value for _, value, _ in places]
    assert max(values) - min(values) <= 50
    # By the spread of the means alone the best and the worst would be 100% apart.
    assert max(values) - min(values) > 5
    bars = table.columns[1].bars
    assert 0 < bars.low < bars.high < 100


def test_ranks_are_ranges_of_the_systems_that_have_one():
    high, low = [5, 6, 5, 6, 5, 6, 5, 6], [1, 2, 0, 3, 2, 1, 0, 1]
    made = board_of({"gt": [6] * 8, "a": high, "b": [*reversed(high)], "low": low})
    ranks = {row[0].text: row[1].rank for row in headline_table(made).rows}
    assert ranks == {"a": "rank 1-2", "b": "rank 1-2", "low": "rank 3", "gt": ""}
    alone = headline_table(board_of({"a": high, "gt": [6] * 8}))
    assert [row[1].rank for row in alone.rows] == ["", ""]


def test_a_scorer_without_scores_has_no_column():
    none = board_of({"a": [Unscored("unread")] * 3, "b": [NotApplicable("no")] * 3})
    assert [c.heading for c in headline_table(none).columns] == ["system"]
    texts = outcome_texts(none)
    assert texts["unscored"] == "3 unscored"
    assert texts["not_applicable"] == "3 not applicable"


def test_answers_that_add_to_a_figure_of_a_set_are_told_by_themselves():
    member, other = SetMember(f"judge {MEMBER}"), NotApplicable("no images asked for")
    made = board_of({"a": [member, other, member]}, scorers=(Judge(of_sets=True),))
    texts = outcome_texts(made)
    assert texts["not_applicable"] == "1 not applicable"
    assert texts["of_sets"] == "2 in figures of sets"
    assert {g.outcome for g in outcome_groups(made).values() if g.counts} == {*texts} - {
        "done"
    }


def test_the_order_is_that_of_the_first_scorer_with_a_value():
    scorers = (Judge("silent"), Judge(direction="lower"))
    made = board_of({"high": [5, 5, 5], "low": [1, 1, 1]}, scorers=scorers)
    table = headline_table(made)
    assert [row[0].text for row in table.rows] == ["low", "high"]
    assert "the best by judge first" in table.notes[0]
    assert table.columns[1].detail.startswith("(0-6, lower is better)")


def test_the_widest_disagreement_is_between_models():
    scores = {
        "a": [3, 6, 5, None],
        "b": [3, 0, 1, 6],
        "c": [3, 3, 1, Unscored("no")],
        "gt": [6, 6, 6, 0],
    }
    made = board_of(scores)
    found = furthest_apart(made, made.keys)
    assert found == ("Q-0001", "judge", {"a": "6.00", "b": "0.00"})
    assert furthest_apart(made, ["Q-0000", "Q-0002"]).query == "Q-0002"
    assert furthest_apart(made, ["Q-0000"]) is None
    alone = board_of({name: scores[name] for name in ("a", "gt")})
    assert furthest_apart(alone, alone.keys).ends == {"gt": "6.00", "a": "3.00"}


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_breaks_no_name_inside_a_word(width):
    names = ["qwen2-vl-72b+sdxl-turbo@outline", "gemini:gemini-3.8-flash-image", "anole"]
    scorers = [Judge(f"judge:{n}", "0-100") for n in ("mmie-score", "opening", "ueval")]
    made = board_of(
        {name: [6, 3, 4, 5, 2, 6] for name in names}, scorers=[Judge(), *scorers]
    )
    file = io.StringIO()
    PlainConsole(file=file, width=width).print(terminal_table(made))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = {"qwen2-", "sdxl-", "turbo@", "gemini:", "image", "anole"}
    assert all(any(word in line for line in lines) for word in words)
    rows = [i for i, line in enumerate(lines) if line.startswith(" anole")]
    assert rows
    assert all("[" in lines[i + 1] for i in rows)
