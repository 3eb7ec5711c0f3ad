"""A pilot of judges whose errors are known: what it asks, finds, and changes in tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import plait
from noisy_judges import RUBRIC

import plait as api
from plait.scorers.judging.wordings import MOST

pytestmark = [pytest.mark.contract, pytest.mark.usefixtures("worker_threads")]

SYSTEMS = ["comparing_helpers:Terse@text", "comparing_helpers:Wordy@text"]
JUDGE = "judge:noisy_judges:Even"
OTHERS = (
    "--judges",
    "judge:noisy_judges:Strict",
    "--judges",
    "judge:noisy_judges:Stricter",
)
ASKED = ("--scorer", JUDGE, "--queries", "10")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the run `run`, whose answers one judge has scored."""
    place = tmp_path_factory.mktemp("pilot")
    (place / "rubric.toml").write_text(RUBRIC)
    api.run(
        data="miniature:16",
        systems=SYSTEMS,
        scorers=[JUDGE, "bleu"],
        rubric=place / "rubric.toml",
        weights="tiny",
        out=place / "run",
        executor="local",
    )
    return place


def test_a_pilot_finds_where_the_variance_comes_from(folder: Path) -> None:
    done = plait("uncertainty", "run", *ASKED, *OTHERS, folder=folder)
    assert done.returncode == 0, done.stderr
    # Two systems, three judges, two wordings, twice; a score of the run is not asked again.
    assert "240 judgements, 20 of them judged in the run already" in done.stdout
    found = json.loads((folder / "run" / "uncertainty.json").read_text())
    variances = {name: own["variance"] for name, own in found["components"].items()}
    # Of 0, 10 and 25 points less, and of 0 and 4 more in another wording.
    assert variances["judge"] == pytest.approx(158, rel=0.1)
    assert variances["wording"] == pytest.approx(8, rel=0.1)
    assert variances["system x judge"] < 1
    assert found["judgements"] == 240
    again = plait("uncertainty", "run", *ASKED, *OTHERS, folder=folder)
    assert "220 records exist" in again.stdout
    assert json.loads((folder / "run" / "uncertainty.json").read_text()) == found
    # The tables of the run have both intervals from then on, also when they are made anew.
    assert plait("report", "run", folder=folder).returncode == 0
    rows = json.loads((folder / "run" / "leaderboard.json").read_text())
    for row in rows:
        cell = row["scores"][JUDGE]["avg_micro"]
        low, high = cell["ci95"]
        wide_low, wide_high = cell["ci95_judge_drawn"]
        assert wide_low < low < cell["mean"] < high < wide_high
        assert "ci95_judge_drawn" not in row["scores"]["bleu"]["avg_micro"]
    errors = api.open_run(folder / "run").board.judge_errors[JUDGE]
    assert sum(errors.shares.values()) == pytest.approx(1)
    assert next(iter(errors.shares)) == "judge"
    written = api.paper(folder / "run", folder / "paper")
    assert "variance.pdf" in written.files
    cells = written.content.column(JUDGE).cells
    assert all(cell.drawn is not None for cell in cells.values())


def test_one_judge_alone_still_tells_its_wordings_and_repeats(folder: Path) -> None:
    done = plait("uncertainty", "run", *ASKED, "--dry-run", folder=folder)
    assert done.returncode == 0
    assert "--judges" in done.stdout
    assert "80 judgements" in done.stdout
    plain = ("--judges", "judge:noisy_judges:Plain", "--dry-run")
    done = plait("uncertainty", "run", *ASKED, *plain, folder=folder)
    assert "judge:noisy_judges:Plain" in done.stdout
    assert "120 judgements" in done.stdout, "one that draws nothing is asked once"


def test_judgements_that_failed_are_told_with_their_reason(folder: Path) -> None:
    away = ("--judges", "judge:noisy_judges:Away", "--repeats", "1")
    done = plait("uncertainty", "run", *ASKED, *away, folder=folder)
    assert done.returncode == 1
    found = json.loads((folder / "run" / "uncertainty.json").read_text())
    assert found["without_score"] == {"the server is away": 20}
    assert found["judgements"] == 60


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--scorer", "bleu"), "bleu"),
        (("--scorer", "judge:nothing:Known"), JUDGE),
        ((*ASKED, "--judges", "clipscore"), "clipscore"),
        ((*ASKED, "--wordings", str(MOST + 1)), str(MOST)),
        ((*ASKED, "--system", "gill"), SYSTEMS[0]),
    ],
)
def test_bad_input_is_named(folder: Path, words: tuple[str, ...], named: str) -> None:
    done = plait("uncertainty", "run", *words, folder=folder)
    assert done.returncode == 2
    assert named in done.stderr
