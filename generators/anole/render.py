"""The rendering stage of Anole: VQ codes in, pixels out, many images at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from generators.anole.models import load_codec
from generators.anole.settings import AnoleRenderSettings
from generators.base import Failure, Outcome, Result, Weights
from generators.content import answered
from generators.decoding.payloads import received
from generators.document import ImageRequest
from generators.images import Drawing


class AnoleRender:
    """Draws what `AnoleDraft` asked for; takes the fields of `AnoleRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.codec = load_codec(weights, AnoleRenderSettings(**settings))

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request, in order; a request without valid codes fails."""
        return answered([self._codes(request) for request in inputs], self._decoded)

    def _decoded(self, grids: Sequence[Tensor]) -> list[Outcome[Drawing]]:
        images = self.codec.decode(torch.stack(list(grids)))
        return [Result(Drawing(pixels), {"images": 1}) for pixels in images]

    def _codes(self, request: ImageRequest) -> Tensor | Failure:
        given = received(request, "codes", seeded=False)
        if isinstance(given, Failure):
            return given
        (codes,) = given
        side, size = self.codec.side, self.codec.size
        if codes.shape != (side, side):
            shape = tuple(codes.shape)
            return Failure(f"the payload holds codes of {shape}, not ({side}, {side})")
        if codes.min() < 0 or codes.max() >= size:
            return Failure(f"code {codes.max()} is not in the codebook of {size} entries")
        return codes
