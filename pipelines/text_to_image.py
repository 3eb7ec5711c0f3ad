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
from pipelines.prompts import input_error, prompt_and_seed


class TextToImage:
    """ImageRequest -> Drawing: uint8 pixels of shape (height, width, 3).

    Pictures of a row start from the same noise where two models have latents of one shape
    and dtype (openjourney and sdxl-turbo at 512, sd3 and flux at equal dtype).
    """

    def __init__(self, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = TextToImageSettings(**settings)
        self.drawer = Drawer(self.settings, weights)
        self.readers = readers_of(self.drawer.pipeline, self.settings)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """One picture per request; a request that cannot be drawn fails alone."""
        errors = [input_error(request) for request in inputs]
        valid = [r for r, error in zip(inputs, errors, strict=True) if error is None]
        outcomes = iter(self._draw(valid))
        return [Failure(e, Fault.BAD_INPUT) if e else next(outcomes) for e in errors]

    def _draw(self, requests: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        prefix = self.settings.prompt_prefix
        pairs = [prompt_and_seed(request, prefix) for request in requests]
        prompts, seeds = [p for p, _ in pairs], [s for _, s in pairs]
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
