"""The three kinds of weights of a vision-language model."""

import json
import shutil

import pytest
import torch
from endpoint_helpers import says
from safetensors.torch import load_file, save_file
from vlm_helpers import checkpoint, loaded, shared

from plait.generators.architectures import config_of, random_weights
from plait.generators.architectures.random_weights import WORDS
from plait.generators.errors import CheckpointError
from plait.generators.mini.table import SHIPPED
from plait.pipelines.chat.settings import ChatSettings
from plait.pipelines.presets import lvlm
from plait.pipelines.vlm.stage import VisionLanguageModel, device_map_of

pytestmark = pytest.mark.models

HELLO = [says("hello")]


def stage(settings: ChatSettings, weights) -> VisionLanguageModel:
    """As the engine builds it."""
    spec = settings.spec("x", weights)
    return VisionLanguageModel(**spec.settings, **spec.options)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(checkpoint("qwen2"), tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("name", "saved"), [("qwen2-vl-72b", "qwen2"), ("llava-34b", "llava")]
)
def test_a_checkpoint_loaded_by_path_answers_as_what_was_saved(name, saved):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    tiny = stage(lvlm(name), "tiny")(HELLO)
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"
    assert loaded(saved, max_new_tokens=48)(HELLO) == tiny
    other = lvlm(name).model_copy(update={"model": "org/other"})
    assert stage(other, "tiny")(HELLO) != tiny, "seeded by the model's name"
    words = tiny[0].value.text.split()
    assert set(words) <= set(WORDS)
    assert len(set(words)) > 20
    assert tiny[0].usage["output_tokens"] <= 48


def test_all_that_does_not_fit_is_named_in_one_error(folder):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    attention = next(n for n in sorted(tensors) if n.endswith("self_attn.q_proj.weight"))
    tensors.pop("lm_head.weight")
    tensors["visual.extra.weight"] = torch.zeros(2)
    tensors[attention] = torch.zeros(3, 5)
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError) as caught:
        loaded(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "missing: 1 (lm_head.weight)" in message
    assert "visual.extra.weight); mis-shaped: 1 (" in message
    assert "q_proj.weight (3, 5), not (64, 64)" in message


def sharded(folder):
    """Save the weights again, in two files, and return the second."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, places = sorted(tensors), {}
    for number in (1, 2):
        shard = f"model-0000{number}-of-00002.safetensors"
        own = names[number - 1 :: 2]
        save_file({n: tensors[n] for n in own}, folder / shard, {"format": "pt"})
        places |= dict.fromkeys(own, shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder / shard


def test_broken_and_missing_files_are_named(folder):
    shard = sharded(folder)
    whole = shard.read_bytes()
    assert loaded(folder)(HELLO) == shared("qwen2")(HELLO)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n"
    for content in (pointer, b"", whole[: len(whole) // 2], whole[:-9]):
        shard.write_bytes(content)
        with pytest.raises(CheckpointError, match=shard.name):
            loaded(folder)
    shard.unlink()
    with pytest.raises(CheckpointError, match=shard.name):
        loaded(folder)
    shard.write_bytes(whole)
    (folder / "tokenizer.json").write_bytes(pointer)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is a Git LFS pointer"):
        loaded(folder)


def test_only_half_precision_files_are_read(folder):
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")
    assert loaded(folder)(HELLO) == shared("qwen2")(HELLO)


@pytest.mark.parametrize("also", ["tokenizer_config.json", "config.json", None])
def test_a_folder_without_its_vocabulary_is_refused(folder, also):
    """Without the tokenizer's configuration transformers makes an empty one."""
    (folder / "tokenizer.json").unlink()
    if also is not None:
        (folder / also).unlink()
    words = "config.json" if also == "config.json" else "vocabulary"
    with pytest.raises(CheckpointError, match=words):
        loaded(folder)


def test_a_vocabulary_of_another_model_is_refused(folder):
    shutil.copy(SHIPPED / "qwen2-vl" / "tokenizer.json", folder)
    file = folder / "tokenizer.json"
    stored = json.loads(file.read_text())
    words = stored["model"]["vocab"]
    words |= {f"word{i}": len(words) + 9 + i for i in range(2000)}
    file.write_text(json.dumps(stored))
    with pytest.raises(CheckpointError, match="of another model"):
        loaded(folder)


def test_adapters_and_single_files_are_told(folder):
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.copy(folder / "config.json", folder / name)
        with pytest.raises(CheckpointError, match=f"holds an adapter.*{name}.*move"):
            loaded(folder)
        (folder / name).unlink()
    with pytest.raises(CheckpointError, match="one file"):
        loaded(folder / "model.safetensors")
    shutil.copy(folder / "config.json", folder / "adapter_config.json")
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match="merge_and_unload"):
        loaded(folder)


