"""Images to VQ codes and back.

`diffusers.VQModel` in float32, whatever the language model runs in: in bfloat16 about one
code in twenty changes. Images are prepared by the rule of `ImageTokenizer`
(image_tokenizer.py of GAIR-NLP/anole): blend on white and truncate, shorter side to the
resolution by Lanczos with both sides rounded, centre crop, scale to [-1, 1]. Hugging
Face's processor truncates the long side and scales otherwise.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as Pillow
from PIL import ImageOps
from torch import Tensor

from plait.generators.decoding.payloads import CodeDecoder, full_precision
from plait.generators.document import Image
from plait.generators.errors import CheckpointError
from plait.generators.images import MAX_PIXELS, ImageError, decode
from plait.generators.loading.taming import keep_contiguous


def encoder_input(image: Image, resolution: int) -> torch.Tensor:
    """Return the encoder's input: (3, resolution, resolution), float32 in [-1, 1].

    Raises ImageError for what `decode` refuses, and for images so long that they would
    exceed MAX_PIXELS once their shorter side has `resolution` pixels.
    """
    whole = on_white(image)
    scale = resolution / min(whole.size)
    width = round(scale * whole.width)
    height = round(scale * whole.height)
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"the image is too long for its width: {whole.width} x {whole.height} "
            f"pixels would become {width} x {height}; at most {MAX_PIXELS:,} are read"
        )
    scaled = whole.resize((width, height), Pillow.Resampling.LANCZOS)
    left = (width - resolution) // 2
    top = (height - resolution) // 2
    square = scaled.crop((left, top, left + resolution, top + resolution))
    values = np.asarray(square) / 255.0 * 2 - 1
    return torch.from_numpy(values).permute(2, 0, 1).float()


def on_white(image: Image) -> Pillow.Image:
    """Return the image as RGB; transparency is blended on white and truncated to 8 bits."""
    opaque = decode(image)
    pil_image: Pillow.Image = Pillow.open(io.BytesIO(image.read()))
    layered = pil_image.mode in ("RGBA", "LA", "PA", "RGBa", "La")
    if not layered and (pil_image.mode != "P" or "transparency" not in pil_image.info):
        return opaque
    # Broken metadata does not matter: `decode` has already read the pixels.
    with contextlib.suppress(Exception):
        pil_image = ImageOps.exif_transpose(pil_image)
    layers = np.asarray(pil_image.convert("RGBA"))
    if (layers[:, :, 3] == 255).all():
        return opaque
    alpha = layers[:, :, 3:] / 255.0
    blended = (1 - alpha) * 255 + alpha * layers[:, :, :3]
    return Pillow.fromarray(blended.astype(np.uint8))


def vq_model(config: Mapping[str, Any]) -> Any:
    """Return an empty `diffusers.VQModel` for a Chameleon checkpoint's `vq_config`."""
    from diffusers import VQModel

    if config.get("attn_resolutions") or config.get("double_latent"):
        raise CheckpointError(
            "vq_config: attention between the levels (attn_resolutions) and "
            "double_latent are not supported; published checkpoints have neither"
        )
    base = config["base_channels"]
    widths = [base * factor for factor in config["channel_multiplier"]]
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


class Codec(CodeDecoder):
    """A VQ model: images to grids of codes and back."""

    def __init__(self, model: Any, config: Mapping[str, Any]) -> None:
        self._model = model.eval()
        self._device = next(model.parameters()).device
        keep_contiguous(model.decoder)
        self.resolution: int = config["resolution"]
        """Pixels along a side of an image."""
        levels = len(config["channel_multiplier"])
        self.side = self.resolution // 2 ** (levels - 1)
        self.size = config["num_embeddings"]

    @torch.inference_mode()
    def encode(self, pixels: Tensor) -> npt.NDArray[np.int32]:
        """Return codes (side, side) of one image (3, resolution, resolution) in [-1, 1]."""
        with full_precision():
            latents = self._model.encode(pixels[None].to(self._device)).latents
            # (1, channels, side, side) give one code for each place, row by row.
            _, _, (_, _, codes) = self._model.quantize(latents)
        grid: npt.NDArray[np.int32] = codes.to("cpu", torch.int32).numpy()
        return grid.reshape(self.side, self.side)

    @torch.inference_mode()
    def values(self, codes: Tensor) -> Tensor:
        """Return the decoder's output of codes: (batch, 3, height, width), near [-1, 1]."""
        grids = codes.long().to(self._device)
        shape = (len(codes), self.side, self.side, self._model.config.vq_embed_dim)
        with full_precision():
            decoded = self._model.decode(grids, force_not_quantize=True, shape=shape)
        sample: Tensor = decoded.sample
        return sample
