"""`--data miniature[:N]`, its export in MMIE's format, and the command line."""

from __future__ import annotations

import json

import pytest
import typer
from mmie_helpers import folder, good, loaded, row
from typer.testing import CliRunner

from plait.benchmarks.runs.config import RunConfig, with_absolute_paths
from plait.benchmarks.tasks.miniature import __main__ as command
from plait.benchmarks.tasks.miniature.queries import FIELDS
from plait.benchmarks.tasks.mmie.categories import CATEGORIES
from plait.benchmarks.tasks.mmie.official import systems_of_folder
from plait.benchmarks.tasks.task_set import load
from plait.cli import app
from plait.generators.document import Query
from plait.generators.errors import UsageError

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return load("miniature:30", cache=tmp_path_factory.mktemp("cache"))


def test_the_task_set(task):
    assert task.name == "miniature"
    assert task.fields == FIELDS
    assert len(task.samples) == task.about["rows"] == 30
    assert task.about["source"] == "miniature:30"
    assert task.about["prompts"] == task.prompt.digest
    assert all(isinstance(s, Query) for s in task.samples)
    turns = task.prompt(task.samples[0], "interleaved")
    (first, _, last) = turns[0].content
    assert "Continue the story with text and images." in first.text
    assert last.text.endswith("\nAnswer:")


def test_the_export_is_read_as_equal_samples(task, tmp_path):
    program = typer.Typer()
    program.command()(command.main)
    done = RUNNER.invoke(program, ["--out", str(tmp_path / "world"), "-n", "30"])
    assert done.exit_code == 0, done.output
    again = load(str(tmp_path / "world"), cache=tmp_path / "cache")
    assert again.samples == task.samples
    assert again.categories == {}
    assert [task.prompt(s, "text") for s in good(task)] == [
        again.prompt(s, "text") for s in good(again)
    ]


def test_criteria_of_mmie_rows(tmp_path):
    rows = [
        row("PBL-1", criteria="A cat."),
        row("PBL-2"),
        row("PBL-3", criteria=["a", 1]),
        row("PBL-4", criteria=""),
    ]
    first, second, third, fourth = good(loaded(folder(tmp_path / "data", rows)))
    assert (first.criteria, first.metadata) == ("A cat.", {})
    assert (second.criteria, second.metadata) == (None, {})
    assert (third.criteria, third.metadata) == (None, {"criteria": json.dumps(["a", 1])})
    assert (fourth.criteria, fourth.metadata) == (None, {"criteria": ""})


@pytest.mark.parametrize("number", ["0", "x", "", "-3", "1.5", "²"])
def test_a_wrong_number_is_refused(number, tmp_path):
    with pytest.raises(UsageError, match=r"not a valid number of queries.*miniature:40"):
        load(f"miniature:{number}", cache=tmp_path)


def test_the_name_means_the_same_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "miniature").mkdir()
    for data in ("miniature", "miniature:12"):
        config = with_absolute_paths(RunConfig(data=data, systems=("gt",)))
        assert config.data == data
    folder(tmp_path / "miniature:12", [row()])
    assert len(load("miniature:12", cache=tmp_path / "c").samples) == 1
    assert with_absolute_paths(RunConfig(data="miniature:12")).data == str(
        tmp_path / "miniature:12"
    )
    assert len(load("miniature", cache=tmp_path / "c").samples) == 40


@pytest.mark.parametrize(
    ("data", "weights"), [("miniature:3", {}), ("sample", dict(CATEGORIES))]
)
def test_exported_answers_have_the_category_weights_of_their_benchmark(
    tmp_path, data, weights
):
    run, out = str(tmp_path / "run"), tmp_path / "out"
    words = ["run", "--data", data, "--system", "gt", "--weights", "tiny", "--limit", "3"]
    words += ["--set", "scorers=[]", "--repeats", "2", "--out", run]
    assert RUNNER.invoke(app, words, catch_exceptions=False).exit_code == 0
    words = ["export", run, "--system", "gt", "--repeat", "2", "--out", str(out)]
    done = RUNNER.invoke(app, words, catch_exceptions=False)
    assert (done.exit_code, "repeat 2 of 2" in done.output) == (0, True)
    task, _ = systems_of_folder(out)
    assert (len(task.samples), task.categories) == (3, weights)
