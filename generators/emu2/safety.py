"""Emu2-Gen's safety checker, which judges finished pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as Pillow

from generators.loading.devices import device_of


class Checker:
    """Stable Diffusion's checker, on the device of the setting of that name."""

    def __init__(self, model: Any, device: str) -> None:
        from transformers import CLIPImageProcessor

        side = model.config.vision_config.image_size
        self._model = model.to(device_of(device))
        self._processor = CLIPImageProcessor(size={"shortest_edge": side}, crop_size=side)

    @torch.inference_mode()
    def blocks(self, pixels: npt.NDArray[np.uint8]) -> bool:
        """Whether it would black out the picture (height, width, 3)."""
        read = self._processor(Pillow.fromarray(pixels), return_tensors="pt").pixel_values
        # It writes over the pictures it is given.
        _, blocked = self._model(
            images=pixels[None].astype(np.float32) / 255.0,
            clip_input=read.to(self._model.device, self._model.dtype),
        )
        return bool(blocked[0])
