"""The stage that draws: any text-to-image pipeline of diffusers, batched over requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from generators.base import Failure, Fault, Outcome, Result, Weights
from generators.diffusion.drawer import Drawer
from generators.diffusion.prompts import readers_of, readings
from generators.document import ImageRequest
from generators.pictures import Drawing
from pipelines.presets import TextToImageSettings


class TextToImage:
    """ImageRequest -> Drawing: uint8 pixels of shape (height, width, 3).

    Pictures of a row start from the same noise where two models have latents of one shape
    and dtype (openjourney and sdxl-turbo at 512, sd3 and flux at equal dtype).
    """

    def __init__(self, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = TextToImageSettings(**settings)
        self.drawer = Drawer(self.settings, weights)
        limit = self.settings.max_sequence_length
        self.readers = readers_of(self.drawer.pipeline, limit, self.settings.arguments)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """One picture per request; a request that cannot be drawn fails alone."""
        errors = [_input_error(request) for request in inputs]
        valid = [r for r, error in zip(inputs, errors, strict=True) if error is None]
        outcomes = iter(self._draw(valid))
        return [Failure(e, Fault.BAD_INPUT) if e else next(outcomes) for e in errors]

    def _draw(self, requests: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        prompts = [self.settings.prompt_prefix + (r.prompt or "") for r in requests]
        seeds = [r.seed or 0 for r in requests]
        outcomes = self.drawer({"prompt": prompts}, seeds)
        notes = [self._notes(p, s) for p, s in zip(prompts, seeds, strict=True)]
        return [_with_notes(o, n) for o, n in zip(outcomes, notes, strict=True)]

    def _notes(self, prompt: str, seed: int) -> dict[str, Any]:
        return {
            "prompt": prompt,
            "seed": seed,
            "text_encoders": readings(self.readers, prompt),
        }


def _with_notes(outcome: Outcome[Drawing], notes: Mapping[str, Any]) -> Outcome[Drawing]:
    if isinstance(outcome, Result | Failure):
        return replace(outcome, notes={**notes, **outcome.notes})
    return outcome


def _input_error(request: ImageRequest) -> str | None:
    """Why a request cannot be drawn from its prompt; None when it can."""
    if request.payload is not None or request.context:
        return "a text-to-image model reads prompts; the request holds more than a prompt"
    if request.prompt is None or not request.prompt.strip():
        return f"the request's prompt is empty: {request.prompt!r}"
    if request.seed is None:
        return "the request has no seed"
    try:
        request.prompt.encode()
    except UnicodeEncodeError as error:
        return f"the prompt is not valid text: {error.reason} at {error.start}"
    return None
