"""Figures of sets of images, against torchmetrics on the same features and plain loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from boards import stored_board
from contents import document, query_of
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from plait.benchmarks.results.comparisons import differences
from plait.benchmarks.results.headline import headline_table
from plait.benchmarks.results.leaderboard import leaderboard
from plait.cluster.plan import Evaluation
from plait.generators.base import Result, SetMember
from plait.generators.document import Embedding
from plait.generators.given import GroundTruth
from plait.scorers import resolve_scorer
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.image_sets import SUBSETS, frechet_distance

pytestmark = pytest.mark.models

WIDTH = 8
RANDOM = np.random.default_rng(0)
ANSWER = [RANDOM.normal(0.3, 1.0, (1 + i % 3, WIDTH)).astype("<f4") for i in range(20)]
TRUTH = [RANDOM.normal(0.0, 1.2, (2, WIDTH)).astype("<f4") for _ in range(20)]


def embeddings(rows: Any) -> tuple[Embedding, ...]:
    return tuple(Embedding(row.tobytes()) for row in rows)


Members = Mapping[str, Sequence[SetMember]]
MEMBERS: Members = {
    f"q{i}": [SetMember("", embeddings(a), embeddings(t))]
    for i, (a, t) in enumerate(zip(ANSWER, TRUTH, strict=True))
}


def figure(name: str, members: Members = MEMBERS) -> Estimate:
    return resolve_scorer(name, "tiny", {}).figure(members)


def theirs(metric: Any) -> float:
    metric.update(torch.from_numpy(np.concatenate(TRUTH)), real=True)
    metric.update(torch.from_numpy(np.concatenate(ANSWER)), real=False)
    value = metric.compute()
    return float(value[0] if isinstance(value, tuple) else value)


class Given(torch.nn.Identity):
    num_features = WIDTH


@pytest.mark.parametrize("name", ["fid", "clip-fid"])
def test_fid_is_torchmetrics_and_says_that_the_set_is_small(name: str) -> None:
    made = figure(name)
    expected = theirs(FrechetInceptionDistance(feature=Given()))
    assert made.value == pytest.approx(expected, rel=1e-5)
    assert (made.ci95, made.n) == (None, 20)
    assert "10,000" in made.reason


@pytest.mark.parametrize("n", [(5, 30), (30, 30), (100, 7), (100, 90)])
def test_the_distance_is_torchmetrics_with_more_and_with_fewer_images_than_numbers(
    n: tuple[int, int],
) -> None:
    x, y = (RANDOM.normal(i / 3, 1.0, (size, 40)) for i, size in enumerate(n))
    features = torch.nn.Identity()
    features.num_features = 40
    metric = FrechetInceptionDistance(feature=features).set_dtype(torch.float64)
    metric.update(torch.from_numpy(x), real=True)
    metric.update(torch.from_numpy(y), real=False)
    assert frechet_distance(x, y) == pytest.approx(float(metric.compute()), rel=1e-5)


@pytest.mark.parametrize("name", ["kid", "clip-kid"])
def test_kid_is_torchmetrics_and_does_not_depend_on_the_process(name: str) -> None:
    made = figure(name)
    size = min(sum(map(len, ANSWER)), sum(map(len, TRUTH)))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        metric = KernelInceptionDistance(Given(), subset_size=size, subsets=SUBSETS)
        expected = theirs(metric)
    assert made.value == pytest.approx(expected, rel=1e-4)
    assert made.ci95 is not None
    assert made.ci95[0] < made.value < made.ci95[1]
    state = torch.random.get_rng_state()
    assert figure(name) == made
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_interval_of_the_ground_truth_itself_holds_no_difference() -> None:
    itself = {
        k: [SetMember("", m.truth, m.truth) for m in own] for k, own in MEMBERS.items()
    }
    made = figure("clip-kid", itself)
    assert made.value is not None
    assert made.ci95 is not None
    assert made.ci95[0] < made.value < made.ci95[1]


def test_diversity_is_the_mean_over_pairs_of_images() -> None:
    units = [row / np.linalg.norm(row) for row in np.concatenate(ANSWER)]
    expected = np.mean([1 - a @ b for a, b in combinations(units, 2)])
    made = figure("diversity")
    assert made.value == pytest.approx(expected, abs=1e-6)
    assert made.ci95 is not None
    assert made.ci95[0] < made.value < made.ci95[1]
    alike = {key: [SetMember("", embeddings(ANSWER[0]))] for key in MEMBERS}
    assert figure("diversity", alike).value == pytest.approx(0.0, abs=1e-6)


def test_repeats_of_a_query_are_one_unit() -> None:
    twice = {key: [*own, *own] for key, own in MEMBERS.items()}
    assert figure("diversity", twice).n == 20


@pytest.mark.parametrize("name", ["fid", "kid", "clip-fid", "clip-kid", "diversity"])
def test_too_few_images_have_no_figure(name: str) -> None:
    few = {"q": [SetMember("", embeddings(ANSWER[0]), embeddings(TRUTH[0][:1]))]}
    for members in ({}, {"q": []}, few):
        made = figure(name, members)
        assert (made.value, bool(made.reason)) == (None, True)


def test_the_figure_stands_where_the_mean_of_other_scorers_stands() -> None:
    asked = [replace(query_of("?"), id=key) for key in MEMBERS]
    scorer = resolve_scorer("clip-fid", "tiny", {})
    done = Result(document("an image"))
    board = stored_board(
        [
            Evaluation(s, q, 0, done, {"clip-fid": MEMBERS[q.id][0]})
            for s in "ab"
            for q in asked
        ],
        systems=[GroundTruth(name=s) for s in "ab"],
        scorers=[scorer],
        categories={},
        fields=[],
        weights="tiny",
    )
    assert differences(board) == [], "no document has a value of its own"
    assert not any(cell.tied for own in headline_table(board).rows for cell in own)
    row, _ = leaderboard(board)
    cells = row["scores"]["clip-fid"]
    assert cells["avg_micro"]["mean"] == pytest.approx(figure("clip-fid").value, rel=1e-5)
    assert (cells["avg_micro"]["n"], cells["avg_fixed"]["mean"]) == (20, None)
    assert (row["not_applicable"], row["scored"], row["failed"]) == (20, 0, 0)
