"""Runs under mini weights; tiny random checkpoints stand in for the trained ones."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import mini_helpers as helpers
import pytest
from boards import results_of
from PIL import Image as Pillow

from plait import commands, listing
from plait.api import query, scorer, system
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.defaults import QUICKSTART, SAMPLE
from plait.benchmarks.runs.experiment import open_experiment
from plait.benchmarks.serving.served import resolve_served
from plait.cluster.store import Store
from plait.generators.errors import UsageError
from plait.generators.mini.table import ABOUT, ABOUT_JUDGE, MINI
from plait.generators.mini.table import ROOT as VARIABLE
from plait.pipelines.systems import Models

pytestmark = [
    pytest.mark.slow,
]

PAIR = "qwen2-vl-7b+openjourney"
SMALL = {
    "anole": {"max_text_tokens": 16, "max_images": 1},
    "qwen2-vl-7b": {"max_new_tokens": 8},
    "openjourney": {"steps": 1},
}


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folders = ("anole", "clip", "mmie-score", "openjourney", "qwen2-vl")
    return helpers.pinned(helpers.tiny(tmp_path_factory.mktemp("mini"), folders))


@pytest.fixture
def weights(stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return helpers.use(stand_ins, monkeypatch)


@pytest.mark.models
@pytest.mark.usefixtures("weights")
def test_every_kind_of_model_is_loaded_by_its_ordinary_loader() -> None:
    document = system(PAIR, weights="mini", models=SMALL)("a red circle")
    (picture,) = document.images
    assert Pillow.open(io.BytesIO(picture.read())).size == (64, 64)
    assert system("anole", weights="mini", models=SMALL)("a red circle").segments
    assert scorer("clipscore", weights="mini")("a red circle", document).value is not None
    judge = scorer("judge:mmie-score", weights="mini", max_new_tokens=4)
    asked = replace(query("a red circle"), category="SA")
    verdict = judge(asked, document)
    assert verdict.outcome == "unscored", verdict.reason


@pytest.mark.models
@pytest.mark.usefixtures("weights", "worker_threads")
def test_a_run_says_what_its_weights_are(tmp_path: Path, stand_ins: Path) -> None:
    root, said = tmp_path / "run", io.StringIO()
    flags = {"systems": ("gt", PAIR), "data": "miniature:3", "weights": "mini"}
    config = load_config(None, flags | {"out": root, "models": SMALL})
    assert commands.run(config, PlainConsole(file=said, width=400)).exit_status == 0
    assert f"mini weights ({PAIR}, clipscore), {ABOUT}" in said.getvalue()
    manifest = json.loads((root / "manifest.json").read_text())
    assert (manifest["weights"], manifest["about_weights"]) == ("mini", ABOUT)
    assert {s["weights"] for s in manifest["stages"].values()} == {"mini"}
    assert str(stand_ins) not in json.dumps(manifest)
    rows = json.loads((root / "leaderboard.json").read_text())
    assert {row["system"]: row["weights"] for row in rows} == {"gt": None, PAIR: "mini"}
    assert ABOUT in (root / "leaderboard.md").read_text()
    page = (root / "report.html").read_text()
    assert ABOUT in page
    assert "Random weights" not in page
    again = io.StringIO()
    assert commands.run(config, PlainConsole(file=again, width=400)).exit_status == 0


@pytest.mark.models
@pytest.mark.usefixtures("weights")
def test_readers_learn_what_the_mini_judge_takes_criteria_for(tmp_path: Path) -> None:
    flags = {"systems": ("gt",), "data": "miniature:3", "weights": "mini"}
    warnings = {}
    for name in ("clipscore", "judge:mmie-score"):
        made = open_experiment(load_config(None, flags | {"scorers": (name,)}))
        warnings[name] = results_of(made, Store(tmp_path)).board.warning
    assert ABOUT_JUDGE in warnings["judge:mmie-score"]
    assert ABOUT_JUDGE not in warnings["clipscore"]
    tiny = {"data": "sample", "systems": (PAIR,), "weights": "tiny"}
    other = open_experiment(load_config(None, tiny))
    assert "about_weights" not in other.about()
    assert ABOUT not in results_of(other, Store(tmp_path)).board.warning


TINY = ("tiny", "sample", SAMPLE.systems, SAMPLE.scorers)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, ("mini", "miniature", QUICKSTART.systems, QUICKSTART.scorers)),
        (
            {"weights": "mini", "limit": 3},
            ("mini", "miniature", QUICKSTART.systems, QUICKSTART.scorers),
        ),
        ({"data": "sample"}, TINY),
        ({"weights": "tiny"}, TINY),
        ({"data": "miniature:9"}, ("tiny", "miniature:9", *TINY[2:])),
        ({"systems": ("gt",)}, ("pretrained", "sample", ("gt",), SAMPLE.scorers)),
    ],
)
def test_what_is_run_where_little_is_named(flags, expected) -> None:
    config = load_config(None, flags)
    assert (config.weights, config.data, config.systems, config.scorers) == expected


def test_a_file_means_pretrained(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("seed = 3")
    config = load_config(file, {})
    assert (config.weights, config.data) == ("pretrained", "sample")


def test_the_defaults_have_mini_weights() -> None:
    named = [p for s in QUICKSTART.systems for p in s.partition("@")[0].split("+")]
    named += [s for s in QUICKSTART.scorers if not s.startswith("truth:")]
    assert set(named) - {"gt"} <= set(MINI)


@pytest.mark.models
def test_the_list_of_weights_shows_which_are_there(weights: Path) -> None:
    said = io.StringIO()
    listing.show("weights", PlainConsole(file=said, width=200))
    lines = {line.split()[0]: line for line in said.getvalue().splitlines() if line.split()}
    assert "miniature world" in lines["mini"]
    assert "MB" in lines["openjourney"]
    assert "not there" in lines["sdxl"]


def test_a_run_without_the_files_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helpers.use(tmp_path / "nowhere", monkeypatch)
    flags = {"systems": (PAIR,), "data": "miniature:3", "weights": "mini"}
    config = load_config(None, flags | {"out": tmp_path / "run"})
    with pytest.raises(UsageError, match=f"'openjourney' are not in .*{VARIABLE}"):
        commands.run(config, PlainConsole(file=io.StringIO()))
    assert not (tmp_path / "run").exists()


@pytest.mark.models
@pytest.mark.usefixtures("weights")
def test_mini_weights_can_be_served() -> None:
    model = resolve_served(PAIR, Models(weights="mini"))
    assert model.weights == "mini"
    assert {s.options["weights"] for s in model.stages} == {"pretrained"}
