"""MiniGPT-5's published checkpoints: every tensor in its place."""

from __future__ import annotations

from pathlib import Path

import minigpt5_helpers as tensors
import pytest
import torch
from natives import edit, published
from tokenizers import Tokenizer
from tokenizers.models import BPE

from plait.generators.errors import CheckpointError
from plait.generators.minigpt5 import vision

pytestmark = pytest.mark.models

TABLES = [
    f"{tensors.LLAMA_2}{n}.{tensors.SAVED}" for n in ("model.embed_tokens", "lm_head")
]


def test_lavis_leaves_out_the_last_block(saved, tmp_path, monkeypatch):
    """EVA-CLIP has 40 blocks, BLIP-2 uses 39; `ln_vision` has the default epsilon."""
    monkeypatch.setattr(vision, "_DEPTH", tensors.VIT_LAYERS)
    longer = tensors.eva_vit(tensors.VIT_LAYERS + 1)
    longer |= {k: v for k, v in tensors.eva_vit().items() if k not in ("norm", "head")}
    places = saved("minigpt5", "draft")
    places["vision"] = str(tensors.save_lavis(tmp_path / "lavis", vit=longer))
    tower = published("minigpt5", "draft", places).encoder.vision_model
    assert len(tower.encoder.layers) == tensors.VIT_LAYERS
    assert tower.post_layernorm.eps == 1e-5


def test_only_the_shards_that_hold_something_are_read(copied):
    """T5's shards are never opened, and never downloaded from the Hub."""
    places, folder = copied("minigpt5/blip2", "draft", "vision")
    (folder / "model-00003-of-00003.safetensors").unlink()
    published("minigpt5", "draft", places)


def test_the_projection_may_be_elsewhere_and_unused_stages_absent(copied, tmp_path):
    places, folder = copied("minigpt5", "draft", "model")
    elsewhere = Path(tmp_path / "elsewhere.pth")
    (folder / "prerained_minigpt4_7b.pth").rename(elsewhere)
    (folder / "stage2_vist.ckpt").unlink()
    places["projection"] = str(elsewhere)
    published("minigpt5", "draft", places, finetuned="mmdialog")
    with pytest.raises(CheckpointError, match=r"no file 'stage2_vist\.ckpt'"):
        published("minigpt5", "draft", places)


def test_ids_follow_from_the_rows_of_the_table(copied, stage):
    """With a [PAD] row between the pieces and the vokens, all ids move by one."""
    places, folder = copied("minigpt5", "draft", "model")

    def change(stored) -> None:
        for key in TABLES:
            old, pad = stored[key], torch.zeros(1, tensors.WIDTH)
            stored[key] = torch.cat([old[: tensors.PIECES], pad, old[tensors.PIECES :]])

    edit(folder, "stage2_vist.ckpt", change)
    vokens = published("minigpt5", "draft", places).vocabulary.vokens
    assert vokens == range(tensors.PIECES + 1, tensors.PIECES + 9)
    assert stage("minigpt5").vocabulary.begin_image == tensors.PIECES


def test_a_tokenizer_without_the_mark_is_refused(copied):
    places, folder = copied("minigpt5", "draft", "language")
    (folder / "tokenizer.model").unlink()
    tokens = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
    plain = BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[])
    Tokenizer(plain).save(str(folder / "tokenizer.json"))
    with pytest.raises(CheckpointError, match="'###'"):
        published("minigpt5", "draft", places)
