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
from mutants import MUTANTS, ROOT

from plait import commands
from plait.benchmarks.miniature.outputs import CRITIC
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.config import load_config
from plait.generators.mini.table import SHIPPED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.models,
    pytest.mark.usefixtures("worker_threads"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not SHIPPED.exists(), reason="no mini weights in the checkout"),
]
SYSTEM = "qwen2-vl-7b+openjourney@outline"
NATIVE = "anole"
OVERGUIDED = "qwen2-vl-7b+openjourney-early@outline"
"""Its images are drawn with far more guidance than its training allows for."""
JUDGED = OVERGUIDED.replace("@outline", "@critic")
"""The same images, of which a critic has those drawn again that it finds wanting."""
SHUFFLED = "gt:shuffled-images"
QUERIES = 24


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, worker_threads: None) -> dict[str, Any]:
    """Rows of the leaderboard by system."""
    root = tmp_path_factory.mktemp("world") / "run"
    flags = {
        "data": f"miniature:{QUERIES}",
        "systems": (SYSTEM, NATIVE, OVERGUIDED, JUDGED, "gt", SHUFFLED),
        "scorers": (
            *("clipscore", "judge:mmie-score"),
            *("truth:match", "truth:answer", "truth:text"),
        ),
        "weights": "mini",
        "out": root,
    }
    said = io.StringIO()
    critic = [f"composition.critic.{name}={value}" for name, value in CRITIC.items()]
    settings = ["models.openjourney-early.guidance=6.0", *critic]
    config = load_config(None, flags, settings)
    status = commands.run(config, PlainConsole(file=said, width=200)).exit_status
    assert status == 0, said.getvalue()
    board = json.loads((Path(root) / "leaderboard.json").read_text())
    return {row["system"]: row for row in board}


def mean(rows: dict[str, Any], system: str, scorer: str) -> float:
    """The mean of a scorer over all queries."""
    return float(rows[system]["scores"][scorer]["avg_micro"]["mean"])


@pytest.mark.parametrize(
    ("system", "scorer", "above", "below"),
    [
        ("gt", "clipscore", 1.9, 2.5),
        # Images show what their text says, those of a native model too.
        (SYSTEM, "truth:match", 96, 101),
        (SYSTEM, "clipscore", 1.88, 2.5),
        (NATIVE, "truth:match", 93, 101),
        (NATIVE, "clipscore", 1.8, 2.5),
        # Answers follow from their queries.
        (SYSTEM, "truth:answer", 65, 101),
        (NATIVE, "truth:answer", 45, 101),
        # The judge knows the ground truth from an answer with mistakes.
        ("gt", "judge:mmie-score", 96, 101),
        (SYSTEM, "judge:mmie-score", 65, 95),
        # Settings of a T2I model reach its images.
        (OVERGUIDED, "truth:match", 60, 85),
        (OVERGUIDED, "clipscore", 0, 1.58),
    ],
)
def test_means_are_in_their_bounds(rows, system, scorer, above, below) -> None:
    assert above < mean(rows, system, scorer) < below


def test_a_critic_keeps_images_that_show_more_of_their_text(rows: dict[str, Any]) -> None:
    assert mean(rows, JUDGED, "truth:match") - mean(rows, OVERGUIDED, "truth:match") > 1


def test_the_ground_truth_is_true(rows: dict[str, Any]) -> None:
    for scorer in ("truth:match", "truth:answer", "truth:text"):
        assert mean(rows, "gt", scorer) == 100


def test_every_query_is_answered_and_every_answer_is_read(rows: dict[str, Any]) -> None:
    row = rows[SYSTEM]
    assert (row["n"], row["done"], row["failed"]) == (QUERIES, QUERIES, 0)
    assert row["scores"]["truth:answer"]["avg_micro"]["unscored"] <= 1


def test_stories_and_projects_go_on_from_the_image_of_the_query(
    rows: dict[str, Any],
) -> None:
    by_category = rows[SYSTEM]["scores"]["truth:text"]["categories"]
    means = {name: by_category[name]["mean"] for name in ("SA", "PBL")}
    assert sum(means.values()) / 2 > 87, means


@pytest.mark.parametrize(
    ("scorer", "least"),
    [("truth:match", 25.0), ("clipscore", 0.5), ("judge:mmie-score", 35.0)],
)
def test_images_of_another_answer_are_noticed(rows, scorer: str, least: float) -> None:
    assert mean(rows, "gt", scorer) - mean(rows, SHUFFLED, scorer) > least


def test_every_mutant_finds_its_line() -> None:
    found = {m.name: (ROOT / m.file).read_text().count(m.before) for m in MUTANTS}
    assert {name: n for name, n in found.items() if n != 1} == {}
