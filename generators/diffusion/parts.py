"""The modules of the published text-to-image models, full size and toy size.

Plain data, so that a plan can be made without torch. Sizes are those of the `config.json`
files of the published checkpoints; `tiny` names only what differs at toy size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Config = Mapping[str, Any]

TINY_VOCABULARY = 640
"""Rows of a tiny embedding table; more than either small tokenizer has entries."""


@dataclass(frozen=True, slots=True)
class ModuleDesign:
    """One module of a pipeline."""

    name: str
    """Class name in diffusers, or in transformers."""
    config: Config
    """Arguments of the class, or of its configuration class in transformers."""
    tiny: Config
    """The entries of `config` that differ at toy size."""


# Released with arXiv:2112.10752 as the KL-f8 autoencoder; SDXL, SD3 and FLUX.1 keep its
# shape and change the latents' channels and scale.
_VAE = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "latent_channels": 4,
    "sample_size": 512,
    "scaling_factor": 0.18215,
}
_TINY_VAE = {
    "block_out_channels": (16, 16, 16, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "sample_size": 64,
}
WITHOUT_QUANT_CONV = {"use_quant_conv": False, "use_post_quant_conv": False}


def vae(**changes: Any) -> ModuleDesign:
    """The autoencoder with `changes` to its shared configuration."""
    return ModuleDesign("AutoencoderKL", {**_VAE, **changes}, _TINY_VAE)


# Where CLIP pools; `generators.diffusion.builds` gives its special tokens these ids.
_CLIP_IDS = {"bos_token_id": 512, "eos_token_id": 513, "pad_token_id": 513}

_TINY_ENCODER = {
    "vocab_size": TINY_VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "projection_dim": 32,
}

# openai/clip-vit-large-patch14, text tower.
CLIP_L = ModuleDesign(
    "CLIPTextModel",
    {
        "vocab_size": 49408,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "projection_dim": 768,
        "hidden_act": "quick_gelu",
        **_CLIP_IDS,
    },
    _TINY_ENCODER,
)

# laion/CLIP-ViT-H-14-laion2B-s32B-b79K, text tower without its last layer, as
# Stable Diffusion 2 reads it (`FrozenOpenCLIPEmbedder` of stabilityai/stablediffusion).
CLIP_H = ModuleDesign(
    "CLIPTextModel",
    {
        "vocab_size": 49408,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 23,
        "projection_dim": 512,
        "hidden_act": "gelu",
        **_CLIP_IDS,
    },
    _TINY_ENCODER,
)

# laion/CLIP-ViT-bigG-14-laion2B-39B-b160k, text tower.
CLIP_BIG_G = ModuleDesign(
    "CLIPTextModelWithProjection",
    {
        "vocab_size": 49408,
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_attention_heads": 20,
        "num_hidden_layers": 32,
        "projection_dim": 1280,
        "hidden_act": "gelu",
        **_CLIP_IDS,
    },
    _TINY_ENCODER,
)

# google/t5-v1_1-xxl, encoder.
T5_XXL = ModuleDesign(
    "T5EncoderModel",
    {
        "vocab_size": 32128,
        "d_model": 4096,
        "d_kv": 64,
        "d_ff": 10240,
        "num_layers": 24,
        "num_heads": 64,
        "feed_forward_proj": "gated-gelu",
    },
    {
        "vocab_size": TINY_VOCABULARY,
        "d_model": 64,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
    },
)

# CompVis/stable-diffusion-safety-checker, on the vision tower of CLIP ViT-L/14.
SAFETY_CHECKER = ModuleDesign(
    "StableDiffusionSafetyChecker",
    {
        "vision_config": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "patch_size": 14,
            "image_size": 224,
        },
        "projection_dim": 768,
    },
    {
        "vision_config": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "patch_size": 16,
            "image_size": 64,
        },
        "projection_dim": 32,
    },
)

UNET_15 = ModuleDesign(
    "UNet2DConditionModel",
    {
        "sample_size": 64,
        "block_out_channels": (320, 640, 1280, 1280),
        "attention_head_dim": 8,
        "cross_attention_dim": 768,
    },
    {
        "sample_size": 8,
        "block_out_channels": (16, 32),
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "attention_head_dim": 4,
        "cross_attention_dim": 32,
    },
)

# stabilityai/stable-diffusion-2-1-base.
UNET_21 = ModuleDesign(
    "UNet2DConditionModel",
    {
        **UNET_15.config,
        "attention_head_dim": (5, 10, 20, 20),
        "cross_attention_dim": 1024,
        "use_linear_projection": True,
    },
    {**UNET_15.tiny, "attention_head_dim": (2, 4)},
)

# arXiv:2307.01952, Table 1 and section 2.
UNET_XL = ModuleDesign(
    "UNet2DConditionModel",
    {
        "sample_size": 128,
        "block_out_channels": (320, 640, 1280),
        "down_block_types": (
            "DownBlock2D",
            "CrossAttnDownBlock2D",
            "CrossAttnDownBlock2D",
        ),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "transformer_layers_per_block": (1, 2, 10),
        "attention_head_dim": (5, 10, 20),
        "cross_attention_dim": 2048,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
        "use_linear_projection": True,
    },
    {
        "sample_size": 8,
        "block_out_channels": (16, 32),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "transformer_layers_per_block": (1, 2),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "attention_head_dim": (2, 4),
        "cross_attention_dim": 64,
        "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 80,
    },
)

# BAAI/Emu2-Gen: SDXL's, on vectors of Emu2's vision encoder (arXiv:2312.13286, section 2).
UNET_EMU2 = ModuleDesign(
    "UNet2DConditionModel",
    {
        **UNET_XL.config,
        "cross_attention_dim": 1792,
        "projection_class_embeddings_input_dim": 3328,
    },
    {**UNET_XL.tiny, "projection_class_embeddings_input_dim": 112},
)

# arXiv:2403.03206, depth 24.
MMDIT = ModuleDesign(
    "SD3Transformer2DModel",
    {
        "sample_size": 128,
        "patch_size": 2,
        "in_channels": 16,
        "out_channels": 16,
        "num_layers": 24,
        "attention_head_dim": 64,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "caption_projection_dim": 1536,
        "pooled_projection_dim": 2048,
        "pos_embed_max_size": 192,
    },
    {
        "sample_size": 8,
        "num_layers": 2,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "joint_attention_dim": 64,
        "caption_projection_dim": 32,
        "pooled_projection_dim": 64,
        "pos_embed_max_size": 12,
    },
)

FLUX = ModuleDesign(
    "FluxTransformer2DModel",
    {
        "patch_size": 1,
        "in_channels": 64,
        "num_layers": 19,
        "num_single_layers": 38,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "joint_attention_dim": 4096,
        "pooled_projection_dim": 768,
        "guidance_embeds": True,
        "axes_dims_rope": (16, 56, 56),
    },
    {
        "num_layers": 1,
        "num_single_layers": 1,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 64,
        "pooled_projection_dim": 32,
        "axes_dims_rope": (4, 6, 6),
    },
)
