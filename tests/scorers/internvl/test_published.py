"""Published checkpoints: strict, and clear about what does not fit."""

from __future__ import annotations

import pytest
import torch
from internvl_helpers import Tensors, config, save, shapes

from plait.generators.architectures import read_config as stored_config
from plait.generators.errors import CheckpointError
from plait.generators.loading.strict import empty_model
from plait.scorers.internvl.config import layout_of, model_config, separate
from plait.scorers.internvl.models import KIND
from plait.scorers.internvl.stage import MmieScore

pytestmark = pytest.mark.models

models = pytest.mark.models


def load(folder, **described) -> MmieScore:
    return MmieScore(model=str(folder), device="cpu", dtype="float32", **described)


@models
def test_layout_names_exactly_the_stored_tensors():
    described = stored_config("internvl2-4b")
    stored = {n: torch.empty(s, device="meta") for n, s in shapes(described).items()}
    names = {name for name, _ in separate(stored.items())}
    model = empty_model(KIND, model_config(described, "full"))
    layout = layout_of(model.state_dict())
    assert set(layout) == names
    assert len(names) == len(stored) + 2 * 2 * 24


@models
def test_every_tensor_reaches_its_place(tmp_path):
    remaining: Tensors = {}
    stage = load(save(tmp_path, lambda tensors, _: remaining.update(tensors)))
    state = stage.judge.model.state_dict()
    for name, value in separate(remaining.items()):
        place = layout_of(state)[name].name
        assert torch.equal(state.pop(place), value), name
    assert not state
    whole = remaining["vision_model.encoder.layers.1.attn.qkv.weight"]
    attention = stage.judge.model.model.vision_tower.encoder.layer[1].attention
    assert torch.equal(attention.k_proj.weight, whole[32:64])


def drop(name):
    return lambda tensors, config: tensors.pop(name)


def put(name, *shape):
    return lambda tensors, config: tensors.update({name: torch.zeros(shape)})


def tell(*path, value=None):
    """Change a value of the configuration, or leave it out."""

    def change(tensors, config):
        for part in path[:-1]:
            config = config[part]
        del config[path[-1]]
        if value is not None:
            config[path[-1]] = value

    return change


LAYER = "vision_model.encoder.layers.0"
LAST_SHARD = "model-00002-of-00002.safetensors"


@models
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("mlp1.3.weight"), r"1 missing: mlp1\.3\.weight"),
        (drop(f"{LAYER}.attn.qkv.bias"), r"3 missing: .*qkv\.bias\[k\]"),
        (drop("language_model.lm_head.weight"), "missing: language_model.lm_head.weight"),
        (put("vision_model.head.weight", 3), "1 unexpected: vision_model.head.weight"),
        (put(f"{LAYER}.ls1", 31), r"ls1 \(31,\), not \(32,\)"),
        (put(f"{LAYER}.attn.qkv.weight", 90, 32), r"qkv\.weight\[q\] \(30, 32\), not"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        load(save(tmp_path, change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (tell("template", value="internlm2-chat"), "template is 'internlm2-chat'"),
        (tell("ps_version", value="v1"), "ps_version is 'v1'"),
        (tell("select_layer", value=-4), "select_layer is -4"),
        (tell("use_llm_lora", value=16), "merge them into the weights first"),
        (
            tell("llm_config", "architectures", value=["Qwen2ForCausalLM"]),
            r"llm_config\.architectures is \['Qwen2ForCausalLM'\]",
        ),
        (tell("llm_config", "sliding_window", value=100), "sliding_window 100 is shorter"),
        (tell("llm_config", "rope_scaling", "type", value="yarn"), "type 'yarn'"),
        (
            tell("llm_config", "rope_scaling", "long_factor", value=[1.0]),
            "config.json of toy is invalid: .*long_factor",
        ),
        (tell("vision_config", "hidden_act", value=7), "config.json of toy is invalid"),
        (tell("llm_config", "hidden_size"), "lacks llm_config.hidden_size"),
        (tell("vision_config"), "lacks vision_config"),
    ],
)
def test_configurations_that_do_not_fit_are_named(change, message):
    about = config(64)
    change({}, about)
    with pytest.raises(CheckpointError, match=message):
        model_config(about, "toy")


@models
def test_missing_and_truncated_files_are_named(tmp_path):
    save(tmp_path)
    for name in ("config.json", "tokenizer_config.json", "tokenizer.model", LAST_SHARD):
        file = tmp_path / name
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
        with pytest.raises(CheckpointError, match=name):
            load(tmp_path)
        file.unlink()
        with pytest.raises(CheckpointError, match=f"no file '{name}'"):
            load(tmp_path)
        file.write_bytes(data)
