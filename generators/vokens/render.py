"""The rendering stage of voken models: hidden states in, pictures out, in batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from generators.base import Failure, Outcome, Weights
from generators.content import answered
from generators.diffusion.drawer import Drawer
from generators.diffusion.placing import denoiser_of
from generators.diffusion.settings import DiffusionSettings
from generators.document import ImageRequest
from generators.errors import CheckpointError
from generators.pictures import Drawing
from generators.vokens.mapper import States, VokenMapper, unpack_states


class VokenRender:
    """Draws from voken states with a mapper and a diffusion pipeline."""

    def __init__(
        self,
        drawing: DiffusionSettings,
        weights: Weights,
        mapper: VokenMapper,
        shape: tuple[int, int],
        unconditional: Tensor | None = None,
    ) -> None:
        """Take the loaded mapper and the (vokens, width) of the states it reads.

        Guidance leads away from `unconditional` states of that shape; without them, from
        the pipeline's text encoding of the negative prompt, or of "".
        """
        self._mapper = mapper.eval().requires_grad_(False)
        self._shape = shape
        self._drawer = Drawer(drawing, weights)
        self._unconditional = None if unconditional is None else self._mapped(unconditional)
        self._check(drawing)

    def _check(self, drawing: DiffusionSettings) -> None:
        required = denoiser_of(self._drawer.pipeline).config.cross_attention_dim
        width = self._mapped(torch.zeros(self._shape)).shape[-1]
        if width != required:
            raise CheckpointError(
                f"the mapper gives vectors of {width}, but the denoiser of "
                f"{drawing.model!r} reads vectors of {required}"
            )
        if self._unconditional is not None and drawing.negative_prompt is not None:
            raise ValueError(
                "negative_prompt has no effect: this model guides away from its own "
                "unconditional states; leave it unset"
            )

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """One picture per request, in order.

        A request without a seed, or without finite states of the right shape, fails.
        """
        return answered([self._picture(request) for request in inputs], self._draw)

    def _picture(self, request: ImageRequest) -> tuple[States, int] | Failure:
        """States and seed of a request."""
        if request.payload is None:
            return Failure("the request holds no payload; this model draws from states")
        if request.seed is None:
            return Failure("the request has no seed to draw its noise from")
        try:
            states = unpack_states(request.payload)
        except ValueError as error:
            return Failure(str(error))
        if states.shape != self._shape:
            return Failure(f"the payload holds states {states.shape}, not {self._shape}")
        if not np.isfinite(states).all():
            return Failure("the payload holds states that are not finite numbers")
        return states, request.seed

    def _draw(self, pictures: Sequence[tuple[States, int]]) -> list[Outcome[Drawing]]:
        states = torch.from_numpy(np.stack([states for states, _ in pictures]))
        conditions: dict[str, Any] = {"prompt_embeds": self._mapped(states)}
        if self._unconditional is not None:
            negative = self._unconditional.expand(len(pictures), -1, -1)
            conditions["negative_prompt_embeds"] = negative
        return self._drawer(conditions, [seed for _, seed in pictures])

    @torch.inference_mode()
    def _mapped(self, states: Tensor) -> Tensor:
        """Embeddings (pictures, queries, out) of the states of one or several pictures."""
        batch = states if states.dim() == 3 else states[None]
        queries = self._mapper.queries
        mapped: Tensor = self._mapper(batch.to(queries.device, queries.dtype))
        return mapped
