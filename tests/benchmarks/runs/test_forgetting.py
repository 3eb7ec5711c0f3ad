"""What is forgotten is in no table, as if it had never been named; records stay."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from api_helpers import OWN, SCORER, SYSTEM, fill
from cli_helpers import invoke, manifest
from cli_helpers import plait as command
from golden_runs import HERE, RUNS, stand_in_rubrics

from plait.benchmarks.results.files import forgetting as tables_of
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import TABLES
from plait.benchmarks.runs import forgetting
from plait.benchmarks.runs.opening import make_results, open_results
from plait.benchmarks.runs.run_directory import former_config
from plait.cluster.lock import RunInUse, RunLock
from plait.generators.errors import UnknownName, UsageError

pytestmark = [
    pytest.mark.slow,
]

OTHER = "stages:Constant"


def contents(root: Path) -> dict[str, Any]:
    """All that the results of a run hold, in an order of its own."""
    results = RunResults.at(root)
    found: dict[str, Any] = {"about": json.loads(json.dumps(results.about.as_json))}
    for name in TABLES:
        rows = [json.dumps(row, default=repr) for row in results.rows(name)]
        found[name] = sorted(rows)
    return found


def constants(root: Path) -> dict[str, int]:
    """When each record of the other scorer was made, by key."""
    rows = RunResults.at(root).rows("records", ["key", "stage", "at"])
    return {row["key"]: row["at"] for row in rows if row["stage"].startswith("Constant")}


def recorded(name: str, folder: Path) -> Path:
    """A copy of a recorded run, with its data."""
    shutil.copytree(RUNS / name, folder, dirs_exist_ok=True)
    for path in folder.rglob("manifest.json"):
        path.write_text(path.read_text().replace(HERE, str(folder)))
    return folder / "run"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A run of two systems and two scorers, with results."""
    fill(tmp_path / "run", **OWN | {"scorers": [SCORER, OTHER]})
    open_results(tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.models
@pytest.mark.parametrize(
    ("name", "systems", "scorers"),
    [
        ("mmie", [1], [1, 3]),
        ("creation", [0], []),
        ("opening", [], [0]),
        ("t2i", [0], [0]),
        ("t2i", [1], []),
        ("pairings", [2], []),
        ("earlier", [0], [0]),
    ],
)
@stand_in_rubrics()
def test_results_are_those_of_a_run_that_never_had_it(
    name: str, systems: Sequence[int], scorers: Sequence[int], tmp_path: Path
) -> None:
    root = recorded(name, tmp_path)
    before = open_results(root).about
    gone = [before.systems[i]["name"] for i in systems]
    judges = [before.scorers[i]["name"] for i in scorers]
    forgetting.forget(root, gone, judges)
    there, noted = contents(root), manifest(root)
    assert not {*gone, *judges} & {*noted["systems"], *noted["scorers"]}
    assert {facts["name"] for facts in there["about"]["systems"]} == {*noted["systems"]}
    make_results(root)
    anew = contents(root)
    # The recorded config lacks keys that configs have had since.
    config = there["about"]["config"]
    there["about"]["config"] = former_config(root, {"config": config}).plain_data()
    for table, rows in there.items():
        assert rows == anew[table], table


@pytest.mark.models
def test_the_command_writes_tables_and_page_without_it(root: Path) -> None:
    done = command("forget", str(root), "--scorer", OTHER)
    assert done.returncode == 0, done.stderr
    noted = manifest(root)
    assert noted["scorers"] == noted["config"]["scorers"] == [SCORER]
    assert not [folder for folder in noted["stages"] if folder.startswith("Constant")]
    assert noted["counts"]["planned"] == 8
    for name in ("leaderboard.json", "leaderboard.csv", "report.html"):
        assert "Constant" not in (root / name).read_text(), name


def test_records_are_kept_and_found_again(root: Path) -> None:
    before = constants(root)
    command("forget", str(root), "--scorer", OTHER)
    assert not constants(root)
    again = command("run", "--out", str(root), "--data", OWN["data"], "--weights", "tiny")
    assert again.returncode == 1, again.stderr  # answers fail
    assert manifest(root)["scorers"] == [SCORER]
    named = command("score", str(root), "--scorer", OTHER)
    assert named.returncode == 1, named.stderr
    assert constants(root) == before
    assert manifest(root)["scorers"] == [SCORER, OTHER]


@pytest.mark.models
def test_pruning_removes_what_nothing_uses(root: Path) -> None:
    shared = {row["key"] for row in RunResults.at(root).rows("records")}
    done = command("forget", str(root), "--system", SYSTEM)
    assert done.returncode == 0, done.stderr
    parts = sorted(root.glob("stages/Constant*/part-*"))
    assert len({*root.glob("stages/Illustrator*")}) == 1
    pruned = forgetting.forget(root, (), (), prune=True)
    assert pruned.records == 4
    assert pruned.bytes > 0
    assert {f.name.partition("-")[0] for f in root.glob("stages/*")} == {
        "Constant",
        "PictureCount",
    }
    assert sorted(root.glob("stages/Constant*/part-*")) == parts
    assert {row["key"] for row in RunResults.at(root).rows("records")} < shared
    assert command("verify", str(root)).returncode == 0
    assert command("report", str(root)).returncode == 0


@stand_in_rubrics()
def test_comparisons_go_with_a_system(tmp_path: Path) -> None:
    root = recorded("creation", tmp_path)
    judge = "stages/Longest*"
    pruned = forgetting.forget(root, ["comparing_helpers:Wordy"], (), prune=True)
    (lines,) = root.glob("compare/*/judgements-*")
    assert lines.read_text() == ""
    assert not [*root.glob(f"compare/*/{judge}")]
    assert [name for name in pruned.stages if name.startswith("Longest")]
    assert command("verify", str(root)).returncode == 0


@pytest.mark.parametrize(
    ("words", "valid"),
    [
        (["--system", "nobody"], (SYSTEM, "gt")),
        (["--scorer", "bleu"], (SCORER, OTHER)),
        (["--scorer", SYSTEM], (SCORER, OTHER)),
    ],
)
def test_other_names_are_refused_with_the_valid_ones(
    root: Path, words: list[str], valid: Sequence[str]
) -> None:
    before = contents(root), manifest(root)
    with pytest.raises(UnknownName) as error:
        invoke("forget", str(root), *words)
    assert {*error.value.valid} == {*valid}
    assert (contents(root), manifest(root)) == before


def test_a_run_keeps_one_system_and_is_told_what_to_forget(root: Path) -> None:
    for words in ([], ["--system", SYSTEM, "--system", "gt"]):
        with pytest.raises(UsageError):
            invoke("forget", str(root), *words)
    with RunLock(root), pytest.raises(RunInUse):
        invoke("forget", str(root), "--system", "gt")
    assert manifest(root)["systems"] == [SYSTEM, "gt"]


def test_answers_made_elsewhere_are_forgotten_by_their_place(
    root: Path, tmp_path: Path
) -> None:
    place, whole = tmp_path / "of-answers", OWN | {"answers": {"theirs": str(root)}}
    fill(place, **whole | {"systems": [SYSTEM]})
    theirs = [f"theirs/{SYSTEM}", "theirs/gt"]
    with pytest.raises(UsageError, match="theirs/gt"):
        forgetting.forget(place, theirs[:1], ())
    images = {row["digest"] for row in open_results(place).rows("images", ["digest"])}
    forgetting.forget(place, theirs, ())
    noted = manifest(place)
    assert noted["systems"] == [SYSTEM]
    assert noted["config"]["answers"] == {}
    assert "answers" not in noted["data"]
    left = {row["digest"] for row in RunResults.at(place).rows("images", ["digest"])}
    assert left < images
    there = contents(place)
    make_results(place)
    assert there == contents(place)


def test_answers_that_come_with_the_data_stay(tmp_path: Path) -> None:
    asked = {"data": "official:DATA", "systems": ["gt"]}
    noted = {"config": asked, "systems": ["anole", "gt"], "scorers": []}
    with pytest.raises(UsageError, match="official:DATA"):
        forgetting.ForgottenParts.of(noted, ["anole"], ())


@pytest.mark.parametrize("write", ["write_about", "write_json"])
def test_a_run_reads_wherever_forgetting_ends_early(
    root: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    before = contents(root)

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tables_of if write == "write_about" else forgetting, write, end)
        with pytest.raises(KeyboardInterrupt):
            forgetting.forget(root, (), [OTHER])
    assert manifest(root)["scorers"] == [SCORER, OTHER]
    with monkeypatch.context() as patch:  # the data are gone
        patch.setitem(sys.modules, "api_helpers", None)
        results = open_results(root)
        names = [scorer.name for scorer in results.scorers]
        assert names == ([SCORER, OTHER] if write == "write_about" else [SCORER])
        if write == "write_about":
            assert contents(root) == before
        forgetting.forget(root, (), [OTHER])
    assert manifest(root)["scorers"] == [SCORER]
    assert not [f for f in manifest(root)["stages"] if f.startswith("Constant")]
    there = contents(root)
    make_results(root)
    assert there == contents(root)
