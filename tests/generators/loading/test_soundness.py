"""What a checkpoint needs before it is loaded: whole files, a vocabulary and no adapter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import ByT5Tokenizer, CLIPTokenizer, GemmaTokenizer

from plait.generators.checkpoints import identity
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import Files, in_pickle, in_safetensors, read_tokenizer
from plait.generators.loading.soundness import (
    choose_variant,
    files_of_weights,
    refuse_broken,
    refuse_broken_texts,
    refuse_broken_weights,
    refuse_unless_folder,
    refuse_without_vocabulary,
)

pytestmark = pytest.mark.models

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 4936\n"
TENSORS = {"weight": torch.arange(400.0), "bias": torch.ones(7)}
BAD = ["pointer", "empty", 0.02, 0.5, 0.999]
"""How a file is broken: to which share it is cut off."""


def write(path: Path, tensors: dict[str, torch.Tensor] = TENSORS) -> Path:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    return path


def damage(path: Path, how: str | float) -> None:
    data = path.read_bytes()
    if how == "pointer":
        path.write_bytes(POINTER)
    else:
        path.write_bytes(b"" if how == "empty" else data[: int(len(data) * float(how))])


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "w.ckpt"])
def test_broken_files_are_named(tmp_path: Path, name: str, how: str | float) -> None:
    path = write(tmp_path / name)
    refuse_broken(path)
    damage(path, how)
    words = {"pointer": "git lfs pull", "empty": "is empty"}.get(str(how), "is broken")
    read = in_safetensors if name.endswith(".safetensors") else in_pickle
    for refuse in (refuse_broken, lambda p: list(read(p)), lambda p: _found(p)):
        with pytest.raises(CheckpointError, match=words) as caught:
            refuse(path)
        assert str(path) in str(caught.value)
    with pytest.raises(CheckpointError, match=words):
        identity(str(path))


def _found(path: Path) -> Path:
    return Files(str(path.parent)).need(path.name)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer.model", "merges.txt"]
)
def test_texts_that_are_pointers_are_named_and_only_some_may_be_empty(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "picture.png").write_bytes(POINTER)
    (tmp_path / name).write_text("")
    if name == "merges.txt":
        refuse_broken_texts(tmp_path)
    else:
        with pytest.raises(CheckpointError, match=name):
            refuse_broken_texts(tmp_path)
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(CheckpointError, match=f"{name} is a Git LFS pointer"):
        refuse_broken_texts(tmp_path)


@pytest.mark.parametrize("name", ["trainer_state.json", "train.txt", "._tokenizer.json"])
def test_texts_that_are_no_part_of_a_model_are_not_looked_at(
    tmp_path: Path, name: str
) -> None:
    for content in (POINTER, b""):
        (tmp_path / name).write_bytes(content)
        refuse_broken_texts(tmp_path)


SHARDS = {
    "model.safetensors.index.json": "model-00001-of-00002.safetensors",
    "model.safetensors.index.fp16.json": "model.fp16-00001-of-00002.safetensors",
    "pytorch_model.bin.index.json": "pytorch_model-00001-of-00002.bin",
}


@pytest.mark.parametrize("index", SHARDS)
def test_shards_of_an_index_are_there_and_whole(tmp_path: Path, index: str) -> None:
    names = [SHARDS[index], SHARDS[index].replace("00001-", "00002-")]
    places = dict(zip(TENSORS, names, strict=True))
    (tmp_path / index).write_text(json.dumps({"weight_map": places}))
    for name in names:
        write(tmp_path / name)
    variant = choose_variant(tmp_path)
    assert variant == ("fp16" if "fp16" in index else "")
    assert files_of_weights(tmp_path, variant) == [tmp_path / name for name in names]
    refuse_broken_weights(tmp_path, variant)
    damage(tmp_path / names[1], "pointer")
    with pytest.raises(CheckpointError, match=names[1]):
        refuse_broken_weights(tmp_path, variant)
    (tmp_path / names[1]).unlink()
    with pytest.raises(CheckpointError, match=f"{names[1]} is missing"):
        refuse_broken_weights(tmp_path, variant)
    for broken in ("[]", "{", '{"weight_map": 7}'):
        (tmp_path / index).write_text(broken)
        with pytest.raises(CheckpointError, match=index):
            refuse_broken_weights(tmp_path, variant)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["model.safetensors", "model.fp16.safetensors"], ""),
        (["model.fp16.safetensors", "pytorch_model.bin"], ""),
        (["diffusion_pytorch_model.fp16.safetensors"], "fp16"),
        (["diffusion_pytorch_model.non_ema.bin"], "non_ema"),
        (["model.fp16.safetensors", "pytorch_model.fp16.bin"], "fp16"),
        (["consolidated.safetensors"], ""),
        ([], ""),
        (["model.bf16.safetensors", "pytorch_model.fp16.bin"], None),
    ],
)
def test_the_only_variant_is_read(
    tmp_path: Path, names: list[str], chosen: str | None
) -> None:
    for name in names:
        write(tmp_path / name)
    if chosen is None:
        with pytest.raises(CheckpointError, match="bf16, fp16"):
            choose_variant(tmp_path)
    else:
        assert choose_variant(tmp_path) == chosen


ADAPTED = [
    "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
    "unet.down_blocks.1.attentions.0.attn1.to_q.lora.up.weight",
    "unet.mid_block.attn1.processor.to_q_lora.down.weight",
    "lora_unet_down_blocks_0_attentions_0_to_q.lora_down.weight",
    "transformer.single_transformer_blocks.0.attn.to_k.lora_B.default.weight",
    "lycoris_layers_0_to_q.lokr_w1",
    "lora_te_text_model_encoder_layers_0_mlp_fc1.hada_w1_a",
]
OTHERS = [
    "model.diffusion_model.input_blocks.0.0.weight",
    "model.layers.0.self_attn.q_proj.weight",
    "floral.explora.weight",
]


@pytest.mark.parametrize("name", [*ADAPTED, *OTHERS])
def test_adapters_are_told_from_other_single_files(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / "style.safetensors", {name: torch.zeros(2, 2)})
    for place in (file, tmp_path):
        with pytest.raises(CheckpointError) as caught:
            refuse_unless_folder("M", place, "model_index.json")
        assert ("fuse_lora" in str(caught.value)) == (name in ADAPTED)
        assert ("from_single_file" in str(caught.value)) == (name in OTHERS)
    if name in ADAPTED:
        with pytest.raises(CheckpointError, match="adapter"):
            identity(str(file))
    else:
        assert identity(str(file)).startswith("file:")
        with pytest.raises(CheckpointError, match="one file"):
            identity(str(file), index="config.json")


def test_what_is_no_folder_of_a_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(40))
    (tmp_path / "notes.md").write_text("nothing")
    for model, words in {
        "m.gguf": "GGUF",
        "": "GGUF",
        "nowhere": "no such",
        "notes.md": "one file",
    }.items():
        with pytest.raises(CheckpointError, match=words):
            refuse_unless_folder(model, tmp_path / model, "config.json")
    with pytest.raises(CheckpointError, match="GGUF"):
        identity(str(tmp_path / "m.gguf"))
    (tmp_path / "config.json").write_text("{}")
    refuse_unless_folder("", tmp_path, "config.json")


@pytest.mark.parametrize("index", ["config.json", "model_index.json", None])
@pytest.mark.parametrize(
    "name", ["adapter_config.json", "pytorch_lora_weights.safetensors", "adapter_model.bin"]
)
def test_adapters_in_a_folder_are_refused(
    tmp_path: Path, name: str, index: str | None
) -> None:
    if index is not None:
        (tmp_path / index).write_text("{}")
    write(tmp_path / "model.safetensors")
    identity(str(tmp_path))
    (tmp_path / name).write_text(json.dumps({"base_model_name_or_path": "org/base"}))
    stored = Files(str(tmp_path)).refuse_adapter
    for refuse in (stored, lambda: identity(str(tmp_path))):
        with pytest.raises(CheckpointError, match=name) as caught:
            refuse()
        assert ("org/base" in str(caught.value)) == (name == "adapter_config.json")
        assert ("move" in str(caught.value)) == (index is not None)
    (tmp_path / name).rename(tmp_path / f"old-{name}")
    identity(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "files", "whole"),
    [
        (CLIPTokenizer, ["vocab.json", "merges.txt"], True),
        (CLIPTokenizer, ["vocab.json"], False),
        (CLIPTokenizer, ["tokenizer.json"], True),
        (GemmaTokenizer, ["tokenizer.json"], True),
        (GemmaTokenizer, ["tokenizer_config.json"], False),
        (ByT5Tokenizer, [], True),
    ],
)
def test_files_of_a_vocabulary(
    tmp_path: Path, kind: type, files: list[str], whole: bool
) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    if whole:
        refuse_without_vocabulary(tmp_path, kind)
    else:
        with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
            refuse_without_vocabulary(tmp_path, kind)


def test_a_tokenizer_without_words_is_refused(tmp_path: Path) -> None:
    for vocabulary in ({}, {"<unk>": 0}, {"<unk>": 0, "x": 1}):
        tokenizer = Tokenizer(BPE(vocabulary, [], unk_token="<unk>"))
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(CheckpointError, match=r"tokenizer\.json.*a red house"):
            read_tokenizer(tmp_path / "tokenizer.json")
