"""Pictures in: CLIP's vision tower and a projection to a few embeddings each."""

from __future__ import annotations

from typing import Any, Literal

import torch
from PIL import Image as Pillow
from torch import Tensor, nn

from generators.document import Image
from generators.loading.files import Files, configured, read_json, section
from generators.loading.strict import fill, identical
from generators.loading.tensors import stored_tensors
from generators.pictures import decode

_PREFIX = "vision_model."
_TOGETHER = 64
"""Most pictures in one pass through the tower."""


class Vision:
    """Turns pictures into embeddings of the language model."""

    def __init__(
        self, tower: Any, processor: Any, projection: nn.Linear, tokens: int
    ) -> None:
        self.tower = tower
        self._processor = processor
        self.projection = projection
        self.tokens = tokens
        """Embeddings for one picture."""

    def prepared(self, image: Image, resize: Literal["squash", "crop"]) -> Tensor:
        """Pixels (3, side, side) as the tower reads them; PictureError for a broken one.

        `squash` is the bicubic resize of upstream's demo and notebook before CLIP's own
        processor, which then only scales the values.
        """
        picture = decode(image)
        if resize == "squash":
            crop = self._processor.crop_size
            side = (crop["width"], crop["height"])
            picture = picture.resize(side, Pillow.Resampling.BICUBIC)
        pixels = self._processor(picture, return_tensors="np").pixel_values
        return torch.from_numpy(pixels[0])

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        """Embeddings (pictures, tokens, width) of pixels (pictures, 3, side, side)."""
        weight = self.projection.weight
        pooled = [
            self.tower(pixel_values=part.to(weight)).pooler_output
            for part in torch.split(pixels, _TOGETHER)
        ]
        embedded: Tensor = self.projection(torch.cat(pooled))
        return embedded.view(len(pixels), self.tokens, -1)


def vision_tower(config: Any) -> Any:
    """An empty `CLIPVisionModel`: parameters on the meta device, buffers real."""
    from accelerate import init_empty_weights
    from transformers import CLIPVisionModel

    with init_empty_weights(include_buffers=False):
        model = CLIPVisionModel._from_config(config, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def published_tower(files: Files, device: torch.device, dtype: torch.dtype) -> Any:
    """The vision tower of a published CLIP; the text tower is not read."""
    from transformers import CLIPVisionConfig

    path = files.need("config.json")
    config = read_json(path)
    sizes = section({"vision_config": config} | config, "vision_config", str(path))
    tower = vision_tower(configured(CLIPVisionConfig, sizes, str(path)))
    fill(
        tower,
        stored_tensors(files, lambda name: name.startswith(_PREFIX)),
        identical(tower.state_dict(), _PREFIX),
        source=f"vision tower of {files.model!r}",
        device=device,
        dtype=dtype,
        tolerated=(f"{_PREFIX}embeddings.position_ids",),
    )
    return tower.to(device)


def published_processor(files: Files) -> Any:
    """How the published CLIP prepares pictures, by Pillow as upstream had it."""
    from transformers import CLIPImageProcessorPil

    told = read_json(files.need("preprocessor_config.json"))
    return CLIPImageProcessorPil.from_dict(told)


def plain_processor(side: int) -> Any:
    """CLIP's preparation for a tower of that many pixels a side."""
    from transformers import CLIPImageProcessorPil

    crop = {"height": side, "width": side}
    return CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=crop)
