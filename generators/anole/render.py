"""The rendering stage of Anole: VQ codes in, pixels out, many pictures at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from generators.anole.codec import Codes, unpack_codes
from generators.anole.models import load_codec
from generators.anole.settings import AnoleRenderSettings
from generators.base import Failure, Outcome, Result, Weights
from generators.content import answered
from generators.document import ImageRequest
from generators.loading.strict import device_of
from generators.pictures import Drawing


class AnoleRender:
    """Draws what `AnoleDraft` asked for; takes the fields of `AnoleRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        own = AnoleRenderSettings(**settings)
        device = device_of(own.device)
        self._codec = load_codec(weights, own.model, own.revision, device)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """One picture per request, in order; a request without valid codes fails."""
        return answered([self._codes(request) for request in inputs], self._decoded)

    def _decoded(self, grids: Sequence[Codes]) -> list[Outcome[Drawing]]:
        pictures = self._codec.decode(np.stack(grids))
        return [Result(Drawing(pixels), {"images": 1}) for pixels in pictures]

    def _codes(self, request: ImageRequest) -> Codes | Failure:
        if request.payload is None:
            return Failure("the request holds no payload; Anole draws from VQ codes only")
        try:
            codes = unpack_codes(request.payload)
        except ValueError as error:
            return Failure(str(error))
        side, size = self._codec.side, self._codec.size
        if codes.shape != (side, side):
            return Failure(f"the payload holds {codes.shape} codes, not ({side}, {side})")
        if codes.min() < 0 or codes.max() >= size:
            return Failure(f"code {codes.max()} is not in the codebook of {size} entries")
        return codes
