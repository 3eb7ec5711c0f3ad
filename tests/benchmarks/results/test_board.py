"""The one table of a run: its rows by hand, and that everything is made of it alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from report_helpers import Judge, board, evaluation, mixed_board, sample, stage, system

from benchmarks.results.board import SCHEMA, Board, TableBuilder
from benchmarks.results.leaderboard import differences, leaderboard
from benchmarks.results.reasons import failures_csv
from cluster.plan import Evaluation
from generators.base import (
    Failure,
    Fault,
    Job,
    NotApplicable,
    OutcomeName,
    Result,
    Skip,
    Unread,
    Unscored,
)
from generators.document import Malformed, Request, Score

RULED = Result(
    Score(50.0, {"criteria": {"Clarity": 1, "Style": None}, "penalty": 0, "raw": 3})
)


def rows(made: Board, *names: str) -> list[tuple]:
    columns = [made.table.column(name).to_pylist() for name in names]
    return list(zip(*columns, strict=True))


def test_every_answer_and_every_score_is_a_row():
    made = board(
        [
            evaluation("w+s", sample(0), 4),
            evaluation("w+s", sample(1), None, document=Failure("no", Fault.REFUSED)),
            evaluation("w+s", sample(2), Failure("broke", Fault.ENDPOINT), repeat=1),
            evaluation("w+s", sample(3), RULED),
            Evaluation("w+s", sample(4), 0, None, {}),
            evaluation("w+s", sample(5), float("nan")),
        ],
        scorers=(Judge(scale="0-100"),),
    )
    names = ("query", "repeat", "scorer", "criterion", "outcome", "value", "fault")
    nothing = "not made yet: run the same command again"
    assert rows(made, *names) == [
        ("Q-0000", 1, None, None, "done", None, ""),
        ("Q-0000", 1, "judge", None, "scored", 4.0, ""),
        ("Q-0001", 1, None, None, "failed", None, "refused"),
        ("Q-0001", 1, "judge", None, "no_document", None, "refused"),
        ("Q-0002", 2, None, None, "done", None, ""),
        ("Q-0002", 2, "judge", None, "failed", None, "endpoint failure"),
        ("Q-0003", 1, None, None, "done", None, ""),
        ("Q-0003", 1, "judge", None, "scored", 50.0, ""),
        ("Q-0003", 1, "judge", "Clarity", "scored", 1.0, ""),
        ("Q-0003", 1, "judge", "penalty", "scored", 0.0, ""),
        ("Q-0003", 1, "judge", "raw", "scored", 3.0, ""),
        ("Q-0004", 1, None, None, "missing", None, ""),
        ("Q-0004", 1, "judge", None, "no_document", None, ""),
        ("Q-0005", 1, None, None, "done", None, ""),
        ("Q-0005", 1, "judge", None, "unscored", None, ""),
    ]
    why = made.table.column("reason").to_pylist()
    assert (why[2], why[3], why[11]) == ("no", "failed (refused): no", nothing)
    assert set(rows(made, "system", "lvlm", "t2i", "protocol")) == {
        ("w+s", "w", "s", "mmie")
    }
    assert set(rows(made, "category", "field")) == {("situational analysis", "literature")}
    assert made.table.schema.equals(SCHEMA)
    assert rows(made, "images")[0] == (0.0,)


class Costs:
    """Of each record ten seconds; tokens of the answers alone."""

    def spent(self, jobs) -> dict[str, float]:
        answers = {"input_tokens": 3.0, "output_tokens": 4.0, "cost": 0.5}
        own = answers if jobs[0].spec.name == "w" else {}
        return {"seconds": 10.0 * len(jobs), **own}


def test_answers_and_judgements_have_what_their_records_took():
    builder = TableBuilder([system("w")], Costs())
    jobs = {
        "": [Job(stage("w"), Request(()), "Q")] * 2,
        "judge": [Job(stage("judge"), Request(()), "Q")],
    }
    builder.add(replace(evaluation("w", sample(0), 4), jobs=jobs), ["judge"])
    table = builder.table()
    columns = ("seconds", "tokens", "cost")
    assert [table.column(c).to_pylist() for c in columns] == [
        [20.0, 10.0],
        [7.0, None],
        [0.5, None],
    ]


def test_an_answer_with_a_score_that_is_missing_counts_as_missing_in_all_tables():
    scorers = (Judge("a"), Judge("b"))
    half = replace(evaluation("w", sample(1), 5, scorer="a"))
    half = replace(half, scores={**half.scores, "b": None})
    whole = replace(evaluation("w", sample(0), 1, scorer="a"))
    whole = replace(whole, scores={**whole.scores, "b": Result(Score(2.0))})
    made = board([whole, half], scorers=scorers)
    assert rows(made, "scorer", "outcome")[3:] == [
        (None, "done"),
        ("a", "scored"),
        ("b", "missing"),
    ]
    (row,) = leaderboard(made)
    assert (row["planned"], row["done"], row["missing"], row["scored"]) == (2, 1, 1, 2)
    assert row["scores"]["a"]["avg_micro"]["mean"] == 1.0
    assert (made.missing, made.keys) == (1, ["Q-0000"])


def test_a_table_read_from_a_file_gives_the_same_results(tmp_path):
    made = mixed_board(40, ["w+s", "w+t", "v+s"])
    pq.write_table(made.table, tmp_path / "table.parquet", row_group_size=50)
    table = pq.read_table(tmp_path / "table.parquet")
    assert table.column("system").num_chunks > 1
    again = replace(made, table=table)
    for of in (leaderboard, differences, failures_csv):
        assert of(again) == of(made)
    assert made.table.to_pandas().shape == (made.table.num_rows, len(SCHEMA))


def test_rows_that_became_columns_in_several_parts_are_one_table(monkeypatch):
    whole = mixed_board(12, ["w+s", "w+t"])
    monkeypatch.setattr("benchmarks.results.board._CHUNK", 7)
    parts = mixed_board(12, ["w+s", "w+t"])
    assert parts.table.to_pylist() == whole.table.to_pylist()
    assert leaderboard(parts) == leaderboard(whole)


def test_answers_are_read_again_for_the_queries_that_are_asked_for():
    made = mixed_board(6, ["a", "b"])
    found = list(made.reading({"Q-0001", "Q-0004"}))
    assert [(e.sample.id, e.system) for e in found] == [
        ("Q-0001", "a"),
        ("Q-0001", "b"),
        ("Q-0004", "a"),
        ("Q-0004", "b"),
    ]


def test_repeats_are_averaged_and_malformed_rows_are_queries_of_their_own():
    broken = Malformed(id="Q-0000", row=7, reason="duplicate id")
    failed = Failure(broken.reason, Fault.BAD_INPUT)
    found = [evaluation("a", sample(0), score, repeat=i) for i, score in enumerate((1, 4))]
    made = board([*found, evaluation("a", broken, None, document=failed)])
    assert made.keys == ["Q-0000", "Q-0000 (row 7)"]
    assert np.array_equal(made.values["judge"], [[2.5], [np.nan]], equal_nan=True)


@pytest.mark.parametrize(
    ("outcomes", "answering", "judging", "nothing"),
    [
        ([Unread("?"), Unread("?"), NotApplicable("no")], None, "pretrained", 2),
        ([Unscored("nothing to judge"), Skip("no")], None, "pretrained", 1),
        ([Failure("?", Fault.ERROR), Unscored("?")], None, "pretrained", 2),
        ([Unread("?"), Result(Score(1.0))], None, "pretrained", 0),
        ([NotApplicable("no"), Skip("no")], None, "pretrained", 0),
        ([Unread("?")], None, "tiny", 0),
        ([Unscored("nothing to judge")], "tiny", "pretrained", 0),
    ],
)
def test_a_scorer_that_scored_nothing_is_told(outcomes, answering, judging, nothing):
    judge = Judge(stages=(stage("judge", judging),))
    found = [evaluation("a", sample(i), outcome) for i, outcome in enumerate(outcomes)]
    systems = (system("a", answering),)
    made = board(found, scorers=(judge,), systems=systems)
    assert made.nothing_scored == ({"judge": nothing} if nothing else {})


def test_outcomes_of_judgements_are_told_from_those_of_answers():
    named = {name: name.of_scores for name in OutcomeName}
    assert named.pop(OutcomeName.FAILED) == "failed_scores"
    assert named.pop(OutcomeName.SKIPPED) == "skipped_scores"
    assert all(name == shown for name, shown in named.items())
