"""Real architectures with tiny weights on Ray: answered, scored, reported, resumed."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from plait import commands
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.config import load_config
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.reopening import reopen
from plait.cluster.store import Store
from plait.generators.base import Result

pytestmark = [
    pytest.mark.contract,
    pytest.mark.ray,
    pytest.mark.models,
    pytest.mark.usefixtures("ray_address"),
    pytest.mark.timeout(600),
]
PAIR = "qwen2-vl-72b+sdxl-turbo"


def run(root: Path, *systems: str, limit: int = 6, **more: Any) -> tuple[int, str]:
    flags = {"systems": systems, "weights": "tiny", "limit": limit, "out": root} | more
    said = io.StringIO()
    status = commands.run(
        load_config(None, flags), PlainConsole(file=said, width=200)
    ).exit_status
    return status, said.getvalue()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, ray_address: str) -> Path:
    """A native and a composite system, answered and scored."""
    root = tmp_path_factory.mktemp("finished") / "run"
    status, said = run(root, "anole", PAIR)
    assert status == 0, said
    return root


def test_a_native_and_a_composite_system_answer_and_are_scored(finished: Path) -> None:
    board = json.loads((finished / "leaderboard.json").read_text())
    assert {row["system"] for row in board} == {"anole", PAIR}
    for row in board:
        assert (row["n"], row["done"], row["failed"]) == (6, 6, 0)
        assert row["weights"] == "tiny"
        assert row["scores"]["clipscore"]["avg_micro"]["n"] > 0
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["usage"]["sdxl-turbo"]["images"] >= 3
    assert manifest["usage"]["qwen2-vl-72b"]["output_tokens"] > 6
    assert (finished / "report.html").stat().st_size > 1000


def test_documents_interleave_text_and_pictures(finished: Path) -> None:
    board = open_results(finished).board
    shapes = set()
    for evaluation in board.reading(board.keys):
        assert isinstance(evaluation.document, Result)
        kinds = [type(s).__name__ for s in evaluation.document.value.segments]
        wants = getattr(evaluation.query, "wants_images", False)
        if evaluation.system == PAIR:
            assert kinds == (["Text", "Image"] if wants else ["Text"])
        shapes.add((evaluation.system, "Image" in kinds))
    assert ("anole", True) in shapes


def test_the_same_command_again_makes_nothing(finished: Path) -> None:
    status, said = run(finished, "anole", PAIR)
    assert status == 0
    assert "nothing is missing" in said
    assert "; 0 records made" in said


def test_datasets_opens_the_result_with_decoded_pictures(
    finished: Path, tmp_path: Path
) -> None:
    datasets = pytest.importorskip("datasets")
    files = [str(p) for p in finished.glob("stages/sdxl-turbo-*/part-*.parquet")]
    data = datasets.load_dataset(
        "parquet", data_files=files, split="train", cache_dir=str(tmp_path)
    )
    assert data[0]["image"].size == (64, 64)
    out = tmp_path / "documents"
    commands.export(finished, PAIR, "parquet", out, None, PlainConsole(file=io.StringIO()))
    data = datasets.load_dataset(
        "parquet",
        data_files=str(out / "documents.parquet"),
        split="train",
        cache_dir=str(tmp_path),
    )
    pictured = [row for row in data if row["images"]]
    assert pictured
    assert pictured[0]["images"][0].size == (64, 64)
    assert pictured[0]["text"].count("<image>") == len(pictured[0]["images"])
    asked = next(row for row in data if row["question_images"])
    assert asked["question"].count("<image>") == len(asked["question_images"])
    assert min(asked["question_images"][0].size) > 0


def keys_of(root: Path) -> set[str]:
    store = Store(root)
    return {key for stage in reopen(root).plan.stages for key in store.rows(stage)}


@pytest.mark.slow
@pytest.mark.usefixtures("worker_threads")
@pytest.mark.parametrize("system", ["emu2", "gill", "minigpt5"])
def test_the_size_of_batches_changes_no_key(tmp_path: Path, system: str) -> None:
    """Though the last digits of hidden states depend on it."""
    for size in (1, 3):
        # BLEU reads no images.
        more = {"models": {system: {"batch_size": size}}, "scorers": ("bleu",)}
        status, said = run(tmp_path / str(size), system, limit=3, **more)
        assert status == 0, said
    assert keys_of(tmp_path / "1") == keys_of(tmp_path / "3")


@pytest.mark.usefixtures("worker_threads")
def test_scoring_again_writes_and_draws_nothing(finished: Path) -> None:
    """Another CLIP setting is another scorer stage; drafts and images stay."""
    folders = {p.name: p.stat().st_mtime_ns for p in (finished / "stages").iterdir()}
    said = io.StringIO()
    names = ("weights", "out", "executor", "address", "mode", "rubric")
    flags: dict[str, Any] = dict.fromkeys(names)
    flags |= {"set": ["models.clipscore.processor=transformers"], "remake": False}
    console = PlainConsole(file=said, width=200)
    status = commands.score([str(finished)], [], flags, console).exit_status
    assert status == 0, said.getvalue()
    after = {p.name: p.stat().st_mtime_ns for p in (finished / "stages").iterdir()}
    new = set(after) - set(folders)
    assert len(new) == 1
    assert next(iter(new)).startswith("clip-")
    assert all(after[name] == when for name, when in folders.items())


@pytest.mark.slow
def test_a_pretrained_folder_runs_by_path(tmp_path: Path) -> None:
    """What a user will have: a checkpoint folder in the published layout."""
    from diffusion_helpers import tiny_pipeline

    folder = tmp_path / "weights"
    tiny_pipeline("sdxl-turbo").save_pretrained(folder)
    config = load_config(
        None,
        {
            "systems": ("stages:Paragraphs+sdxl-turbo",),
            "scorers": ("stages:Constant",),
            "weights": "pretrained",
            "limit": 3,
            "out": tmp_path / "run",
            "models": {
                "sdxl-turbo": {
                    "model": str(folder),
                    "num_gpus": 0,
                    "height": 64,
                    "width": 64,
                    "dtype": "float32",
                    "variant": None,
                }
            },
        },
    )
    said, usual = io.StringIO(), signal.getsignal(signal.SIGINT)
    assert commands.run(config, PlainConsole(file=said, width=200)).exit_status == 0, (
        said.getvalue()
    )
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    identities = [s["identity"] for s in manifest["stages"].values()]
    assert any(i.startswith("folder:") for i in identities)
    # The handlers of a run are gone when it is over.
    assert signal.getsignal(signal.SIGINT) is usual
