"""Bars of a run: planted scores and differences are found, misses are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from report_helpers import Judge

from benchmarks.miniature import outputs
from benchmarks.miniature.bars import Bar, BenchPart
from benchmarks.miniature.corrupted import corruptions_part
from benchmarks.miniature.outputs import EARLIER, ONE_PICTURE, OUTLINE, RunScores
from benchmarks.miniature.repeats import score_matrix
from benchmarks.miniature.runs import bench_run
from benchmarks.miniature.settings import BenchSettings
from benchmarks.results.board import Board
from benchmarks.tasks.miniature.queries import query
from benchmarks.tasks.miniature.samples import sample_of
from cluster.plan import Evaluation
from generators.base import Outcome, Result, Unscored
from generators.document import Document, Score
from generators.system import System

SAMPLES = [sample_of(query(i, 0, "test")) for i in range(60)]
RNG = np.random.default_rng(0)
QUALITY = {
    "gt": np.full(60, 1.0),
    "gt:other-answer": RNG.uniform(0.0, 0.5, 60),
    OUTLINE: RNG.uniform(0.6, 1.0, 60),
    ONE_PICTURE: RNG.uniform(0.4, 0.8, 60),
    EARLIER: RNG.uniform(0.1, 0.6, 60),
}


def scored(value: float) -> Outcome[Score]:
    return Unscored("unreadable") if np.isnan(value) else Result(Score(100 * value))


def board(judged: dict[str, np.ndarray]) -> Board:
    """Truth sees the quality as it is, the judge what is given."""
    evaluations = []
    for name, quality in QUALITY.items():
        for sample, true, seen in zip(SAMPLES, quality, judged[name], strict=True):
            scores = {"truth:answer": scored(true), "judge:mmie-score": scored(seen)}
            assert sample.reference is not None
            made = Result(Document(sample.reference.segments))
            evaluations.append(Evaluation(name, sample, 0, made, scores))
    return Board.of(
        systems=[System(name=name, draft=None) for name in QUALITY],
        scorers=[Judge("truth:answer", "0-100"), Judge("judge:mmie-score", "0-100")],
        evaluations=evaluations,
        categories={},
        fields=(),
        weights="mini",
    )


def scores(judged: dict[str, np.ndarray]) -> RunScores:
    made = board(judged)
    return RunScores(board=made, values=dict(made.values), misses=0)


def states(part: BenchPart) -> dict[str, str]:
    return {bar.name: bar.state for bar in part.bars}


def only(part: BenchPart) -> Bar:
    (bar,) = part.bars
    return bar


def test_a_judge_that_follows_truth_reaches_its_bar() -> None:
    made = scores({n: q + RNG.normal(0, 0.02, 60) for n, q in QUALITY.items()})
    bar = only(outputs.outputs_part(made))
    assert bar.state == "reached"
    # Three systems; the ground truth and controls are not among them.
    assert bar.estimate.n == 180
    assert set(states(outputs.controls_part(made)).values()) == {"reached"}
    orders = states(outputs.orders_part(made))
    assert orders[f"judge:mmie-score: {OUTLINE} above {EARLIER}"] == "reached"
    assert orders[f"clipscore: {OUTLINE} above {EARLIER}"] == "not there"


def test_a_blind_judge_reaches_none() -> None:
    made = scores({n: np.full(60, 0.5) for n in QUALITY})
    assert only(outputs.outputs_part(made)).state == "not reached"
    control = only(outputs.controls_part(made))
    assert (control.state, control.remark) == ("not reached", "blind")
    judged = [b for b in outputs.orders_part(made).bars if b.name.startswith("judge")]
    assert {b.state for b in judged} == {"not reached"}


def test_a_judge_turned_around_is_worse_than_nothing() -> None:
    made = scores({n: 1 - q for n, q in QUALITY.items()})
    bar = only(outputs.outputs_part(made))
    assert bar.estimate.value == pytest.approx(-1)
    assert only(outputs.controls_part(made)).remark == "wrong"


def test_an_interval_with_0_in_it_decides_nothing() -> None:
    noise = RNG.normal(0.5, 0.2, (2, 60))
    made = scores({**QUALITY, OUTLINE: noise[0], EARLIER: noise[1]})
    bars = {bar.name: bar for bar in outputs.orders_part(made).bars}
    bar = bars[f"judge:mmie-score: {OUTLINE} above {EARLIER}"]
    assert bar.estimate.ci95 is not None
    assert bar.estimate.ci95[0] < 0 < bar.estimate.ci95[1]
    assert (bar.state, bar.remark) == ("not reached", "undecided")


def test_differences_that_are_all_equal_are_decided_by_their_signs() -> None:
    made = scores({**QUALITY, "gt": np.full(60, 0.9), OUTLINE: np.full(60, 0.4)})
    bars = {bar.name: bar for bar in outputs.orders_part(made).bars}
    bar = bars[f"judge:mmie-score: gt above {OUTLINE}"]
    assert bar.estimate.ci95 is None
    assert bar.state == "reached"


def test_protocols_are_compared_on_projects_alone() -> None:
    made = scores(QUALITY)
    truth, judge = outputs.protocols_part(made).bars
    projects = [s.category == "PBL" for s in SAMPLES]
    assert truth.estimate.n == judge.estimate.n == sum(projects) == 20
    expected = 100 * (QUALITY[OUTLINE] - QUALITY[ONE_PICTURE])[projects].mean()
    assert truth.estimate.value == pytest.approx(expected)
    assert truth.state == "reached"


def test_answers_of_damaged_queries_are_ranked() -> None:
    truths = RNG.uniform(0, 100, 40).tolist()
    kinds = ["right" if t > 50 else "wrong text" for t in truths]
    good = corruptions_part(kinds, truths, truths)
    assert only(good).estimate.value == pytest.approx(1)
    lost = corruptions_part(kinds, [None, *truths[1:]], truths)
    assert only(lost).estimate.n == 39
    assert only(lost).remark == "1 of 40 have no score of both"
    assert only(corruptions_part(["right"], [None], [1.0])).state == "not reached"


@pytest.mark.ray
def test_a_run_of_the_ground_truth_and_controls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Truth in the judge's place: what it says of controls is known.
    from benchmarks.miniature import runs

    monkeypatch.setattr(outputs, "JUDGE", "truth:answer")
    monkeypatch.setattr(runs, "SCORERS", ("truth:answer", "truth:match"))
    monkeypatch.setattr(runs, "SYSTEMS", ("gt", "gt:other-answer", "gt:no-images", "sdxl"))
    settings = BenchSettings(weights="tiny", out=tmp_path, queries=15)
    lines: list[str] = []
    run = bench_run(settings, lines.append)
    assert list(run.absent) == ["sdxl"]
    assert any(line.startswith("left out: sdxl") for line in lines)
    made = RunScores.of(run.data)
    truth = made.column("truth:answer", "gt")
    assert truth is not None
    assert (truth == 100).all()
    # Truth cannot tell pictures that are not there; in bars that is a miss.
    match = made.column("truth:match", "gt:no-images")
    assert match is not None
    assert np.nanmax(match) == 0
    assert run.data.board.values["truth:match"][:, 2].tolist() != match.tolist()
    parts = outputs.controls_part(made)
    assert {bar.state for bar in parts.bars} <= {"reached", "not reached"}
    assert all((bar.estimate.value or 0) > 0 for bar in parts.bars)
    assert score_matrix(run.data).shape[1] == 3
