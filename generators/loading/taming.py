"""Autoencoders in the names of taming-transformers, filled into those of diffusers.

Chameleon's VQ model and FLUX.1's autoencoder are stored so (diffusionmodules/model.py of
CompVis/taming-transformers).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from plait.generators.loading.strict import Layout, Place, rename

_TAMING = [
    (r"conv_norm_out", "norm_out"),
    (r"conv_shortcut", "nin_shortcut"),
    (r"mid_block\.resnets\.0", "mid.block_1"),
    (r"mid_block\.resnets\.1", "mid.block_2"),
    (r"mid_block\.attentions\.0", "mid.attn_1"),
    (r"attn_1\.group_norm", "attn_1.norm"),
    (r"attn_1\.to_([qkv])", r"attn_1.\1"),
    (r"attn_1\.to_out\.0", "attn_1.proj_out"),
    (r"down_blocks\.(\d+)\.resnets", r"down.\1.block"),
    (r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample"),
    (r"up_blocks\.(\d+)\.resnets", r"up.\1.block"),
    (r"up_blocks\.(\d+)\.upsamplers\.0", r"up.\1.upsample"),
]
"""From diffusers' names to those of the file."""


def taming_layout(names: Iterable[str], levels: int, prefix: str = "") -> Layout:
    """Return the layout of a checkpoint for the parameters `names` of diffusers' model."""
    return {prefix + _name_in_file(name, levels): _place(name) for name in names}


def _name_in_file(name: str, levels: int) -> str:
    """Return taming's name of a parameter of diffusers' model of so many levels."""
    name = rename(name, _TAMING)
    level = re.match(r"decoder\.up\.(\d+)", name)
    if level is None:
        return name
    # taming counts the decoder's levels from the full resolution down, diffusers up.
    return f"decoder.up.{levels - 1 - int(level[1])}{name[level.end() :]}"


def _place(name: str) -> Place:
    """The attention's projections are 1 x 1 convolutions in the file."""
    if re.search(r"attentions\.0\.to_.*weight$", name):
        return Place(name, lambda kernel: kernel.reshape(kernel.shape[:2]))
    return Place(name)


@torch.no_grad()
def dim_random_images(decoder: Any) -> None:
    """Lower the contrast of what a decoder of random weights draws.

    Random activations are larger than trained ones: most pixels would be clamped.
    """
    decoder.conv_out.weight *= 0.3


def keep_contiguous(decoder: Any) -> None:
    """Have the attention in the middle of a decoder give contiguous memory.

    Otherwise it is channels-last, and torch's GroupNorm of such a batch on a CPU sums with
    errors of up to 5e-4 in the decoded values, against 2e-5 of an image alone.
    """
    for attention in decoder.mid_block.attentions:
        attention.register_forward_hook(_contiguous)


def _contiguous(module: torch.nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output.contiguous()
