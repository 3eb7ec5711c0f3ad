"""Settings of the text-to-image models: what is published, what is part of a key."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import CHECKOUT
from pydantic import ValidationError

from generators.base import Kind
from generators.errors import CheckpointError
from pipelines.presets import T2IS, TextToImageSettings

ROOT = CHECKOUT


def test_planning_imports_no_model_library():
    code = (
        "import sys; from pipelines.presets import T2IS;"
        "specs = [s.spec(n, w) for n, s in T2IS.items() for w in ('tiny', 'dummy')];"
        "heavy = {'torch', 'transformers', 'diffusers', 'numpy'} & set(sys.modules);"
        "print(len(specs), sorted(heavy))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert run.stdout.decode().strip() == "24 []", run.stderr.decode()


@pytest.mark.parametrize(
    ("name", "steps", "guidance", "side", "dtype"),
    [
        ("openjourney", 50, 7.5, 512, "float16"),
        ("sd3", 28, 7.0, 1024, "float16"),
        ("sdxl", 50, 5.0, 1024, "float16"),
        ("sdxl-turbo", 1, 0.0, 512, "float16"),
        ("flux", 50, 3.5, 1024, "bfloat16"),
        ("qwen-image", 50, 4.0, 1328, "bfloat16"),
        ("flux2-klein", 4, 1.0, 1024, "bfloat16"),
        ("z-image-turbo", 8, 0.0, 1024, "bfloat16"),
        ("sd3.5-medium", 40, 4.5, 1024, "bfloat16"),
        ("sd3.5-large", 28, 3.5, 1024, "bfloat16"),
        ("pixart-sigma", 20, 4.5, 1024, "float16"),
        ("sana", 20, 4.5, 1024, "bfloat16"),
    ],
)
def test_published_settings(name, steps, guidance, side, dtype):
    keyed = T2IS[name].keyed("pretrained")
    shown = (keyed["steps"], keyed["guidance"], keyed["height"], keyed["dtype"])
    assert shown == (steps, guidance, side, dtype)
    assert keyed["width"] == side
    assert keyed["prompt_prefix"] == "", "MMIE gives all models the same text"
    assert keyed["scheduler"] is None


def test_tiny_size_and_steps_are_in_the_key():
    keyed = T2IS["sd3"].keyed("tiny")
    size = (keyed["steps"], keyed["height"], keyed["width"], keyed["dtype"])
    assert size == (2, 64, 64, "float32")
    assert T2IS["sdxl-turbo"].keyed("tiny")["steps"] == 1
    small = TextToImageSettings(model="stabilityai/sdxl-turbo", height=32, width=48)
    assert [small.keyed("tiny")[k] for k in ("steps", "height", "width")] == [2, 32, 48]


def test_only_settings_that_change_pictures_are_in_the_key():
    plain = T2IS["sdxl"]
    same = {"batch_size": 1, "device": "cpu", "vae_slicing": False, "offload": "model"}
    for field, value in same.items():
        other = plain.model_copy(update={field: value})
        assert other.spec("x", "tiny").digest == plain.spec("x", "tiny").digest, field
    other_pictures = {
        "steps": 1,
        "guidance": 1.5,
        "height": 32,
        "negative_prompt": "fog",
        "prompt_prefix": "a",
        "max_sequence_length": 128,
        "scheduler": "DDIMScheduler",
        "attention": "xformers",
        "compile": True,
        "safety_checker": "off",
        "variant": "",
        "architecture": "flux",
        "arguments": {"guidance_rescale": 0.7},
    }
    digests = {plain.spec("x", "tiny").digest}
    for field, value in other_pictures.items():
        digests.add(plain.model_copy(update={field: value}).spec("x", "tiny").digest)
    assert len(digests) == 1 + len(other_pictures)
    half = plain.model_copy(update={"dtype": "bfloat16"})
    assert half.spec("x", "dummy").digest != plain.spec("x", "dummy").digest


def test_no_arguments_leave_the_key_as_it_was():
    """Records are older than that setting; the golden keys say so for all named models."""
    plain = TextToImageSettings(model="a/b", architecture="sdxl")
    assert "arguments" not in plain.keyed("tiny")
    other = TextToImageSettings(model="a/b", architecture="sdxl", arguments={"eta": 0.5})
    assert other.keyed("tiny")["arguments"] == {"eta": 0.5}


def test_distilled_guidance_and_a_negative_prompt_exclude_each_other_not():
    """FLUX.1's guidance 1 is an input; its negative prompt goes with true_cfg_scale."""
    arguments = {"true_cfg_scale": 4.0}
    TextToImageSettings(model="a/b", guidance=1, negative_prompt="x", arguments=arguments)


def test_spec_says_how_the_stage_is_run():
    spec = T2IS["flux"].spec("flux", "dummy", gpu_gib=80)
    assert (spec.kind, spec.seeded) == (Kind.RENDER, True)
    assert spec.placement.num_gpus == 1
    assert spec.placement.batch_size == spec.options["batch_size"] == 2
    assert T2IS["flux"].spec("flux", "dummy", gpu_gib=24).placement.num_gpus == 2
    assert T2IS["flux"].spec("flux", "tiny").placement.num_gpus == 0


def test_memory_estimate_counts_all_modules_and_the_decoded_pictures():
    """By hand: 16.870e9 parameters of 2 bytes, 1 picture of 1024 x 1024 x 3900 bytes."""
    expected = (16.870e9 * 2 * 1.05 + 1024 * 1024 * 3900) / 2**30
    assert T2IS["flux"].memory_estimate_gib("dummy") == pytest.approx(expected)
    whole = T2IS["flux"].model_copy(update={"vae_slicing": False})
    assert whole.memory_estimate_gib("dummy") > expected + 3.8
    assert T2IS["flux"].memory_estimate_gib("tiny") == 0
    assert TextToImageSettings(model="a/b").memory_estimate_gib("pretrained") == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"height": 500}, "multiple of 16"),
        ({"steps": 0}, "greater than or equal to 1"),
        ({"negative_prompt": "fog", "guidance": 0.0}, "no effect at guidance 0"),
        ({"negative_prompt": "", "guidance": 1.0}, "no effect at guidance 1"),
        ({"offload": "model", "device_map": "balanced"}, "exclude each other"),
        ({"stepps": 3}, "stepps"),
        ({"arguments": {"num_inference_steps": 3}}, "set steps"),
        ({"arguments": {"guidance_scale": 3}}, "set guidance"),
        ({"arguments": {"generator": 3}}, "the request's seed"),
        ({"arguments": {"eta": object()}}, "arguments"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        TextToImageSettings(model="a/b", **settings)


def test_random_weights_need_a_known_architecture():
    unknown = TextToImageSettings(model="someone/else")
    with pytest.raises(CheckpointError, match=r"someone/else.*sd15.*sdxl.*flux"):
        unknown.spec("x", "tiny")
    named = TextToImageSettings(model="someone/else", architecture="sd3")
    assert named.spec("x", "tiny").identity == "someone/else"
