"""The stage that draws: any text-to-image pipeline of diffusers, batched over requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from generators.base import Failure, Outcome, Result, Weights
from generators.content import answered
from generators.diffusion.drawer import Drawer
from generators.diffusion.prompts import readers_of, readings
from generators.document import ImageRequest
from generators.images import Drawing
from pipelines.presets import TextToImageSettings
from pipelines.prompts import prompt_and_seed


class TextToImage:
    """ImageRequest -> Drawing: uint8 pixels of shape (height, width, 3).

    Images of a row start from the same noise where two models have latents of one shape
    and dtype (openjourney and sdxl-turbo at 512, sd3 and flux at equal dtype).
    """

    def __init__(self, weights: Weights = "pretrained", **settings: Any) -> None:
        self.settings = TextToImageSettings(**settings)
        self.drawer = Drawer(self.settings, weights)
        self.readers = readers_of(self.drawer.pipeline, self.settings)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        """Return one image per request; a request that cannot be drawn fails alone."""
        prefix = self.settings.prompt_prefix
        return answered([prompt_and_seed(r, prefix) for r in inputs], self._drawn)

    def _drawn(self, pairs: Sequence[tuple[str, int]]) -> list[Outcome[Drawing]]:
        prompts, seeds = [p for p, _ in pairs], [s for _, s in pairs]
        outcomes = self.drawer({"prompt": prompts}, seeds)
        return [self._noted(o, *p) for o, p in zip(outcomes, pairs, strict=True)]

    def _noted(self, outcome: Outcome[Drawing], prompt: str, seed: int) -> Outcome[Drawing]:
        if not isinstance(outcome, Result | Failure):
            return outcome
        encoders = readings(self.readers, prompt)
        notes = {"prompt": prompt, "seed": seed, "text_encoders": encoders}
        return replace(outcome, notes={**notes, **outcome.notes})
