"""The one table of a run: its rows by hand, and that everything is made of it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from report_helpers import Judge, board, evaluation, mixed_board, sample, stage, system

from benchmarks.results.board import SCHEMA, Board, TableBuilder
from benchmarks.results.costs import RecordCost
from benchmarks.results.leaderboard import differences, leaderboard, legend, spent_table
from benchmarks.results.reasons import failures_csv
from cluster.plan import Evaluation
from generators.base import (
    Failure,
    Fault,
    Job,
    Kind,
    NotApplicable,
    Result,
    Skip,
    Unread,
    Unscored,
)
from generators.document import Malformed, Request, Score
from generators.system import TRIES

CRITERIA = {"criteria": {"Clarity": 1, "Style": None}, "penalty": 0, "raw": 3}


def rows(made: Board, *names: str) -> list[tuple]:
    columns = [made.table.column(name).to_pylist() for name in names]
    return list(zip(*columns, strict=True))


def test_every_answer_and_every_score_is_a_row():
    made = board(
        [
            evaluation("w+s", sample(0), 4),
            evaluation("w+s", sample(1), None, document=Failure("no", Fault.REFUSED)),
            evaluation("w+s", sample(2), Failure("broke", Fault.ENDPOINT), repeat=1),
            evaluation("w+s", sample(3), Result(Score(50.0, CRITERIA))),
            Evaluation("w+s", sample(4), 0, None, {}),
            evaluation("w+s", sample(5), Unread("what?")),
        ],
        scorers=(Judge(scale="0-100"),),
    )
    names = ("query", "repeat", "scorer", "criterion", "outcome", "value", "fault")
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
    assert (why[2], why[3], why[14]) == ("no", "failed (refused): no", "what?")
    about = ("system", "lvlm", "t2i", "protocol", "category", "field")
    group = ("situational analysis", "literature")
    assert set(rows(made, *about)) == {("w+s", "w", "s", "mmie", *group)}
    assert made.table.schema.equals(SCHEMA)
    assert rows(made, "images")[0] == (0.0,)
    assert made.images_per_document == {"w+s": 0.0}
    assert sorted(made.faults) == ["endpoint failure", "refused"]


class Costs:
    """Of each record ten seconds; tokens of the answers alone."""

    answers: ClassVar = {"input_tokens": 3.0, "output_tokens": 4.0, "cost": 0.5}
    records: ClassVar = {
        name: RecordCost(name, Kind.DRAFT, {"seconds": 10.0, **own})
        for name, own in {"w": answers, "judge": {}}.items()
    }

    def of(self, jobs) -> dict[str, RecordCost]:
        return {job.key: self.records[job.spec.name] for job in jobs}


def test_answers_and_judgements_have_what_their_records_took():
    builder = TableBuilder([system("w")], Costs())
    one, judge = (Job(stage(name), Request(()), "Q") for name in ("w", "judge"))
    jobs = {"": [one], "judge": [judge]}
    for repeat in range(2):
        made = replace(evaluation("w", sample(0), 4, repeat=repeat), jobs=jobs)
        builder.add(made, [Judge()])
    taken = builder.table().select(["seconds", "tokens", "cost"]).to_pydict()
    own = {"seconds": [10.0, 10.0], "tokens": [7.0, None], "cost": [0.5, None]}
    assert taken == {name: 2 * values for name, values in own.items()}
    # One record serves both answers, and is counted once in what they took together.
    assert builder.spent["w"] == {"seconds": 10.0, **Costs.answers}
    assert builder.spent["judge"] == {"seconds": 10.0}
    assert builder.spent[""] == {**builder.spent["w"], "seconds": 20.0}


class CutCosts(Costs):
    """Every reply ended at its maximum length."""

    records: ClassVar = {
        name: RecordCost.of(stage(name), {"usage": '{"cut": 1}', "seconds": 1.0})
        for name in ("w", "judge")
    }


def test_answers_and_judgements_that_were_cut_are_counted_where_they_count():
    builder = TableBuilder([system("w")], CutCosts())
    one, judge = (Job(stage(name), Request(()), "Q") for name in ("w", "judge"))
    jobs = {"": [one], "judge": [judge]}
    done = evaluation("w", sample(0), 4)
    unread = evaluation("w", sample(1), Unread("what?"))
    failed = evaluation("w", sample(2), None, document=Failure("no", Fault.ERROR))
    for made in (done, unread, failed):
        builder.add(replace(made, jobs=jobs), [Judge()])
    assert builder.cut == {"w": 2, "judge": 1}
    whole = board([done], scorers=(Judge(),))
    (line,) = replace(whole, cut=builder.cut).about_replies
    assert "w 2, judge 1" in line
    assert line in legend(replace(whole, cut=builder.cut))
    assert whole.about_replies == []


def test_images_that_a_critic_discarded_are_counted_with_what_a_run_took():
    own, other = (evaluation(name, sample(0), 4) for name in "wv")
    noted = replace(own.document, notes={TRIES: [{"kept": k} for k in (0, 1, 0, 1)]})
    made = board([replace(own, document=noted), other])
    assert rows(made, "scorer", "discarded")[::2] == [(None, 2.0), (None, None)]
    table = spent_table(made)
    assert [column.heading for column in table.columns][1:] == ["images discarded"]
    assert {row[0].full: float(row[1].full) for row in table.rows[:1]} == {"w": 2.0}


def test_an_answer_with_a_score_that_is_missing_counts_as_missing_in_all_tables():
    found = [
        replace(
            evaluation("w", sample(i), 1), scores={"a": Result(Score(1.0)), "b": second}
        )
        for i, second in enumerate((Result(Score(2.0)), None))
    ]
    made = board(found, scorers=(Judge("a"), Judge("b")))
    assert rows(made, "scorer", "outcome")[-1] == ("b", "missing")
    (row,) = leaderboard(made)
    assert (row["planned"], row["done"], row["missing"], row["scored"]) == (2, 1, 1, 2)
    assert row["scores"]["a"]["avg_micro"]["n"] == 1
    assert (made.missing, made.keys) == (1, ["Q-0000"])


def test_a_table_in_parts_or_from_a_file_gives_the_same_results(tmp_path, monkeypatch):
    made = mixed_board(12, ["w+s", "w+t", "v+s"])
    pq.write_table(made.table, tmp_path / "table.parquet", row_group_size=50)
    table = pq.read_table(tmp_path / "table.parquet")
    assert table.column("system").num_chunks > 1
    monkeypatch.setattr("benchmarks.results.board._CHUNK", 7)
    parts = mixed_board(12, ["w+s", "w+t", "v+s"])
    assert parts.table.to_pylist() == made.table.to_pylist()
    for of in (leaderboard, differences, failures_csv):
        assert of(replace(made, table=table)) == of(parts) == of(made)


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
