"""Strict loading: a checkpoint that does not fit is refused, with every difference."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
import transformers
from diffusion_helpers import (
    REQUESTS,
    TEXT_ENCODER,
    UNET,
    as_first_published,
    edit,
    from_folder,
    furthest,
    pixels,
    shared,
    tiny_pipeline,
)
from safetensors.torch import save_file

from plait.generators.diffusion import loading
from plait.generators.diffusion.loading import load_published
from plait.generators.diffusion.settings import DiffusionSettings
from plait.generators.errors import CheckpointError, UsageError

pytestmark = pytest.mark.models
Damage = Callable[[Path], Any]


@pytest.fixture
def checkpoint(copied):
    """A Stable Diffusion 1.5 to damage."""
    return copied("sd15")


def load(folder: Any, **settings: Any) -> Any:
    told = DiffusionSettings(model=str(folder), **settings)
    return load_published(told, torch.float32)


def refused(checkpoint: Path, message: str) -> str:
    with pytest.raises(CheckpointError, match=message) as caught:
        load(checkpoint)
    return str(caught.value)


def reindex(folder: Path, **changes: Any) -> None:
    path = folder / "model_index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def assert_draws(folder: Path, name: str) -> None:
    """What a checkpoint draws is what the tiny model that was saved to it draws."""
    drawn = pixels(from_folder(folder, name)(REQUESTS[:1]))
    assert furthest(drawn, pixels(shared(name)(REQUESTS[:1]))) <= 1


def test_names_of_the_first_published_checkpoints_fit(checkpoint):
    as_first_published(checkpoint)
    assert_draws(checkpoint, "openjourney")


def test_a_language_model_stored_with_its_output_layer_fits(copied):
    """Z-Image's Qwen3Model is published as a Qwen3ForCausalLM: `model.` before each key."""
    folder = copied("z-image")

    def prefix(tensors):
        for key in list(tensors):
            tensors[f"model.{key}"] = tensors.pop(key)

    edit(folder / TEXT_ENCODER, prefix)
    assert_draws(folder, "z-image-turbo")


@pytest.mark.parametrize(
    ("name", "published"),
    [("flux2-klein", "Qwen2TokenizerFast"), ("sana", "GemmaTokenizerFast")],
)
def test_tokenizers_under_their_published_names(name, published, copied):
    folder = copied(name)
    reindex(folder, tokenizer=["transformers", published])
    tokenizer, words = load(folder).tokenizer, "a red house"
    assert tokenizer(words) == tiny_pipeline(name).tokenizer(words)


@pytest.mark.parametrize("name", ["LLaDA2Pipeline", "DiffusionGemmaPipeline"])
def test_pipelines_that_draw_nothing_are_refused_before_their_weights_are_read(
    name, tmp_path
):
    assert hasattr(diffusers, name)
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": name}))
    assert "flux2-klein" in refused(tmp_path, f"{name}, which writes text")


def test_all_that_does_not_fit_is_named_at_once(checkpoint):
    edit(checkpoint / UNET, lambda t: t.pop("conv_in.bias"))
    edit(checkpoint / UNET, lambda t: t.update({"conv_out.weight": torch.zeros(3, 2)}))
    edit(checkpoint / TEXT_ENCODER, lambda t: t.pop("final_layer_norm.weight"))
    edit(checkpoint / TEXT_ENCODER, lambda t: t.update({"left.over": torch.zeros(1)}))
    message = refused(checkpoint, "does not fit")
    assert "unet: missing conv_in.bias" in message
    assert "unet: mis-shaped conv_out.weight ((3, 2) instead of (4, 16, 3, 3))" in message
    assert "text_encoder: missing final_layer_norm.weight" in message
    assert "text_encoder: unexpected left.over" in message


def lost(file: str) -> Damage:
    return lambda folder: (folder / file).unlink()


def lost_folders(*names: str) -> Damage:
    return lambda folder: [shutil.rmtree(folder / name) for name in names]


def indexed(**changes: Any) -> Damage:
    return lambda folder: reindex(folder, **changes)


def truncated(file: str, kept: float) -> Damage:
    def cut(folder: Path) -> None:
        data = (folder / file).read_bytes()
        (folder / file).write_bytes(data[: int(len(data) * kept)])

    return cut


