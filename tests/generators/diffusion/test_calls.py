"""What pipelines are called with: guidance, negative prompts, further arguments."""

from __future__ import annotations

from typing import Any

import diffusers
import pytest
import torch
from diffusion_helpers import (
    REQUESTS,
    Spy,
    furthest,
    pipeline_of,
    pixels,
    shared,
    stage,
    tiny_pipeline,
)

from plait.generators.diffusion import calls
from plait.generators.diffusion.calls import Call
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.loading import FURTHER_PIPELINES
from plait.generators.diffusion.settings import PLAIT_SETS, DiffusionSettings
from plait.generators.errors import UnknownName, UsageError

pytestmark = pytest.mark.models


def called(pipeline: Any, **settings: Any) -> Call:
    pipeline = pipeline_of(pipeline) if isinstance(pipeline, str) else pipeline
    return Call(pipeline, DiffusionSettings(model="a/b", **settings))


@pytest.mark.parametrize("architecture", [n for n in DESIGNS if "klein" not in n])
def test_guidance_is_what_the_pipeline_guides_by(architecture):
    arguments = called(architecture, guidance=3.0).arguments
    guiding = (
        "true_cfg_scale" if architecture.startswith("qwen-image") else "guidance_scale"
    )
    assert {k: v for k, v in arguments.items() if v == 3.0} == {guiding: 3.0}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        # With `guidance_scale` it did not: the pipeline only warns, and draws unguided.
        ("qwen-image", {"guidance": 1.0, "negative_prompt": None}),
        ("flux", {"arguments": {"true_cfg_scale": 6.0}, "negative_prompt": "fog"}),
    ],
)
def test_settings_change_the_image(name, changes):
    changed = pixels(stage(name, **changes)(REQUESTS[:1]))
    assert furthest(changed, pixels(shared(name)(REQUESTS[:1]))) > 0


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
    blank, _ = spy.pipeline.encode_prompt([" ", " "])
    torch.testing.assert_close(spy.calls[0]["negative_prompt_embeds"], blank)
    assert outcome.notes["negative_prompt"] == " "
    assert furthest(pixels([outcome]), pixels(shared("qwen-image")(REQUESTS[:1]))) <= 1


@pytest.mark.parametrize(
    ("architecture", "settings", "named"),
    [
        ("flux2-klein", {"guidance": 4.0}, "distilled"),
        ("flux2-klein", {"negative_prompt": "x"}, "take negative_prompt"),
        ("flux", {"negative_prompt": "x"}, "arguments.true_cfg_scale"),
        ("flux", {"arguments": {"true_cfg_scale": 4.0}}, "negative_prompt"),
        (
            "qwen-image",
            {"guidance": 4.0, "arguments": {"true_cfg_scale": 3.0}},
            "both",
        ),
        (
            "qwen-image",
            {"negative_prompt": "x", "arguments": {"true_cfg_scale": 1.0}},
            "set guidance above 1",
        ),
    ],
)
def test_settings_without_effect_are_refused(architecture, settings, named):
    with pytest.raises(UsageError, match=named):
        called(architecture, **settings)


def test_whether_guidance_is_used_depends_on_the_checkpoint():
    klein = tiny_pipeline("flux2-klein")
    assert called(klein, guidance=1.0).arguments["guidance_scale"] == 1.0
    klein.register_to_config(is_distilled=False)
    assert called(klein, guidance=4.0).arguments["guidance_scale"] == 4.0
    schnell = tiny_pipeline("flux")
    schnell.transformer.register_to_config(guidance_embeds=False)
    with pytest.raises(UsageError, match="guidance_embeds"):
        called(schnell, guidance=3.5)
    called(schnell, guidance=0.0)
    latent_consistency = tiny_pipeline("sd15")
    latent_consistency.unet.register_to_config(time_cond_proj_dim=256)
    with pytest.raises(UsageError, match="negative_prompt"):
        called(latent_consistency, guidance=8, negative_prompt="x")


class OtherGuidance:
    """A pipeline that guides in two parts, as Stable Cascade does."""

    config: dict[str, Any]
    components: dict[str, Any]

    def __init__(self) -> None:
        self.config, self.components = {}, {}

    def __call__(self, prompt=None, generator=None, prior_guidance_scale=4.0, steps=2): ...


def test_pipeline_without_guidance_scale_names_its_own():
    with pytest.raises(UsageError, match="prior_guidance_scale"):
        called(OtherGuidance(), guidance=3)
    arguments = {"prior_guidance_scale": 3.0}
    assert called(OtherGuidance(), arguments=arguments).arguments == arguments


@pytest.mark.parametrize(
    ("architecture", "name"),
    # PixArt's call ends with `**kwargs`, and would take anything without an effect.
    [("flux", "true_cfg"), ("pixart-sigma", "kwargs"), ("pixart-sigma", "callbak")],
)
def test_unknown_arguments_are_refused_with_the_valid_ones(architecture, name):
    with pytest.raises(UnknownName, match=name) as caught:
        called(architecture, arguments={name: 4.0})
    assert caught.value.valid
    assert not set(PLAIT_SETS) & set(caught.value.valid)
    assert not [v for v in caught.value.valid if "embeds" in v or "callback" in v]


def test_captions_are_cleaned_only_on_request(monkeypatch):
    """PixArt does so by default, but only where two packages are installed."""
    assert called("pixart-sigma").arguments["clean_caption"] is False
    monkeypatch.setattr(calls, "is_bs4_available", lambda: False)
    with pytest.raises(UsageError, match="beautifulsoup4"):
        called("pixart-sigma", arguments={"clean_caption": True})
    for package in ("bs4", "ftfy"):
        monkeypatch.setattr(calls, f"is_{package}_available", lambda: True)
    cleaned = called("pixart-sigma", arguments={"clean_caption": True})
    assert cleaned.arguments["clean_caption"] is True


def test_further_pipelines_are_there_and_not_listed():
    """A class that diffusers lists by itself needs no mention any more."""
    listed = diffusers.pipelines.auto_pipeline.AUTO_TEXT2IMAGE_PIPELINES_MAPPING.values()
    assert {*FURTHER_PIPELINES} <= {*dir(diffusers)} - {kind.__name__ for kind in listed}
