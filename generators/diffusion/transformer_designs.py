"""The published text-to-image models whose denoiser is a transformer (`parts`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from generators.diffusion.autoencoders import (
    DC_AE,
    VAE_16,
    VAE_FLUX2,
    VAE_QWEN,
    VAE_SD3,
    vae,
)
from generators.diffusion.denoisers import (
    FLUX,
    FLUX2_KLEIN_4B,
    MMDIT,
    MMDIT_LARGE,
    MMDIT_X,
    PIXART_SIGMA,
    QWEN_IMAGE,
    SANA_1600M,
    Z_IMAGE,
)
from generators.diffusion.encoders import (
    CLIP_BIG_G,
    CLIP_L,
    GEMMA2_2B,
    QWEN3_4B,
    QWEN3_4B_STATES,
    QWEN25_VL_7B,
    T5_XXL,
)
from generators.diffusion.parts import ModuleDesign, PipelineDesign

_FLOW = "FlowMatchEulerDiscreteScheduler"
_FLUX_FLOW = {
    "shift": 3.0,
    "use_dynamic_shifting": True,
    "base_shift": 0.5,
    "max_shift": 1.15,
    "base_image_seq_len": 256,
    "max_image_seq_len": 4096,
}
_LINEAR_BETAS = {
    "num_train_timesteps": 1000,
    "beta_start": 0.0001,
    "beta_end": 0.02,
    "beta_schedule": "linear",
}


def _sd3(transformer: ModuleDesign) -> PipelineDesign:
    """Stable Diffusion 3 or 3.5, which differ in their transformers."""
    return PipelineDesign(
        pipeline="StableDiffusion3Pipeline",
        modules={
            "vae": VAE_SD3,
            "text_encoder": replace(CLIP_L, name="CLIPTextModelWithProjection"),
            "text_encoder_2": CLIP_BIG_G,
            "text_encoder_3": T5_XXL,
            "transformer": transformer,
        },
        scheduler=(_FLOW, {"shift": 3.0}),
        tokenizers={"tokenizer": "clip", "tokenizer_2": "clip", "tokenizer_3": "t5"},
    )


TRANSFORMER_DESIGNS: Mapping[str, PipelineDesign] = {
    "sd3": _sd3(MMDIT),
    "sd3.5-medium": _sd3(MMDIT_X),
    "sd3.5-large": _sd3(MMDIT_LARGE),
    "flux": PipelineDesign(
        pipeline="FluxPipeline",
        modules={
            "vae": VAE_16,
            "text_encoder": CLIP_L,
            "text_encoder_2": T5_XXL,
            "transformer": FLUX,
        },
        scheduler=(_FLOW, _FLUX_FLOW),
        tokenizers={"tokenizer": "clip", "tokenizer_2": "t5"},
    ),
    "flux2-klein": PipelineDesign(
        pipeline="Flux2KleinPipeline",
        modules={
            "vae": VAE_FLUX2,
            "text_encoder": QWEN3_4B,
            "transformer": FLUX2_KLEIN_4B,
        },
        scheduler=(_FLOW, _FLUX_FLOW),
        tokenizers={"tokenizer": "qwen"},
        arguments={"is_distilled": True},
    ),
    "z-image": PipelineDesign(
        pipeline="ZImagePipeline",
        modules={"vae": VAE_16, "text_encoder": QWEN3_4B_STATES, "transformer": Z_IMAGE},
        scheduler=(_FLOW, {"shift": 3.0}),
        tokenizers={"tokenizer": "qwen"},
    ),
    "qwen-image": PipelineDesign(
        pipeline="QwenImagePipeline",
        modules={"vae": VAE_QWEN, "text_encoder": QWEN25_VL_7B, "transformer": QWEN_IMAGE},
        scheduler=(
            _FLOW,
            {
                "shift": 1.0,
                "use_dynamic_shifting": True,
                "base_shift": 0.5,
                "max_shift": 0.9,
                "base_image_seq_len": 256,
                "max_image_seq_len": 8192,
                "shift_terminal": 0.02,
                "time_shift_type": "exponential",
            },
        ),
        tokenizers={"tokenizer": "qwen"},
    ),
    "pixart-sigma": PipelineDesign(
        pipeline="PixArtSigmaPipeline",
        modules={
            "vae": vae(sample_size=1024, scaling_factor=0.13025),
            "text_encoder": T5_XXL,
            "transformer": PIXART_SIGMA,
        },
        scheduler=("DPMSolverMultistepScheduler", _LINEAR_BETAS),
        tokenizers={"tokenizer": "t5"},
    ),
    "sana": PipelineDesign(
        pipeline="SanaPipeline",
        modules={"vae": DC_AE, "text_encoder": GEMMA2_2B, "transformer": SANA_1600M},
        scheduler=(
            "DPMSolverMultistepScheduler",
            {
                **_LINEAR_BETAS,
                "prediction_type": "flow_prediction",
                "use_flow_sigmas": True,
                "flow_shift": 3.0,
            },
        ),
        tokenizers={"tokenizer": "gemma"},
    ),
}
