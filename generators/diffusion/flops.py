"""Floating-point operations of a text-to-image model, from its published configuration.

Those of products of matrices and of convolutions, two for a multiplication and an addition,
as torch's FlopCounterMode counts them on the modules themselves. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait.generators.diffusion.designs import PipelineDesign

DECODER_FLOPS_PER_PIXEL = 1.0e7
"""Of Stable Diffusion's autoencoder, from latents to an image (counted at 512 and 1024)."""
_CLIP_TOKENS = 77


def evaluation_flops(design: PipelineDesign, pixels: int, text_tokens: int) -> float:
    """Return the operations of evaluating a denoiser once, for one image of `pixels`."""
    if "unet" in design.modules:
        return _unet(design.config("unet", tiny=False), pixels / 64)
    config = design.config("transformer", tiny=False)
    # Latents of 8 x 8 pixels in patches of 2 x 2; Sana's autoencoder has 32 x 32, and that
    # of Cosmos 3 has 16 x 16.
    side = 32 if design.modules["vae"][0] in ("AutoencoderDC", "AutoencoderKLWan") else 16
    joint = {"joint_attention_dim", "cap_feat_dim", "latent_patch_size"} & config.keys()
    read = text_tokens + _CLIP_TOKENS * ("pooled_projection_dim" in config)
    return _transformer(config, pixels / side**2 + read * bool(joint))


def block_count(design: PipelineDesign) -> int:
    """Return the blocks of layers, residual or of attention, of an evaluation."""
    if "unet" not in design.modules:
        return _blocks(design.config("transformer", tiny=False))
    config = design.config("unet", tiny=False)
    levels = len(config["block_out_channels"])
    kinds, depths = _levels(config)
    attended = 0
    for kind, depth in zip(kinds, depths, strict=False):
        if "CrossAttn" in kind:
            attended += depth
    # Two residual blocks a level on the way down, three up, and two in the middle; one of
    # attention stands behind each, but behind one only in the middle.
    return int(5 * levels + 2 + 5 * attended + depths[-1])


def is_guided(design: PipelineDesign, guidance: float | None) -> bool:
    """Return whether each step evaluates the denoiser a second time, without the prompt."""
    transformer = "transformer" in design.modules
    config = design.config("transformer", tiny=False) if transformer else {}
    return guidance is not None and guidance > 1 and not config.get("guidance_embeds")


def _transformer(config: Mapping[str, Any], tokens: float) -> float:
    """A block has 12 matrices of width x width: four of attention, eight of the MLP."""
    width = config.get("dim") or config.get("hidden_size")
    if width is None:
        width = config["attention_head_dim"] * config["num_attention_heads"]
    return float(2 * _blocks(config) * tokens * width * (12 * width + 2 * tokens))


def _blocks(config: Mapping[str, Any]) -> int:
    """Return the blocks of a transformer."""
    if "dim" in config:
        return int(config["n_layers"] + config["n_refiner_layers"])
    if "num_hidden_layers" in config:
        return int(config["num_hidden_layers"])
    return int(config["num_layers"] + config.get("num_single_layers", 0))


def _levels(config: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[int]]:
    """Return the kinds of a UNet's levels, and how many blocks of attention each has."""
    widths = config["block_out_channels"]
    kinds = config.get("down_block_types", ["CrossAttn"] * (len(widths) - 1) + ["Down"])
    return kinds, config.get("transformer_layers_per_block", [1] * len(widths))


def _unet(config: Mapping[str, Any], latents: float) -> float:
    """A UNet2DConditionModel: two residual blocks a level on the way down, three up."""
    widths = config["block_out_channels"]
    last = len(widths) - 1
    kinds, depths = _levels(config)

    def residual(read: float, width: float) -> float:
        return 9 * width * (read + width) + (read * width if read != width else 0)

    def attention_of(level: int) -> float:
        # Self-attention, queries and output of cross-attention, gated MLP; projections.
        width = widths[level]
        positions = latents / 4**level
        block = (4 + 2 + 12) * width**2 + 2 * positions * width
        return float(depths[level] * block + 2 * width**2)

    total = (2 * residual(widths[last], widths[last]) + attention_of(last)) / 4**last
    for level, width in enumerate(widths):
        above = widths[max(level - 1, 0)]
        below = widths[min(level + 1, last)]
        read = (above, width, below + width, 2 * width, width + above)
        blocks = sum(residual(channels, width) for channels in read)
        attention = 5 * attention_of(level) if "CrossAttn" in kinds[level] else 0.0
        # To a quarter of the positions below, from there to four times as many above.
        resampled = 9 * width**2 * ((level < last) / 4 + 4 * (level > 0))
        total += (blocks + attention + resampled) / 4**level
    return float(2 * latents * total)
