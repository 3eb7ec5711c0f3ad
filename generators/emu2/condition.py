"""The conditioning stage of Emu2: a request's text and pictures in, vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from generators.base import Failure, Outcome, Result, Skip, Weights
from generators.decoding.requests import empty
from generators.document import Image, ImageRequest, Payload, Text
from generators.emu2.loading import load
from generators.emu2.payload import packed
from generators.emu2.prompts import Part, shown
from generators.emu2.reading import Prompt, context_of, embedded, read, regressed
from generators.emu2.settings import Emu2ConditionSettings
from generators.emu2.sizes import FULL_GEN, TINY_GEN
from generators.emu2.tokens import ADDED, Picture

Mode = Literal["generation", "autoencoding"]


class Emu2Condition:
    """Turns requests into what the UNet reads; takes the fields of its settings.

    Generation regresses the vectors that follow the request's pictures and prompt.
    Autoencoding, for exactly one picture and no prompt at all (None; an empty one asks
    for generation), takes the vision encoder's own vectors of that picture
    (`_prepare_and_encode_inputs`, emu/diffusion.py).
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = Emu2ConditionSettings(**settings)
        strip = self.settings.strip_text
        self.model = load(self.settings, weights, TINY_GEN, FULL_GEN, ADDED, strip)
        self.context = context_of(self.model, self.settings.context)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Payload]]:
        """One payload per request, in order: see `generators.emu2.payload`.

        A request too long for the context is skipped; an empty one, or one with an
        unreadable picture, fails.
        """
        parts = [request_parts(request) for request in inputs]
        modes = [_mode(request) for request in inputs]
        prompts = [self._read(*each) for each in zip(inputs, parts, modes, strict=True)]
        made = self._made(prompts, modes)
        return [
            Result(packed(made[i], self._free(modes[i])), *self._about(p, part, modes[i]))
            if isinstance(p, Prompt)
            else p
            for i, (p, part) in enumerate(zip(prompts, parts, strict=True))
        ]

    def _read(
        self, request: ImageRequest, parts: list[Part], mode: Mode
    ) -> Prompt | Skip | Failure:
        if failure := empty((*request.context, Text(request.prompt or ""))):
            return failure
        if mode == "autoencoding":
            return read(self.model, parts, 0, self.context)
        # The last vector is read from the state before it and never stands in the context.
        room = self.model.vision.queries - 1
        return read(self.model, parts, room, self.context, begins_picture=True)

    def _made(
        self, prompts: Sequence[Prompt | Skip | Failure], modes: Sequence[Mode]
    ) -> dict[int, Tensor]:
        """Vectors of each sound prompt by position, those of one mode computed together."""
        made: dict[int, Tensor] = {}
        for mode in dict.fromkeys(modes):
            chosen = {
                i: prompt
                for i, prompt in enumerate(prompts)
                if isinstance(prompt, Prompt) and modes[i] == mode
            }
            if chosen:
                vectors = self._vectors(list(chosen.values()), mode)
                made |= zip(chosen, vectors, strict=True)
        return made

    def _vectors(self, prompts: Sequence[Prompt], mode: Mode) -> Tensor:
        if mode == "autoencoding":
            return self.model.seen([prompt.pixels[0] for prompt in prompts])
        return regressed(self.model, embedded(self.model, prompts))

    def _free(self, mode: Mode) -> Tensor:
        return self._unprompted if mode == "generation" else self._colourless

    @cached_property
    def _unprompted(self) -> Tensor:
        """Vectors (queries, width) that follow no text at all."""
        nothing = Prompt(tuple(self.model.tokens.encoded([Picture.NEXT], 0)), ())
        return self._vectors([nothing], "generation")[0]

    @cached_property
    def _colourless(self) -> Tensor:
        """Vectors of the picture that is zero after normalisation: all mean colour."""
        side = self.model.vision.side
        return self.model.seen([torch.zeros(3, side, side)])[0]

    def _about(
        self, prompt: Prompt, parts: list[Part], mode: Mode
    ) -> tuple[dict[str, float], dict[str, Any]]:
        steps = self.model.vision.queries if mode == "generation" else 0
        usage: dict[str, float] = {
            "input_tokens": len(prompt.ids),
            "input_images": len(prompt.pixels),
            "output_tokens": steps,
            "images": 0,
        }
        return usage, {"prompt": shown(parts), "mode": mode}


def request_parts(request: ImageRequest) -> list[Part]:
    """The request's pictures and texts, then its prompt."""
    context = [s if isinstance(s, Image) else s.text for s in request.context]
    return [*context, *([] if request.prompt is None else [request.prompt])]


def _mode(request: ImageRequest) -> Mode:
    alone = len(request.context) == 1 and isinstance(request.context[0], Image)
    return "autoencoding" if alone and request.prompt is None else "generation"
