"""The three kinds of weights of a vision-language model."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from vlm_helpers import save_tiny

from generators.document import Request, Text, Turn
from generators.errors import CheckpointError
from pipelines.chat.settings import ChatSettings
from pipelines.presets import LVLMS
from pipelines.vlm import random_weights
from pipelines.vlm.random_weights import WORDS
from pipelines.vlm.stage import VisionLanguageModel, _device_map

pytestmark = pytest.mark.models

HELLO = [Request((Turn("user", (Text("hello"),)),))]


def stage(settings: ChatSettings, weights) -> VisionLanguageModel:
    """As the engine builds it."""
    spec = settings.spec("x", weights)
    return VisionLanguageModel(**spec.settings, **spec.options)


@pytest.fixture
def folder(tmp_path):
    return save_tiny(tmp_path / "checkpoint")


@pytest.mark.parametrize("name", ["qwen2-vl-72b", "qwen2-vl-7b", "llava-34b"])
def test_a_checkpoint_loaded_by_path_answers_as_what_was_saved(name, tmp_path):
    own = ChatSettings(
        model=str(save_tiny(tmp_path / name, name)), dtype="float32", max_new_tokens=48
    )
    assert stage(own, "pretrained")(HELLO) == stage(LVLMS[name], "tiny")(HELLO)


def test_tiny_weights_are_the_same_each_time_and_differ_by_name():
    answers = [stage(LVLMS["qwen2-vl-7b"], "tiny")(HELLO) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0] != stage(LVLMS["qwen2-vl-72b"], "tiny")(HELLO)


def test_building_tiny_weights_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    stage(LVLMS["qwen2-vl-7b"], "tiny")
    assert torch.equal(torch.get_rng_state(), before)


def test_tiny_weights_write_words():
    (result,) = stage(LVLMS["llava-34b"], "tiny")(HELLO)
    words = result.value.text.split()
    assert set(words) <= set(WORDS)
    assert len(set(words)) > 20
    assert result.usage["output_tokens"] <= 48


def damaged(folder, change):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def test_all_that_does_not_fit_is_named_in_one_error(folder):
    def change(tensors):
        names = sorted(tensors)
        self_attention = next(n for n in names if n.endswith("self_attn.q_proj.weight"))
        tensors.pop("lm_head.weight")
        tensors["visual.extra.weight"] = torch.zeros(2)
        tensors[self_attention] = torch.zeros(3, 5)

    damaged(folder, change)
    with pytest.raises(CheckpointError) as caught:
        stage(ChatSettings(model=str(folder), dtype="float32"), "pretrained")
    message = str(caught.value)
    assert str(folder) in message
    assert "missing: 1 (lm_head.weight)" in message
    assert "visual.extra.weight); mis-shaped: 1 (" in message
    assert "q_proj.weight (3, 5), not (64, 64)" in message


def test_a_checkpoint_without_a_template_is_refused(folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match="has no chat template"):
        stage(ChatSettings(model=str(folder)), "pretrained")


def test_sampling_defaults_of_the_checkpoint_do_not_leak(folder):
    settings = ChatSettings(model=str(folder), dtype="float32", max_new_tokens=24)
    before = stage(settings, "pretrained")(HELLO)
    file = folder / "generation_config.json"
    published = json.loads(file.read_text())
    leaky = {"do_sample": True, "temperature": 9.0, "repetition_penalty": 3.0}
    file.write_text(json.dumps(published | leaky | {"no_repeat_ngram_size": 1}))
    assert stage(settings, "pretrained")(HELLO) == before


@pytest.mark.parametrize(
    ("name", "billions", "ids"),
    [
        ("qwen2-vl-72b", 73.40556, {"<|im_end|>": 151645, "<|image_pad|>": 151655}),
        ("qwen2-vl-7b", 8.29138, {"<|im_end|>": 151645, "<|video_pad|>": 151656}),
        ("llava-34b", 34.75208, {"<image>": 64000}),
    ],
)
def test_dummy_models_have_the_published_size_and_ids(name, billions, ids):
    """Counts of the Hub's safetensors indices: 73.4B, 8.29B and 34.8B parameters."""
    recipe = random_weights.RECIPES[LVLMS[name].model]
    own = recipe.tokenizer(tiny=False)
    config = recipe.full_config(own)
    with torch.device("meta"):
        model = recipe.model_class(config)
    count = sum(p.numel() for p in model.parameters())
    assert count / 1e9 == pytest.approx(billions, abs=1e-5)
    assert LVLMS[name].params_b == pytest.approx(billions, rel=1e-3)
    assert {token: own.convert_tokens_to_ids(token) for token in ids} == ids
    assert len(own) <= config.get_text_config().vocab_size
    assert config.image_token_id in ids.values() or name == "qwen2-vl-7b"


@pytest.mark.parametrize("name", ["qwen2-vl-7b", "llava-34b"])
def test_dummy_weights_fill_the_whole_model(name, monkeypatch):
    """The real road to dummy weights, with a configuration small enough for a test."""
    recipe = random_weights.RECIPES[LVLMS[name].model]

    def small(own):
        config = recipe.tiny_config(own)
        config.get_text_config().vocab_size = len(own)
        return config

    small_recipe = replace(recipe, full_config=small, first_special=2000)
    monkeypatch.setitem(random_weights.RECIPES, LVLMS[name].model, small_recipe)
    settings = LVLMS[name].model_copy(update={"max_new_tokens": 12})
    built = stage(settings, "dummy")
    model = built._model
    reference = recipe.model_class(model.config)
    for weight in model.parameters():
        assert weight.dtype is torch.bfloat16
        assert not weight.is_meta
        assert torch.isfinite(weight).all()
    assert model.lm_head.weight.float().std().item() == pytest.approx(0.02, rel=0.1)
    ours, theirs = dict(model.named_buffers()), dict(reference.named_buffers())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)
    (result,) = built(HELLO)
    assert result.usage["output_tokens"] == 12
    assert result.value.text


@pytest.mark.parametrize(
    ("gpus", "options", "where"),
    [
        (0, {}, {"": "cpu"}),
        (1, {}, {"": "cuda"}),
        (2, {}, "auto"),
        (2, {"device_map": "none"}, {"": "cuda"}),
        (2, {"device": "cuda:1"}, {"": "cuda:1"}),
        (2, {"device": "cpu"}, {"": "cpu"}),
    ],
)
def test_several_gpus_share_a_model(gpus, options, where, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert _device_map(ChatSettings(model="m", **options)) == where


def test_dummy_weights_need_a_known_architecture():
    with pytest.raises(ValueError, match=r"org/name.*Qwen/Qwen2-VL-72B-Instruct"):
        stage(ChatSettings(model="org/name"), "dummy")
