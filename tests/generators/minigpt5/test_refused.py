"""Checkpoints that do not fit are refused, with the reason."""

from __future__ import annotations

from pathlib import Path

import minigpt5_helpers as files
import minigpt5_tensors as tiny
import pytest
import torch
from minigpt5_helpers import drafting, rendering
from tokenizers import Tokenizer
from tokenizers import models as tokenizer_models

from generators.errors import CheckpointError
from generators.minigpt5.settings import MiniGPT5DraftSettings

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


def resaved(path: Path, change, below: str = "state_dict") -> None:
    stored = torch.load(path, weights_only=True)
    change(stored[below] if below else stored)
    torch.save(stored, path)


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


def test_a_missing_companion_fails_when_planning(fresh, tmp_path):
    settings = MiniGPT5DraftSettings(**fresh)
    identity = settings.identity("pretrained")
    assert identity.count("folder:") == 3
    gone = settings.model_copy(update={"language": str(tmp_path / "gone")})
    fails(lambda: gone.identity("pretrained"), "gone")


@pytest.mark.parametrize("file", ["model/stage2_vist.ckpt", "vision/eva_vit_g.pth"])
def test_truncated_files(fresh, file):
    place, name = file.split("/")
    path = Path(fresh[place]) / name
    path.write_bytes(path.read_bytes()[:-2000])
    fails(lambda: drafting(fresh), name, "broken")


def test_tensors_of_the_wrong_size(fresh):
    stage = Path(fresh["model"]) / "stage2_vist.ckpt"
    update = f"{tiny.LLAMA_2}model.layers.1.self_attn.v_proj.lora_B.default.weight"
    resaved(stage, lambda t: t.update({update: torch.zeros(9, tiny.RANK)}))
    fails(lambda: drafting(fresh), "stage2_vist.ckpt", update, "(9, 3), not (64, 3)")
    projection = Path(fresh["model"]) / "prerained_minigpt4_7b.pth"
    wrong = {"llama_proj.weight": torch.zeros(tiny.WIDTH, 7)}
    resaved(projection, lambda t: t.update(wrong), "model")
    fails(lambda: drafting(fresh), "llama_proj.weight", "(64, 7), not (64, 128)")


def test_keys_that_are_missing_or_too_many(fresh):
    stage = Path(fresh["model"]) / "stage2_vist.ckpt"
    gone = f"{tiny.LLAMA_2}model.layers.0.self_attn.v_proj.lora_A.default.weight"
    extra = f"{tiny.LLAMA_2}model.layers.0.self_attn.k_proj.lora_A.default.weight"

    def change(tensors) -> None:
        tensors[extra] = tensors.pop(gone)

    resaved(stage, change)
    fails(lambda: drafting(fresh), "1 missing", gone, "1 unexpected", extra)


def test_unknown_keys_of_a_stage_file(places, tmp_path):
    strange = tiny.stage_1() | {"surprise.weight": torch.zeros(2)}
    folder = files.save_model(tmp_path / "strange", stage1_cc3m=strange)
    settings = {"model": str(folder), "finetuned": "none"}
    fails(lambda: drafting(places, **settings), "unexpected", "surprise.weight")
    fails(lambda: rendering(places, **settings), "unexpected", "surprise.weight")


def test_a_mapper_that_does_not_fit(places, tmp_path):
    name = "llm_to_t2i_mapping.decoder.layers.2.multihead_attn.in_proj_weight"
    changed = tiny.stage_2() | {name: torch.zeros(5, 5)}
    folder = files.save_model(tmp_path / "changed", stage2_vist=changed)
    fails(lambda: rendering(places, model=str(folder)), "stage2_vist.ckpt", name)
    lacking = tiny.stage_1()
    del lacking["fc.0.weight"]
    folder = files.save_model(tmp_path / "lacking", stage1_cc3m=lacking)
    fails(lambda: rendering(places, model=str(folder)), "fc.0.weight")


def test_blip2_of_another_shape(places, tmp_path):
    key = "qformer.encoder.layer.0.crossattention.attention.key.weight"

    def change(tensors) -> None:
        tensors[key] = torch.zeros(3, 3)

    folder = files.save_blip2(tmp_path / "blip2", change)
    fails(lambda: drafting(places, vision=str(folder)), key, "(3, 3), not (128, 176)")


def test_a_vit_without_its_biases(places, tmp_path):
    """Named as the file names them, though the model has the two and a third as one."""
    vit = tiny.eva_vit()
    bias = vit.pop("blocks.1.attn.v_bias")
    folder = str(files.save_lavis(tmp_path / "lavis", vit=vit))
    message = ("eva_vit_g.pth of", "lacks blocks.1.attn.v_bias")
    fails(lambda: drafting(places, vision=folder), *message)
    files.save_lavis(tmp_path / "lavis", vit=vit | {"blocks.1.attn.v_bias": bias[1:]})
    message = (f"blocks.1.attn.v_bias has the shape ({len(bias) - 1},), not",)
    fails(lambda: drafting(places, vision=folder), *message)


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
