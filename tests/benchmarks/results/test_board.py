"""The one table of a run: its rows by hand, and that everything is made of it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from report_helpers import Judge, board, evaluation, mixed_board, sample, stage, system

from plait.benchmarks.results.board import NAME, SCHEMA, Board, in_one_chunk
from plait.benchmarks.results.comparisons import differences
from plait.benchmarks.results.leaderboard import leaderboard
from plait.benchmarks.results.leaderboard_tables import legend, spent_table
from plait.benchmarks.results.reasons import failures_csv
from plait.cluster.plan import Evaluation
from plait.cluster.records import Item, encode
from plait.cluster.store import Store
from plait.generators.base import (
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
from plait.generators.document import Draft, Malformed, Request, Score, Text
from plait.generators.system import TRIES

pytestmark = pytest.mark.contract

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
        ("Q-0003", 1, None, None, "done", None, ""),
        ("Q-0003", 1, "judge", None, "scored", 50.0, ""),
        ("Q-0003", 1, "judge", "Clarity", "scored", 1.0, ""),
        ("Q-0003", 1, "judge", "penalty", "scored", 0.0, ""),
        ("Q-0003", 1, "judge", "raw", "scored", 3.0, ""),
        ("Q-0004", 1, None, None, "missing", None, ""),
        ("Q-0004", 1, "judge", None, "no_document", None, ""),
        ("Q-0005", 1, None, None, "done", None, ""),
        ("Q-0005", 1, "judge", None, "unscored", None, ""),
        ("Q-0002", 2, None, None, "done", None, ""),
        ("Q-0002", 2, "judge", None, "failed", None, "endpoint failure"),
    ]
    why = made.table.column("reason").to_pylist()
    assert (why[2], why[3], why[12]) == ("no", "failed (refused): no", "what?")
    about = ("system", "lvlm", "t2i", "protocol", "category", "field")
    group = ("situational analysis", "literature")
    assert set(rows(made, *about)) == {("w+s", "w", "s", "mmie", *group)}
    assert made.table.schema.equals(SCHEMA)
    assert rows(made, "images")[0] == (0.0,)
    assert made.images_per_document == {"w+s": 0.0}
    assert sorted(made.faults) == ["endpoint failure", "refused"]


ANSWER, JUDGEMENT = (Job(stage(n), Request(()), "Q") for n in ("w", "judge"))
JUDGE = Judge(stage=JUDGEMENT.spec)


def store_with(root: Path, usage: Mapping[str, Any], judge: Mapping[str, Any]) -> Store:
    """A store with the records of both jobs, of ten seconds each."""
    store = Store(root)
    for job, own in ((ANSWER, usage), (JUDGEMENT, judge)):
        item, made = Item(job.key, job.label, job.input), Draft((Text("Said."),))
        store.commit(job.spec, encode(Kind.DRAFT, [item], [Result(made, own)], 10.0))
    return store


def with_jobs(*made: Evaluation) -> list[Evaluation]:
    """Evaluations of one system that are made of the two records."""
    jobs = {"": [ANSWER], "judge": [JUDGEMENT]}
    return [replace(e, jobs=jobs) for e in made]


def test_answers_and_judgements_have_what_their_records_took(tmp_path):
    usage = {"input_tokens": 3, "output_tokens": 4, "cost": 0.5}
    store = store_with(tmp_path, usage, {})
    both = [evaluation("w", sample(0), 4, repeat=repeat) for repeat in range(2)]
    made = board(with_jobs(*both), scorers=(JUDGE,), store=store)
    assert rows(made, "seconds", "tokens", "cost") == 2 * [(10, 7, 0.5), (10, None, None)]
    # One record serves both answers, and is counted once in what they took together.
    seconds = {"seconds": 10.0, "gpu_seconds": 0.0}
    assert made.spent["w"] == {**seconds, **usage}
    assert made.spent["judge"] == seconds
    assert made.spent[""] == {**made.spent["w"], "seconds": 20.0}


def test_answers_and_judgements_that_were_cut_are_counted_where_they_count(tmp_path):
    done = evaluation("w", sample(0), 4)
    unread = evaluation("w", sample(1), Unread("what?"))
    failed = evaluation("w", sample(2), None, document=Failure("no", Fault.ERROR))
    store = store_with(tmp_path, {"cut": 1}, {"cut": 1})
    made = board(with_jobs(done, unread, failed), scorers=(JUDGE,), store=store)
    assert made.cut == {"w": 2, "judge": 1}
    (line,) = made.about_replies
    assert "w 2, judge 1" in line
    assert line in legend(made)
    assert replace(made, cut={}).about_replies == []


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


def test_a_table_from_a_file_gives_the_same_results(tmp_path):
    made = mixed_board(12, ["w+s", "w+t", "v+s"])
    pq.write_table(made.table, tmp_path / "table.parquet", row_group_size=50)
    table = pq.read_table(tmp_path / "table.parquet")
    assert table.column("system").num_chunks > 1
    for of in (leaderboard, differences, failures_csv):
        assert of(replace(made, table=table)) == of(made)


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
    judge = Judge(stage=stage("judge", judging))
    found = [evaluation("a", sample(i), outcome) for i, outcome in enumerate(outcomes)]
    systems = (system("a", answering),)
    made = board(found, scorers=(judge,), systems=systems)
    assert made.nothing_scored == ({"judge": nothing} if nothing else {})


@pytest.mark.parametrize(
    ("documents", "unanswered"),
    [
        ([Skip("no"), Skip("no")], 2),
        ([Failure("?", Fault.ERROR), Skip("no")], 2),
        ([Skip("no"), None], 0),
        ([], 0),
    ],
)
def test_a_run_without_any_answer_is_told(documents, unanswered):
    found = []
    for number, document in enumerate(documents):
        given = {} if document is None else {"document": document}
        found.append(evaluation("a", sample(number), None if given else 1, **given))
    assert board(found).unanswered == unanswered


@pytest.mark.parametrize("chunks", [[], [["a", "b"]], [["a", None], [], ["b", "a"], ["c"]]])
def test_a_column_of_names_holds_each_of_them_once(chunks):
    """Chunks that each hold all names made a board of 1 M queries quadratic."""
    arrays = [
        pa.array(chunk, pa.string()).dictionary_encode().cast(NAME) for chunk in chunks
    ]
    column = in_one_chunk(pa.chunked_array(arrays, NAME))
    assert column.to_pylist() == [name for chunk in chunks for name in chunk]
    names = column.dictionary.to_pylist()
    assert sorted(names) == sorted({*column.to_pylist()} - {None})
