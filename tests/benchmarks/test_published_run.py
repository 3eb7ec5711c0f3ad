"""The four native models through `plait run`, each from folders in its published layout."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import anole_helpers
import emu2_helpers
import gill_helpers
import minigpt5_helpers
import pytest

from benchmarks import commands
from benchmarks.plain_console import PlainConsole
from benchmarks.runs.config import load_config
from generators.emu2.sizes import TINY_CHAT, TINY_GEN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.models,
    pytest.mark.usefixtures("worker_threads"),
    pytest.mark.timeout(600),
]
ON_CPU = {"device": "cpu", "dtype": "float32", "num_gpus": 0}
SMALL = {"height": 64, "width": 64, "steps": 2}
NAMES = ["anole", "gill", "minigpt5", "emu2"]


def anole(folder: Path) -> dict[str, Any]:
    language = anole_helpers.language()
    taming = anole_helpers.taming_tensors(anole_helpers.VQ)
    saved = anole_helpers.save_hf(folder, language, taming)
    return {"model": str(saved), **ON_CPU, "draft": {"max_text_tokens": 20}}


def gill(folder: Path) -> dict[str, Any]:
    named = gill_helpers.save(folder)
    drawing = {"diffusion": named.pop("diffusion"), **SMALL}
    model = named.pop("model")
    return {"model": model, **ON_CPU, "draft": named, "render": drawing}


def minigpt5(folder: Path) -> dict[str, Any]:
    named = minigpt5_helpers.save_all(folder)
    drawing = {"diffusion": str(minigpt5_helpers.save_diffusion(folder / "sd")), **SMALL}
    model = named.pop("model")
    return {"model": model, **ON_CPU, "draft": named, "render": drawing}


def emu2(folder: Path) -> dict[str, Any]:
    folder.mkdir()
    states = [emu2_helpers.native_state(m()) for m in (emu2_helpers.chat, emu2_helpers.gen)]
    chat = emu2_helpers.save_chat(
        folder / "chat", states[0], TINY_CHAT.vision, TINY_CHAT.language
    )
    gen = emu2_helpers.save_gen(
        folder / "gen",
        states[1],
        TINY_GEN.vision,
        TINY_GEN.language,
        emu2_helpers.tiny_drawing(),
    )
    return {
        "draft": {"model": str(chat), **ON_CPU},
        "condition": {"model": str(gen), **ON_CPU},
        "render": {"model": str(gen), **ON_CPU, **SMALL},
    }


def test_all_four_answer_from_published_folders_and_resume(tmp_path: Path) -> None:
    makers = {"anole": anole, "gill": gill, "minigpt5": minigpt5, "emu2": emu2}
    models = {name: make(tmp_path / name) for name, make in makers.items()}
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
    assert commands.run(load_config(None, flags), console) == 0, said.getvalue()
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
    assert commands.run(load_config(None, flags), console) == 0
    assert "nothing is missing" in said.getvalue()[before:]
