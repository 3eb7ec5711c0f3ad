"""Broken files of checkpoints: each error names the file, the value and the rule."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anole_helpers
import anole_upstream_helpers
import emu2_helpers
import gill_helpers
import minigpt5_helpers
import pytest
import torch

from generators.anole.draft import AnoleDraft
from generators.anole.render import AnoleRender
from generators.emu2.condition import Emu2Condition
from generators.emu2.draft import Emu2Draft
from generators.emu2.sizes import TINY_CHAT
from generators.errors import CheckpointError
from generators.gill.draft import GillDraft
from generators.loading.files import (
    Files,
    configured,
    count,
    divided,
    in_pickle,
    read_json,
    read_tokenizer,
    section,
    shape_of,
    stored_tensors,
)
from generators.loading.strict import fill, identical
from generators.minigpt5.draft import MiniGPT5Draft

pytestmark = pytest.mark.models

CPU = {"weights": "pretrained", "device": "cpu", "dtype": "float32"}
Change = Callable[[Path], None]


# What every loader is made of --------------------------------------------------------


def compressed(path: Path) -> None:
    """Write a file of `torch.save` again with every entry deflated."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def test_compressed_files_of_torch_are_read(tmp_path):
    path = tmp_path / "weights.pth"
    tensors = {"even": torch.arange(5000.0), "odd": torch.ones(40, 40)}
    torch.save(tensors, path)
    compressed(path)
    stored = in_pickle(path)
    assert all(torch.equal(stored[name], tensor) for name, tensor in tensors.items())
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CheckpointError, match=r"weights\.pth is broken"):
        in_pickle(path)


def test_a_tensor_that_is_none(tmp_path):
    stored = {"weight": [1.0, 2.0], "bias": torch.ones(2)}
    module = torch.nn.Linear(3, 2)
    told = {"source": "a file", "device": torch.device("cpu"), "dtype": torch.float32}
    with pytest.raises(CheckpointError, match="1 not a tensor: weight is a list"):
        fill(module, stored.items(), identical(stored), **told)
    with pytest.raises(CheckpointError, match="a file: weight is a list; it must be a te"):
        shape_of(stored, "weight", "a file")
    with pytest.raises(CheckpointError, match="a file lacks other"):
        shape_of(stored, "other", "a file")
    with pytest.raises(CheckpointError, match=r"bias has the shape \(2,\), not one of 3"):
        shape_of(stored, "bias", "a file", 3)
    assert shape_of(stored, "bias", "a file", 1) == (2,)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, r"index\.json lacks weight_map"),
        ({"weight_map": ["a"]}, r"index\.json: weight_map is \['a'\]; it must hold named"),
        ({"weight_map": {"a": 7}}, "weight_map names 7; it must name a file"),
        ({"weight_map": {"a": "b.bin"}}, r"has no file 'b\.bin'"),
    ],
)
def test_indices_of_shards(tmp_path, index, message):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=message):
        list(stored_tensors(Files(str(tmp_path))))


@pytest.mark.parametrize("value", [0, -3, "8", 2.5, True, None])
def test_counts(value):
    with pytest.raises(CheckpointError, match=r"a\.json: heads is .*; it must be a whole"):
        count({"heads": value}, "heads", "a.json")
    with pytest.raises(CheckpointError, match=r"a\.json lacks heads"):
        count({}, "heads", "a.json")
    assert count({"heads": 8}, "heads", "a.json") == 8


def test_values_below_a_name_and_whole_parts():
    assert section({"sizes": {"a": 1}}, "sizes", "a.json") == {"a": 1}
    with pytest.raises(CheckpointError, match=r"a\.json: sizes is 3; it must hold named"):
        section({"sizes": 3}, "sizes", "a.json")
    assert divided(12, 4, "heads is 4", "a.json") == 3
    with pytest.raises(CheckpointError, match=r"heads is 5, but 12 is not divisible by 5"):
        divided(12, 5, "heads is 5", "a.json")


def test_configurations_that_transformers_refuses():
    from transformers import LlamaConfig

    for fields, message in (
        ({"hidden_size": "wide"}, "a.json is not a valid LlamaConfig: .*hidden_size"),
        ({"num_attention_heads": 0}, "a.json is not a valid LlamaConfig: .*zero"),
        ({"num_attention_heads": 3}, "multiple of the number of attention heads"),
    ):
        with pytest.raises(CheckpointError, match=message):
            configured(LlamaConfig, fields, "a.json")
    assert configured(LlamaConfig, {"hidden_size": 64}, "a.json").hidden_size == 64