def pointed(file: str) -> Damage:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:a\nsize 9\n"
    return lambda folder: (folder / file).write_text(pointer)


def without_words(folder: Path) -> None:
    file = folder / "tokenizer/tokenizer.json"
    file.unlink()
    vocabulary = {"<|startoftext|>": 0, "<|endoftext|>": 1}
    (file.parent / "vocab.json").write_text(json.dumps(vocabulary))
    (file.parent / "merges.txt").write_text("#version: 0.2\n")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        *((truncated(UNET, kept), UNET) for kept in (0.0, 0.5, 0.999)),
        (truncated(TEXT_ENCODER, 0.5), TEXT_ENCODER),
        (lost(UNET), "'unet'"),
        (lost("unet/config.json"), "'unet'.*config.json"),
        (lost("tokenizer/tokenizer.json"), "tokenizer.json"),
        (without_words, "tokenizer"),
        (pointed(UNET), f"{UNET} is a Git LFS pointer"),
        (pointed("tokenizer/tokenizer.json"), "tokenizer.json is a Git LFS pointer"),
        (lost("scheduler/scheduler_config.json"), "scheduler_config.json"),
        (lost("model_index.json"), "model_index.json"),
        (lost_folders("vae", "scheduler"), r"(?!.*unet)(?=.*scheduler).*vae"),
        (indexed(unet=["os", "PathLike"]), r"os\.PathLike"),
        (indexed(unet=["my_code", "Net"]), r"my_code\.Net"),
        (indexed(_class_name="StableVideoDiffusionPipeline"), "StableVideo"),
    ],
)
def test_damage_is_named_and_only_known_classes_are_loaded(checkpoint, damage, named):
    (checkpoint / "my_code.py").write_text("raise SystemExit('ran')")
    damage(checkpoint)
    refused(checkpoint, named)


def test_pickled_weights_run_no_code(checkpoint):
    class TouchesWhenLoaded:
        def __reduce__(self):
            return (Path.touch, (checkpoint / "ran",))

    (checkpoint / UNET).unlink()
    stored = {"conv_in.weight": TouchesWhenLoaded()}
    torch.save(stored, checkpoint / "unet/diffusion_pytorch_model.bin")
    refused(checkpoint, "'unet'")
    assert not (checkpoint / "ran").exists()


def test_variant_is_read_where_a_component_has_it(checkpoint):
    edit(checkpoint / UNET, lambda t: t["conv_in.bias"].fill_(7.0))
    half = checkpoint / UNET.replace(".safetensors", ".fp16.safetensors")
    shutil.copy(checkpoint / UNET, half)
    edit(half, lambda t: t["conv_in.bias"].fill_(8.0))
    for variant, expected in (("fp16", 8.0), ("", 7.0), (None, 7.0)):
        read = load(checkpoint, variant=variant)
        assert read.unet.conv_in.bias.unique().item() == expected
    with pytest.raises(CheckpointError, match="'bf16'"):
        load(checkpoint, variant="bf16")


def only_half(folder: Path, *files: str) -> None:
    for file in files:
        (folder / file).rename(folder / file.replace(".safetensors", ".fp16.safetensors"))


def test_the_only_variant_is_read_and_noted(checkpoint):
    only_half(checkpoint, UNET, TEXT_ENCODER)
    assert_draws(checkpoint, "openjourney")
    (drawn,) = from_folder(checkpoint, "openjourney")(REQUESTS[:1])
    assert drawn.notes["variants"] == {"unet": "fp16", "text_encoder": "fp16"}
    assert load(checkpoint, variant="fp16").taken_variants == {}
    with pytest.raises(CheckpointError, match=r"text_encoder.*variant"):
        load(checkpoint, variant="")
    half = checkpoint / UNET.replace(".safetensors", ".fp16.safetensors")
    shutil.copy(half, checkpoint / UNET.replace(".safetensors", ".bf16.safetensors"))
    refused(checkpoint, "bf16, fp16")
    shutil.copy(half, checkpoint / UNET)
    assert load(checkpoint).taken_variants == {"text_encoder": "fp16"}


