"""The conditioning stage of Emu2: a request's text and images in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

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


class _Reading(NamedTuple):
    """A request as the model reads it, and which vectors are wanted."""

    mode: ConditionMode
    prompt: NativePrompt


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

    def _read(self, request: ImageRequest) -> _Reading | Skip | Failure:
        """Return the request as the model reads it, or why it cannot be drawn."""
        if failure := empty((*request.context, Text(request.prompt or ""))):
            return failure
        is_image_alone = (
            request.prompt is None
            and len(request.context) == 1
            and isinstance(request.context[0], Image)
        )
        mode: ConditionMode = "autoencoding" if is_image_alone else "generation"
        # The last vector is read from the state before it and is never in the context.
        room = 0 if is_image_alone else self.model.vision.queries - 1
        parts = request_parts(request)
        read = self.model.read(parts, room, self.context, begins_image=not is_image_alone)
        return _Reading(mode, read) if isinstance(read, NativePrompt) else read

    def _payloads(self, readings: Sequence[_Reading]) -> list[Result[Payload] | Failure]:
        """Return the payload of each prompt; those of a mode are computed together."""
        places: dict[ConditionMode, list[int]] = {}
        for place, reading in enumerate(readings):
            places.setdefault(reading.mode, []).append(place)
        vectors: dict[int, Tensor] = {}
        for mode, own in places.items():
            computed = self._vectors([readings[place].prompt for place in own], mode)
            vectors |= zip(own, computed, strict=True)
        payloads: list[Result[Payload] | Failure] = []
        for place, reading in enumerate(readings):
            payloads.append(self._payload(vectors[place], reading))
        return payloads

    def _vectors(self, prompts: Sequence[NativePrompt], mode: ConditionMode) -> Tensor:
        """Return vectors (prompts, queries, width)."""
        if mode == "autoencoding":
            return self.model.image_vectors([prompt.pixels[0] for prompt in prompts])
        return self.model.regress(self.model.embeddings(prompts))

    def _payload(self, vectors: Tensor, reading: _Reading) -> Result[Payload] | Failure:
        mode, prompt = reading
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
