"""Criteria of a rubric and controls of the ground truth, in the tables and on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from report_helpers import board, board_of, evaluation, sample

from benchmarks.results.leaderboard import write_leaderboard
from benchmarks.results.report import write_report
from benchmarks.results.standings import profiles
from generators.base import Result, Unscored
from generators.document import Score


def judged(coherent: int | None, clear: int, penalty: int) -> Result[Score]:
    criteria = {"Coherence": coherent, "Clarity": clear}
    return Result(Score(50.0, {"criteria": criteria, "penalty": penalty}))


@pytest.fixture
def verdicts():
    first, second = sample(1), sample(2)
    third = sample(3, "multi-step reasoning", "physics")
    return board(
        [
            evaluation("a", first, judged(1, 1, 0)),
            evaluation("a", second, judged(0, 1, 1)),
            evaluation("a", third, judged(None, 1, 0)),
            evaluation("b", first, judged(None, 0, 0)),
            evaluation("b", second, Unscored("no verdict")),
            evaluation("b", third, Result(Score(3.0))),
        ]
    )


def test_criteria_are_counted_by_category_and_system(verdicts) -> None:
    situational, reasoning = profiles(verdicts, "judge")
    assert situational.category == "situational analysis"
    assert situational.criteria == ("Coherence", "Clarity", "penalty")
    assert situational.systems["a"]["Coherence"] == (0.5, 2)
    assert situational.systems["a"]["penalty"] == (0.5, 2)
    assert situational.systems["b"] == {"Clarity": (0.0, 1), "penalty": (0.0, 1)}
    assert reasoning.criteria == ("Clarity", "penalty")
    assert set(reasoning.systems) == {"a"}, "a score without verdicts says nothing"
    assert profiles(board_of({"a": [1, 2]}), "judge") == []


def test_criteria_stand_in_both_pages(verdicts, tmp_path: Path) -> None:
    write_leaderboard(verdicts, tmp_path)
    page = (tmp_path / "leaderboard.md").read_text()
    assert "### situational analysis, by criterion" in page
    assert "| a | 50% n=2 | 100% n=2 | 50% n=2 |" in page
    assert "| b | - | 0% n=1 | 0% n=1 |" in page
    html = write_report(verdicts, tmp_path, {}, lambda image: image.read()).read_text()
    assert "situational analysis, by criterion" in html
    assert re.search(r"<b>50%</b><small>n=2</small>", html)


def test_controls_stand_in_both_pages(tmp_path: Path) -> None:
    good, bad = [5.0, 6.0, 5.0, 6.0, 5.0, 6.0], [1.0, 2.0, 2.0, 1.0, 1.0, 2.0]
    made = board_of({"gt": good, "gt:no-images": bad, "gt:other-answer": good})
    write_leaderboard(made, tmp_path)
    lines = (tmp_path / "leaderboard.md").read_text().splitlines()
    controls = [line for line in lines if line.startswith("| judge | gt:")]
    assert [line.rpartition("| ")[2].rstrip(" |") for line in controls] == [
        "right",
        "blind",
    ]
    html = write_report(made, tmp_path, {}, lambda image: image.read()).read_text()
    assert "<h2>Controls</h2>" in html
    assert "<b>right</b>" in html
    assert "<b>blind</b>" in html


def test_without_controls_nothing_is_said_of_them(verdicts, tmp_path: Path) -> None:
    write_leaderboard(verdicts, tmp_path)
    assert "## Controls" not in (tmp_path / "leaderboard.md").read_text()
    html = write_report(verdicts, tmp_path, {}, lambda image: image.read()).read_text()
    assert "<h2>Controls</h2>" not in html
