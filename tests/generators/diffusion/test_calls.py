"""What pipelines are called with: guidance, negative prompts, further arguments."""

from __future__ import annotations

import inspect
from typing import Any

import diffusers
import pytest
from diffusion_helpers import (
    REQUESTS,
    Spy,
    furthest,
    pixels,
    shared,
    stage,
    tiny_pipeline,
)

from generators.base import Result
from generators.diffusion import calls
from generators.diffusion.calls import Call, call_of, draws_in_batches
from generators.diffusion.designs import DESIGNS
from generators.diffusion.loading import FURTHER_PIPELINES
from generators.diffusion.settings import PLAIT_SETS, DiffusionSettings
from generators.errors import UnknownName

pytestmark = pytest.mark.models


def called(architecture: Any, **settings: Any) -> Call:
    given = DiffusionSettings(model="a/b", **settings)
    return call_of(tiny_pipeline(architecture), given)


@pytest.mark.parametrize(
    ("architecture", "argument"),
    [
        ("sd15", "guidance_scale"),
        ("flux", "guidance_scale"),
        ("z-image", "guidance_scale"),
        ("qwen-image", "true_cfg_scale"),
    ],
)
def test_guidance_is_what_the_pipeline_guides_by(architecture, argument):
    arguments = called(architecture, guidance=3.0).arguments
    assert arguments[argument] == 3.0
    assert not {"guidance_scale", "true_cfg_scale"} - {argument} & arguments.keys()


def test_guidance_changes_the_picture_of_qwen_image():
    """With `guidance_scale` it did not: the pipeline only warns, and draws unguided."""
    stronger = stage("qwen-image", guidance=9.0)
    unguided = stage("qwen-image", guidance=1.0, negative_prompt=None)
    drawn = [pixels(s(REQUESTS[:1])) for s in (shared("qwen-image"), stronger, unguided)]
    assert furthest(drawn[0], drawn[1]) > 0
    assert furthest(drawn[0], drawn[2]) > 0


@pytest.mark.parametrize(
    "settings", [{"guidance": 4.0}, {"arguments": {"true_cfg_scale": 4.0}}, {}]
)
def test_qwen_image_gets_a_blank_negative_prompt_which_is_noted(settings):
    """Without one it would not guide; the last case is its own default of 4."""
    call = called("qwen-image", **settings)
    assert (call.negative_prompt, call.notes) == (" ", {"negative_prompt": " "})


def test_blank_negative_prompt_stands_in_the_record():
    drawing = stage("qwen-image", negative_prompt=None)
    drawing.drawer.pipeline = spy = Spy(drawing.drawer.pipeline)
    outcome = drawing(REQUESTS[:2])[0]
    assert spy.calls[0]["negative_prompt"] == [" ", " "]
    assert isinstance(outcome, Result)
    assert outcome.notes["negative_prompt"] == " "
    assert furthest(pixels([outcome]), pixels(shared("qwen-image")(REQUESTS[:1]))) <= 1


def test_arguments_reach_the_pipeline():
    drawing = stage("openjourney", arguments={"guidance_rescale": 0.9})
    drawing.drawer.pipeline = spy = Spy(drawing.drawer.pipeline)
    changed = pixels(drawing(REQUESTS[:2]))
    assert spy.calls[0]["guidance_rescale"] == 0.9
    assert furthest(changed, pixels(shared("openjourney")(REQUESTS[:2]))) > 0


def test_negative_prompt_of_flux_goes_with_true_cfg_scale():
    arguments = {"true_cfg_scale": 6.0}
    drawing = stage("flux", arguments=arguments, negative_prompt="fog")
    assert furthest(pixels(drawing(REQUESTS[:1])), pixels(shared("flux")(REQUESTS[:1]))) > 0


@pytest.mark.parametrize(
    ("architecture", "settings", "message"),
    [
        ("flux2-klein", {"guidance": 4.0}, "does not use guidance 4.*distilled"),
        ("flux2-klein", {"negative_prompt": "x"}, "does not take negative_prompt"),
        ("flux", {"negative_prompt": "x"}, "true_cfg_scale is 1.0.*arguments.true_cfg"),
        ("flux", {"arguments": {"true_cfg_scale": 4.0}}, "without a negative prompt"),
        (
            "qwen-image",
            {"guidance": 4.0, "arguments": {"true_cfg_scale": 3.0}},
            "both set true_cfg_scale of QwenImagePipeline",
        ),
        (
            "qwen-image",
            {"negative_prompt": "x", "arguments": {"true_cfg_scale": 1.0}},
            "true_cfg_scale is 1.0: it would have no effect; set guidance above 1",
        ),
    ],
)
def test_settings_without_effect_are_refused(architecture, settings, message):
    with pytest.raises(ValueError, match=message):
        called(architecture, **settings)


