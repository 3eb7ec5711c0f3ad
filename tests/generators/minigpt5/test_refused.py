"""Checkpoints that do not fit are refused, with the reason."""

from __future__ import annotations

from pathlib import Path

import minigpt5_helpers as files
import minigpt5_tensors as tiny
import pytest
import torch
from minigpt5_helpers import drafting
from tokenizers import Tokenizer
from tokenizers import models as tokenizer_models

from generators.errors import CheckpointError

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("minigpt5")
    diffusion = str(files.save_diffusion(root / "sd"))
    return files.save_all(root) | {"diffusion": diffusion}


@pytest.fixture
def fresh(tmp_path):
    """Checkpoints that a test may damage."""
    return files.save_all(tmp_path)


def fails(make, *words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


def test_missing_files(fresh, tmp_path):
    folder = Path(fresh["model"])
    (folder / "prerained_minigpt4_7b.pth").rename(tmp_path / "elsewhere.pth")
    fails(lambda: drafting(fresh), "prerained_minigpt4_7b.pth", "projection")
    drafting(fresh, projection=str(tmp_path / "elsewhere.pth"))
    (folder / "stage2_vist.ckpt").unlink()
    own = {"projection": str(tmp_path / "elsewhere.pth")}
    fails(lambda: drafting(fresh, **own), "no file 'stage2_vist.ckpt'")
    drafting(fresh, finetuned="mmdialog", **own)
    (folder / "stage1_cc3m.ckpt").unlink()
    fails(lambda: drafting(fresh, finetuned="none", **own), "no file 'stage1_cc3m.ckpt'")


def test_missing_companions(fresh, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    fails(lambda: drafting(fresh, language=str(empty)), "tokenizer.model")
    fails(lambda: drafting(fresh, vision=str(empty)), "eva_vit_g.pth")
    shard = Path(fresh["language"]) / "pytorch_model-00002-of-00002.bin"
    shard.unlink()
    fails(lambda: drafting(fresh), "pytorch_model-00002-of-00002.bin")
    (Path(fresh["vision"]) / "blip2_pretrained_flant5xxl.pth").unlink()
    fails(lambda: drafting(fresh), "blip2_pretrained_flant5xxl.pth")


def test_blip2_of_another_shape(places, tmp_path):
    key = "qformer.encoder.layer.0.crossattention.attention.key.weight"

    def change(tensors) -> None:
        tensors[key] = torch.zeros(3, 3)

    folder = files.save_blip2(tmp_path / "blip2", change)
    fails(lambda: drafting(places, vision=str(folder)), key, "(3, 3), not (128, 176)")


def test_a_tokenizer_that_reaches_into_the_vokens(places, tmp_path):
    tables = tiny.stage_2()
    for key in (
        f"{tiny.LLAMA_2}model.embed_tokens.{tiny.SAVED}",
        f"{tiny.LLAMA_2}lm_head.{tiny.SAVED}",
    ):
        tables[key] = tables[key][:-1]
    folder = str(files.save_model(tmp_path / "short", stage2_vist=tables))
    fails(lambda: drafting(places, model=folder), "400 pieces", "408 rows")


def test_a_tokenizer_without_the_mark(places, tmp_path):
    folder = files.save_vicuna(tmp_path / "vicuna")
    (folder / "tokenizer.model").unlink()
    plain = tokenizer_models.BPE(vocab={"<unk>": 0, "<s>": 1, "</s>": 2}, merges=[])
    Tokenizer(plain).save(str(folder / "tokenizer.json"))
    fails(lambda: drafting(places, language=str(folder)), "'###'")


def test_a_context_beyond_the_trained_one(places):
    fails(lambda: drafting(places, context=9999), "9999", "512")
