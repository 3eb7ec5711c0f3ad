"""The whole chain on trained weights: what comes out means what was asked.

The bounds are a few points below what the shipped weights reach on these queries, and far
above what any of the mutants in `mutants.py` leaves.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import commands
from benchmarks.plain_console import PlainConsole
from benchmarks.runs.config import load_config
from generators.mini.table import SHIPPED

pytestmark = [
    pytest.mark.models,
    pytest.mark.usefixtures("worker_threads"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not SHIPPED.exists(), reason="no mini weights in the checkout"),
]
SYSTEM = "qwen2-vl-7b+openjourney@outline"
NATIVE = "anole"
OVERGUIDED = "qwen2-vl-7b+openjourney-early@outline"
"""Its pictures are drawn with far more guidance than its training allows for."""
SHUFFLED = "gt:shuffled-images"
QUERIES = 24


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, worker_threads: None) -> dict[str, Any]:
    """Rows of the leaderboard by system."""
    root = tmp_path_factory.mktemp("world") / "run"
    flags = {
        "data": f"miniature:{QUERIES}",
        "systems": (SYSTEM, NATIVE, OVERGUIDED, "gt", SHUFFLED),
        "scorers": (
            *("clipscore", "judge:mmie-score"),
            *("truth:match", "truth:answer", "truth:text"),
        ),
        "weights": "mini",
        "out": root,
    }
    said = io.StringIO()
    config = load_config(None, flags, ["models.openjourney-early.guidance=6.0"])
    status = commands.run(config, PlainConsole(file=said, width=200)).exit_status
    assert status == 0, said.getvalue()
    board = json.loads((Path(root) / "leaderboard.json").read_text())
    return {row["system"]: row for row in board}


def mean(rows: dict[str, Any], system: str, scorer: str) -> float:
    """The mean of a scorer over all queries."""
    return float(rows[system]["scores"][scorer]["avg_micro"]["mean"])


def test_every_query_is_answered_and_every_answer_is_read(rows: dict[str, Any]) -> None:
    row = rows[SYSTEM]
    assert (row["n"], row["done"], row["failed"]) == (QUERIES, QUERIES, 0)
    assert row["scores"]["truth:answer"]["avg_micro"]["unscored"] <= 1


def test_the_ground_truth_is_true(rows: dict[str, Any]) -> None:
    for scorer in ("truth:match", "truth:answer", "truth:text"):
        assert mean(rows, "gt", scorer) == 100
    assert mean(rows, "gt", "clipscore") > 1.9


def test_pictures_show_what_their_text_says(rows: dict[str, Any]) -> None:
    assert mean(rows, SYSTEM, "truth:match") > 96
    assert mean(rows, SYSTEM, "clipscore") > 1.88


def test_a_native_model_draws_what_it_writes(rows: dict[str, Any]) -> None:
    assert mean(rows, NATIVE, "truth:match") > 93
    assert mean(rows, NATIVE, "clipscore") > 1.8
    assert mean(rows, NATIVE, "truth:answer") > 45


def test_answers_follow_from_their_queries(rows: dict[str, Any]) -> None:
    assert mean(rows, SYSTEM, "truth:answer") > 65


def test_stories_and_projects_go_on_from_the_picture_of_the_query(
    rows: dict[str, Any],
) -> None:
    by_category = rows[SYSTEM]["scores"]["truth:text"]["categories"]
    means = {name: by_category[name]["mean"] for name in ("SA", "PBL")}
    assert sum(means.values()) / 2 > 87, means


def test_the_judge_knows_the_ground_truth_from_an_answer_with_mistakes(
    rows: dict[str, Any],
) -> None:
    assert mean(rows, "gt", "judge:mmie-score") > 96
    assert 65 < mean(rows, SYSTEM, "judge:mmie-score") < 95


def test_pictures_of_another_answer_are_noticed(rows: dict[str, Any]) -> None:
    least = {"truth:match": 25.0, "clipscore": 0.5, "judge:mmie-score": 35.0}
    for scorer, difference in least.items():
        apart = mean(rows, "gt", scorer) - mean(rows, SHUFFLED, scorer)
        assert apart > difference, scorer


def test_settings_of_an_artist_reach_its_pictures(rows: dict[str, Any]) -> None:
    assert 60 < mean(rows, OVERGUIDED, "truth:match") < 85
    assert mean(rows, OVERGUIDED, "clipscore") < 1.58