def test_published_guidance_of_a_distilled_model_is_taken():
    assert called("flux2-klein", guidance=1.0).arguments["guidance_scale"] == 1.0


def test_base_model_of_a_distilled_one_guides():
    pipeline = tiny_pipeline("flux2-klein")
    pipeline.register_to_config(is_distilled=False)
    call = call_of(pipeline, DiffusionSettings(model="a/b", guidance=4.0))
    assert call.arguments["guidance_scale"] == 4.0


def test_flux_without_an_input_for_guidance_refuses_it():
    pipeline = tiny_pipeline("flux")
    pipeline.transformer.register_to_config(guidance_embeds=False)
    with pytest.raises(ValueError, match="no input for guidance"):
        call_of(pipeline, DiffusionSettings(model="a/b", guidance=3.5))
    call_of(pipeline, DiffusionSettings(model="a/b", guidance=0.0))


def test_latent_consistency_models_read_no_negative_prompt():
    pipeline = tiny_pipeline("sd15")
    pipeline.unet.register_to_config(time_cond_proj_dim=256)
    with pytest.raises(ValueError, match="does not take negative_prompt"):
        call_of(pipeline, DiffusionSettings(model="a/b", guidance=8, negative_prompt="x"))


class OtherGuidance:
    """A pipeline that guides in two parts, as Stable Cascade does."""

    config: dict[str, Any]
    components: dict[str, Any]

    def __init__(self) -> None:
        self.config, self.components = {}, {}

    def __call__(self, prompt=None, generator=None, prior_guidance_scale=4.0, steps=2): ...


def test_pipeline_without_guidance_scale_names_its_own():
    with pytest.raises(
        ValueError,
        match=r"OtherGuidance does not take guidance_scale; of gu"
        r"idance it takes, in arguments: prior_guidance_scale",
    ):
        call_of(OtherGuidance(), DiffusionSettings(model="a/b", guidance=3))
    given = DiffusionSettings(model="a/b", arguments={"prior_guidance_scale": 3.0})
    assert call_of(OtherGuidance(), given).arguments == {"prior_guidance_scale": 3.0}


def test_unknown_argument_lists_the_valid_ones():
    with pytest.raises(UnknownName) as caught:
        called("flux", arguments={"true_cfg": 4.0})
    assert "argument of FluxPipeline 'true_cfg'" in str(caught.value)
    assert "did you mean 'true_cfg_scale'" in str(caught.value)
    assert "true_cfg_scale" in caught.value.valid
    assert not set(PLAIT_SETS) & set(caught.value.valid)
    assert not [v for v in caught.value.valid if "embeds" in v or "callback" in v]


@pytest.mark.parametrize("name", ["kwargs", "num_images_per_prompts", "callbak"])
def test_collecting_parameters_are_no_arguments(name):
    """PixArt's call ends with `**kwargs`, and would take anything without an effect."""
    with pytest.raises(UnknownName):
        called("pixart-sigma", arguments={name: 1})


def test_captions_are_cleaned_only_on_request(monkeypatch):
    """PixArt does so by default, but only where two packages are installed."""
    assert called("pixart-sigma").arguments["clean_caption"] is False
    monkeypatch.setattr(calls, "is_bs4_available", lambda: False)
    with pytest.raises(ValueError, match="beautifulsoup4"):
        called("pixart-sigma", arguments={"clean_caption": True})
    for package in ("bs4", "ftfy"):
        monkeypatch.setattr(calls, f"is_{package}_available", lambda: True)
    cleaned = called("pixart-sigma", arguments={"clean_caption": True})
    assert cleaned.arguments["clean_caption"] is True


@pytest.mark.parametrize("architecture", DESIGNS)
def test_named_pipelines_draw_in_batches(architecture):
    assert draws_in_batches(tiny_pipeline(architecture))


def test_further_pipelines_draw_from_prompts():
    listed = diffusers.pipelines.auto_pipeline.AUTO_TEXT2IMAGE_PIPELINES_MAPPING.values()
    for name in FURTHER_PIPELINES:
        kind = getattr(diffusers, name)
        assert "prompt" in inspect.signature(kind.__call__).parameters
        assert kind not in listed, f"{name} needs no mention any more"
