"""Judges' checkpoints that are not what they are called: pointers, cut files, adapters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clipscore_helpers import ClipScore
from transformers import BertConfig, BertModel

from plait.generators.errors import CheckpointError
from plait.generators.mini.table import SHIPPED
from plait.scorers.bertscore import BertScore
from plait.scorers.imagereward import ImageReward, word_tokenizer
from plait.scorers.internvl.stage import MmieScore

pytestmark = pytest.mark.models

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n"
Load = Callable[[Path], Any]


def clip(folder: Path) -> Load:
    shutil.copytree(SHIPPED / "clip", folder)
    return lambda place: ClipScore("pretrained", model=str(place), device="cpu")


def mmie_score(folder: Path) -> Load:
    shutil.copytree(SHIPPED / "mmie-score", folder)
    return lambda place: MmieScore(model=str(place), device="cpu", dtype="float32")


def bertscore(folder: Path) -> Load:
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    BertModel(BertConfig(num_hidden_layers=2, **sizes)).save_pretrained(folder)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    return lambda place: BertScore(model=str(place), layer=2, device="cpu")


def imagereward(folder: Path) -> Load:
    folder.mkdir()
    torch.save(ImageReward(weights="tiny")._model.state_dict(), folder / "ImageReward.pt")
    word_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "med_config.json").write_text("{}")
    return lambda place: ImageReward(model=str(place), tokenizer=str(place), device="cpu")


READ = {
    clip: ["open_clip_model.safetensors", "open_clip_config.json"],
    mmie_score: ["model.safetensors", "tokenizer.model", "config.json"],
    bertscore: ["model.safetensors", "tokenizer.json", "config.json"],
    imagereward: ["ImageReward.pt", "med_config.json"],
}
"""What each judge reads; of the last only what comes before its model is made."""
CASES = [(save, name) for save, names in READ.items() for name in names]


@pytest.fixture
def judge(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Load]:
    return tmp_path / "judge", request.param(tmp_path / "judge")


@pytest.mark.parametrize(("judge", "name"), CASES, indirect=["judge"])
def test_broken_files_are_named(judge: tuple[Path, Load], name: str) -> None:
    folder, load = judge
    file = folder / name
    whole = file.read_bytes()
    for content, words in ((POINTER, "git lfs pull"), (b"", "is empty")):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match=f"{name}.*{words}"):
            load(folder)
    if file.suffix in (".safetensors", ".pt"):
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(CheckpointError, match=f"{name} is broken"):
            load(folder)


@pytest.mark.parametrize("judge", [clip, mmie_score, bertscore], indirect=True)
def test_adapters_beside_weights_are_refused(judge: tuple[Path, Load]) -> None:
    folder, load = judge
    load(folder)
    about = {"base_model_name_or_path": "org/base"}
    (folder / "adapter_config.json").write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match=r"holds an adapter.*org/base"):
        load(folder)


@pytest.mark.parametrize("judge", [bertscore], indirect=True)
def test_a_vocabulary_without_words_is_refused(judge: tuple[Path, Load]) -> None:
    folder, load = judge
    stored = json.loads((folder / "tokenizer.json").read_text())
    stored["model"]["vocab"] = {"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 3}
    (folder / "tokenizer.json").write_text(json.dumps(stored))
    with pytest.raises(CheckpointError, match=r"tokenizer\.json.*a red house"):
        load(folder)
