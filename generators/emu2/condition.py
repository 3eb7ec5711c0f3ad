"""The conditioning stage of Emu2: a request's text and pictures in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from generators.base import Failure, Outcome, Result, Skip, Weights
from generators.content import display_text, empty
from generators.document import Image, ImageRequest, Payload, Text
from generators.emu2.models import load
from generators.emu2.prompts import PromptPart
from generators.emu2.reading import (
    Emu2Prompt,
    context_of,
    embeddings,
    pack_vectors,
    read_prompt,
    regress,
)
from generators.emu2.settings import Emu2ConditionSettings
from generators.emu2.sizes import FULL_GEN, TINY_GEN
from generators.emu2.tokens import ADDED, PicturePlace
from generators.overflow import no_numbers

ConditionMode = Literal["generation", "autoencoding"]


class Emu2Condition:
    """Turns requests into vectors for the UNet; takes the fields of its settings.

    Generation regresses the vectors that follow the request's pictures and prompt.
    Autoencoding, for exactly one picture and no prompt (None; an empty one means
    generation), takes the vision encoder's own vectors of that picture
    (`_prepare_and_encode_inputs`, emu/diffusion.py).
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = Emu2ConditionSettings(**settings)
        strip = self.settings.strip_text
        self.model = load(self.settings, weights, TINY_GEN, FULL_GEN, ADDED, strip)
        self.context = context_of(self.model, self.settings.context)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        """One payload per request, in order: see `pack_vectors`.

        A request too long for the context is skipped; an empty one, one with an
        unreadable picture, or one whose vectors are no finite numbers fails.
        """
        parts = [request_parts(request) for request in inputs]
        modes = [_mode(request) for request in inputs]
        prompts = [self._read(*each) for each in zip(inputs, parts, modes, strict=True)]
        vectors = self._vectors_of(prompts, modes)
        return [
            self._conditioned(vectors[i], p, part, modes[i])
            if isinstance(p, Emu2Prompt)
            else p
            for i, (p, part) in enumerate(zip(prompts, parts, strict=True))
        ]

    def _read(
        self, request: ImageRequest, parts: list[PromptPart], mode: ConditionMode
    ) -> Emu2Prompt | Skip | Failure:
        if failure := empty((*request.context, Text(request.prompt or ""))):
            return failure
        if mode == "autoencoding":
            return read_prompt(self.model, parts, 0, self.context)
        # The last vector is read from the state before it and is never in the context.
        room = self.model.vision.queries - 1
        return read_prompt(self.model, parts, room, self.context, begins_picture=True)

    def _vectors_of(
        self, prompts: Sequence[Emu2Prompt | Skip | Failure], modes: Sequence[ConditionMode]
    ) -> dict[int, Tensor]:
        """Vectors of each valid prompt by position, computed together for each mode."""
        vectors: dict[int, Tensor] = {}
        for mode in dict.fromkeys(modes):
            of_mode = {
                i: prompt
                for i, prompt in enumerate(prompts)
                if isinstance(prompt, Emu2Prompt) and modes[i] == mode
            }
            if of_mode:
                computed = self._vectors(list(of_mode.values()), mode)
                vectors |= zip(of_mode, computed, strict=True)
        return vectors

    def _vectors(self, prompts: Sequence[Emu2Prompt], mode: ConditionMode) -> Tensor:
        if mode == "autoencoding":
            return self.model.picture_vectors([prompt.pixels[0] for prompt in prompts])
        return regress(self.model, embeddings(self.model, prompts))

    def _conditioned(
        self,
        vectors: Tensor,
        prompt: Emu2Prompt,
        parts: list[PromptPart],
        mode: ConditionMode,
    ) -> Result[Payload] | Failure:
        usage, notes = self._about(prompt, parts, mode)
        both = vectors, self._unconditional(mode)
        if not all(matrix.isfinite().all() for matrix in both):
            return no_numbers("the model's vectors", vectors.dtype, usage, notes)
        return Result(pack_vectors(*both), usage, notes)

    def _unconditional(self, mode: ConditionMode) -> Tensor:
        return self._unprompted if mode == "generation" else self._blank

    @cached_property
    def _unprompted(self) -> Tensor:
        """Vectors (queries, width) that follow no text at all."""
        nothing = Emu2Prompt(tuple(self.model.tokens.encoded([PicturePlace.NEXT], 0)), ())
        return self._vectors([nothing], "generation")[0]

    @cached_property
    def _blank(self) -> Tensor:
        """Vectors of a picture of zeros after normalisation, which is all mean colour."""
        side = self.model.vision.side
        return self.model.picture_vectors([torch.zeros(3, side, side)])[0]

    def _about(
        self, prompt: Emu2Prompt, parts: list[PromptPart], mode: ConditionMode
    ) -> tuple[dict[str, float], dict[str, Any]]:
        steps = self.model.vision.queries if mode == "generation" else 0
        usage: dict[str, float] = {
            "input_tokens": len(prompt.ids),
            "input_images": len(prompt.pixels),
            "output_tokens": steps,
            "images": 0,
        }
        return usage, {"prompt": display_text(parts), "mode": mode}


def request_parts(request: ImageRequest) -> list[PromptPart]:
    """The request's pictures and texts, then its prompt."""
    context = [s if isinstance(s, Image) else s.text for s in request.context]
    return [*context, *([] if request.prompt is None else [request.prompt])]


def _mode(request: ImageRequest) -> ConditionMode:
    alone = len(request.context) == 1 and isinstance(request.context[0], Image)
    return "autoencoding" if alone and request.prompt is None else "generation"
