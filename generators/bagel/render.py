"""The rendering stage of BAGEL: latents in, pixels out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from plait.generators.bagel.models import load_autoencoder
from plait.generators.bagel.pixels import from_patches
from plait.generators.bagel.settings import BagelRenderSettings
from plait.generators.base import Failure, Outcome, Result, Weights
from plait.generators.content import answer_all
from plait.generators.decoding.payloads import receive
from plait.generators.document import ImageRequest
from plait.generators.images import Drawing
from plait.generators.overflow import no_numbers


class BagelRender:
    """Draws what `BagelCondition` made; takes the fields of `BagelRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        own = BagelRenderSettings(**settings)
        self.decoder = load_autoencoder(own, weights, "decoder")

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request, in order; a request without valid latents fails."""
        return answer_all([self._latents(request) for request in inputs], self._draw)

    def _latents(self, request: ImageRequest) -> Tensor | Failure:
        """Return latents (channels, height, width)."""
        given = receive(request, "latents", "grid", seeded=False)
        if isinstance(given, Failure):
            return given
        latents, grid = given
        square = self.decoder.channels * self.decoder.patch**2
        rows, columns = grid.tolist() if grid.shape == (2,) else (0, 0)
        patches = rows * columns
        if patches < 1 or latents.shape != (patches, square):
            return Failure(
                f"the payload holds latents of {tuple(latents.shape)} for a grid of "
                f"{grid.tolist()}, not a row of {square} values for each of its patches"
            )
        if not latents.isfinite().all():
            return no_numbers("the payload's latents", latents.dtype)
        return from_patches(latents, rows, self.decoder.patch)

    def _draw(self, latents: Sequence[Tensor]) -> list[Outcome[Drawing]]:
        """Return the images; those of one size are decoded together."""
        places_of: dict[torch.Size, list[int]] = {}
        for place, own in enumerate(latents):
            places_of.setdefault(own.shape, []).append(place)
        drawn: dict[int, Outcome[Drawing]] = {}
        for places in places_of.values():
            batch = torch.stack([latents[place] for place in places])
            drawn |= zip(places, map(_drawing, self.decoder.decode(batch)), strict=True)
        return [drawn[place] for place in range(len(latents))]


def _drawing(values: Tensor) -> Outcome[Drawing]:
    """Return the pixels of values (3, height, width), truncated as upstream does."""
    height, width = values.shape[1:]
    usage = {"images": 1}
    if not values.isfinite().all():
        return no_numbers("values of the image", values.dtype, usage)
    scaled = (values * 0.5 + 0.5).clamp(0, 1) * 255
    pixels = scaled.permute(1, 2, 0).to("cpu", torch.uint8).numpy()
    return Result(Drawing(pixels), usage, {"size": [width, height]})
