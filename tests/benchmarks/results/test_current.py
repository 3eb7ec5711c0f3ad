"""Results that a command need not make again: they say what reading all records would."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cli_helpers import invoke as plait
from cli_helpers import manifest
from store_helpers import damage

from plait.benchmarks.results.files.current import CurrentResults
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.files.schema import ABOUT, FOLDER
from plait.benchmarks.results.files.writing import USAGE, content_digest
from plait.benchmarks.runs.experiment import Experiment
from plait.benchmarks.runs.planning import RunPlan
from plait.benchmarks.runs.reopening import reopen
from plait.cluster.counts import count
from plait.cluster.store import Store

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]

SYSTEMS = ("stages:Paragraphs@text", "gt:no-images", "gt")
_SECOND = 10**9


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, worker_threads: None) -> Path:
    root = tmp_path_factory.mktemp("made") / "run"
    systems = [word for name in SYSTEMS for word in ("--system", name)]
    scorers = ["--scorer", "stages:Constant", "--scorer", "truth:match"]
    words = ["--weights", "tiny", "--limit", "5", "--repeats", "2", "--out", str(root)]
    done = plait("run", *systems, *scorers, *words)
    assert done.exit_code == 1, done.output  # nothing was scored by `truth:match`
    return root


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """The same in a folder of its own, whose records are older than its results."""
    root = tmp_path / "run"
    shutil.copytree(made, root)
    _now_written(root / FOLDER / ABOUT)
    return root


def _now_written(path: Path) -> None:
    later = path.stat().st_mtime_ns + _SECOND
    os.utime(path, ns=(later, later))


def current(root: Path) -> CurrentResults | None:
    return reopen(root).current_results()


def test_they_tell_what_reading_all_records_tells(run: Path) -> None:
    results, experiment = current(run), reopen(run)
    assert results is not None
    noted = manifest(run)
    assert (results.totals, results.usage) == (noted["counts"], noted["usage"])
    assert results.retried == 0
    assert results.is_complete()
    counted = count(experiment.plan, Store(run))
    assert results.counts(experiment.plan) == counted
    judged = count(experiment.plan, Store(run), only_scorers=True)
    assert results.counts(experiment.plan, only_scorers=True) == judged


def _part(root: Path) -> Path:
    return next(root.glob("stages/Paragraphs*/part-*"))


def _written_again(root: Path) -> None:
    damage(_part(root), "outcome")
    later = (root / FOLDER / ABOUT).stat().st_mtime_ns + _SECOND
    os.utime(_part(root), ns=(later, later))


def _of_another_stage(root: Path) -> None:
    shutil.copytree(_part(root).parent, root / "stages" / "another-0123456789ab")


def _edit(root: Path, name: str, value: object) -> None:
    path = root / FOLDER / ABOUT
    content = json.loads(path.read_text()) | {name: value}
    content["sha256"] = content_digest(content)
    path.write_text(json.dumps(content))
    _now_written(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: _part(root).unlink(),
        lambda root: shutil.rmtree(_part(root).parent),
        _written_again,
        _of_another_stage,
        lambda root: shutil.rmtree(root / FOLDER),
        lambda root: damage(next(root.glob("results/scores-*")), "outcome"),
        lambda root: next(root.glob("results/answers-*")).unlink(),
        lambda root: _edit(root, "plait", "0.0.1"),
        lambda root: _edit(root, "damaged", 1),
        lambda root: _edit(root, "lost_images", 1),
        lambda root: _edit(root, "unreadable", ["Paragraphs"]),
        lambda root: _edit(root, USAGE, None),
        lambda root: _edit(root, "run_digest", "another"),
    ],
)
def test_no_others_are_current(change: Callable[[Path], object], run: Path) -> None:
    plan = RunPlan.of(reopen(run))
    assert plan.settled is not None
    assert plan.current_results() is plan.settled  # not compared with the data again
    change(run)
    assert not plan.settled.are_unchanged()
    assert plan.current_results() is None


def _with(experiment: Experiment, **rows: str) -> Experiment:
    return replace(experiment, rows={**experiment.data_rows, **rows})


def test_results_of_other_queries_are_not_current(run: Path) -> None:
    experiment = reopen(run)
    first = experiment.queries[0]
    for other in (
        replace(experiment, queries=experiment.queries[::-1]),
        _with(experiment, **{first.id: "as it is now"}),
        _with(experiment, new="a row that came into the data"),
        replace(experiment, scorers=experiment.scorers[:1]),
    ):
        assert other.current_results() is None


def test_tables_stay_where_nothing_was_read(run: Path) -> None:
    # The run was copied here, which its config tells.
    reopen(run).results_writer().finish(run / FOLDER)
    before = {p.name: p.stat().st_mtime_ns for p in (run / FOLDER).iterdir()}
    reopen(run).results_writer().finish(run / FOLDER)
    assert {p.name: p.stat().st_mtime_ns for p in (run / FOLDER).iterdir()} == before
    _edit(run, "licences", {"another": "MIT"})
    reopen(run).results_writer().finish(run / FOLDER)
    results = RunResults.at(run)
    assert "another" not in results.about.licences
    assert current(run) is not None


def test_an_answer_that_lacks_a_score_counts_as_missing(run: Path) -> None:
    shutil.rmtree(next(run.glob("stages/*Constant*")))
    shutil.rmtree(run / FOLDER)
    told = plait("report", str(run))
    assert told.exit_code == 0, told.output
    _now_written(run / FOLDER / ABOUT)
    results = current(run)
    assert results is not None
    assert (results.totals["missing"], results.totals["scored"]) == (26, 0)
    assert not results.is_complete()