def test_classes_that_checkpoints_of_2022_name(checkpoint):
    reindex(checkpoint, feature_extractor=["transformers", "CLIPFeatureExtractor"])
    file = checkpoint / "feature_extractor/preprocessor_config.json"
    side = json.loads(file.read_text())["crop_size"]["height"]
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": side}
    file.write_text(json.dumps({**old, "crop_size": side, "do_resize": True}))
    read = load(checkpoint).feature_extractor
    assert isinstance(read, transformers.CLIPImageProcessor)
    assert dict(read.crop_size) == {"height": side, "width": side}
    assert_draws(checkpoint, "openjourney")


def test_single_files_and_adapters_are_told(checkpoint):
    shutil.copy(checkpoint / UNET, checkpoint.parent / "single.safetensors")
    refused(checkpoint.parent / "single.safetensors", "one file.*from_single_file")
    adapter = {"unet.mid.to_q.lora_A.weight": torch.zeros(2, 2)}
    save_file(adapter, checkpoint.parent / "style.safetensors")
    refused(checkpoint.parent / "style.safetensors", "an adapter.*fuse_lora")
    for place in ("", "text_encoder"):
        file = checkpoint / place / "pytorch_lora_weights.safetensors"
        save_file(adapter, file)
        refused(checkpoint, "holds an adapter.*fuse_lora")
        file.unlink()


def quantise(folder: Path, method: str) -> None:
    path = folder / "unet/config.json"
    told = {"quantization_config": {"quant_method": method, "load_in_4bit": True}}
    path.write_text(json.dumps(json.loads(path.read_text()) | told))


def test_quantised_weights_that_cannot_be_used_are_named(checkpoint, monkeypatch):
    quantise(checkpoint, "svdquant")
    assert "'unet'" in refused(checkpoint, "Nunchaku.*GGUF")
    quantise(checkpoint, "bitsandbytes")
    monkeypatch.setattr("plait.generators.extras.is_installed", lambda module: False)
    with pytest.raises(UsageError, match=r"'unet'.*plait\[quantization\]"):
        load(checkpoint)
    monkeypatch.setattr(loading, "import_extra", lambda *_: None)
    refused(checkpoint, "'unet'.*bitsandbytes.*GPU.*GGUF")


def test_packed_weights_are_compared_by_what_packed_them(checkpoint, monkeypatch):
    """Their shapes are others than those of the model: they would be left out."""
    compared = {}

    class Stop(Exception):
        pass

    def read(*_: Any, ignore_mismatched_sizes: bool, **named: Any) -> Any:
        compared[named["subfolder"]] = not ignore_mismatched_sizes
        if named["subfolder"] == "unet":
            raise Stop
        return torch.nn.Linear(1, 1), {}

    for kind in (diffusers.UNet2DConditionModel, diffusers.AutoencoderKL):
        monkeypatch.setattr(kind, "from_pretrained", read)
    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", read)
    monkeypatch.setattr(loading, "import_extra", lambda *_: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    quantise(checkpoint, "bitsandbytes")
    with pytest.raises(Stop):
        load(checkpoint)
    assert compared.pop("unet")
    assert not any(compared.values())


def test_low_precision_draws_what_diffusers_draws(saved):
    folder, (request,) = saved("sdxl-turbo"), REQUESTS[:1]
    drawn = pixels(from_folder(folder, "sdxl-turbo", dtype="float16")([request]))
    theirs = diffusers.StableDiffusionXLPipeline.from_pretrained(
        folder, dtype=torch.float16
    )
    image = theirs(
        [request.prompt],
        num_inference_steps=1,
        guidance_scale=0.0,
        height=64,
        width=64,
        generator=[torch.Generator().manual_seed(request.seed)],
    ).images[0]
    assert furthest(drawn[0], np.asarray(image)) == 0


def test_safety_checker_off_needs_no_checker_on_disk(checkpoint):
    shutil.rmtree(checkpoint / "safety_checker")
    read = load(checkpoint, safety_checker="off")
    assert read.safety_checker is None
    refused(checkpoint, "safety_checker")


def test_libraries_speak_again_afterwards(saved):
    speaking = diffusers.utils.logging
    level = speaking.get_verbosity()
    from_folder(saved("sd15"), "openjourney")(REQUESTS[:1])
    assert speaking.get_verbosity() == level
    assert speaking.is_progress_bar_enabled()


def test_repository_that_is_not_here_is_named(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="'no-one/no-model'"):
        load("no-one/no-model")
