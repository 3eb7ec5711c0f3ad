"""Settings of Anole's two stages, with upstream's defaults, and the system they make.

Defaults are those of `Options` (chameleon/inference/chameleon.py, GAIR-NLP/anole).
Imports no model code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from plait.generators.architectures import cache_gib, read_config
from plait.generators.base import Kind, Weights
from plait.generators.diffusion.flops import DECODER_FLOPS_PER_PIXEL
from plait.generators.natives import assemble
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.work import (
    DRAWN_S,
    PROMPT_TOKENS,
    FigureRange,
    Work,
    answer_tokens,
    usage_of_drawing,
)
from plait.generators.writing import NativeSystem

PUBLISHED = "leloy/Anole-7b-v0.1-hf"
_IMAGE_TOKENS = 1024


class AnoleDraftSettings(ModelSettings):
    """The language model, which writes text and the codes of images."""

    kind: ClassVar[Kind] = Kind.DRAFT
    stage: ClassVar[str] = "anole-draft"
    target: ClassVar[str] = "plait.generators.anole.draft:AnoleDraft"
    seeded: ClassVar[bool] = True
    spans_gpus: ClassVar[bool] = False

    model: str = unkeyed(PUBLISHED)
    """Also `GAIR/Anole-7b-v0.1`, fine-tunes of the architecture, or a folder of either."""
    params_b: float | None = unkeyed(7.08, gt=0)
    context: int | None = Field(default=None, ge=1)
    """Most tokens of prompt and answer together; by default the model's."""
    max_text_tokens: int = Field(default=4096, ge=1)
    """Most tokens of one run of text; the count starts again after each image."""
    max_images: int = Field(default=3, ge=0)
    """Most images of one answer; the published context has no room for more."""
    text_temperature: float = Field(default=1.0, gt=0)
    text_top_p: float = Field(default=0.9, gt=0, le=1)
    text_greedy: bool = False
    repetition_penalty: float = Field(default=1.2, gt=0)
    """Applies to every token of the context, when text is written."""
    image_temperature: float = Field(default=0.7, gt=0)
    image_top_p: float = Field(default=0.9, gt=0, le=1)
    image_greedy: bool = False
    guidance_text: float = 3.0
    """Weight of what the text adds to an image."""
    guidance_image: float = 1.2
    """Weight of what earlier images add to an image."""
    turn_separator: str = "\n"
    """Between the turns of a conversation; within a turn nothing is added."""

    def is_seeded(self) -> bool:
        """Return whether anything is sampled."""
        return not (self.text_greedy and self.image_greedy)

    def per_record_gib(self) -> float:
        """Return the size of the caches of three full streams."""
        return 3 * cache_gib("anole")

    def _work(self) -> Work:
        """From a short text with one image to one with all; images take three streams."""
        most = self.context or read_config("anole")["language"]["max_position_embeddings"]
        text = answer_tokens(self.max_text_tokens)
        least = min(_IMAGE_TOKENS * min(self.max_images, 1) + text.low, most)
        longest = min(_IMAGE_TOKENS * self.max_images + text.high, most)
        answer = FigureRange.between(least, longest)
        return self._decoding(PROMPT_TOKENS, answer, most=most, streams=3)


class AnoleRenderSettings(ModelSettings):
    """The VQ decoder, which turns codes into pixels. Always in float32."""

    kind: ClassVar[Kind] = Kind.RENDER
    stage: ClassVar[str] = "anole-render"
    target: ClassVar[str] = "plait.generators.anole.models:AnoleRender"
    version: ClassVar[int] = 2
    spans_gpus: ClassVar[bool] = False

    model: str = unkeyed(PUBLISHED)
    """As for drafting, or the VQ model alone (`leloy/Anole-7b-v0.1-vqvae-hf`)."""
    params_b: float | None = unkeyed(0.069, gt=0)
    dtype: Literal["float32"] = "float32"

    def per_record_gib(self) -> float:
        """Return a GiB of activations for each image."""
        return 1.0

    def _work(self) -> Work:
        """Its decoder has the widths of Stable Diffusion's, likewise in float32."""
        pixels = read_config("anole")["vq"]["resolution"] ** 2
        flops = FigureRange.exact(2 * pixels * DECODER_FLOPS_PER_PIXEL)
        return Work(
            weight_bytes=self.weight_bytes,
            flops=flops,
            cpu_s=DRAWN_S,
            usage=usage_of_drawing(pixels),
        )


def anole(weights: Weights, overrides: Mapping[str, Any], gpu_gib: float) -> NativeSystem:
    """Return the system draft -> render; UsageError for overrides that no stage takes."""
    stages = {"draft": AnoleDraftSettings(), "render": AnoleRenderSettings()}
    return assemble("anole", stages, weights, overrides, gpu_gib, most_images="max_images")
