"""The four native models through `plait run`, each from folders in its published layout."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from natives import LAYOUTS, SMALL

from plait import commands
from plait.benchmarks.plain_console import PlainConsole
from plait.benchmarks.runs.config import load_config

pytestmark = [
    pytest.mark.contract,
    pytest.mark.slow,
    pytest.mark.models,
    pytest.mark.usefixtures("worker_threads"),
    pytest.mark.timeout(600),
]
ON_CPU = {"device": "cpu", "dtype": "float32", "num_gpus": 0}
NAMES = ["anole", "gill", "minigpt5", "emu2"]


def settings(name: str, folder: Path) -> dict[str, Any]:
    """Of a model, by stage, from checkpoints in its published layout."""
    folder.mkdir()
    parts: dict[str, Any] = dict(LAYOUTS[name](folder))
    if name != "anole":
        parts["render"] = {**parts["render"], **SMALL}
    else:
        parts["draft"] = {**parts["draft"], "max_text_tokens": 20}
    return {**parts, **ON_CPU}


def test_all_four_answer_from_published_folders_and_resume(tmp_path: Path) -> None:
    models = {name: settings(name, tmp_path / name) for name in NAMES}
    flags = {
        "systems": tuple(NAMES),
        "scorers": ("bleu",),
        "weights": "pretrained",
        "limit": 3,
        "out": tmp_path / "run",
        "models": models,
    }
    said = io.StringIO()
    console = PlainConsole(file=said, width=200)
    assert commands.run(load_config(None, flags), console).exit_status == 0, said.getvalue()
    board = json.loads((tmp_path / "run" / "leaderboard.json").read_text())
    assert sorted(row["system"] for row in board) == sorted(NAMES)
    for row in board:
        assert (row["done"], row["failed"], row["weights"]) == (3, 0, "pretrained")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert all(i.startswith("folder:") for i in manifest["identities"].values())
    renders = {k: u for k, u in manifest["usage"].items() if k.endswith(("render", "unet"))}
    assert len(renders) == 4
    assert sum(u["images"] for u in renders.values()) >= 6
    before = len(said.getvalue())
    assert commands.run(load_config(None, flags), console).exit_status == 0
    assert "nothing is missing" in said.getvalue()[before:]