def test_json_that_holds_no_named_values(tmp_path):
    path = tmp_path / "config.json"
    for text, message in (("[1]", "holds a list; it must"), ('{"a"', "is not JSON")):
        path.write_text(text)
        with pytest.raises(CheckpointError, match=message):
            read_json(path)
    with pytest.raises(CheckpointError, match=r"config\.json is not a valid tokenizer"):
        read_tokenizer(path)


# The four models ---------------------------------------------------------------------


def edited(file: str, **values: Any) -> Change:
    """Set values of a JSON file; None takes one away."""

    def change(folder: Path) -> None:
        path = folder / file
        content = json.loads(path.read_text()) | values
        path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))

    return change


def cut(file: str) -> Change:
    """Take the second half of a file away."""

    def change(folder: Path) -> None:
        content = (folder / file).read_bytes()
        (folder / file).write_bytes(content[: len(content) // 2])

    return change


def rewritten(file: str, text: str, other: str) -> Change:
    def change(folder: Path) -> None:
        content = (folder / file).read_text()
        assert text in content
        (folder / file).write_text(content.replace(text, other))

    return change


def stored(file: str, name: str, value: Any, below: str = "") -> Change:
    """Put another value into a file of `torch.save`."""

    def change(folder: Path) -> None:
        content = torch.load(folder / file, weights_only=True)
        (content[below] if below else content)[name] = value
        torch.save(content, folder / file)

    return change


PARAMS = "models/7b/params.json"


def heads(value: Any) -> Change:
    def change(folder: Path) -> None:
        params = json.loads((folder / PARAMS).read_text())
        params["model"]["n_heads"] = value
        (folder / PARAMS).write_text(json.dumps(params))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (heads(None), rf"{PARAMS} of .*: n_heads is None; it must be a whole number"),
        (heads(5), "n_heads is 5, but 64 is not divisible by 5"),
        (edited(PARAMS, model=[]), r"params\.json: model is \[\]; it must hold named"),
        (cut("tokenizer/text_tokenizer.json"), r"text_tokenizer\.json is not a valid tok"),
        (rewritten("tokenizer/vqgan.yaml", "ch_mult", "ch"), r"vqgan\.yaml: "),
        (rewritten("tokenizer/vqgan.yaml", "ddconfig", "dd"), r"yaml lacks ddconfig"),
        (rewritten("tokenizer/vqgan.yaml", ":", ": ["), r"vqgan\.yaml is not YAML"),
        (
            rewritten("tokenizer/vqgan.yaml", '"n_embed": 128', '"n_embed": "x"'),
            "n_embed is 'x",
        ),
        (
            stored("models/7b/consolidated.pth", "norm.weight", 3.0),
            "1 not a tensor: norm.weight is a float",
        ),
        (
            stored("models/7b/consolidated.pth", "tok_embeddings.weight", 3.0),
            "tok_embeddings.weight is a float; it must be a tensor",
        ),
    ],
)
def test_anole_in_metas_layout(tmp_path, change, message):
    folder = anole_upstream_helpers.checkpoint(tmp_path / "meta")
    change(folder)
    with pytest.raises(CheckpointError, match=message):
        AnoleDraft(model=str(folder), **CPU)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut("tokenizer.json"), r"tokenizer\.json is not a valid tokenizer"),
        (edited("config.json", vocab_size=None), "lacks vocab_size"),
        (edited("config.json", vocab_size="many"), "vocab_size is 'many'; it must be"),
        (edited("config.json", vocab_size=200), "vocab_size is 200; it must be larger"),
        (edited("config.json", vq_config=[]), r"vq_config is \[\]; it must hold named"),
        (edited("config.json", hidden_size="x"), "not a valid ChameleonConfig: .*hidden"),
        (edited("model.safetensors.index.json", weight_map=None), "lacks weight_map"),
    ],
)
def test_anole_in_hugging_faces_layout(tmp_path, change, message):
    taming = anole_helpers.taming_tensors(anole_helpers.VQ)
    folder = anole_helpers.save_hf(tmp_path / "hf", anole_helpers.language(), taming)
    change(folder)
    with pytest.raises(CheckpointError, match=message):
        AnoleDraft(model=str(folder), **CPU)


