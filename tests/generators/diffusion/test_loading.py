"""Strict loading: a checkpoint that does not fit is refused, with every difference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import diffusers
import numpy as np
import pytest
import torch
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
from safetensors.torch import load_file

from generators.diffusion.loading import load_published
from generators.errors import CheckpointError

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sd15")
    tiny_pipeline("sd15").save_pretrained(folder)
    return folder


@pytest.fixture
def checkpoint(saved, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(saved, tmp_path / "checkpoint"))


def refused(checkpoint: Path, message: str) -> str:
    with pytest.raises(CheckpointError, match=message) as caught:
        load_published(str(checkpoint), None, torch.float32)
    return str(caught.value)


def test_every_tensor_arrives(checkpoint):
    theirs = tiny_pipeline("sd15").components
    for name, module in load_published(
        str(checkpoint), None, torch.float32
    ).components.items():
        if isinstance(module, torch.nn.Module):
            assert not module.training
            for key, value in theirs[name].state_dict().items():
                assert torch.equal(module.state_dict()[key], value), (name, key)


def test_names_of_the_first_published_checkpoints_fit(checkpoint):
    as_first_published(checkpoint)
    assert "text_model.embeddings.position_ids" in load_file(checkpoint / TEXT_ENCODER)
    drawn = from_folder(checkpoint, "openjourney")(REQUESTS[:2])
    assert furthest(pixels(drawn), pixels(shared("openjourney")(REQUESTS[:2]))) <= 1


def test_language_model_stored_with_its_output_layer_fits(tmp_path):
    """Z-Image's Qwen3Model is published as a Qwen3ForCausalLM: `model.` before each key."""
    tiny_pipeline("z-image").save_pretrained(tmp_path)

    def prefixed(tensors):
        for key in list(tensors):
            tensors[f"model.{key}"] = tensors.pop(key)

    edit(tmp_path / TEXT_ENCODER, prefixed)
    assert "model.norm.weight" in load_file(tmp_path / TEXT_ENCODER)
    drawn = from_folder(tmp_path, "z-image-turbo")(REQUESTS[:2])
    assert furthest(pixels(drawn), pixels(shared("z-image-turbo")(REQUESTS[:2]))) <= 1


def test_names_of_qwen_images_first_tensors_fit(tmp_path):
    """Its text encoder was published with the names of transformers 4.50."""
    tiny_pipeline("qwen-image").save_pretrained(tmp_path)

    def earlier(tensors):
        for key in [k for k in tensors if k.startswith("model.")]:
            renamed = key.replace("model.language_model.", "model.")
            tensors[renamed.replace("model.visual.", "visual.")] = tensors.pop(key)

    edit(tmp_path / TEXT_ENCODER, earlier)
    stored = load_file(tmp_path / TEXT_ENCODER)
    assert {"model.norm.weight", "visual.patch_embed.proj.weight"} <= stored.keys()
    drawn = from_folder(tmp_path, "qwen-image")(REQUESTS[:1])
    assert furthest(pixels(drawn), pixels(shared("qwen-image")(REQUESTS[:1]))) <= 1


@pytest.mark.parametrize(
    ("name", "kind", "published"),
    [
        ("flux2-klein", "Qwen2Tokenizer", "Qwen2TokenizerFast"),
        ("sana", "GemmaTokenizer", "GemmaTokenizerFast"),
    ],
)
def test_tokenizers_under_their_published_names(name, kind, published, tmp_path):
    tiny_pipeline(name).save_pretrained(tmp_path)
    path = tmp_path / "model_index.json"
    index = json.loads(path.read_text())
    assert index["tokenizer"] == ["transformers", kind]
    path.write_text(json.dumps(index | {"tokenizer": ["transformers", published]}))
    drawn = from_folder(tmp_path, name)(REQUESTS[:1])
    assert furthest(pixels(drawn), pixels(shared(name)(REQUESTS[:1]))) <= 1


def test_classes_that_no_auto_pipeline_lists_are_loaded(tmp_path, monkeypatch):
    """As a stand-in for Kandinsky 5: a class of that name with Stable Diffusion's parts."""
    kind = type("Kandinsky5T2IPipeline", (diffusers.StableDiffusionPipeline,), {})
    monkeypatch.setattr(diffusers, "Kandinsky5T2IPipeline", kind)
    tiny_pipeline("sd15").save_pretrained(tmp_path)
    path = tmp_path / "model_index.json"
    index = json.loads(path.read_text()) | {"_class_name": "Kandinsky5T2IPipeline"}
    path.write_text(json.dumps(index))
    assert type(load_published(str(tmp_path), None, torch.float32)) is kind


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


