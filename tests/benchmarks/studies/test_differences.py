"""`plait diff`: scores, texts and images paired by query, against arithmetic by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_helpers import fill
from scipy import stats
from trial import Measuring, as_asked, sample
from typer.testing import CliRunner

from benchmarks.results.board import Board
from benchmarks.runs.config import RunConfig
from benchmarks.runs.experiment import Experiment
from benchmarks.studies.differences import FinishedRun, run_difference
from benchmarks.tasks.task_set import TaskSet
from cluster.plan import Evaluation
from generators.base import Failure, Outcome, Result
from generators.document import Document, Sample, Score, Text
from generators.errors import UsageError
from generators.system import System
from plait import app

Scores = dict[str, dict[int, float | None]]
"""By system and the number of a query."""


class Named(Measuring):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def outcome(value: float | None) -> Outcome[Score]:
    return Failure("died") if value is None else Result(Score(value, {}))


def finished(
    root: str,
    scores: Scores,
    scorer: str = "measure",
    answers: dict[str, Document | Failure] | None = None,
    **asked: str,
) -> FinishedRun:
    numbers = sorted({number for values in scores.values() for number in values})
    samples = {n: sample(n, asked.get(f"q{n}", "")) for n in numbers}
    document = Result(Document((Text("x"),)))
    made = [
        Evaluation(name, samples[n], 0, document, {scorer: outcome(value)})
        for name, values in scores.items()
        for n, value in values.items()
    ]
    queries: tuple[Sample, ...] = tuple(samples.values())
    systems = tuple(
        System(
            name=name,
            draft=None,
            answers=answers or {s.id: document.value for s in queries},
        )
        for name in scores
    )
    task = TaskSet(
        name="t", samples=queries, prompt=as_asked, categories={}, fields=(), about={}
    )
    experiment = Experiment(
        config=RunConfig(),
        task=task,
        samples=queries,
        systems=systems,
        scorers=(Named(scorer),),
        identities={},
    )
    board = Board.of(
        systems=systems,
        scorers=(Named(scorer),),
        evaluations=made,
        categories={},
        fields=(),
        weights="tiny",
    )
    return FinishedRun(Path(root), experiment, board, lambda job: None)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, FinishedRun]:
    """Runs by the name of their directory, without any directory."""
    known: dict[str, FinishedRun] = {}
    monkeypatch.setattr(FinishedRun, "at", lambda root: known[root.name])
    return known


def made(known: dict[str, FinishedRun], **scores: Any) -> None:
    known.update({name: finished(name, values) for name, values in scores.items()})


def test_means_and_intervals_are_over_the_pairs_alone(runs: dict[str, FinishedRun]) -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(50, 20, 60)
    lift = rng.normal(2, 3, 60)
    first = {i: float(base[i]) for i in range(50)} | {50: None}
    second = {i: float(base[i] + lift[i]) for i in range(10, 60)}
    made(runs, a={"gill": first}, b={"gill": second})
    (row,) = run_difference(Path("a"), Path("b")).rows
    paired = lift[10:50]
    assert row.difference.n == 40
    assert row.difference.value == pytest.approx(paired.mean())
    assert row.first.value == pytest.approx(base[10:50].mean())
    assert row.second.value == pytest.approx((base + lift)[10:50].mean())
    # The spread of the queries themselves cancels: a paired interval is far narrower.
    assert row.difference.ci95 is not None
    half = stats.t.ppf(0.975, 39) * paired.std(ddof=1) / np.sqrt(40)
    low, high = row.difference.ci95
    assert high - low == pytest.approx(2 * half, rel=0.15)
    assert low < paired.mean() < high
    assert len(row.only_first) == 10
    assert len(row.only_second) == 10


def test_the_sign_is_the_second_run_s_minus_the_first_s(
    runs: dict[str, FinishedRun],
) -> None:
    made(runs, a={"gill": {0: 10.0, 1: 20.0}}, b={"gill": {1: 25.0, 0: 13.0}})
    (there,) = run_difference(Path("a"), Path("b")).rows
    (back,) = run_difference(Path("b"), Path("a")).rows
    assert (there.difference.value, back.difference.value) == (4.0, -4.0)
    assert there.difference.ci95 is None
    assert "too few" in there.difference.reason


def test_systems_are_paired_by_name_or_as_asked(runs: dict[str, FinishedRun]) -> None:
    made(
        runs,
        a={"gill": {0: 1.0}, "emu2": {0: 2.0}},
        b={"gill": {0: 5.0}, "anole": {0: 9.0}},
    )
    found = run_difference(Path("a"), Path("b"))
    assert [row.system for row in found.rows] == ["gill"]
    assert found.only("systems") == (["emu2"], ["anole"])
    (row,) = run_difference(Path("a"), Path("b"), "emu2", "anole").rows
    assert (row.system, row.difference.value) == ("emu2 -> anole", 7.0)
    with pytest.raises(UsageError, match="'emu3'; did you mean 'emu2'"):
        run_difference(Path("a"), Path("b"), "emu3")
    with pytest.raises(UsageError, match="system of b 'emu2'"):
        run_difference(Path("a"), Path("b"), "emu2")
    with pytest.raises(UsageError, match="add --system"):
        run_difference(Path("a"), Path("b"), None, "anole")


def test_runs_without_a_common_system_are_refused(runs: dict[str, FinishedRun]) -> None:
    made(runs, a={"gill": {0: 1.0}}, b={"anole": {0: 9.0}})
    with pytest.raises(UsageError, match=r"share no system.*--system A --against B"):
        run_difference(Path("a"), Path("b"))


def test_answers_are_compared_without_a_common_scorer(
    runs: dict[str, FinishedRun],
) -> None:
    runs["a"] = finished("a", {"gill": {0: 1.0}})
    runs["c"] = finished("c", {"gill": {0: 2.0}}, scorer="other")
    found = run_difference(Path("a"), Path("c"))
    assert found.rows == ()
    assert [(row.name, row.counts["equal"]) for row in found.answers] == [("gill", 1)]


def test_a_query_that_asks_something_else_is_left_out_and_named(
    runs: dict[str, FinishedRun],
) -> None:
    scores: Scores = {"gill": {0: 1.0, 1: 2.0, 2: 3.0}}
    runs["a"] = finished("a", scores)
    runs["b"] = finished("b", scores, q1="with other words")
    found = run_difference(Path("a"), Path("b"))
    assert found.rows[0].difference.n == 2
    assert found.changed == (sample(1).id,)
    assert found.answers[0].counts["compared"] == 2


def test_no_common_query_gives_no_number(runs: dict[str, FinishedRun]) -> None:
    made(runs, a={"gill": {0: 1.0}}, b={"gill": {1: 9.0}})
    found = run_difference(Path("a"), Path("b"))
    assert found.rows[0].difference.value is None
    assert found.rows[0].difference.n == 0
    assert found.only("queries") == ([sample(0).id], [sample(1).id])


def test_the_command_shows_a_table_and_writes_json(
    runs: dict[str, FinishedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    values = {n: float(n) for n in range(12)}
    better = {n: n + 1.5 for n in range(1, 14)}
    made(runs, a={"gill": values}, b={"gill": better})
    out = tmp_path / "diff.json"
    words = ["diff", "a", "b", "--out", str(out)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "+1.50" in done.output
    assert "1 first, 2 second" in done.output
    assert "only in the second run: queries" in done.output
    written = json.loads(out.read_text())
    (row,) = written["differences"]
    assert row["n"] == 11
    assert row["difference"]["mean"] == 1.5
    assert row["only_first"] == [sample(0).id]
    assert written["only_second"]["queries"] == [sample(12).id, sample(13).id]
    assert written["only_first"]["systems"] == []


def test_answers_are_paired_by_query_system_and_repeat(
    runs: dict[str, FinishedRun],
) -> None:
    ids = [sample(n).id for n in range(4)]
    same, before, after = (Document((Text(t),)) for t in ("a b", "a b c", "a x c"))
    first = {ids[0]: same, ids[1]: before, ids[2]: Failure("died"), ids[3]: same}
    second = {ids[3]: Failure("died"), ids[2]: same, ids[1]: after, ids[0]: same}
    scores: Scores = {"gill": dict.fromkeys(range(4), 1.0)}
    runs["a"] = finished("a", scores, answers=first)
    runs["b"] = finished("b", scores, answers=second)
    (row,) = run_difference(Path("a"), Path("b")).answers
    about = row.as_json()
    limited = run_difference(Path("a"), Path("b"), answers=2)
    assert [pair.query for pair in limited.answers[0].differing] == [ids[2]]
    assert (about["compared"], about["equal"]) == (2, 1)
    assert (about["only_first"], about["only_second"]) == (1, 1)
    assert about["texts"]["first_difference"]["max"] == 1
    assert {p["query"]: p["outcomes"] for p in about["differing"]} == {
        ids[1]: ("done", "done"),
        ids[2]: ("failed", "done"),
        ids[3]: ("done", "failed"),
    }


def test_two_runs_that_differ_in_a_setting(tmp_path: Path) -> None:
    """Stored answers, read from their directories: by two models, twice each."""
    square = "pairs_of_answers:Square"
    asked = {"data": "sample", "weights": "tiny", "limit": 3, "repeats": 2, "scorers": []}
    asked["systems"] = [f"pairs_of_answers:Words+{square}"]
    for name, shade in (("a", 100), ("b", 101)):
        fill(tmp_path / name, **asked, models={square: {"shade": shade}})
    (row,) = run_difference(tmp_path / "a", tmp_path / "b").answers
    about = row.as_json()
    assert about["compared"] == 6
    assert about["texts"]["equal"] == about["texts"]["n"] == 6
    assert about["images"]["n"] > 0
    assert about["images"]["identical"] == 0
    assert about["images"]["largest_difference"]["max"] == 1
    assert {pair["repeat"] for pair in about["differing"]} == {1, 2}
    with pytest.raises(UsageError, match="is not a run directory"):
        run_difference(tmp_path / "a", tmp_path)
