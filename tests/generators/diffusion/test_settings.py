"""Settings of the text-to-image models: what is part of a key, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from plait.generators.errors import CheckpointError
from plait.pipelines.presets import TextToImageSettings, prior_of, t2i

UNSIZED = ["glm-image", "cosmos3-nano"]


@pytest.mark.parametrize("settings", [*map(t2i, UNSIZED), prior_of("glm-image")])
def test_no_dummy_weights_where_sizes_are_not_known(settings):
    with pytest.raises(CheckpointError, match="dummy"):
        settings.spec("x", "dummy")


def test_only_settings_that_change_images_are_in_the_key():
    plain = t2i("sdxl")

    def digest(weights="tiny", **changes):
        return plain.model_copy(update=changes).spec("x", weights).digest

    for same in ({"batch_size": 1}, {"device": "cpu"}, {"offload": "model"}):
        assert digest(**same) == digest()
    assert digest(vae_slicing=False) == digest()
    others = {
        "steps": 1,
        "guidance": 1.5,
        "height": 32,
        "negative_prompt": "fog",
        "prompt_prefix": "a",
        "max_sequence_length": 128,
        "attention": "xformers",
        "scheduler": "DDIMScheduler",
        "compile": True,
        "safety_checker": "off",
        "variant": "",
        "architecture": "flux",
        "arguments": {"eta": 0.7},
    }
    digests = {digest(**{field: value}) for field, value in others.items()}
    assert len({*digests, digest()}) == 1 + len(others)
    assert digest("dummy", dtype="bfloat16") != digest("dummy")


def test_memory_counts_all_modules_and_the_decoded_images():
    """By hand: 16.870e9 parameters of 2 bytes, 1 image of 1024 x 1024 x 3900 bytes."""
    flux = t2i("flux")
    expected = (16.870e9 * 2 * 1.05 + 1024 * 1024 * 3900) / 2**30
    whole = flux.model_copy(update={"vae_slicing": False})
    assert flux.memory_estimate_gib("dummy") == pytest.approx(expected)
    assert whole.memory_estimate_gib("dummy") > expected + 3.8
    assert TextToImageSettings(model="a/b").memory_estimate_gib("pretrained") == 0
    for weights, gpu_gib, gpus in (("dummy", 80, 1), ("dummy", 24, 2), ("tiny", 24, 0)):
        spec = flux.spec("flux", weights, gpu_gib=gpu_gib)
        assert spec.placement.num_gpus == gpus
        assert spec.placement.batch_size == spec.options["batch_size"] == 2


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"height": 500}, "multiple of 16"),
        ({"steps": 0}, "steps"),
        ({"negative_prompt": "fog", "guidance": 0.0}, "guidance 0"),
        ({"negative_prompt": "", "guidance": 1.0}, "guidance 1"),
        ({"offload": "model", "device_map": "balanced"}, "offload"),
        ({"stepps": 3}, "stepps"),
        ({"arguments": {"num_inference_steps": 3}}, "set steps"),
        ({"arguments": {"generator": 3}}, "generator"),
        ({"arguments": {"eta": object()}}, "arguments"),
    ],
)
def test_wrong_settings_are_refused(settings, named):
    with pytest.raises(ValidationError, match=named):
        TextToImageSettings(model="a/b", **settings)


def test_random_weights_need_a_known_architecture():
    unknown = TextToImageSettings(model="someone/else")
    with pytest.raises(CheckpointError, match=r"someone/else.*sd15.*sdxl.*flux"):
        unknown.spec("x", "tiny")
    named = TextToImageSettings(model="someone/else", architecture="sd3")
    assert named.spec("x", "tiny").identity == "someone/else"
