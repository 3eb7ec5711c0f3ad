"""Runs without results, whose data or modules are gone: what their records hold."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from api_helpers import OWN, SYSTEM, fill
from cli_helpers import manifest, plait
from golden_runs import HERE, RUNS

from plait import api
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.records_only import RecordsOnly, is_gone
from plait.benchmarks.tasks.task_set import TaskError
from plait.cluster.manifest import write_json
from plait.generators.errors import MissingInput, PlaitError, UsageError
from plait.generators.released import read_published

pytestmark = pytest.mark.contract


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def recorded(name: str, folder: Path) -> Path:
    """A copy of a recorded run, whose data is gone."""
    shutil.copytree(RUNS / name / "run", folder / "run")
    for path in folder.rglob("manifest.json"):
        path.write_text(path.read_text().replace(HERE, str(folder)))
    return folder / "run"


def lines(table: ResultTable) -> dict[str, list[str]]:
    """The cells of each row by the first."""
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("mmie", tmp_path_factory.mktemp("gone"))


@pytest.mark.parametrize(
    "words",
    [
        ("report", "RUN"),
        ("report", "RUN", "--out", "new"),
        ("show", "RUN", "SA-1"),
        ("leaderboard", "RUN", "--out", "new"),
        ("export", "RUN", "--system", "gt", "--out", "new"),
        ("diff", "RUN", "RUN"),
        ("agreement", "RUN", "human.csv"),
        ("annotate", "RUN", "--out", "new"),
        ("bench", "pairings", "RUN"),
        ("forget", "RUN", "--system", "gt"),
    ],
    ids=" ".join,
)
def test_every_command_shows_the_records_and_says_what_is_gone(
    root: Path, words: Sequence[str], tmp_path: Path
) -> None:
    before = contents(root)
    said = [str(root) if word == "RUN" else word for word in words]
    done = plait(*said, folder=tmp_path, COLUMNS="1000")
    assert done.returncode == 1, done.stderr
    assert "Author-13a3a09b144c" in done.stdout
    assert "takes one image only" in done.stdout
    assert "no data at" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert contents(root) == before
    assert not any(tmp_path.iterdir())


def test_the_numbers_are_those_of_the_records(root: Path) -> None:
    with pytest.raises(RecordsOnly) as error:
        api.open_run(root)
    stages, reasons = error.value.tables
    head = [column.heading for column in stages.columns]
    assert head[1:4] == ["of", "queries", "records"]
    found = lines(stages)
    assert {*found} == {folder.name for folder in (root / "stages").iterdir()}
    author = "golden_stages:Author+golden_stages:Pencil"
    critic = "golden_stages:Outliner+golden_stages:Pencil@critic=golden_stages:Examiner"
    # Of queries, records, done, failed, skipped, unscored, not applicable; values and mean.
    assert found["Author-13a3a09b144c"] == [author, *"6641100", "-", "-"]
    assert found["Pencil-f640d7cfd714"][0] == f"{author}, {critic}"
    assert found["Examiner-99a30d6e25bb"][0] == critic
    assert found["Grader-de413fff0cf8"][0] == "judge:comparing_helpers:Grader"
    assert found["Grader-de413fff0cf8"][-2:] == ["-", "-"]
    counts = ["6", "18", "16", "2", "0", "0", "0", "16", "1.375"]
    assert found["PictureCount-d37b71a73b6a"] == ["api_helpers:PictureCount", *counts]
    assert found["clip-fb1ac3f73915"][0] == ""
    assert [cell.text for cell in reasons.rows[2]] == [
        *("Brief-5f3d6aa417e3", "3", "unscored", "mute")
    ]


def test_stages_that_no_manifest_names_are_told_by_their_parts(tmp_path: Path) -> None:
    root = recorded("native", tmp_path)
    there = manifest(root)
    with pytest.raises(RecordsOnly) as error:
        open_results(root)
    write_json(root / "manifest.json", there | {"stages": {}})
    with pytest.raises(RecordsOnly) as without:
        open_results(root)
    known, told = (lines(e.value.tables[0]) for e in (error, without))
    assert known == told


def without_module(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "golden_stages", None)


def without_class(root: Path, patch: pytest.MonkeyPatch) -> None:
    patch.delattr("golden_stages.Author")


def without_query(root: Path, patch: pytest.MonkeyPatch) -> None:
    write_json(root / "manifest.json", manifest(root) | {"ids": ["none"]})


@pytest.mark.parametrize("take", [without_module, without_class, without_query])
def test_so_do_runs_without_their_modules_or_queries(
    take: Callable[[Path, pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = recorded("mmie", tmp_path)
    shutil.copytree(RUNS / "mmie" / "data", tmp_path / "data")
    take(root, monkeypatch)
    with pytest.raises(RecordsOnly) as error:
        open_results(root)
    assert "Author-13a3a09b144c" in lines(error.value.tables[0])


def test_so_do_runs_without_answers_made_elsewhere(tmp_path: Path) -> None:
    fill(tmp_path / "theirs", **OWN)
    theirs = {"answers": {"theirs": str(tmp_path / "theirs")}}
    fill(tmp_path / "run", **OWN | theirs)
    (tmp_path / "theirs").rename(tmp_path / "moved")
    with pytest.raises(RecordsOnly, match="no answers at"):
        open_results(tmp_path / "run")


def test_another_mistake_stays_one(tmp_path: Path) -> None:
    fill(tmp_path / "run", **OWN)
    path = tmp_path / "run" / "manifest.json"
    whole = path.read_text()
    values = json.loads(whole)
    for changes in ({"seeds": 1}, {"limit": 0}, {"mode": "wrong"}):
        config = values["config"] | changes
        path.write_text(json.dumps(values | {"config": config}))
        with pytest.raises(UsageError) as error:
            open_results(tmp_path / "run")
        assert not isinstance(error.value, RecordsOnly)
        assert error.value.exit_status == 2
    path.write_text(whole)
    assert open_results(tmp_path / "run").systems[0].name == SYSTEM


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (TaskError("no data"), True),
        (UsageError("judge"), False),
        (raised(UsageError("judge"), MissingInput("stage")), True),
        (raised(UsageError("data"), ModuleNotFoundError("mine")), True),
        (raised(TaskError("no room"), OSError(errno.ENOSPC, "full")), False),
        (PlaitError("anything else"), False),
    ],
)
def test_what_means_that_something_is_gone(error: Exception, gone: bool) -> None:
    assert is_gone(error) == gone


def test_a_file_of_prompts_is_missing_or_another(tmp_path: Path) -> None:
    with pytest.raises(MissingInput):
        read_published(tmp_path / "prompts.py", {})
    (tmp_path / "prompts.py").write_text("(")
    with pytest.raises(UsageError) as error:
        read_published(tmp_path / "prompts.py", {})
    assert not is_gone(error.value)


def test_a_damaged_part_is_told_beside_what_is_left(tmp_path: Path) -> None:
    root = recorded("native", tmp_path)
    part: Any = next(root.glob("stages/bleu*/part-*"))
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(RecordsOnly) as error:
        open_results(root)
    table = error.value.tables[0]
    assert lines(table)["bleu-31d811639626"][2] == "0"
    assert any(part.name in note for note in table.notes)
    assert lines(table)["ssim-60b0f55b1ad1"][-2] == "4"
