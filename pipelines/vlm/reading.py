"""What a model's decoder reads of encoded prompts: embeddings and position ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from generators.memo import Memo

ImageInput = dict[str, Tensor]
"""The vision model's inputs for one image, by the names of the processor."""

_IMAGES_AT_ONCE = 16
"""More at once take longer on a CPU, where their states then exceed its caches."""
_REMEMBERED_BYTES = 2**30
"""Of images' features, kept in the host's memory."""
_PER_TOKEN = ("input_ids", "attention_mask", "mm_token_type_ids")


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt as the decoder reads it."""

    embeddings: Tensor
    """(positions, width)."""
    position_ids: Tensor
    """(positions, axes); see `generators.decoding.places`."""
    ids: Tensor
    """(positions,); those of an image's positions are all its placeholder's."""


class EmbeddedPromptReader:
    """Reads what a processor has encoded for Qwen2-VL, Qwen2.5-VL or LLaVA-NeXT.

    An image that was read lately, with this prompt or another, is not read again.
    """

    def __init__(self, model: Any) -> None:
        """`model` is the `...ForConditionalGeneration` of transformers."""
        self._model = model.model
        self._embedding = model.get_input_embeddings()
        self._image_id: int = model.config.image_token_id
        self._has_mrope = hasattr(self._model, "get_rope_index")
        self.axes = 3 if self._has_mrope else 1
        """How many numbers say where a token stands."""
        self._features: Memo[str, ImageInput, Tensor] = Memo(
            self._read_images, _IMAGES_AT_ONCE, _REMEMBERED_BYTES, lambda f: f.nbytes
        )

    @torch.inference_mode()
    def __call__(self, inputs: Any, images: Sequence[Sequence[str]]) -> list[ReadPrompt]:
        """Read every prompt of `inputs`, which the processor has padded.

        `images` are the digests of each prompt's images.
        """
        digests = [digest for own in images for digest in own]
        each = list(_of_each_image(inputs)) if digests else []
        features = self._features(dict(zip(digests, each, strict=True)))
        grids = (image.get("image_grid_thw") for image in each)
        return [
            self._prompt(
                {name: inputs[name][row] for name in _PER_TOKEN if name in inputs},
                [features[digest] for digest in own],
                list(islice(grids, len(own))),
            )
            for row, own in enumerate(images)
        ]

    def _prompt(
        self,
        padded: dict[str, Tensor],
        features: Sequence[Tensor],
        grids: Sequence[Tensor | None],
    ) -> ReadPrompt:
        real = padded.pop("attention_mask").bool()
        tokens = {name: values[real].cpu() for name, values in padded.items()}
        ids = tokens["input_ids"]
        embeddings = self._embedding(ids.to(self._embedding.weight.device))
        if features:
            at = (ids == self._image_id).to(embeddings.device)
            embeddings[at] = torch.cat(list(features)).to(embeddings)
        return ReadPrompt(embeddings, self._position_ids(tokens, grids), ids)

    def _position_ids(
        self, tokens: dict[str, Tensor], grids: Sequence[Tensor | None]
    ) -> Tensor:
        ids = tokens["input_ids"]
        if not self._has_mrope:
            return torch.arange(len(ids))[:, None]
        known = [grid for grid in grids if grid is not None]
        position_ids, _ = self._model.get_rope_index(
            ids[None],
            mm_token_type_ids=tokens["mm_token_type_ids"][None],
            image_grid_thw=torch.cat(known).cpu() if known else None,
        )
        of_prompt: Tensor = position_ids[:, 0].T
        return of_prompt

    def _read_images(self, images: list[ImageInput]) -> list[Tensor]:
        """Return features (positions, width) of each image, in the host's memory."""
        inputs = {
            name: self._moved(torch.cat([image[name] for image in images]))
            for name in images[0]
        }
        read = self._model.get_image_features(**inputs, return_dict=True)
        # Copies: parts of one tensor would keep all of it.
        return [features.to("cpu", copy=True) for features in read.pooler_output]

    def _moved(self, values: Tensor) -> Tensor:
        weight = self._embedding.weight
        dtype = weight.dtype if values.is_floating_point() else values.dtype
        return values.to(weight.device, dtype)


def _of_each_image(inputs: Any) -> Iterator[ImageInput]:
    """Yield the vision model's inputs of all prompts, image by image."""
    pixels = inputs["pixel_values"]
    if "image_grid_thw" not in inputs:
        for tiles, size in zip(pixels, inputs["image_sizes"], strict=True):
            yield {"pixel_values": tiles[None], "image_sizes": size[None]}
        return
    # Patches of all images, one after another, without a dimension for images.
    grids = inputs["image_grid_thw"]
    for patches, grid in zip(pixels.split(grids.prod(-1).tolist()), grids, strict=True):
        yield {"pixel_values": patches, "image_grid_thw": grid[None]}
