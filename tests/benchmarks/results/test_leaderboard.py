"""Means, counts and reasons of a leaderboard by hand, and the files that hold them."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mmie_tables import TABLE_3
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

from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.results.comparisons import differences
from plait.benchmarks.results.headline import terminal_table
from plait.benchmarks.results.leaderboard import leaderboard
from plait.benchmarks.results.leaderboard_files import write_leaderboard
from plait.benchmarks.results.leaderboard_tables import (
    criteria_tables,
    field_table,
    legend,
    ranking_table,
    scorer_table,
)
from plait.benchmarks.results.reasons import failures_csv
from plait.generators.base import Failure, Fault, NotApplicable, Result, Skip, Unscored
from plait.generators.document import Malformed, Score
from plait.scorers.base import CustomScorer

pytestmark = pytest.mark.contract

SA, PBL, MSR = MMIE
FIELD = {SA: "literature", PBL: "art", MSR: "physics"}
WORDS = "abcdefghijklm"
scores = st.one_of(st.none(), st.integers(0, 6), st.just(Unscored("unreadable")))
tables = st.integers(2, 9).flatmap(
    lambda n: st.dictionaries(
        st.sampled_from("abcd"), st.lists(scores, min_size=n, max_size=n), min_size=1
    )
)


def judged(made, row: int = 0) -> dict:
    return leaderboard(made)[row]["scores"]["judge"]


def by_category(*values, name: str = "a") -> list:
    """One query of each category; None for a failed answer."""
    asked = [sample(i, c, FIELD[c]) for i, c in enumerate(MMIE)]
    return [
        evaluation(name, q, v, document=Failure("x", Fault.ERROR) if v is None else None)
        for q, v in zip(asked, values, strict=True)
    ]


def test_means_by_hand():
    more = [evaluation("a", sample(3, SA, "literature"), 4)]
    more += [evaluation("a", sample(4 + i, PBL, "health"), v) for i, v in enumerate((6, 1))]
    found = judged(board(by_category(2, 5, 0) + more))
    assert (found["avg_micro"]["mean"], found["avg_micro"]["n"]) == (3.0, 6)
    assert found["categories"][SA]["mean"] == 3.0
    assert found["categories"][PBL] | {"mean": 4.0, "n": 3} == found["categories"][PBL]
    assert found["fields"]["health"]["mean"] == 3.5
    expected = (5005 * 3 + 11482 * 4 + 3616 * 0) / 20103
    assert found["avg_fixed"]["mean"] == pytest.approx(expected, abs=1e-6)
    assert found["avg_fixed"]["scale"] == "0-6"


@pytest.mark.parametrize("printed", TABLE_3, ids=lambda row: row.model)
def test_avg_of_mmie_table_3(printed):
    found = judged(board(by_category(printed.sa, printed.pbl, printed.msr)))
    assert found["avg_fixed"]["mean"] == pytest.approx(printed.avg, abs=0.012)
    assert found["avg_micro"]["mean"] != pytest.approx(printed.avg, abs=0.1)


def test_failures_skips_and_the_rest_are_counted_and_never_numbers():
    failed, skipped = Failure("broke", Fault.ERROR), Skip("one image only")
    made = board(
        [
            evaluation("a", sample(0), 6),
            evaluation("a", sample(1), None, document=failed),
            evaluation("a", sample(2), None, document=skipped),
            evaluation("a", sample(3), Unscored("unreadable")),
            evaluation("a", sample(4), NotApplicable("no")),
            evaluation("a", sample(5), Failure("judge broke", Fault.ENDPOINT)),
            evaluation("a", sample(7), Skip("judge takes one image")),
        ],
        missing=2,
    )
    row = leaderboard(made)[0]
    counts = {"n": 9, "planned": 9, "done": 5, "failed": 1, "skipped": 1, "missing": 2}
    counts |= {"scored": 1, "unscored": 1, "not_applicable": 1}
    counts |= {"failed_scores": 1, "skipped_scores": 1}
    assert row | counts == row
    average = row["scores"]["judge"]["avg_micro"]
    assert average | (counts | {"mean": 6.0, "n": 1}) == average


def test_fixed_average_skips_categories_the_scorer_does_not_speak_about():
    # b failed where a showed that the scorer is silent.
    found = by_category(1, 3, NotApplicable("no")) + by_category(1, 3, None, name="b")
    made = board(found)
    expected = (5005 * 1 + 11482 * 3) / (5005 + 11482)
    for row in (0, 1):
        found = judged(made, row)
        assert found["avg_fixed"]["mean"] == pytest.approx(expected, abs=1e-6)
        assert found["categories"][MSR]["reason"] == "not applicable"
        assert found["fields"]["physics"]["reason"] == "not applicable"
        assert found["avg_fixed"]["planned"] == 2


def test_fixed_average_is_undefined_while_a_category_is_empty_or_none_is_published():
    found = judged(board(by_category(1, 3, None)))
    assert (found["avg_fixed"]["mean"], found["avg_fixed"]["ci95"]) == (None, None)
    assert MSR in found["avg_fixed"]["reason"]
    assert found["avg_micro"]["mean"] == 2.0
    unweighted = judged(board_of({"a": [1, 2]}, categories={}))["avg_fixed"]
    assert (unweighted["mean"], bool(unweighted["reason"])) == (None, True)


def test_repeats_of_a_query_are_averaged_before_queries():
    values = [(0, 0, 0), (0, 1, 6), (1, 0, 5)]
    found = [evaluation("a", sample(q), v, repeat=r) for q, r, v in values]
    found.append(evaluation("a", sample(1), None, repeat=1, document=Failure("x")))
    row = leaderboard(board(found))[0]
    assert (row["n"], row["repeats"], row["planned"], row["failed"]) == (2, 2, 4, 1)
    average = row["scores"]["judge"]["avg_micro"]
    assert (average["mean"], average["n"]) == (4.0, 2)
    part = row["scores"]["judge"]["categories"][SA]
    assert (part["n"], part["planned"], part["missing"]) == (2, 4, 0)
    large = board([evaluation("a", sample(0), 1.7e308, repeat=r) for r in range(3)])
    assert judged(large)["avg_micro"]["mean"] == pytest.approx(1.7e308)


def test_differences_are_of_queries_that_both_have():
    made = board_of({"a": [1, 2, 3, 4, 5, None, 6], "b": [0, 4, 2, 4, 5, 6, None]})
    (found,) = differences(made)
    assert (found["a"], found["b"], found["n"]) == ("a", "b", 5)
    assert found["mean"] == pytest.approx((1 - 2 + 1 + 0 + 0) / 5)
    assert found["ci95"] == pytest.approx([-1.474111, 1.474111])
    assert (found["method"], found["direction"]) == ("quasi-binomial score", "higher")


def as_set(made) -> dict:
    return {row["system"]: row for row in leaderboard(made)}


@given(tables, st.randoms(use_true_random=False))
@settings(max_examples=6, deadline=None)
def test_neither_an_order_nor_one_more_failed_query_changes_a_mean(table, rng):
    made = board_of(table)
    shuffled, names = answers_of(made), [s.name for s in made.systems]
    rng.shuffle(shuffled)
    rng.shuffle(names)
    before = as_set(made)
    assert as_set(board(shuffled, systems=[system(n) for n in names])) == before
    failed = as_set(board_of({name: [*given, None] for name, given in table.items()}))
    for name, row in failed.items():
        for part in ("avg_fixed", "avg_micro"):
            now, then = (one["scores"]["judge"][part] for one in (row, before[name]))
            assert all(now[key] == then[key] for key in ("mean", "ci95", "n"))
        assert row["failed"] == before[name]["failed"] + 1


def test_csv_holds_every_number_of_the_json(tmp_path):
    write_leaderboard(mixed_board(30, ["x", "y+z"]), tmp_path)
    rows = json.loads((tmp_path / "leaderboard.json").read_text())
    lines = list(csv.DictReader((tmp_path / "leaderboard.csv").open()))
    assert len(lines) == 2 * 2 * (2 + 3 + 6)
    for line in lines:
        row = next(r for r in rows if r["system"] == line["system"])
        found = row["scores"][line["scorer"]]
        group = {"category": "categories", "field": "fields"}.get(line["part"])
        cell = found[group][line["group"]] if group else found[line["part"]]
        numbers = [cell["mean"], *(cell["ci95"] or [None] * 2), cell["n"], cell["failed"]]
        told = [line[k] for k in ("mean", "ci95_low", "ci95_high", "n", "failed")]
        assert told == ["" if n is None else str(n) for n in numbers]


def test_a_board_without_scorers_or_answers_has_tables(tmp_path):
    write_leaderboard(board([], systems=[system("a")], missing=3, scorers=()), tmp_path)
    (line,) = csv.DictReader((tmp_path / "leaderboard.csv").open())
    assert (line["system"], line["planned"], line["missing"]) == ("a", "3", "3")
    empty = judged(board([], systems=[system("a")], missing=3))
    assert (empty["avg_micro"]["mean"], empty["avg_micro"]["n"]) == (None, 0)
    assert differences(board_of({"a": [1]})) == []


def shown(made, width: int = 100) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = PlainConsole(width=width, record=True, file=file)
    console.print(terminal_table(made))
    return console.export_text()


def test_random_weights_are_named_wherever_numbers_are(tmp_path):
    made = board_of({"a": [1, 2]}, systems=[system("a", "tiny")])
    made = replace(made, scorers=[Judge(stage=stage("judge", "dummy"))])
    write_leaderboard(made, tmp_path)
    said = "random weights (dummy: judge; tiny: a)"
    assert said in (tmp_path / "leaderboard.md").read_text()
    assert said in " ".join(shown(made).split())
    head, _, table = (tmp_path / "leaderboard.tex").read_text().partition(r"\begin{table}")
    assert said in head
    (caption,) = (line for line in table.splitlines() if r"\caption" in line)
    assert "Random weights" in caption
    assert said not in caption, "all names are in the head alone"
    assert leaderboard(made)[0]["weights"] == "tiny"
    assert "random" not in shown(board_of({"a": [1, 2]}))


def test_what_changes_images_is_named_wherever_numbers_are(tmp_path):
    plain, fast, adapted = (system(name, "pretrained") for name in "abc")
    drawing = fast.stages[0]
    fast = replace(fast, draft=replace(drawing, settings={"speed": "magcache"}))
    named = "hub:ORG/NAME@1+denoiser:file:ab+loras:file:cd*1,file:ef*0.5"
    adapted = replace(adapted, draft=replace(drawing, identity=named))
    made = board_of({"a": [1], "b": [2], "c": [3]}, systems=[plain, fast, adapted])
    write_leaderboard(made, tmp_path)
    said = "b: magcache; c: another denoiser, LoRA"
    assert said in (tmp_path / "leaderboard.md").read_text()
    assert said in " ".join(shown(made).split())
    assert "b draws with magcache" in made.brief_warning
    levers = {row["system"]: row.get("levers") for row in leaderboard(made)}
    assert levers == {"a": None, "b": ["magcache"], "c": ["another denoiser", "LoRA"]}
    names = [row[0].text for row in scorer_table(made, made.scorers[0]).rows]
    assert "b [magcache]" in names
    assert "a" in names


def test_names_and_reasons_cannot_break_a_table(tmp_path):
    nasty = "a|b `c` <b> ](http://x) \n# d \x1b[31m"
    failed = evaluation(nasty, sample(0), None, document=Failure(f"{nasty} [bold]"))
    made = board([failed, evaluation(nasty, sample(1), 3)])
    write_leaderboard(made, tmp_path)
    page = (tmp_path / "leaderboard.md").read_text()
    assert "a\\|b \\`c\\` \\<b> \\](http://x) # d" in page
    assert json.loads((tmp_path / "leaderboard.json").read_text())[0]["system"] == nasty
    assert "[bold]" in shown(made, 200)
    assert "\x1b" not in page + shown(made, 200)


@pytest.mark.parametrize("size", [1e-90, 1.7e308])
def test_scores_of_any_finite_size_are_written(tmp_path, size):
    values = {"a": [size, 0.0, -size, size, size / 2, 0.0], "b": [0.0, size] * 3}
    made = board_of(values, scorers=[Judge("judge", "unbounded")])
    write_leaderboard(made, tmp_path)
    for name in ("leaderboard.json", "differences.json"):
        assert json.loads((tmp_path / name).read_text())
    average = as_set(made)["a"]["scores"]["judge"]["avg_micro"]
    assert average["mean"] == pytest.approx(size / 4, rel=1e-5)


def test_reasons_are_ranked_and_those_of_one_shape_counted_together():
    texts = [f"row {i}: no file './{i}.jpg'" for i in (3, 1, 2, 1)]
    outcomes = [*(Failure(text, Fault.BAD_INPUT) for text in texts), Skip("one image only")]
    found = [evaluation("a", sample(i), None, document=o) for i, o in enumerate(outcomes)]
    found.append(evaluation("a", sample(9), Unscored("unreadable")))
    found.append(evaluation("a", sample(10), NotApplicable("no image wanted")))
    reasons = leaderboard(board(found))[0]["reasons"]
    about = {"outcome": "failed", "fault": "bad input", "count": 4, "alike": 3}
    assert reasons[0] == about | {"reason": "row 1: no file './1.jpg'"}
    assert [r["outcome"] for r in reasons[1:]] == ["skipped", "unscored"]


def test_an_apostrophe_in_a_reason_hides_no_reply_from_its_shape():
    replies = ["It is good.", "It isn't.", 'He said "no", and I\'d agree.']
    texts = [f"cut at the model's maximum length: no JSON: {reply!r}" for reply in replies]
    found = [evaluation("a", sample(i), Unscored(text)) for i, text in enumerate(texts)]
    (reason,) = leaderboard(board(found))[0]["reasons"]
    assert (reason["count"], reason["alike"]) == (3, 3)


def test_every_loss_is_named_in_a_file_that_the_tables_name(tmp_path):
    broken = [Malformed(id="twice", row=i, reason=f"rule {w}") for i, w in enumerate(WORDS)]
    found = [
        evaluation("a", b, None, document=Failure(b.reason, Fault.BAD_INPUT))
        for b in broken
    ]
    found.append(evaluation("a", sample(1), Unscored("unread, \nor so"), repeat=1))
    found.append(evaluation("a", sample(2), NotApplicable("no image wanted")))
    made = board(found)
    write_leaderboard(made, tmp_path)
    head, *lines = csv.reader((tmp_path / "failures.csv").open())
    assert head[:3] == ["system", "query", "category"]
    assert {line[1] for line in lines if "failed" in line} == {
        f"twice (row {i})" for i in range(len(WORDS))
    }
    unread = ("a", "Q-0001", SA, "literature", "2", "judge", "unscored", "")
    assert [*unread, "unread, or so"] in lines
    assert len(lines) == len(WORDS) + 1
    assert "failures.csv" in (tmp_path / "leaderboard.md").read_text()
    words = " ".join(shown(made, 200).split())
    assert f"and {len(WORDS) - 4} more kinds; each one is listed in failures.csv" in words


def test_the_tables_of_a_scorer_begin_with_its_best():
    given = {"a": (1, 30), "gt": (6, 99), "b": (2, 10)}
    made = board(
        [
            replace(
                evaluation(name, sample(i), 0),
                scores={"judge": Result(Score(j)), "clipscore": Result(Score(c))},
            )
            for name, (j, c) in given.items()
            for i in range(6)
        ],
        scorers=(Judge(), Judge("clipscore", "0-100")),
    )
    for scorer, order in zip(made.scorers, ("b a gt", "a b gt"), strict=True):
        for table in (scorer_table(made, scorer), field_table(made, scorer)):
            assert [row[0].text for row in table.rows] == order.split()
            assert {table.rows[i][0].text for i, _ in table.best} == {order[0]}
        rows = [[c.text for c in row[:2]] for row in ranking_table(made, scorer).rows]
        assert rows == [["1", order[0]], ["2", order[2]], ["", "gt"]]


@pytest.mark.parametrize(("field", "has_table"), [("", False), ("physics", True)])
def test_queries_without_a_field_have_no_table_of_fields(field: str, has_table: bool):
    made = board([evaluation("a", sample(0, SA, field), 3)])
    assert (field_table(made, made.scorers[0]) is not None) == has_table


def test_failures_are_in_one_order_whatever_the_order_of_the_answers():
    made = mixed_board(30, ["a", "b"])
    mixed = board(answers_of(made)[::-1], systems=made.systems, scorers=made.scorers)
    assert failures_csv(made) == failures_csv(mixed) != failures_csv(board([]))


def ruled(coherent: int | None, clear: int, penalty: int) -> Result[Score]:
    criteria = {"Coherence": coherent, "Clarity": clear}
    return Result(Score(50.0, {"criteria": criteria, "penalty": penalty, "raw": 3}))


def test_criteria_are_counted_by_category_and_system() -> None:
    first, second, third = sample(1), sample(2), sample(3, MSR, "physics")
    made = board(
        [
            evaluation("a", first, ruled(1, 1, 0)),
            evaluation("a", second, ruled(0, 1, 1)),
            evaluation("a", third, ruled(None, 1, 0)),
            evaluation("b", first, ruled(None, 0, 0)),
            evaluation("b", second, Unscored("no verdict")),
            evaluation("b", third, Result(Score(3.0))),
        ]
    )
    situational, reasoning = (
        [[c.heading for c in t.columns], *([c.text for c in row] for row in t.rows)]
        for t in criteria_tables(made, Judge())
    )
    assert situational == [
        ["system", "Coherence", "Clarity", "penalty"],
        ["a", "50% n=2", "100% n=2", "50% n=2"],
        ["b", "-", "0% n=1", "0% n=1"],
    ]
    assert reasoning == [["system", "Clarity", "penalty"], ["a", "100% n=1", "0% n=1"]]
    assert list(criteria_tables(board_of({"a": [1, 2]}), Judge())) == []


@pytest.mark.parametrize(
    "scorer",
    [
        CustomScorer("m:Parts", stage("parts"), "0-10"),
        Judge("m:Parts", "0-10", criteria_are_shares=False),
    ],
    ids=["resolved", "recorded"],
)
def test_sub_scores_of_a_users_scorer_are_no_shares(scorer: Judge) -> None:
    """Their scale is the user's; what is no number is left out."""
    odd = {"word": "good", "list": [1], "none": None, "endless": math.inf, "long": 10**400}
    parts = [{"criteria": {"colour": n, **odd}, "raw": "r", "penalty": []} for n in (10, 3)]
    parts += [{"criteria": ["colour"]}, {"criteria": "colour"}]
    judged = [Result(Score(8.0, own)) for own in parts]
    asked = [sample(i) for i in range(4)]
    answers = [
        evaluation("a", query, outcome, scorer="m:Parts")
        for query, outcome in zip(asked, judged, strict=True)
    ]
    (table,) = criteria_tables(board(answers, scorers=(scorer,)), scorer)
    assert [c.heading for c in table.columns] == ["system", "colour"]
    assert [[c.full for c in row] for row in table.rows] == [["a", "6.50 n=2"]]