def test_anoles_decoder_of_a_state_dict_with_a_number(tmp_path):
    folder = anole_upstream_helpers.checkpoint(tmp_path / "meta")
    stored("tokenizer/vqgan.ckpt", "quant_conv.bias", 1, "state_dict")(folder)
    with pytest.raises(CheckpointError, match=r"1 not a tensor: quant_conv\.bias is a int"):
        AnoleRender(weights="pretrained", model=str(folder), device="cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edited("config.json", vocab_size=None), "lacks vocab_size"),
        (edited("config.json", vocab_size="x"), "vocab_size is 'x'; it must be a whole"),
        (edited("config.json", num_attention_heads=5), "64 is not divisible by 5"),
        (edited("config.json", vision_config=7), "vision_config is 7|holds no Emu2"),
        (edited("added_tokens.json", **{"[PAD]": "x"}), r"id of '\[PAD\]' is 'x'; it must"),
        (cut("tokenizer.model"), r"tokenizer\.model"),
        (edited("pytorch_model.bin.index.json", weight_map=[1]), "must hold named values"),
        (
            stored("pytorch_model-00001-of-00003.bin", "model.visual.stray", None),
            "1 unexpected: model.visual.stray",
        ),
    ],
)
def test_emu2_chat(tmp_path, change, message):
    folder = chat(tmp_path / "chat")
    change(folder)
    with pytest.raises(CheckpointError, match=message):
        Emu2Draft(model=str(folder), **CPU)


def chat(folder: Path) -> Path:
    state = emu2_helpers.native_state(emu2_helpers.chat())
    return emu2_helpers.save_chat(folder, state, TINY_CHAT.vision, TINY_CHAT.language)


def test_emu2_chat_does_not_condition(tmp_path):
    message = r"the vocabulary has \[USER\], so it is Emu2-Chat; .* conditioning Emu2-Gen"
    with pytest.raises(CheckpointError, match=message):
        Emu2Condition(model=str(chat(tmp_path / "chat")), **CPU)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("language", cut("tokenizer.json"), r"tokenizer\.json is not a valid tokenizer"),
        ("language", edited("config.json", vocab_size=None), "lacks vocab_size"),
        ("language", edited("config.json", vocab_size="x"), "vocab_size is 'x'; it must"),
        ("language", edited("config.json", ffn_dim="x"), "not a valid OPTConfig: .*ffn"),
        ("vision", edited("config.json", vision_config=3), "vision_config is 3; it must"),
        ("model", edited("model_args.json", num_tokens="8"), "num_tokens is '8'; it must"),
        (
            "model",
            stored("pretrained_ckpt.pth.tar", "model.fc", 1, "state_dict"),
            "1 unexpected: model.fc",
        ),
        (
            "model",
            stored(
                "pretrained_ckpt.pth.tar", "model.visual_embeddings.bias", 1, "state_dict"
            ),
            "1 not a tensor: model.visual_embeddings.bias is a int",
        ),
        (
            "model",
            stored(
                "pretrained_ckpt.pth.tar", "model.input_embeddings.weight", 1, "state_dict"
            ),
            "model.input_embeddings.weight is a int; it must be a tensor",
        ),
    ],
)
def test_gill(tmp_path, part, change, message):
    places = gill_helpers.save(tmp_path)
    change(Path(places[part]))
    del places["diffusion"]
    with pytest.raises(CheckpointError, match=message):
        GillDraft(**places, **CPU)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("language", cut("tokenizer.model"), r"tokenizer\.model"),
        ("language", edited("config.json", hidden_size="x"), "not a valid LlamaConfig"),
        ("language", edited("pytorch_model.bin.index.json", weight_map=1), "weight_map is"),
        ("vision", stored("eva_vit_g.pth", "pos_embed", 1), "pos_embed is a int; it must"),
        (
            "vision",
            stored("eva_vit_g.pth", "blocks.0.attn.q_bias", 1),
            "blocks.0.attn.q_bias is a int; it must be a tensor",
        ),
        (
            "vision",
            stored("blip2_pretrained_flant5xxl.pth", "query_tokens", 1, "model"),
            "query_tokens is a int; it must be a tensor",
        ),
        (
            "model",
            stored("prerained_minigpt4_7b.pth", "llama_proj.bias", 1, "model"),
            "1 not a tensor: llama_proj.bias is a int",
        ),
    ],
)
def test_minigpt5(tmp_path, part, change, message):
    places = minigpt5_helpers.save_all(tmp_path)
    change(Path(places[part]))
    with pytest.raises(CheckpointError, match=message):
        MiniGPT5Draft(**places, **CPU)
