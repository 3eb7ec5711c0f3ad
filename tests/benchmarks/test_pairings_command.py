"""`plait bench pairings`: the matrix that names make, and a tiny one run to its tables."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import plait.cli
from plait import pairings
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.reopening import reopen
from plait.cluster.store import Store
from plait.generators.base import Kind, Skip
from plait.generators.errors import UsageError
from plait.generators.images import decode
from plait.generators.mini.table import folder_of
from plait.generators.names import UnknownName

NAMES = ("config", "data", "scorer", "weights", "out", "limit", "ids", "seed", "repeats")
NAMES += ("address", "mode", "rubric", "set_", "lvlm", "t2i", "protocol")
NAMES += ("on", "budget_hours", "metrics", "human", "sheet")


BRIEF = "comparing_helpers:Brief"
WRITERS = ["comparing_helpers:Counting", "comparing_helpers:Picky"]
ARTISTS = ["comparing_helpers:Square", "comparing_helpers:Painter"]


def options(**given: Any) -> dict[str, Any]:
    return dict.fromkeys(NAMES) | {"remake": False, "trim": False} | given


def run(given: Mapping[str, Any]) -> tuple[int, str]:
    file = io.StringIO()
    return pairings.main(given, PlainConsole(file=file, width=200)), file.getvalue()


def test_names_make_every_pairing():
    config = pairings.matrix_config(
        options(lvlm=["a", "b", "a"], t2i=["x", "y"], protocol="outline")
    )
    assert config.systems == ("a+x@outline", "a+y@outline", "b+x@outline", "b+y@outline")
    assert config.weights == "pretrained"


def test_without_names_all_mini_models_are_paired():
    config = pairings.matrix_config(options())
    assert (config.data, config.weights) == ("miniature", "mini")
    assert "truth:match" in config.scorers
    assert "qwen2-vl-7b+openjourney@outline" in config.systems
    models = {m for s in config.systems for m in s.removesuffix("@outline").split("+")}
    assert all(folder_of(model).is_dir() for model in models)
    # One row for each folder of weights: the two sizes of Qwen2-VL share one.
    assert "qwen2-vl-72b" not in models
    limited = pairings.matrix_config(options(data="miniature:24", limit=3))
    assert (limited.data, limited.weights, limited.limit) == ("miniature:24", "mini", 3)


def test_other_data_without_names_gets_tiny_models():
    config = pairings.matrix_config(options(data="sample"))
    assert (config.weights, len(config.systems)) == ("tiny", 4)
    # Random text marks no place of an image, so that outlines would have none.
    assert config.systems[0] == "qwen2-vl-7b+openjourney@mmie"
    outlined = pairings.matrix_config(options(data="sample", protocol="outline"))
    assert outlined.systems[0] == "qwen2-vl-7b+openjourney@outline"


def test_half_a_matrix_is_refused():
    for given, why in (
        ({"lvlm": ["qwen2-vl-7b"]}, "--t2i is missing"),
        ({"t2i": ["sdxl"]}, "--lvlm is missing"),
        ({"lvlm": ["a"], "t2i": ["x", "x"]}, "is a single pairing"),
        ({"weights": "dummy"}, "no default matrix of dummy weights"),
    ):
        with pytest.raises(UsageError, match=why):
            pairings.matrix_config(options(**given))


@pytest.mark.models
def test_a_config_without_a_matrix_is_refused_before_anything_runs(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('data = "sample"\nweights = "tiny"\nsystems = ["anole"]\n')
    with pytest.raises(UsageError, match="form no matrix"):
        pairings.main(options(config=file, out=tmp_path / "out"), PlainConsole())
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="holds no run"):
        pairings.main(options(config=tmp_path), PlainConsole())


def test_the_command_line_has_the_options_of_a_run():
    words = ["bench", "pairings", "--help"]
    result = CliRunner().invoke(plait.cli.app, words, terminal_width=200)
    assert result.exit_code == 0
    for option in ("--lvlm", "--t2i", "--protocol", "--limit", "--metrics", "--sheet"):
        assert option in result.output
    assert "--system" not in result.output
    wrong = CliRunner().invoke(plait.cli.app, ["bench", "pairings", "--protocol", "text"])
    assert wrong.exit_code == 2


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, worker_threads: None
) -> tuple[Path, str]:
    """A 2 x 2 matrix, one of whose LVLMs skips queries with several images."""
    root = tmp_path_factory.mktemp("pairings") / "run"
    with pytest.MonkeyPatch.context() as patch:
        # What the run has just read is not read again for its tables.
        patch.setattr(pairings, "open_results", lambda *_: pytest.fail("read again"))
        scorers = [BRIEF, "comparing_helpers:Pictures"]
        models = {"lvlm": WRITERS, "t2i": ARTISTS, "scorer": scorers}
        asked = {"data": "sample", "weights": "tiny", "limit": 12}
        status, text = run(options(**models, **asked, out=root))
    assert status == 0, text
    return root, text


def test_a_matrix_is_run_and_ends_with_its_tables(finished):
    root, text = finished
    assert f"{BRIEF}, interaction, protocol mmie" in text
    assert "random weights" in text
    (matrix,) = json.loads((root / "pairings.json").read_text())["matrices"]
    assert (matrix["lvlms"], matrix["t2is"]) == (WRITERS, ARTISTS)
    assert "section-pairings" in (root / "report.html").read_text()
    board = open_results(root).board
    skips = [e for e in board.reading(board.keys) if isinstance(e.document, Skip)]
    assert {e.system for e in skips} == {f"{WRITERS[1]}+{artist}" for artist in ARTISTS}
    judged = matrix["scores"][BRIEF]
    assert judged["shared_queries"] + sum(judged["left_out"].values()) == 12
    assert sum(n for why, n in judged["left_out"].items() if "skipped" in why) == (
        len({e.query.id for e in skips})
    )


def test_costs_are_those_of_the_records(finished):
    root, _ = finished
    experiment, store = reopen(root), Store(root)
    (matrix,) = json.loads((root / "pairings.json").read_text())["matrices"]
    sharing = matrix["cost"]["sharing"]
    counts = dict.fromkeys(Kind, 0)
    seconds = 0.0
    for spec in experiment.plan.stages:
        if spec.kind not in (Kind.SCORE, Kind.EMBED):
            own = list(store.columns(spec, ["seconds"]))
            counts[spec.kind] += len(own)
            seconds += sum(record["seconds"] for record in own)
    assert sharing["texts"] == counts[Kind.DRAFT] == 24
    assert sharing["texts_requested"] == 48
    assert sharing["pictures"] == counts[Kind.RENDER]
    assert sharing["same_seeds"] == sharing["seeds"] > 0
    assert sharing["spent"]["seconds"] == pytest.approx(seconds)
    assert sharing["unshared"]["seconds"] > seconds
    for own in matrix["cost"]["per_document"].values():
        assert own["seconds"]["mean"] > 0
        assert own["output_tokens"]["mean"] > 0


def test_an_existing_run_is_shown_again_without_running(finished, tmp_path):
    root, text = finished
    before = (root / "pairings.json").read_bytes()
    (root / "pairings.json").unlink()
    status, again = run(options(config=root))
    assert status == 0
    assert (root / "pairings.json").read_bytes() == before
    tables = again.partition("pairings    ")[0]
    assert tables in text
    with pytest.raises(UsageError, match="--limit"):
        run(options(config=root, limit=3))
    status, elsewhere = run(options(config=root, out=str(tmp_path / "out")))
    assert status == 0
    assert elsewhere.startswith(tables)
    assert (tmp_path / "out" / "pairings.json").read_bytes() == before


def test_metrics_are_picked_and_set_beside_people(finished, tmp_path):
    root, copy = finished[0], tmp_path / "run"
    shutil.copytree(root, copy)
    (matrix,) = json.loads((root / "pairings.json").read_text())["matrices"]
    first, second = matrix["scores"]
    human, sheet = tmp_path / "human.csv", tmp_path / "sheet.webp"
    names = [name for row in matrix["systems"] for name in row]
    lines = [f"SA-0001,{name},{i}" for i, name in enumerate(names)]
    human.write_text("\n".join(["id,system,score", *lines]))
    shown = {"config": copy, "metrics": [f"{second}, {first}"], "sheet": sheet}
    status, text = run(options(**shown, human=human))
    assert (status, decode(sheet.read_bytes()).height > 400) == (0, True)
    assert text.index(f"{second} (") < text.index(f"{first} (")
    run(options(config=copy, metrics=[second], human=human))
    (picked,) = json.loads((copy / "pairings.json").read_text())["matrices"]
    assert picked["scores"] == {second: matrix["scores"][second]}
    assert [a["scorers"] for a in picked["agreement"]] == [[second, "people"]]
    with pytest.raises(UnknownName) as error:
        run(options(config=copy, metrics=[f"{first},clipscor"]))
    assert {*error.value.valid} == {first, second}
    human.write_text("id,system,vote,baseline\nSA-0001,anole,system,gill")
    with pytest.raises(UsageError, match="vote"):
        run(options(config=copy, human=human))
    human.write_text("id,system,score\nSA-0001,anole,3")
    with pytest.raises(UsageError, match="none of the pairings"):
        run(options(config=copy, human=human))
