"""The conditioning stage of Emu2: a request's text and images in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from plait.generators.base import Failure, Outcome, Result, Skip, Weights
from plait.generators.content import answer_all, empty
from plait.generators.decoding.drafting import NativePrompt, Piece, context_of, pieces_of
from plait.generators.decoding.payloads import pack
from plait.generators.document import Image, ImageRequest, Payload, Text
from plait.generators.emu2.models import load
from plait.generators.emu2.settings import Emu2ConditionSettings
from plait.generators.overflow import no_numbers

ConditionMode = Literal["generation", "autoencoding"]
_Read = tuple[ConditionMode, NativePrompt]


class Emu2Condition:
    """Turns requests into vectors for the UNet; takes the fields of its settings.

    Generation regresses the vectors that follow the request's images and prompt.
    Autoencoding, for exactly one image and no prompt (None; an empty one means
    generation), takes the vision encoder's own vectors of that image
    (`_prepare_and_encode_inputs`, emu/diffusion.py).
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = Emu2ConditionSettings(**settings)
        self.model = load(self.settings, weights, "gen")
        self.context = context_of(self.settings.context, self.model.context)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        """Return one payload per request, in order.

        It holds two matrices (queries, width), `vectors` and `unconditional`: guidance
        starts from the latter, which the renderer has no language model to compute.
        A request too long for the context is skipped; an empty one, one with an
        unreadable image, or one whose vectors are no finite numbers fails.
        """
        return answer_all([self._read(request) for request in inputs], self._payloads)

    def _read(self, request: ImageRequest) -> _Read | Skip | Failure:
        if failure := empty((*request.context, Text(request.prompt or ""))):
            return failure
        alone = len(request.context) == 1 and isinstance(request.context[0], Image)
        encodes = alone and request.prompt is None
        mode: ConditionMode = "autoencoding" if encodes else "generation"
        # The last vector is read from the state before it and is never in the context.
        room = self.model.vision.queries - 1 if mode == "generation" else 0
        parts = request_parts(request)
        begins = mode == "generation"
        read = self.model.read(parts, room, self.context, begins)
        return (mode, read) if isinstance(read, NativePrompt) else read

    def _payloads(self, read: Sequence[_Read]) -> list[Result[Payload] | Failure]:
        """Return the payload of each prompt; those of a mode are computed together."""
        vectors: dict[int, Tensor] = {}
        for mode in dict.fromkeys(mode for mode, _ in read):
            prompts = {i: prompt for i, (own, prompt) in enumerate(read) if own == mode}
            computed = self._vectors(list(prompts.values()), mode)
            vectors |= zip(prompts, computed, strict=True)
        return [self._payload(vectors[i], *one) for i, one in enumerate(read)]

    def _vectors(self, prompts: Sequence[NativePrompt], mode: ConditionMode) -> Tensor:
        if mode == "autoencoding":
            return self.model.image_vectors([prompt.pixels[0] for prompt in prompts])
        return self.model.regress(self.model.embeddings(prompts))

    def _payload(
        self, vectors: Tensor, mode: ConditionMode, prompt: NativePrompt
    ) -> Result[Payload] | Failure:
        steps = self.model.vision.queries if mode == "generation" else 0
        usage: dict[str, float] = {
            "input_tokens": prompt.length,
            "input_images": prompt.images,
            "output_tokens": steps,
            "images": 0,
        }
        notes = {"prompt": prompt.shown, "mode": mode}
        free = self._unprompted if mode == "generation" else self._blank
        if not all(matrix.isfinite().all() for matrix in (vectors, free)):
            return no_numbers("the model's vectors", vectors.dtype, usage, notes)
        return Result(pack(vectors=vectors, unconditional=free), usage, notes)

    @cached_property
    def _unprompted(self) -> Tensor:
        """Vectors (queries, width) that follow no text at all."""
        ids = self.model.tokens.encode_prompt([], 0, begins_image=True)
        nothing = NativePrompt((ids,), "", len(ids), 0, 0)
        return self._vectors([nothing], "generation")[0]

    @cached_property
    def _blank(self) -> Tensor:
        """Vectors of an image of zeros after normalisation, which is all mean colour."""
        side = self.model.vision.side
        return self.model.image_vectors([torch.zeros(3, side, side)])[0]


def request_parts(request: ImageRequest) -> list[Piece]:
    """Return the request's images and texts, then its prompt."""
    prompt = [] if request.prompt is None else [request.prompt]
    return [*pieces_of(request.context), *prompt]
