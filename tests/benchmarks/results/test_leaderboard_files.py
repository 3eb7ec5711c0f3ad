"""The files and tables that a leaderboard is written to, and the reasons in them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from report_helpers import (
    MMIE,
    Judge,
    board,
    board_of,
    evaluation,
    mixed_board,
    sample,
    stage,
    system,
)
from rich.console import Console

from benchmarks.results.leaderboard import (
    differences,
    leaderboard,
    terminal_table,
    write_leaderboard,
)
from benchmarks.results.reasons import failures_csv
from generators.base import Failure, Fault, NotApplicable, Skip, Unscored
from generators.document import Malformed

SA, *_ = MMIE
FILES = (
    *(f"leaderboard.{form}" for form in ("json", "csv", "md", "tex")),
    "differences.json",
    "failures.csv",
)


def test_files_are_the_same_bytes_for_the_same_input(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_leaderboard(mixed_board(30, ["x", "y+z"]), tmp_path / name)
    for name in FILES:
        one, two = (tmp_path / d / name for d in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == sorted(FILES)


def test_csv_holds_every_number_of_the_json(tmp_path):
    write_leaderboard(mixed_board(30, ["x", "y+z"]), tmp_path)
    rows = json.loads((tmp_path / "leaderboard.json").read_text())
    lines = list(csv.DictReader((tmp_path / "leaderboard.csv").open()))
    assert len(lines) == 2 * 2 * (2 + 3 + 6)
    for line in lines:
        row = next(r for r in rows if r["system"] == line["system"])
        scores = row["scores"][line["scorer"]]
        group = {"category": "categories", "field": "fields"}.get(line["part"])
        cell = scores[group][line["group"]] if group else scores[line["part"]]
        ends = cell["ci95"] or ["", ""]
        assert [line["ci95_low"], line["ci95_high"]] == [str(end) for end in ends]
        assert line["mean"] == ("" if cell["mean"] is None else str(cell["mean"]))
        assert int(line["unscored"]) == cell["unscored"]


def test_no_scorer_still_leaves_counts(tmp_path):
    made = board_of({"a": [None, 1]}, scorers=())
    write_leaderboard(made, tmp_path)
    (line,) = csv.DictReader((tmp_path / "leaderboard.csv").open())
    assert (line["n"], line["done"], line["failed"]) == ("2", "1", "1")
    assert "| a | pretrained | 2 | 2 | 1 | 1 |" in (tmp_path / "leaderboard.md").read_text()


def test_empty_board_is_written(tmp_path):
    made = board([], systems=[system("a")], missing=5)
    write_leaderboard(made, tmp_path)
    row = leaderboard(made)[0]
    assert (row["n"], row["missing"], row["done"]) == (5, 5, 0)
    assert leaderboard(made)[0]["scores"]["judge"]["avg_micro"]["mean"] is None
    assert differences(made) == []


def shown(made, width: int = 100) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = Console(width=width, record=True, file=file)
    console.print(terminal_table(made))
    return console.export_text()


def test_random_weights_are_named_wherever_numbers_are(tmp_path):
    made = board_of({"a": [1, 2]}, systems=[system("a", "tiny")])
    made = replace(made, scorers=[Judge(stages=(stage("judge", "dummy"),))])
    write_leaderboard(made, tmp_path)
    said = "random weights (dummy: judge; tiny: a): the numbers mean nothing"
    assert said in (tmp_path / "leaderboard.md").read_text()
    assert said in " ".join(shown(made).split())
    assert leaderboard(made)[0]["weights"] == "tiny"
    assert "random" not in shown(board_of({"a": [1, 2]}))


def test_selection_heads_every_table(tmp_path):
    made = board_of({"a": [1, 2]}, selection="2 of 20,103 queries")
    write_leaderboard(made, tmp_path)
    assert "# Leaderboard: 2 of 20,103 queries" in (tmp_path / "leaderboard.md").read_text()
    assert "2 of 20,103 queries" in shown(made)


def test_matrix_of_writers_and_artists(tmp_path):
    write_leaderboard(
        board_of({"w+s": [1], "w+t": [2], "v+s": [3], "n": [4]}, categories={}), tmp_path
    )
    page = (tmp_path / "leaderboard.md").read_text()
    table = page.partition("LVLM x text-to-image model (per query)")[2].split("\n\n")[1]
    lines = [[w.strip() for w in line.strip("|").split("|")] for line in table.splitlines()]
    assert lines[0] == ["", "s", "t"]
    assert lines[2:] == [["w", "1.00 n=1", "2.00 n=1"], ["v", "3.00 n=1", ""]]


def test_no_matrix_without_composed_systems(tmp_path):
    write_leaderboard(board_of({"a": [1], "b": [2]}), tmp_path)
    assert "text-to-image" not in (tmp_path / "leaderboard.md").read_text()


def test_reasons_are_ranked_and_those_of_one_shape_counted_together():
    broken = [
        Failure(f"row {i}: no file './{i}.jpg'", Fault.BAD_INPUT) for i in (3, 1, 2, 1)
    ]
    outcomes = [*broken, Skip("one picture only")]
    found = [evaluation("a", sample(i), None, document=o) for i, o in enumerate(outcomes)]
    found.append(evaluation("a", sample(9), Unscored("unreadable")))
    found.append(evaluation("a", sample(10), NotApplicable("no picture wanted")))
    reasons = leaderboard(board(found))[0]["reasons"]
    assert reasons[0] == {
        "outcome": "failed",
        "fault": "bad input",
        "reason": "row 1: no file './1.jpg'",
        "count": 4,
        "alike": 3,
    }
    assert [r["outcome"] for r in reasons[1:]] == ["skipped", "unscored"]


def test_rare_reasons_are_summed_up_not_dropped():
    words = "abcdefghijklmn"
    found = [
        evaluation("a", sample(i), None, document=Skip(f"reason {w}"))
        for i, w in enumerate(words)
    ]
    reasons = leaderboard(board(found))[0]["reasons"]
    assert len(reasons) == 11
    assert sum(r["count"] for r in reasons) == len(words)


def test_names_and_reasons_cannot_break_a_table(tmp_path):
    nasty = "a|b `c` <b> ](http://x) \n# d \x1b[31m\ud800"
    failed = evaluation(nasty, sample(0), None, document=Failure(f"{nasty} [bold]"))
    made = board([failed, evaluation(nasty, sample(1), 3)])
    write_leaderboard(made, tmp_path)
    page = (tmp_path / "leaderboard.md").read_text()
    assert "a\\|b \\`c\\` \\<b> \\](http://x) # d" in page
    assert all(line.count(" | ") <= 13 for line in page.splitlines())
    assert json.loads((tmp_path / "leaderboard.json").read_text())[0]["system"] == nasty
    assert "[bold]" in shown(made, 200)
    assert "\x1b" not in page + shown(made, 200)


@pytest.mark.parametrize("size", [1e78, 1e-90, 1.7e308, 5e-324])
def test_scores_of_any_finite_size_are_written(tmp_path, size):
    made = board_of(
        {"a": [size, 0.0, -size, size, size / 2, 0.0], "b": [0.0, size] * 3},
        scorers=[Judge("judge", "unbounded")],
    )
    write_leaderboard(made, tmp_path)
    for name in ("leaderboard.json", "differences.json"):
        assert json.loads((tmp_path / name).read_text())
    average = leaderboard(made)[0]["scores"]["judge"]["avg_micro"]
    assert average["mean"] == pytest.approx(size / 4, rel=1e-5)
    assert shown(made)


def test_every_scorer_says_scale_and_direction(tmp_path):
    made = board_of({"a": [1, 2]}, scorers=[Judge("judge", "0-6", "lower")])
    write_leaderboard(made, tmp_path)
    assert leaderboard(made)[0]["scores"]["judge"]["scale"] == "0-6"
    assert leaderboard(made)[0]["scores"]["judge"]["direction"] == "lower"
    line = next(csv.DictReader((tmp_path / "leaderboard.csv").open()))
    assert line["direction"] == "lower"


def test_every_loss_is_named_in_a_file_that_the_tables_name(tmp_path):
    broken = [Malformed(id="twice", row=i, reason=f"rule {w}") for i, w in enumerate(WORDS)]
    found = [
        evaluation("a", b, None, document=Failure(b.reason, Fault.BAD_INPUT))
        for b in broken
    ]
    found.append(evaluation("a", sample(1), Unscored("unread, \nor so"), repeat=1))
    found.append(evaluation("a", sample(2), NotApplicable("no picture wanted")))
    made = board(found)
    write_leaderboard(made, tmp_path)
    lines = list(csv.DictReader((tmp_path / "failures.csv").open()))
    assert {line["query"] for line in lines if line["outcome"] == "failed"} == {
        f"twice (row {i})" for i in range(len(WORDS))
    }
    (unscored,) = [line for line in lines if line["outcome"] == "unscored"]
    assert unscored == {
        "system": "a",
        "query": "Q-0001",
        "category": SA,
        "field": "literature",
        "repeat": "2",
        "scorer": "judge",
        "outcome": "unscored",
        "fault": "",
        "reason": "unread, or so",
    }
    assert len(lines) == len(WORDS) + 1
    assert "named in failures.csv" in (tmp_path / "leaderboard.md").read_text()
    words = " ".join(shown(made, 200).split())
    assert f"and {len(WORDS) - 4} more kinds; each one is named in failures.csv" in words
    assert "leaderboard.md" not in words


def test_failures_are_in_one_order_whatever_the_order_of_the_answers(tmp_path):
    made = mixed_board(30, ["a", "b"])
    mixed = replace(made, evaluations=made.evaluations[::-1])
    assert failures_csv(made) == failures_csv(mixed) != failures_csv(board([]))


WORDS = "abcdefghijklm"


"""Thirteen reasons of thirteen shapes."""
