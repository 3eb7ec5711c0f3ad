"""Means, counts and reasons of a leaderboard by hand, and the files that hold them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.results.leaderboard_tables import profiles
from hypothesis import given, settings
from hypothesis import strategies as st
from report_helpers import (
    MMIE,
    Judge,
    answers_of,
    board,
    board_of,
    evaluation,
    mixed_board,
    sample,
    stage,
    system,
)

from benchmarks.plain_console import PlainConsole
from benchmarks.results.leaderboard import (
    differences,
    leaderboard,
    terminal_table,
    write_leaderboard,
)
from benchmarks.results.reasons import failures_csv
from generators.base import Failure, Fault, NotApplicable, Result, Skip, Unscored
from generators.document import Malformed, Score

SA, PBL, MSR = MMIE
WORDS = "abcdefghijklm"
scores = st.one_of(st.none(), st.integers(0, 6), st.just(Unscored("unreadable")))
tables = st.integers(2, 9).flatmap(
    lambda n: st.dictionaries(
        st.sampled_from("abcd"), st.lists(scores, min_size=n, max_size=n), min_size=1
    )
)


def judged(made, name: str = "judge", row: int = 0) -> dict:
    return leaderboard(made)[row]["scores"][name]


def test_means_by_hand():
    made = board(
        [
            evaluation("a", sample(0, SA, "literature"), 2),
            evaluation("a", sample(1, SA, "literature"), 4),
            evaluation("a", sample(2, PBL, "art"), 5),
            evaluation("a", sample(3, PBL, "health"), 6),
            evaluation("a", sample(4, PBL, "health"), 1),
            evaluation("a", sample(5, MSR, "physics"), 0),
        ]
    )
    found = judged(made)
    assert found["avg_micro"]["mean"] == 3.0
    assert found["avg_micro"]["n"] == 6
    assert found["categories"][SA]["mean"] == 3.0
    assert found["categories"][PBL] | {"mean": 4.0, "n": 3} == found["categories"][PBL]
    assert found["fields"]["health"]["mean"] == 3.5
    expected = (5005 * 3 + 11482 * 4 + 3616 * 0) / 20103
    assert found["avg_fixed"]["mean"] == pytest.approx(expected, abs=1e-6)
    assert found["avg_fixed"]["scale"] == "0-6"


@pytest.mark.parametrize(
    ("means", "printed"),
    [
        ((47.63, 55.12, 42.17), 50.92),  # MiniGPT-5
        ((39.65, 46.12, 50.75), 45.33),  # EMU-2
        ((46.72, 57.57, 39.33), 51.58),  # GILL
        ((48.95, 59.05, 51.72), 55.22),  # Anole
    ],
)
def test_avg_of_mmie_table_3(means, printed):
    fields = ("literature", "art", "physics")
    asked = [sample(i, c, f) for i, (c, f) in enumerate(zip(MMIE, fields, strict=True))]
    made = board([evaluation("m", s, m) for s, m in zip(asked, means, strict=True)])
    assert judged(made)["avg_fixed"]["mean"] == pytest.approx(printed, abs=0.012)
    assert judged(made)["avg_micro"]["mean"] != pytest.approx(printed, abs=0.1)


def test_failures_skips_and_the_rest_are_counted_and_never_numbers():
    made = board(
        [
            evaluation("a", sample(0), 6),
            evaluation("a", sample(1), None, document=Failure("broke", Fault.ERROR)),
            evaluation("a", sample(2), None, document=Skip("one picture only")),
            evaluation("a", sample(3), Unscored("unreadable")),
            evaluation("a", sample(4), NotApplicable("no")),
            evaluation("a", sample(5), Failure("judge broke", Fault.ENDPOINT)),
            evaluation("a", sample(6), Result(Score(float("nan")))),
            evaluation("a", sample(7), Skip("judge takes one picture")),
        ],
        missing=2,
    )
    row = leaderboard(made)[0]
    counts = {"n": 10, "planned": 10, "done": 6, "failed": 1, "skipped": 1, "missing": 2}
    counts |= {"scored": 1, "unscored": 2, "not_applicable": 1}
    counts |= {"failed_scores": 1, "skipped_scores": 1}
    assert row | counts == row
    average = row["scores"]["judge"]["avg_micro"]
    assert (average["mean"], average["n"]) == (6.0, 1)
    assert average | (counts | {"n": 1}) == average
    assert (
        average["done"] + average["failed"] + average["skipped"] + average["missing"] == 10
    )


def test_fixed_average_skips_categories_the_scorer_does_not_speak_about():
    silent = NotApplicable("needs no picture")
    made = board(
        [
            evaluation("a", sample(0, SA, "literature"), 1),
            evaluation("a", sample(1, PBL, "art"), 3),
            evaluation("a", sample(2, MSR, "physics"), silent),
            evaluation("b", sample(0, SA, "literature"), 1),
            evaluation("b", sample(1, PBL, "art"), 3),
            # b failed where a showed that the scorer is silent
            evaluation("b", sample(2, MSR, "physics"), None, document=Failure("x")),
        ]
    )
    for row in (0, 1):
        found = judged(made, row=row)
        expected = (5005 * 1 + 11482 * 3) / (5005 + 11482)
        assert found["avg_fixed"]["mean"] == pytest.approx(expected, abs=1e-6)
        assert found["categories"][MSR]["reason"] == "not applicable"
        assert found["fields"]["physics"]["reason"] == "not applicable"
        assert found["avg_fixed"]["planned"] == 2


def test_fixed_average_is_undefined_while_a_category_is_empty():
    failed = Failure("x", Fault.ERROR)
    made = board(
        [
            evaluation("a", sample(0, SA, "literature"), 1),
            evaluation("a", sample(1, PBL, "art"), 3),
            evaluation("a", sample(2, MSR, "physics"), None, document=failed),
        ]
    )
    average = judged(made)["avg_fixed"]
    assert (average["mean"], average["ci95"]) == (None, None)
    assert average["reason"] == f"no scored query in {MSR}"
    assert judged(made)["avg_micro"]["mean"] == 2.0
    unweighted = judged(board_of({"a": [1, 2]}, categories={}))["avg_fixed"]
    assert unweighted["mean"] is None
    assert "publishes no number of queries" in unweighted["reason"]


def test_repeats_of_a_query_are_averaged_before_queries():
    one, two = sample(0), sample(1)
    made = board(
        [
            evaluation("a", one, 0, repeat=0),
            evaluation("a", one, 6, repeat=1),
            evaluation("a", two, 5, repeat=0),
            evaluation("a", two, None, repeat=1, document=Failure("x")),
        ]
    )
    row = leaderboard(made)[0]
    assert (row["n"], row["repeats"], row["planned"], row["failed"]) == (2, 2, 4, 1)
    average = row["scores"]["judge"]["avg_micro"]
    assert (average["mean"], average["n"]) == (4.0, 2)
    part = row["scores"]["judge"]["categories"][SA]
    assert (part["n"], part["planned"], part["missing"]) == (2, 4, 0)


def test_differences_are_of_queries_that_both_have():
    made = board_of({"a": [1, 2, 3, 4, 5, None, 6], "b": [0, 4, 2, 4, 5, 6, None]})
    (found,) = differences(made)
    assert (found["a"], found["b"], found["n"]) == ("a", "b", 5)
    assert found["mean"] == pytest.approx((1 - 2 + 1 + 0 + 0) / 5)
    assert found["ci95"] == pytest.approx([-1.520722, 1.520722])
    assert found["method"] == "Student's t"
    assert found["direction"] == "higher"


def as_set(made) -> dict:
    return {row["system"]: row for row in leaderboard(made)}


@given(tables, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_order_of_queries_and_systems_changes_nothing(table, rng):
    made = board_of(table)
    shuffled = answers_of(made)
    rng.shuffle(shuffled)
    names = [s.name for s in made.systems]
    rng.shuffle(names)
    assert as_set(board(shuffled, systems=[system(n) for n in names])) == as_set(made)


@given(tables)
@settings(max_examples=30, deadline=None)
def test_one_more_failed_query_changes_no_mean_and_no_interval(table):
    failed = {name: [*given, None] for name, given in table.items()}
    for name, row in as_set(board_of(failed)).items():
        before = as_set(board_of(table))[name]
        for part in ("avg_fixed", "avg_micro"):
            now, then = row["scores"]["judge"][part], before["scores"]["judge"][part]
            assert (now["mean"], now["ci95"], now["n"]) == (
                then["mean"],
                then["ci95"],
                then["n"],
            )
        assert row["failed"] == before["failed"] + 1


def test_repeats_of_large_scores_are_averaged_without_overflow():
    made = board([evaluation("a", sample(0), 1.7e308, repeat=r) for r in range(3)])
    assert judged(made)["avg_micro"]["mean"] == pytest.approx(1.7e308)


def test_thin_categories_leave_no_interval_and_say_which():
    def asked(category: str, field: str, n: int, start: int) -> list:
        queries = [sample(start + i, category, field) for i in range(n)]
        return [evaluation("a", q, i % 7) for i, q in enumerate(queries)]

    thin = asked(SA, "literature", 2, 0) + asked(PBL, "art", 50, 10)
    average = judged(board(thin + asked(MSR, "physics", 2, 70)))["avg_fixed"]
    assert (average["ci95"], average["n"]) == (None, 54)
    assert average["reason"] == f"too few values in {SA} (n=2, fewer than 5)"
    enough = asked(SA, "literature", 5, 0) + asked(PBL, "art", 50, 10)
    average = judged(board(enough + asked(MSR, "physics", 7, 70)))["avg_fixed"]
    assert average["ci95"] is not None
    assert average["method"] == "stratified Student's t"


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


def test_empty_board_is_written(tmp_path):
    made = board([], systems=[system("a")], missing=5)
    write_leaderboard(made, tmp_path)
    row = leaderboard(made)[0]
    assert (row["n"], row["missing"], row["done"]) == (5, 5, 0)
    assert leaderboard(made)[0]["scores"]["judge"]["avg_micro"]["mean"] is None
    assert differences(made) == []


def shown(made, width: int = 100) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = PlainConsole(width=width, record=True, file=file)
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


def test_names_and_reasons_cannot_break_a_table(tmp_path):
    nasty = "a|b `c` <b> ](http://x) \n# d \x1b[31m"
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
    means = {r["system"]: r["scores"]["judge"]["avg_micro"] for r in leaderboard(made)}
    average = means["a"]
    assert average["mean"] == pytest.approx(size / 4, rel=1e-5)
    assert shown(made)


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
    scorers = (Judge(), Judge("clipscore", "0-100"))
    mixed = board(answers_of(made)[::-1], systems=made.systems, scorers=scorers)
    assert failures_csv(made) == failures_csv(mixed) != failures_csv(board([]))


def ruled(coherent: int | None, clear: int, penalty: int) -> Result[Score]:
    criteria = {"Coherence": coherent, "Clarity": clear}
    return Result(Score(50.0, {"criteria": criteria, "penalty": penalty}))


@pytest.fixture
def verdicts():
    first, second = sample(1), sample(2)
    third = sample(3, "multi-step reasoning", "physics")
    return board(
        [
            evaluation("a", first, ruled(1, 1, 0)),
            evaluation("a", second, ruled(0, 1, 1)),
            evaluation("a", third, ruled(None, 1, 0)),
            evaluation("b", first, ruled(None, 0, 0)),
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


def test_controls_are_in_the_right_order_or_blind(tmp_path: Path) -> None:
    good, bad = [5.0, 6.0, 5.0, 6.0, 5.0, 6.0], [1.0, 2.0, 2.0, 1.0, 1.0, 2.0]
    made = board_of({"gt": good, "gt:no-images": bad, "gt:other-answer": good})
    write_leaderboard(made, tmp_path)
    lines = (tmp_path / "leaderboard.md").read_text().splitlines()
    controls = [line for line in lines if line.startswith("| judge | gt:")]
    assert [line.rpartition("| ")[2].rstrip(" |") for line in controls] == [
        "right",
        "blind",
    ]
