"""The rendering stage of Emu2: vectors in, pixels out, checked by its safety checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as Pillow
from torch import Tensor

from generators.base import Failure, Fault, Outcome, Result, Weights
from generators.diffusion.drawer import Drawer
from generators.document import ImageRequest
from generators.emu2.reading import unpack_vectors
from generators.emu2.settings import Emu2RenderSettings
from generators.emu2.unet import published
from generators.loading.strict import device_of
from generators.pictures import Drawing


class SafetyChecker:
    """Stable Diffusion's checker, on the device of the setting of that name."""

    def __init__(self, model: Any, device: str) -> None:
        from transformers import CLIPImageProcessor

        side = model.config.vision_config.image_size
        self._model = model.to(device_of(device))
        self._processor = CLIPImageProcessor(size={"shortest_edge": side}, crop_size=side)

    @torch.inference_mode()
    def blocks(self, pixels: npt.NDArray[np.uint8]) -> bool:
        """Whether it would black out the picture (height, width, 3)."""
        inputs = self._processor(Pillow.fromarray(pixels), return_tensors="pt").pixel_values
        # The checker overwrites the pictures it is given.
        _, blocked = self._model(
            images=pixels[None].astype(np.float32) / 255.0,
            clip_input=inputs.to(self._model.device, self._model.dtype),
        )
        return bool(blocked[0])


Vectors = tuple[Tensor, Tensor]
"""With the prompt and without, each (queries, width)."""


class Emu2Render:
    """Draws from the vectors of `Emu2Condition`; takes the fields of `Emu2RenderSettings`.

    The vectors are SDXL's text embeddings, their mean its pooled ones, and guidance
    starts from the unconditional ones (`EmuVisualGeneration`, emu/diffusion.py).
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        own = Emu2RenderSettings(**settings)
        self.drawer = Drawer(own, weights, published)
        self.drawer.arguments["original_size"] = own.original_size
        checker = getattr(self.drawer.pipeline, "safety_checker", None)
        self._checker = None if checker is None else SafetyChecker(checker, own.device)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """One picture per request, in order; a request without valid vectors fails."""
        outcomes: dict[int, Outcome[Drawing]] = {}
        valid: dict[int, dict[int, Vectors]] = {}
        for i, request in enumerate(inputs):
            vectors = self._vectors(request)
            if isinstance(vectors, Failure):
                outcomes[i] = vectors
            else:
                # Vectors of one number can be drawn together; a checkpoint has only one.
                valid.setdefault(len(vectors[0]), {})[i] = vectors
        for batch in valid.values():
            seeds = [inputs[i].seed or 0 for i in batch]
            outcomes |= zip(batch, self._draw([*batch.values()], seeds), strict=True)
        return [outcomes[i] for i in range(len(inputs))]

    def _vectors(self, request: ImageRequest) -> Vectors | Failure:
        if request.payload is None:
            return Failure("the request holds no payload; Emu2 draws from vectors only")
        if request.seed is None:
            return Failure("the request has no seed")
        try:
            vectors, free = unpack_vectors(request.payload)
        except ValueError as error:
            return Failure(str(error))
        width = self.drawer.pipeline.unet.config.cross_attention_dim
        if vectors.dim() != 2 or vectors.shape[1] != width or vectors.shape != free.shape:
            shapes = f"{tuple(vectors.shape)} and {tuple(free.shape)}"
            return Failure(f"the payload holds {shapes}, not twice (queries, {width})")
        return vectors, free

    def _draw(
        self, valid: Sequence[Vectors], seeds: Sequence[int]
    ) -> list[Outcome[Drawing]]:
        dtype = self.drawer.pipeline.unet.dtype
        vectors, free = (torch.stack(v).to(dtype) for v in zip(*valid, strict=True))
        conditions: dict[str, Any] = {
            "prompt_embeds": vectors,
            "pooled_prompt_embeds": vectors.mean(dim=1),
            "negative_prompt_embeds": free,
            "negative_pooled_prompt_embeds": free.mean(dim=1),
        }
        outcomes = self.drawer(conditions, seeds)
        return [self._checked(outcome) for outcome in outcomes]

    def _checked(self, outcome: Outcome[Drawing]) -> Outcome[Drawing]:
        if self._checker is None or not isinstance(outcome, Result):
            return outcome
        if not self._checker.blocks(outcome.value.pixels):
            return outcome
        reason = "the checkpoint's safety checker blocked the picture"
        return Failure(reason, Fault.UNSAFE, outcome.usage, outcome.notes)
