"""GILL's frozen networks: an OPT that knows the image tokens, and CLIP's vision tower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from PIL import Image as Pillow
from torch import Tensor, nn

from generators.document import Image
from generators.gill.tokens import GillTokens
from generators.loading.files import (
    Files,
    configured,
    count,
    read_json,
    section,
    stored_tensors,
)
from generators.loading.strict import Layout, Place, fill, identical
from generators.pictures import decode

_EMBEDDINGS = "decoder.embed_tokens.weight"


@dataclass(frozen=True)
class GillLanguage:
    """A decoder that reads embeddings and writes ids."""

    decoder: Any
    """transformers' `OPTDecoder`."""
    tokens: GillTokens
    context: int
    """The maximum length of a sequence, in tokens."""

    @property
    def embeddings(self) -> Tensor:
        """(ids, width); they are also the output layer."""
        weight: Tensor = self.decoder.embed_tokens.weight
        return weight

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Embeddings (ids, width)."""
        return self.embeddings[torch.tensor(list(ids), device=self.embeddings.device)]

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (rows, ids) in float32, of states (rows, width) after the last norm."""
        return (hidden @ self.embeddings.T).float()


def language_model(config: Any) -> Any:
    """An empty `OPTModel` on the meta device."""
    from transformers import AutoModel

    with torch.device("meta"):
        model = AutoModel.from_config(config, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def opt_config(files: Files) -> Any:
    """The `OPTConfig` of a published OPT; CheckpointError when it is not valid."""
    from transformers import OPTConfig

    path = files.need("config.json")
    values = read_json(path)
    count(values, "vocab_size", str(path))
    return configured(OPTConfig, values, str(path))


def published_language(
    files: Files,
    tokens: GillTokens,
    vokens: Tensor,
    device: torch.device,
    dtype: torch.dtype,
) -> GillLanguage:
    """A published OPT, its embeddings extended to all `tokens`, the last being `vokens`.

    Raises CheckpointError when the checkpoint does not fit.
    """
    config = opt_config(files)
    stored_rows, config.vocab_size = config.vocab_size, tokens.size
    model = language_model(config)
    fill(
        model,
        _tensors(files),
        _layout(model, stored_rows, tokens),
        source=f"language model {files.model!r}",
        device=device,
        dtype=dtype,
        tolerated=("lm_head.weight",),
    )
    language = GillLanguage(model.decoder, tokens, config.max_position_embeddings)
    language.embeddings[-len(vokens) :] = vokens.to(language.embeddings)
    return language


def _tensors(files: Files) -> Iterator[tuple[str, Tensor]]:
    """OPT's tensors; files of `OPTModel` and `OPTForCausalLM` differ in a prefix."""
    for name, tensor in stored_tensors(files):
        yield name.removeprefix("model."), tensor


def _layout(model: Any, stored_rows: int, tokens: GillTokens) -> Layout:
    layout = dict(identical(model.state_dict()))

    def extended(tensor: Tensor) -> Tensor:
        """Rows of all ids; upstream resizes the table and overwrites its last rows."""
        if len(tensor) != stored_rows or stored_rows < tokens.vokens[0]:
            raise IndexError
        missing = tensor.new_zeros(max(0, tokens.size - stored_rows), *tensor.shape[1:])
        return torch.cat([tensor[: tokens.size], missing])

    layout[_EMBEDDINGS] = Place(_EMBEDDINGS, extended)
    return layout


_PREFIX = "vision_model."
_MAX_BATCH = 64
"""Maximum number of pictures in one pass through the tower."""


class GillVision:
    """Turns pictures into embeddings of the language model."""

    def __init__(
        self, tower: Any, processor: Any, projection: nn.Linear, tokens: int
    ) -> None:
        self.tower = tower
        self._processor = processor
        self.projection = projection
        self.tokens = tokens
        """Embeddings per picture."""

    def pixels(self, image: Image, resize: Literal["squash", "crop"]) -> Tensor:
        """The tower's input (3, side, side); PictureError for a broken picture.

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
            for part in torch.split(pixels, _MAX_BATCH)
        ]
        embedded: Tensor = self.projection(torch.cat(pooled))
        return embedded.view(len(pixels), self.tokens, -1)


def vision_tower(config: Any) -> Any:
    """An empty `CLIPVisionModel`: parameters on the meta device, buffers real."""
    from accelerate import init_empty_weights
    from transformers import AutoModel

    with init_empty_weights(include_buffers=False):
        model = AutoModel.from_config(config, attn_implementation="sdpa")
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
    """The preprocessing of the published CLIP, with Pillow as in upstream."""
    from transformers import CLIPImageProcessorPil

    values = read_json(files.need("preprocessor_config.json"))
    return CLIPImageProcessorPil.from_dict(values)


def plain_processor(side: int) -> Any:
    """CLIP's preprocessing for a tower of that many pixels a side."""
    from transformers import CLIPImageProcessorPil

    crop = {"height": side, "width": side}
    return CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=crop)
