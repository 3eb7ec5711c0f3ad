"""The autoencoders of the published text-to-image models; plain data (`parts`)."""

from __future__ import annotations

from typing import Any

from generators.diffusion.parts import ModuleDesign

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


VAE_16 = vae(
    sample_size=1024,
    latent_channels=16,
    scaling_factor=0.3611,
    shift_factor=0.1159,
    **WITHOUT_QUANT_CONV,
)
"""FLUX.1's, which Z-Image draws with too."""

VAE_SD3 = vae(
    sample_size=1024,
    latent_channels=16,
    scaling_factor=1.5305,
    shift_factor=0.0609,
    **WITHOUT_QUANT_CONV,
)
"""Of Stable Diffusion 3 and 3.5."""

VAE_FLUX2 = ModuleDesign(
    "AutoencoderKLFlux2",
    {"latent_channels": 32, "sample_size": 1024},
    {
        "block_out_channels": (16, 16, 16, 16),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "latent_channels": 4,
        "sample_size": 64,
    },
)
"""black-forest-labs/FLUX.2-klein-4B: of 2 x 2 patches, scaled by running statistics."""

VAE_QWEN = ModuleDesign(
    "AutoencoderKLQwenImage",
    {
        "base_dim": 96,
        "z_dim": 16,
        "dim_mult": [1, 2, 4, 4],
        "num_res_blocks": 2,
        "temperal_downsample": [False, True, True],
    },
    {"base_dim": 8, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1},
)
"""Qwen/Qwen-Image: a video autoencoder, of one frame here."""

DC_AE = ModuleDesign(
    "AutoencoderDC",
    {
        "latent_channels": 32,
        "encoder_block_types": ("ResBlock",) * 3 + ("EfficientViTBlock",) * 3,
        "decoder_block_types": ("ResBlock",) * 3 + ("EfficientViTBlock",) * 3,
        "encoder_block_out_channels": (128, 256, 512, 512, 1024, 1024),
        "decoder_block_out_channels": (128, 256, 512, 512, 1024, 1024),
        "encoder_layers_per_block": (2, 2, 2, 3, 3, 3),
        "decoder_layers_per_block": (3, 3, 3, 3, 3, 3),
        "encoder_qkv_multiscales": ((), (), (), (5,), (5,), (5,)),
        "decoder_qkv_multiscales": ((), (), (), (5,), (5,), (5,)),
        "upsample_block_type": "interpolate",
        "downsample_block_type": "Conv",
        "scaling_factor": 0.41407,
    },
    {
        "latent_channels": 4,
        "attention_head_dim": 4,
        "encoder_block_out_channels": (4, 4, 8, 8, 8, 8),
        "decoder_block_out_channels": (4, 4, 8, 8, 8, 8),
        "encoder_layers_per_block": (1,) * 6,
        "decoder_layers_per_block": (1,) * 6,
    },
)
"""mit-han-lab/dc-ae-f32c32-sana-1.0 (arXiv:2410.10733), as SANA ships it."""
