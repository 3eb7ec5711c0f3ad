"""Rows, averages and counts against hand-made boards; what must not change a mean."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_helpers import (
    MMIE,
    board,
    board_of,
    evaluation,
    sample,
    system,
)

from benchmarks.results.leaderboard import (
    differences,
    leaderboard,
)
from generators.base import Failure, Fault, NotApplicable, Result, Skip, Unscored
from generators.document import Malformed, Score

SA, PBL, MSR = MMIE


FILES = (
    *(f"leaderboard.{form}" for form in ("json", "csv", "md", "tex")),
    "differences.json",
    "failures.csv",
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


def test_a_category_that_is_partly_not_applicable_still_counts():
    made = board(
        [
            evaluation("a", sample(0, SA, "literature"), 1),
            evaluation("a", sample(1, PBL, "art"), 3),
            evaluation("a", sample(2, PBL, "art"), NotApplicable("no picture wanted")),
            evaluation("a", sample(3, MSR, "physics"), 5),
        ]
    )
    expected = (5005 * 1 + 11482 * 3 + 3616 * 5) / 20103
    assert judged(made)["avg_fixed"]["mean"] == pytest.approx(expected, abs=1e-6)
    assert judged(made)["fields"]["art"]["mean"] == 3.0


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


def test_repeats_not_yet_begun_do_not_count_as_queries():
    made = board_of({"a": [1, 2, 3]}, missing=3, repeats=2)
    row = leaderboard(made)[0]
    assert (row["n"], row["planned"], row["missing"]) == (3, 6, 3)


def test_malformed_rows_fail_for_every_system_even_under_a_known_id():
    broken = Malformed(id="Q-0000", row=7, reason="row 7: duplicate id 'Q-0000'")
    failed = Failure(broken.reason, Fault.BAD_INPUT)
    found = [evaluation(name, sample(0), 4) for name in "ab"]
    found += [evaluation(name, broken, None, document=failed) for name in "ab"]
    rows = leaderboard(board(found))
    assert [(r["n"], r["done"], r["failed"]) for r in rows] == [(2, 1, 1)] * 2
    unknown = rows[0]["scores"]["judge"]["categories"]["unknown"]
    assert (unknown["mean"], unknown["failed"]) == (None, 1)
    assert rows[0]["scores"]["judge"]["avg_micro"]["mean"] == 4.0


def test_differences_are_of_queries_that_both_have():
    made = board_of({"a": [1, 2, 3, 4, 5, None, 6], "b": [0, 4, 2, 4, 5, 6, None]})
    (found,) = differences(made)
    assert (found["a"], found["b"], found["n"]) == ("a", "b", 5)
    assert found["mean"] == pytest.approx((1 - 2 + 1 + 0 + 0) / 5)
    assert found["ci95"] == pytest.approx([-1.520722, 1.520722])
    assert found["method"] == "Student's t"
    assert found["direction"] == "higher"


def test_paired_interval_is_narrower_than_the_systems_own():
    rng = random.Random(0)
    base = [rng.gauss(3, 2) for _ in range(100)]
    table = {"a": base, "b": [x + rng.gauss(0.2, 0.1) for x in base]}
    made = board_of(table)
    (pair,) = differences(made)
    own = judged(made)["avg_micro"]["ci95"]
    assert pair["ci95"][1] - pair["ci95"][0] < (own[1] - own[0]) / 5
    assert pair["ci95"][1] < 0


def test_no_pair_in_common_has_no_difference():
    (found,) = differences(board_of({"a": [1, None], "b": [None, 1]}))
    assert (found["mean"], found["ci95"], found["n"]) == (None, None, 0)
    assert found["reason"]


scores = st.one_of(st.none(), st.integers(0, 6), st.just(Unscored("unreadable")))


tables = st.integers(2, 9).flatmap(
    lambda n: st.dictionaries(
        st.sampled_from("abcd"), st.lists(scores, min_size=n, max_size=n), min_size=1
    )
)


def as_set(made) -> dict:
    return {row["system"]: row for row in leaderboard(made)}


@given(tables, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_order_of_queries_and_systems_changes_nothing(table, rng):
    made = board_of(table)
    shuffled = list(made.evaluations)
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
