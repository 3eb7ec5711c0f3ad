"""Text-to-image models: their settings, and those published for the named ones.

Imports no model code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generators.diffusion.settings import DiffusionSettings


class TextToImageSettings(DiffusionSettings):
    """Any text-to-image pipeline of diffusers, drawing from prompts alone."""

    stage: ClassVar[str] = "text-to-image"
    target: ClassVar[str] = "pipelines.text_to_image:TextToImage"


OPENJOURNEY_TRIGGER = "mdjrny-v4 style "
"""The words that call up Openjourney's style, for `prompt_prefix` (its model card).

MMIE feeds the LVLM's text as it is to every text-to-image model (section 4.1), so the
default is to add nothing.
"""

T2IS: Mapping[str, TextToImageSettings] = {
    # Model card; steps and guidance are StableDiffusionPipeline's defaults, which it uses.
    "openjourney": TextToImageSettings(
        model="prompthero/openjourney",
        steps=50,
        guidance=7.5,
        height=512,
        width=512,
        dtype="float16",
        params_b=1.370,
    ),
    # Model card of stable-diffusion-3-medium-diffusers.
    "sd3": TextToImageSettings(
        model="stabilityai/stable-diffusion-3-medium-diffusers",
        steps=28,
        guidance=7.0,
        height=1024,
        width=1024,
        max_sequence_length=256,
        dtype="float16",
        params_b=7.693,
        batch_size=4,
        vae_slicing=True,
    ),
    # Model card; steps and guidance are StableDiffusionXLPipeline's defaults.
    "sdxl": TextToImageSettings(
        model="stabilityai/stable-diffusion-xl-base-1.0",
        steps=50,
        guidance=5.0,
        height=1024,
        width=1024,
        dtype="float16",
        variant="fp16",
        params_b=3.469,
        batch_size=4,
        vae_slicing=True,
    ),
    # Model card: one step, trained without guidance, 512 x 512.
    "sdxl-turbo": TextToImageSettings(
        model="stabilityai/sdxl-turbo",
        steps=1,
        guidance=0.0,
        height=512,
        width=512,
        dtype="float16",
        variant="fp16",
        params_b=3.469,
    ),
    # Model card; no more than two at once, since larger batches gain under a tenth.
    "flux": TextToImageSettings(
        model="black-forest-labs/FLUX.1-dev",
        steps=50,
        guidance=3.5,
        height=1024,
        width=1024,
        max_sequence_length=512,
        dtype="bfloat16",
        params_b=16.870,
        batch_size=2,
        vae_slicing=True,
    ),
}
"""Settings of the named models: those of their model cards."""
