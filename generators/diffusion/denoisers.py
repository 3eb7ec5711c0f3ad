"""The UNets and transformers of the published text-to-image models (`parts`)."""

from __future__ import annotations

from dataclasses import replace

from generators.diffusion.parts import ModuleDesign

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

# stabilityai/stable-diffusion-3.5-medium (MMDiT-X) and -large.
MMDIT_X = replace(
    MMDIT,
    config={
        **MMDIT.config,
        "pos_embed_max_size": 384,
        "qk_norm": "rms_norm",
        "dual_attention_layers": tuple(range(13)),
    },
    tiny={**MMDIT.tiny, "dual_attention_layers": (0,)},
)
MMDIT_LARGE = replace(
    MMDIT,
    config={
        **MMDIT.config,
        "num_layers": 38,
        "num_attention_heads": 38,
        "caption_projection_dim": 2432,
        "qk_norm": "rms_norm",
    },
)

# black-forest-labs/FLUX.2-klein-4B.
FLUX2_KLEIN_4B = ModuleDesign(
    "Flux2Transformer2DModel",
    {
        "patch_size": 1,
        "in_channels": 128,
        "num_layers": 5,
        "num_single_layers": 20,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "joint_attention_dim": 7680,
        "guidance_embeds": False,
        "axes_dims_rope": (32, 32, 32, 32),
    },
    {
        "in_channels": 16,
        "num_layers": 1,
        "num_single_layers": 1,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 96,
        "axes_dims_rope": (4, 4, 4, 4),
    },
)

# Tongyi-MAI/Z-Image-Turbo.
Z_IMAGE = ModuleDesign(
    "ZImageTransformer2DModel",
    {
        "in_channels": 16,
        "dim": 3840,
        "n_layers": 30,
        "n_refiner_layers": 2,
        "n_heads": 30,
        "n_kv_heads": 30,
        "cap_feat_dim": 2560,
        "axes_dims": [32, 48, 48],
        "axes_lens": [1536, 512, 512],
    },
    {
        "dim": 32,
        "n_layers": 1,
        "n_refiner_layers": 1,
        "n_heads": 2,
        "n_kv_heads": 2,
        "cap_feat_dim": 32,
        "axes_dims": [4, 6, 6],
    },
)

# Qwen/Qwen-Image.
QWEN_IMAGE = ModuleDesign(
    "QwenImageTransformer2DModel",
    {
        "patch_size": 2,
        "in_channels": 64,
        "out_channels": 16,
        "num_layers": 60,
        "attention_head_dim": 128,
        "num_attention_heads": 24,
        "joint_attention_dim": 3584,
        "axes_dims_rope": (16, 56, 56),
    },
    {
        "num_layers": 6,
        "attention_head_dim": 16,
        "num_attention_heads": 2,
        "joint_attention_dim": 32,
        "axes_dims_rope": (4, 6, 6),
    },
)

# PixArt-alpha/PixArt-Sigma-XL-2-1024-MS (arXiv:2403.04692).
PIXART_SIGMA = ModuleDesign(
    "PixArtTransformer2DModel",
    {
        "sample_size": 128,
        "num_layers": 28,
        "attention_head_dim": 72,
        "num_attention_heads": 16,
        "in_channels": 4,
        "out_channels": 8,
        "cross_attention_dim": 1152,
        "caption_channels": 4096,
        "interpolation_scale": 2,
        "use_additional_conditions": False,
    },
    {
        # The smallest size whose aspect ratios the pipeline knows.
        "sample_size": 32,
        "num_layers": 2,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "cross_attention_dim": 32,
        "caption_channels": 64,
        "interpolation_scale": 1,
    },
)

# Efficient-Large-Model/Sana_1600M_1024px_BF16_diffusers (arXiv:2410.10629).
SANA_1600M = ModuleDesign(
    "SanaTransformer2DModel",
    {
        "sample_size": 32,
        "patch_size": 1,
        "in_channels": 32,
        "out_channels": 32,
        "num_layers": 20,
        "attention_head_dim": 32,
        "num_attention_heads": 70,
        "num_cross_attention_heads": 20,
        "cross_attention_head_dim": 112,
        "cross_attention_dim": 2240,
        "caption_channels": 2304,
        "mlp_ratio": 2.5,
    },
    {
        # The smallest size whose aspect ratios the pipeline knows.
        "sample_size": 16,
        "in_channels": 4,
        "out_channels": 4,
        "num_layers": 2,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "num_cross_attention_heads": 4,
        "cross_attention_head_dim": 8,
        "cross_attention_dim": 32,
        "caption_channels": 32,
    },
)