def test_the_summary_of_a_released_program_stands_where_a_scorer_has_one() -> None:
    """A scorer that is read from a file has it as one that is resolved has."""
    asked = [replace(sample(i), id=f"{kind}-{i}") for i, kind in enumerate(("SA", "PBL"))]
    ruled = {"Correctness": 0.7, "turn 1 (text)": 0.5, "looks back": 0.1}
    raw = [{"raw": score, "criteria": ruled} for score in (4, 5)]
    judged = [Result(Score(50.0, parts)) for parts in raw]
    answers = [evaluation("a", *pair) for pair in zip(asked, judged, strict=True)]
    answers += [evaluation("a", sample(2), Unscored("unreadable"))]
    printed = {}
    for summary in ("", "mmie", "opening", "imug"):
        made = board(answers, scorers=(Judge(released_summary=summary),))
        printed[summary] = leaderboard(made)[0]["scores"]["judge"].get("as_released")
    of_mmie = {"n": 2, "average": 4.5, "percent": 75.0, "SA": 4.0, "PBL": 5.0, "MSR": None}
    assert (printed[""], printed["mmie"]) == (None, of_mmie)
    assert len(printed["opening"]) == 8
    assert (printed["imug"]["all"], printed["imug"]["turn 1: image"]) == (50.0, None)
    assert printed["opening"]["Correctness"] == 7.0


@pytest.mark.parametrize("weights", ["pretrained", "mini"])
def test_published_agreement_with_people_is_that_of_published_weights(weights) -> None:
    own = Judge("clipscore", manner="in short", stage=stage("clipscore", weights))
    other = Judge("bleu", stage=stage("bleu"))
    made = board_of({"a": [1.0, 2.0]}, scorers=(own, other))
    told = weights == "pretrained"
    scores = leaderboard(made)[0]["scores"]
    assert ("agreement" in scores["clipscore"]) == told
    assert "agreement" not in scores["bleu"]
    if told:
        (figure,) = scores["clipscore"]["agreement"]
        assert (figure["value"], figure["ci95"], figure["split"]) == (51.0, None, "t2i")
    file = io.StringIO()
    PlainConsole(file=file, width=240).print(terminal_table(made))
    for text in (file.getvalue(), legend(made)):
        assert "clipscore: in short." in text
        assert ("agrees with people in 51.0% of pairs" in text) == told
