"""Bars of a run: planted scores and differences are found, misses are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from boards import stored_board
from report_helpers import Judge

from plait.benchmarks.miniature import outputs
from plait.benchmarks.miniature.measures import Bar, BenchPart, BenchSettings
from plait.benchmarks.miniature.outputs import (
    EARLIER,
    LOOKS_AGAIN,
    ONE_IMAGE,
    OUTLINE,
    RunScores,
    corruptions_part,
)
from plait.benchmarks.results.board import Board
from plait.benchmarks.tasks.miniature.queries import query
from plait.benchmarks.tasks.miniature.reader import sample_of
from plait.cluster.plan import Evaluation
from plait.generators.base import Outcome, Result, Unscored
from plait.generators.document import Document, Score
from plait.generators.given import GroundTruth

pytestmark = pytest.mark.contract

SAMPLES = [sample_of(query(i, 0, "test")) for i in range(60)]
RNG = np.random.default_rng(0)
QUALITY = {
    "gt": np.full(60, 1.0),
    "gt:other-answer": RNG.uniform(0.0, 0.5, 60),
    OUTLINE: RNG.uniform(0.6, 1.0, 60),
    ONE_IMAGE: RNG.uniform(0.4, 0.8, 60),
    EARLIER: RNG.uniform(0.1, 0.6, 60),
}


def scored(value: float) -> Outcome[Score]:
    return Unscored("unreadable") if np.isnan(value) else Result(Score(100 * value))


def board(judged: dict[str, np.ndarray], true: dict[str, np.ndarray]) -> Board:
    """Truth sees the quality as it is, the judge what is given."""
    evaluations = []
    for name, quality in true.items():
        for sample, known, seen in zip(SAMPLES, quality, judged[name], strict=True):
            scores = {"truth:answer": scored(known), "judge:mmie-score": scored(seen)}
            assert sample.reference is not None
            made = Result(Document(sample.reference.segments))
            evaluations.append(Evaluation(name, sample, 0, made, scores))
    return stored_board(
        evaluations,
        systems=[GroundTruth(name=name) for name in true],
        scorers=[Judge("truth:answer", "0-100"), Judge("judge:mmie-score", "0-100")],
        categories={},
        fields=(),
        weights="mini",
    )


def scores(
    judged: dict[str, np.ndarray], true: dict[str, np.ndarray] = QUALITY
) -> RunScores:
    made = board(judged, true)
    return RunScores(board=made, values=dict(made.values), misses=0)


def only(part: BenchPart) -> Bar:
    (bar,) = part.bars
    return bar


@pytest.mark.parametrize(
    ("seen", "state", "remark"),
    [
        (lambda quality: quality + RNG.normal(0, 0.02, 60), "reached", ""),
        (lambda quality: np.full(60, 0.5), "not reached", "blind"),
        (lambda quality: 1 - quality, "not reached", "wrong"),
    ],
    ids=["follows truth", "blind", "turned around"],
)
def test_a_judge_is_known_by_its_scores(seen, state: str, remark: str) -> None:
    made = scores({name: seen(quality) for name, quality in QUALITY.items()})
    agrees, control = only(outputs.outputs_part(made)), only(outputs.controls_part(made))
    assert agrees.state == state
    # Three systems; the ground truth and controls are not among them.
    assert agrees.estimate.n == 180
    assert (control.state, control.remark) == (state, remark)
    orders = outputs.orders_part(made).bars
    assert {b.state for b in orders if b.name.startswith("judge")} == {state}
    assert {b.state for b in orders if b.name.startswith("clip")} == {"not there"}


NOISE = RNG.normal(0.5, 0.2, (2, 60))


@pytest.mark.parametrize(
    ("pair", "better", "worse", "has_interval", "state", "remark"),
    [
        # An interval with 0 in it decides nothing; equal differences, by their signs.
        ((OUTLINE, EARLIER), *NOISE, True, "not reached", "undecided"),
        (("gt", OUTLINE), np.full(60, 0.9), np.full(60, 0.4), False, "reached", "right"),
    ],
)
def test_an_order_needs_an_interval_or_equal_signs(
    pair, better, worse, has_interval, state, remark
) -> None:
    made = scores({**QUALITY, pair[0]: better, pair[1]: worse})
    bars = {bar.name: bar for bar in outputs.orders_part(made).bars}
    bar = bars[f"judge:mmie-score: {pair[0]} above {pair[1]}"]
    assert (bar.estimate.ci95 is not None) is has_interval
    assert (bar.state, bar.remark) == (state, remark)


@pytest.mark.parametrize(("better", "state"), [(0.2, "reached"), (-0.2, "not reached")])
def test_a_critic_is_compared_with_the_outline_it_begins_with(better, state) -> None:
    lift = RNG.normal(better, 0.05, 60)
    true = {EARLIER: np.full(60, 0.5), LOOKS_AGAIN: 0.5 + lift}
    part = outputs.critic_part(scores(true, true))
    bars = {bar.name: bar for bar in part.bars}
    bar = bars[f"truth:answer: {LOOKS_AGAIN} above {EARLIER}"]
    assert (bar.state, bar.estimate.n) == (state, 60)
    assert bar.estimate.value == pytest.approx(100 * lift.mean())
    (taken,) = part.tables
    assert [row[1].full for row in taken.rows] == ["60", "60"]


def test_protocols_are_compared_on_projects_alone() -> None:
    made = scores(QUALITY)
    truth, judge = outputs.protocols_part(made).bars
    projects = [s.category == "PBL" for s in SAMPLES]
    assert truth.estimate.n == judge.estimate.n == sum(projects) == 20
    expected = 100 * (QUALITY[OUTLINE] - QUALITY[ONE_IMAGE])[projects].mean()
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


@pytest.mark.usefixtures("worker_threads")
def test_a_run_of_the_ground_truth_and_controls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Truth in the judge's place: what it says of controls is known.
    monkeypatch.setattr(outputs, "JUDGE", "truth:answer")
    systems = ("gt", "gt:other-answer", "gt:no-images", "sdxl")
    settings = BenchSettings(weights="tiny", out=tmp_path, queries=15)
    lines: list[str] = []
    run = settings.run("run", systems, ("truth:answer", "truth:match"), lines.append)
    assert any(line.startswith("left out: sdxl") for line in lines)
    made = RunScores.of(run)
    truth = made.column("truth:answer", "gt")
    assert truth is not None
    assert (truth == 100).all()
    # Truth cannot tell images that are not there; in bars that is a miss.
    match = made.column("truth:match", "gt:no-images")
    assert match is not None
    assert np.nanmax(match) == 0
    assert run.board.values["truth:match"][:, 2].tolist() != match.tolist()
    parts = outputs.controls_part(made)
    assert {bar.state for bar in parts.bars} <= {"reached", "not reached"}
    assert all((bar.estimate.value or 0) > 0 for bar in parts.bars)