@pytest.mark.parametrize("file", [UNET, TEXT_ENCODER])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.999])
def test_truncated_file(checkpoint, file, kept):
    data = (checkpoint / file).read_bytes()
    (checkpoint / file).write_bytes(data[: int(len(data) * kept)])
    assert str(checkpoint / file) in refused(checkpoint, "is truncated")


def test_missing_folders_are_named(checkpoint):
    shutil.rmtree(checkpoint / "vae")
    shutil.rmtree(checkpoint / "scheduler")
    message = refused(checkpoint, "lacks the component folders")
    assert "scheduler" in message
    assert "vae" in message
    assert "unet" not in message


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (UNET, "unet holds no weights"),
        ("unet/config.json", "'unet' cannot be read.*config.json"),
        ("tokenizer/tokenizer.json", "tokenizer holds no vocabulary"),
        ("scheduler/scheduler_config.json", "scheduler_config.json"),
        ("model_index.json", "holds no model_index.json"),
    ],
)
def test_missing_file(checkpoint, file, message):
    (checkpoint / file).unlink()
    refused(checkpoint, message)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("unet", ["os", "PathLike"], "'unet' is a os.PathLike, which neither"),
        ("unet", ["my_code", "Net"], "'unet' is a my_code.Net"),
        ("_class_name", "StableVideoDiffusionPipeline", "StableVideoDiffusionPipeline"),
    ],
)
def test_only_known_classes_are_loaded(checkpoint, key, value, message):
    path = checkpoint / "model_index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    (checkpoint / "my_code.py").write_text("raise SystemExit('ran')")
    refused(checkpoint, message)


def test_pickled_weights_run_no_code(checkpoint):
    class TouchesWhenLoaded:
        def __reduce__(self):
            return (Path.touch, (checkpoint / "ran",))

    (checkpoint / UNET).unlink()
    torch.save(
        {"conv_in.weight": TouchesWhenLoaded()},
        checkpoint / "unet/diffusion_pytorch_model.bin",
    )
    refused(checkpoint, "'unet' cannot be read")
    assert not (checkpoint / "ran").exists()


def test_variant_is_read_where_a_component_has_it(tmp_path):
    pipeline = tiny_pipeline("sdxl")
    pipeline.save_pretrained(tmp_path)
    edit(tmp_path / UNET, lambda t: t["conv_in.bias"].fill_(7.0))
    plain = tmp_path / UNET
    half = plain.with_name("diffusion_pytorch_model.fp16.safetensors")
    shutil.copy(plain, half)
    edit(half, lambda t: t["conv_in.bias"].fill_(8.0))
    for variant, expected in (("fp16", 8.0), ("", 7.0), (None, 7.0)):
        read = load_published(str(tmp_path), None, torch.float32, variant)
        assert read.unet.conv_in.bias.unique().item() == expected
    with pytest.raises(CheckpointError, match="files of the variant 'bf16'; set variant"):
        load_published(str(tmp_path), None, torch.float32, "bf16")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtype_of_the_weights(dtype, tmp_path):
    tiny_pipeline("sd3").save_pretrained(tmp_path)
    read = load_published(str(tmp_path), None, dtype)
    assert read.transformer.dtype is read.vae.dtype is read.text_encoder.dtype is dtype
    exact = {p.dtype for n, p in read.text_encoder_3.named_parameters() if ".wo." in n}
    assert exact == {torch.float32 if dtype is torch.float16 else dtype}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_draws_what_diffusers_draws(dtype, tmp_path):
    tiny_pipeline("sdxl-turbo").save_pretrained(tmp_path)
    drawing = from_folder(tmp_path, "sdxl-turbo", dtype=dtype)
    theirs = diffusers.StableDiffusionXLPipeline.from_pretrained(
        tmp_path, dtype=getattr(torch, dtype)
    )
    picture = theirs(
        [REQUESTS[0].prompt],
        num_inference_steps=1,
        guidance_scale=0.0,
        height=64,
        width=64,
        generator=[torch.Generator().manual_seed(REQUESTS[0].seed)],
    ).images[0]
    assert furthest(pixels(drawing(REQUESTS[:1]))[0], np.asarray(picture)) == 0


def test_safety_checker_off_needs_no_checker_on_disk(checkpoint):
    shutil.rmtree(checkpoint / "safety_checker")
    read = load_published(str(checkpoint), None, torch.float32, safety_checker="off")
    assert read.safety_checker is None
    refused(checkpoint, "lacks the component folders safety_checker")


def test_libraries_speak_again_afterwards(checkpoint):
    speaking = diffusers.utils.logging
    level = speaking.get_verbosity()
    drawing = from_folder(checkpoint, "openjourney")
    drawing(REQUESTS[:1])
    assert speaking.get_verbosity() == level
    assert speaking.is_progress_bar_enabled()


def test_repository_that_is_not_here_is_named(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="checkpoint 'no-one/no-model'"):
        load_published("no-one/no-model", None, torch.float32)
