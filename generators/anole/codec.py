"""Pictures to VQ codes and back: `diffusers.VQModel` in float32, whatever the LM runs in.

In bfloat16 about one code in twenty changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from generators.checkpoints import CheckpointError


def vq_model(config: Mapping[str, Any]) -> Any:
    """An empty `diffusers.VQModel` for the `vq_config` of a Chameleon checkpoint."""
    from diffusers import VQModel

    if config.get("attn_resolutions") or config.get("double_latent"):
        raise CheckpointError(
            "vq_config: attention between the levels (attn_resolutions) and "
            "double_latent are not supported; published checkpoints have neither"
        )
    widths = [config["base_channels"] * m for m in config["channel_multiplier"]]
    return VQModel(
        in_channels=config.get("in_channels", 3),
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * len(widths),
        up_block_types=("UpDecoderBlock2D",) * len(widths),
        block_out_channels=tuple(widths),
        layers_per_block=config["num_res_blocks"],
        latent_channels=config["latent_channels"],
        num_vq_embeddings=config["num_embeddings"],
        vq_embed_dim=config["embed_dim"],
        mid_block_add_attention=config.get("attn_type", "vanilla") == "vanilla",
        lookup_from_codebook=True,
    )


class Codec:
    """A VQ model that speaks in grids of codes."""

    def __init__(self, model: Any, config: Mapping[str, Any]) -> None:
        self._model = model.eval()
        for attention in model.decoder.mid_block.attentions:
            attention.register_forward_hook(_contiguous)
        self.resolution: int = config["resolution"]
        """Pixels along a side of a picture."""
        levels = len(config["channel_multiplier"])
        self.side: int = self.resolution // 2 ** (levels - 1)
        """Codes along a side of a picture."""
        self.size: int = config["num_embeddings"]
        """Entries of the codebook."""

    @torch.inference_mode()
    def encode(self, pixels: Tensor) -> npt.NDArray[np.int32]:
        """Codes (height, width) of one picture (3, resolution, resolution) in [-1, 1]."""
        with _full_precision():
            latents = self._model.encode(pixels[None].to(self._device)).latents
            _, _, (_, _, codes) = self._model.quantize(latents)
        return _as_int32(codes.view(self.side, self.side))

    @torch.inference_mode()
    def decode(self, codes: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """Pixels (batch, height, width, 3) of codes (batch, side, side).

        Values are cut to [-1, 1] and truncated, not rounded, to 8 bits, as upstream
        does (`_pil_from_chw_tensor`, image_tokenizer.py).
        """
        scaled = (self.values(codes).clamp(-1, 1) + 1) / 2 * 255
        pixels: npt.NDArray[np.uint8] = (
            scaled.permute(0, 2, 3, 1).to("cpu", torch.uint8).numpy()
        )
        return pixels

    @torch.inference_mode()
    def values(self, codes: npt.NDArray[np.int32]) -> Tensor:
        """What the decoder makes of codes: (batch, 3, height, width), about [-1, 1]."""
        grids = torch.from_numpy(codes.astype(np.int64)).to(self._device)
        shape = (len(codes), self.side, self.side, self._model.config.vq_embed_dim)
        with _full_precision():
            decoded = self._model.decode(grids, force_not_quantize=True, shape=shape)
        sample: Tensor = decoded.sample
        return sample

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self._model.parameters()).device
        return device


def _full_precision() -> Any:
    # cuDNN rounds float32 convolutions to TF32 unless told otherwise.
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    )


def _contiguous(module: torch.nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """The attention's output in the usual order of memory.

    It is channels-last otherwise, and torch's GroupNorm of such a batch on a CPU sums with
    errors of up to 5e-4 in the decoded values, against 2e-5 of a picture alone.
    """
    return output.contiguous()


def _as_int32(codes: Tensor) -> npt.NDArray[np.int32]:
    return codes.to("cpu", torch.int32).numpy()
