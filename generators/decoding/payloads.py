"""What a model hands to its renderer, as safetensors; and the renderer of VQ codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from plait.generators.base import Failure, Outcome, Result
from plait.generators.content import answer_all
from plait.generators.document import ImageRequest, Payload
from plait.generators.images import Drawing


def pack(**tensors: Tensor) -> Payload:
    """Return the tensors as they are, by name."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        stored[name] = tensor.detach().cpu().contiguous()
    return Payload.of(save(stored))


def unpack(payload: Payload, *names: str) -> tuple[Tensor, ...]:
    """Return the tensors of these names; ValueError for a payload without them."""
    try:
        stored = load(payload.read())
        return tuple(stored[name] for name in names)
    except (SafetensorError, KeyError) as error:
        missing = " and ".join(map(repr, names))
        raise ValueError(f"the payload holds no tensor {missing}: {error}") from None


def receive(
    request: ImageRequest, *names: str, seeded: bool = True
) -> tuple[Tensor, ...] | Failure:
    """Return the tensors of a request's payload, or why it cannot be drawn."""
    if request.payload is None:
        return Failure(
            f"the request holds no payload with {' and '.join(names)} to draw from"
        )
    if seeded and request.seed is None:
        return Failure("the request has no seed to draw its noise from")
    try:
        return unpack(request.payload, *names)
    except ValueError as error:
        return Failure(str(error))


class CodeDecoder(ABC):
    """Turns grids of codes into images."""

    side: int
    """Codes along a side of an image."""
    size: int
    """Entries of the codebook."""

    @torch.inference_mode()
    def decode(self, codes: Tensor) -> npt.NDArray[np.uint8]:
        """Return pixels (batch, height, width, 3) of codes (batch, side, side).

        Values are clamped to [-1, 1] and truncated, not rounded, to 8 bits, as upstream
        does: Anole (`_pil_from_chw_tensor`, image_tokenizer.py), and `postprocess` of
        transformers' Janus.
        """
        scaled = (self.values(codes).clamp(-1, 1) + 1) / 2 * 255
        pixels = scaled.permute(0, 2, 3, 1).to("cpu", torch.uint8)
        values: npt.NDArray[np.uint8] = pixels.numpy()
        return values

    @abstractmethod
    def values(self, codes: Tensor) -> Tensor:
        """Return the decoder's output of codes: (batch, 3, height, width), near [-1, 1]."""


def full_precision() -> Any:
    """Return a context in which cuDNN does not round float32 convolutions to TF32."""
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    )


class CodesRender:
    """Draws the codes of a draft or of a condition, many images at once."""

    codec: CodeDecoder

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request, in order; a request without valid codes fails."""
        return answer_all([self._codes(request) for request in inputs], self._decode)

    def _decode(self, grids: Sequence[Tensor]) -> list[Outcome[Drawing]]:
        images = self.codec.decode(torch.stack(list(grids)))
        return [Result(Drawing(pixels), {"images": 1}) for pixels in images]

    def _codes(self, request: ImageRequest) -> Tensor | Failure:
        given = receive(request, "codes", seeded=False)
        if isinstance(given, Failure):
            return given
        (codes,) = given
        side = self.codec.side
        size = self.codec.size
        if codes.shape != (side, side):
            shape = tuple(codes.shape)
            return Failure(f"the payload holds codes of {shape}, not ({side}, {side})")
        if codes.min() < 0 or codes.max() >= size:
            return Failure(f"code {codes.max()} is not in the codebook of {size} entries")
        return codes
