"""Answers made elsewhere that are read by columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from picture_helpers import flat

from plait.benchmarks.tasks.answers import AnswerPlace, find_format, systems_of_answers
from plait.benchmarks.tasks.reading.columns import DataReading
from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.task_set import load
from plait.generators.base import Failure
from plait.generators.document import Document, Text
from plait.generators.errors import UsageError

IDS = ("a", "b", "c")


@pytest.fixture
def task(tmp_path, monkeypatch):
    """Three queries, and red.png beside the answers in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("red.png").write_bytes(flat())
    Path("q.jsonl").write_text("".join(f'{{"id": "{i}", "question": "Q"}}\n' for i in IDS))
    return load(str(tmp_path / "q.jsonl"), cache=tmp_path / "cache")


def read(task, rows, name="x.jsonl", **reading):
    """By system, what is said to each query: texts and `image`, or the reason of none."""
    if rows is not None:
        Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = DataReading.model_validate(reading)
    _, systems = systems_of_answers(
        task, {"x": str(Path(name).absolute())}, reading=options
    )
    return {
        system.name: {id: said(answer) for id, answer in system.answers.items()}
        for system in systems
    }


def said(answer):
    if isinstance(answer, Failure):
        return answer.reason
    assert isinstance(answer, Document)
    parts = (s.text if isinstance(s, Text) else "image" for s in answer.segments)
    return "|".join(parts)


def assistant(content):
    return {"role": "assistant", "content": content}


FORMS: list[tuple[dict[str, Any], str]] = [
    ({"text": "Red."}, "Red."),
    ({"text": "Red.", "images": ["red.png"]}, "Red.|image"),
    ({"text": "<image> is red.", "images": "red.png"}, "image| is red."),
    ({"images": ["red.png"], "text": None}, "image"),
    ({"answer": ["So: ", "red.png", "it is red."]}, "So: |image|it is red."),
    ({"answer": [{"text": "So: "}, {"image": "red.png"}]}, "So: |image"),
    ({"text": '["up", "down"]'}, '["up", "down"]'),
    ({"text": '[{"text": "as said"}]'}, '[{"text": "as said"}]'),
    ({"response": "Red.", "question": "Q"}, "Red."),
    ({"messages": [{"role": "user", "content": "Q"}, assistant("Red.")]}, "Red."),
    ({"messages": [assistant([{"type": "text", "text": "Red."}])]}, "Red."),
]


@pytest.mark.parametrize(("columns", "expected"), FORMS)
def test_an_answer_in_every_form(task, columns, expected):
    assert read(task, [{"id": "a", **columns}]) == {"x": {"a": expected}}


def test_tables_and_parquet(task):
    Path("x.csv").write_text('id,text,images\na,"Red, <image>",red.png\nb,Blue,\n')
    expected = {"x": {"a": "Red, |image", "b": "Blue"}}
    assert read(task, None, "x.csv") == expected
    image = {"bytes": flat(), "path": None}
    rows = [{"id": "a", "text": "Red, <image>", "images": [image]}]
    rows += [{"id": "b", "text": "Blue", "images": []}]
    pq.write_table(pa.Table.from_pylist(rows), "x.parquet")
    assert read(task, None, "x.parquet") == expected


def test_a_chat_of_several_turns_is_an_answer_to_each(task):
    rows = [{"id": "a", "messages": [assistant("One."), assistant("Two.")]}]
    Path("x.jsonl").write_text(json.dumps(rows[0]))
    _, (system,) = systems_of_answers(task, {"x": "x.jsonl"})
    assert [a.text for a in system.answers["a"].answers] == ["One.", "Two."]


def test_a_column_of_systems(task):
    rows = [{"id": "a", "text": s, "system": s} for s in ("m", "n")]
    broken = {"id": "b", "text": "?", "system": None}
    own = "x.jsonl, line 3: wrong type: system is no name of a system: None"
    assert read(task, [*rows, broken]) == {
        "x/m": {"a": "m", "b": own},
        "x/n": {"a": "n", "b": own},
    }


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "a", "text": ""}, "empty content"),
        ({"id": "a", "text": "x", "images": ["gone.png"]}, "missing picture"),
        ({"id": "a", "text": "<image>"}, "marks and pictures differ in number"),
        ({"id": "a", "text": True}, "wrong type"),
        ({"id": "a", "text": [{"role": "user", "content": "Q"}]}, "empty content"),
    ],
)
def test_a_broken_answer_is_a_failure_that_names_its_line(task, row, said):
    reasons = read(task, [{"id": "b", "text": "whole"}, row])["x"]
    assert reasons["b"] == "whole"
    assert reasons["a"].startswith(f"x.jsonl, line 2: {said}: ")


def test_two_answers_to_one_query_and_answers_to_none(task):
    rows = [{"id": "a", "text": t} for t in "xy"] + [{"id": "zz", "text": "?"}]
    rows += [{"text": "whose?", "id": None}]
    Path("x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    told, (system,) = systems_of_answers(task, {"x": "x.jsonl"})
    counts = told.about["answers"]["x"]["systems"]["x"]
    assert counts["unknown"] == ["zz"]
    assert [counts[k] for k in ("answers", "failed", "without")] == [0, 3, 0]
    assert "x.jsonl, line 2: duplicate id" in system.answers["a"].reason
    assert "line 4" in system.answers["b"].reason


def test_two_columns_that_may_be_the_answer_are_refused_until_one_is_named(task):
    """As VLMEvalKit writes them, where `answer` is the true one."""
    rows = [{"index": "a", "question": "Q", "answer": "B", "prediction": "A"}]
    with pytest.raises(TaskError, match="'answer' and 'prediction' both mean") as refused:
        read(task, rows)
    assert "\n" not in str(refused.value)
    named = {"answer": "prediction"}
    assert read(task, rows, answer_columns=named) == {"x": {"a": "A"}}
    with pytest.raises(UsageError, match=r"data\.answer_columns\.answer: 'guess'"):
        read(task, rows, answer_columns={"answer": "guess"})
    Path("y.jsonl").write_text('{"text": "x"}')
    with pytest.raises(TaskError, match="no column of the id"):
        find_format(AnswerPlace.of("rows:y.jsonl"))
