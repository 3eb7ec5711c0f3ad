"""The published text-to-image models whose denoiser is a UNet; plain data (`parts`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from generators.diffusion.autoencoders import vae
from generators.diffusion.denoisers import UNET_15, UNET_21, UNET_EMU2, UNET_XL
from generators.diffusion.encoders import CLIP_BIG_G, CLIP_H, CLIP_L, SAFETY_CHECKER
from generators.diffusion.parts import PipelineDesign

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

UNET_DESIGNS: Mapping[str, PipelineDesign] = {
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