def test_sampling_defaults_of_the_checkpoint_do_not_leak_and_its_template_is_needed(folder):
    file = folder / "generation_config.json"
    leaky = {"do_sample": True, "temperature": 9.0, "repetition_penalty": 3.0}
    leaky |= json.loads(file.read_text()) | {"no_repeat_ngram_size": 1}
    file.write_text(json.dumps(leaky))
    assert loaded(folder)(HELLO) == shared("qwen2")(HELLO)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(CheckpointError, match="chat template"):
        loaded(folder)


@pytest.mark.parametrize(
    ("name", "billions", "ids"),
    [
        ("qwen2-vl-72b", 73.40556, {"<|im_end|>": 151645, "<|image_pad|>": 151655}),
        ("qwen2-vl-7b", 8.29138, {"<|im_end|>": 151645, "<|video_pad|>": 151656}),
        ("llava-34b", 34.75208, {"<image>": 64000}),
        ("qwen2.5-vl-7b", 8.292167, {"<|im_end|>": 151645, "<|image_pad|>": 151655}),
        ("qwen2.5-vl-72b", 73.410777, {"<|im_end|>": 151645, "<|image_pad|>": 151655}),
        ("qwen3-vl-8b", 8.767124, {"<|im_end|>": 151645, "<|image_pad|>": 151655}),
        ("qwen3-vl-32b", 33.357390, {"<|im_end|>": 151645, "<|image_pad|>": 151655}),
        ("gemma-3-27b", 27.432407, {"<start_of_image>": 255999}),
    ],
)
def test_dummy_models_have_the_published_size_and_ids(name, billions, ids):
    """Counts of the Hub's safetensors indices, as 73.4B, 8.29B and 34.8B parameters."""
    files = config_of(random_weights.PUBLISHED[lvlm(name).model], tiny=False)
    own = random_weights.processor_of(files).tokenizer
    config = random_weights.configuration_of(files, own)
    with torch.device("meta"):
        model = random_weights.model_class_of(files)(config)
    count = sum(p.numel() for p in model.parameters())
    assert count / 1e9 == pytest.approx(billions, abs=1e-5)
    assert lvlm(name).params_b == pytest.approx(billions, rel=1e-3)
    assert {token: own.convert_tokens_to_ids(token) for token in ids} == ids
    assert len(own) <= config.get_text_config().vocab_size
    if "<|image_pad|>" in ids or "<image>" in ids:
        assert config.image_token_id in ids.values()


@pytest.mark.parametrize("name", ["qwen2-vl-7b", "llava-34b"])
def test_dummy_weights_fill_the_whole_model(name, monkeypatch):
    """The real road to dummy weights, with a configuration small enough for a test."""
    small = config_of(random_weights.PUBLISHED[lvlm(name).model], tiny=True)
    del small["config"]["text_config"]["initializer_range"]
    small["tokenizer"]["first_special"] = 2000
    monkeypatch.setattr(random_weights, "config_of", lambda name, tiny: small)
    settings = lvlm(name).model_copy(update={"max_new_tokens": 12})
    with pytest.raises(ValueError, match=f"org/name.*{lvlm(name).model}"):
        stage(settings.model_copy(update={"model": "org/name"}), "dummy")
    built = stage(settings, "dummy")
    model = built._model
    for weight in model.parameters():
        assert weight.dtype is torch.bfloat16
        assert not weight.is_meta
        assert torch.isfinite(weight).all()
    assert model.lm_head.weight.float().std().item() == pytest.approx(0.02, rel=0.1)
    ours, theirs = (dict(m.named_buffers()) for m in (model, type(model)(model.config)))
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
    own = ChatSettings(model="m", **options)
    assert device_map_of(own.device, own.device_map == "auto") == where
