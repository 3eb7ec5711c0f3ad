"""How the mini artists learn to take noise away: noise, U-Net and loss of both layouts."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import DDIMScheduler, UNet2DConditionModel
from diffusers.models.attention_processor import AttnProcessor
from torch import nn

BATCH = 64
UNPROMPTED = 0.1
"""Share of pictures learned without a prompt, for guidance."""


def scheduler() -> DDIMScheduler:
    """Stable Diffusion's noise, rescaled to end in pure noise (arXiv:2305.08891)."""
    return DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
        set_alpha_to_one=True,
        steps_offset=1,
    )


def small_unet(finest: str, width: int, **layout: Any) -> UNet2DConditionModel:
    """An untrained U-Net of 8 x 8 latents of 8 channels.

    Convolutions come before the first attention, which knows places by their padding alone.
    Torch's fused attention would take half of a training step in bfloat16 on a CPU.

    Args:
        finest: Type of the last block, where latents are finest.
        width: Of the prompts' vectors.
        **layout: What else the published configuration has.
    """
    unet = UNet2DConditionModel(
        sample_size=8,
        in_channels=8,
        out_channels=8,
        block_out_channels=(64, 96),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", finest),
        layers_per_block=1,
        norm_num_groups=8,
        attention_head_dim=4,
        cross_attention_dim=width,
        **layout,
    )
    unet.set_attn_processor(AttnProcessor())
    return unet


def noise_loss(
    unet: nn.Module,
    noises: DDIMScheduler,
    latents: torch.Tensor,
    prompts: torch.Tensor,
    **conditions: Any,
) -> torch.Tensor:
    """Mean squared error of the predicted velocity (arXiv:2202.00512).

    Much noise comes more often than little: what stands where is settled there.
    """
    times = (1000 * torch.rand(len(latents)).sqrt()).long()
    noise = torch.randn_like(latents)
    noisy = noises.add_noise(latents, noise, times)
    with torch.autocast("cpu", torch.bfloat16):
        predicted = unet(noisy, times, prompts, **conditions).sample
    return nn.functional.mse_loss(
        predicted.float(), noises.get_velocity(latents, noise, times)
    )
