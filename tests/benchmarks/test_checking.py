"""`plait check`, and how a config says what columns mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import invoke, manifest
from editing_helpers import imgedit_rows, write_imgedit
from picture_helpers import flat

import plait
from plait.benchmarks.runs.config import RunConfig, load_config
from plait.benchmarks.runs.run_directory import former_config
from plait.benchmarks.tasks.reading.rules import TaskError
from plait.generators.errors import UsageError

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]
ROWS = [
    {"id": "a", "ask": "What is <image>?", "images": "red.png", "answer": "Red."},
    {"id": "b", "ask": "Which?", "choices": ["cat", "dog"], "answer": "dog"},
]
ASK = ("--set", "data.columns.question=ask")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """q.jsonl with two queries, whose question is in the column `ask`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("red.png").write_bytes(flat(size=(12, 8)))
    write("q.jsonl", ROWS)


def write(name, rows):
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_what_is_understood_of_queries():
    done = invoke("check", "q.jsonl", *ASK)
    assert done.exit_code == 0
    for told in ("ask", "question", "[image 12x8]", "2 queries, 0 refused", "known-answer"):
        assert told in done.output
    write("q.jsonl", [*ROWS, {"id": "c", "ask": "<image>"}])
    done = invoke("check", "q.jsonl", *ASK)
    assert done.exit_code == 1
    assert "refused: q.jsonl, line 3 (c)" in done.output
    with pytest.raises(TaskError, match="no column of the question"):
        invoke("check", "q.jsonl")
    assert invoke("check", "sample").exit_code == 0


def test_published_answers_are_counted_by_the_name_of_their_system(tmp_path):
    place = write_imgedit(tmp_path / "imgedit")
    (place / "edited_images" / "rich" / "0.png").write_bytes(b"no image")
    done = invoke("check", f"imgedit:{place}")
    number = sum(1 for _ in imgedit_rows())
    assert f"published:rich: {number - 1} answers, 1 failed" in done.output


def test_what_is_understood_of_answers():
    write("x.jsonl", [{"id": "a", "text": "Red", "images": ["red.png"]}])
    done = invoke("check", "x.jsonl", "--data", "q.jsonl", *ASK)
    assert done.exit_code == 0
    assert "Red [image 12x8]" in done.output
    write("x.jsonl", [{"id": "zz", "text": "Red"}, {"id": "a", "text": ""}])
    done = invoke("check", "m=x.jsonl", "--data", "q.jsonl", *ASK)
    assert done.exit_code == 1
    assert "refused: m: 'zz' is the id of no query of the data" in done.output
    assert "refused: m: a: x.jsonl, line 2: empty content" in done.output


def test_from_python():
    columns = {"question": "ask"}
    check = plait.check("q.jsonl", columns=columns)
    assert check.ok
    assert check.columns["question"] == "ask"
    assert "What is [image 12x8] ?" in str(check)
    write("x.jsonl", [{"id": "zz", "said": "Red"}])
    own = {"answer": "said"}
    check = plait.check("x.jsonl", data="q.jsonl", columns=columns, answer_columns=own)
    assert len(check.refused) == 1
    with pytest.raises(plait.UsageError, match=r"unknown key in data\.columns"):
        plait.check("q.jsonl", columns={"asks": "ask"})


def test_the_table_of_a_config_and_settings_of_a_command():
    Path("run.toml").write_text(
        '[data]\nplace = "q.jsonl"\nfiles = ""\ncolumns = { question = "ask" }\n'
    )
    here = str(Path("q.jsonl").absolute())
    by_table = load_config(Path("run.toml"), {})
    by_words = load_config(None, {"data": "q.jsonl"}, ["data.columns.question=ask"])
    for config in (by_table, by_words):
        assert (config.data, config.reading.columns.question) == (here, "ask")
    other = load_config(Path("run.toml"), {"data": "r.jsonl"}, ["data.columns.id=key"])
    assert other.data == here.replace("q.jsonl", "r.jsonl")
    assert other.reading.columns.stated == {"id": "key", "question": "ask"}
    assert other.digest != load_config(None, {"data": "r.jsonl"}).digest
    with pytest.raises(UsageError, match="sample has a format of its own"):
        invoke("plan", *ASK, "--data", "sample")


def test_configs_without_columns_are_what_they_were():
    """Their runs keep their names, and their manifests."""
    assert "reading" not in RunConfig().plain_data()
    assert (
        RunConfig().digest == RunConfig.model_validate({"data": {"place": "sample"}}).digest
    )


def test_a_run_of_own_queries_is_extended_and_read_again():
    words = ("--data", "q.jsonl", *ASK, "--weights", "tiny", "--out", "run")
    done = invoke("run", *words, "--system", "gt", "--scorer", "known-answer")
    assert done.exit_code == 0, done.output
    assert "by columns of q.jsonl: question from ask, id, images, answer" in done.output
    root = Path("run")
    config = former_config(root, manifest(root))
    assert config.reading.columns.question == "ask"
    changed = former_config(root, manifest(root), {"data": {"columns": {"id": "id"}}})
    assert changed.data == config.data
    assert changed.reading.columns.stated == {"id": "id", "question": "ask"}
    assert invoke("score", "run", "--scorer", "bleu").exit_code == 0
    run = plait.open_run("run")
    values = {given.query.id: given.scores for given in run.answers(system="gt")}
    assert values["b"]["known-answer"].value == 1
    assert values["a"].keys() == {"known-answer", "bleu"}
