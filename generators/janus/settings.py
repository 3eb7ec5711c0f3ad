"""Settings of Janus-Pro's three stages, with published defaults, and the systems they make.

Defaults are those of deepseek-ai/Janus (generation_inference.py, README.md) and of the
transformers checkpoints (`deepseek-community`). Imports no model code.

The model does not interleave: a call writes text or draws one image. So each round of an
answer is a text, then an image that is drawn from it (`plait.generators.rounds`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from plait.generators.architectures import read_config
from plait.generators.base import Kind, Weights
from plait.generators.diffusion.flops import DECODER_FLOPS_PER_PIXEL
from plait.generators.natives import assemble
from plait.generators.rounds import Continuation, Rounds
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.work import (
    DRAWN_S,
    LONGEST_PROMPT,
    PROMPT_TOKENS,
    FigureRange,
    Work,
    answer_tokens,
    usage_of_drawing,
)
from plait.generators.writing import NativeSystem

ARCHITECTURES: Mapping[str, str] = {
    "deepseek-community/Janus-Pro-1B": "janus-pro-1b",
    "deepseek-community/Janus-Pro-7B": "janus-pro-7b",
}
"""Hub id -> name of the published configuration."""
_LONGEST_DRAWN = 512
"""Tokens of a long prompt to draw from."""


class JanusSettings(ModelSettings):
    """Settings of every stage; sizes are known of the published checkpoints."""

    spans_gpus: ClassVar[bool] = False

    model: str = unkeyed("deepseek-community/Janus-Pro-1B")
    """A Hub id or folder in the layout of `JanusForConditionalGeneration`."""

    @property
    def sizes(self) -> Mapping[str, Any]:
        """The published configuration of the model, of the 7B one for any other."""
        return read_config(ARCHITECTURES.get(self.model, "janus-pro-7b"))

    def caches_gib(self, positions: int) -> float:
        """Return the size of keys and values of so many positions."""
        language = self.sizes["text_config"]
        values = 2 * language["num_hidden_layers"] * language["hidden_size"]
        return float(positions * values * (4 if self.dtype == "float32" else 2) / 2**30)


class JanusDraftSettings(JanusSettings):
    """The language model with the encoder of images, which writes text."""

    kind: ClassVar[Kind] = Kind.DRAFT
    stage: ClassVar[str] = "janus-draft"
    target: ClassVar[str] = "plait.generators.janus.draft:JanusDraft"

    context: int | None = Field(default=None, ge=1)
    """Most tokens of prompt and answer together; by default the model's (16,384)."""
    max_new_tokens: int = Field(default=512, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    """0 decodes greedily, as the README does; above 0 text is sampled."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """0 for all tokens."""
    system_message: str | None = None
    """Instead of the published one. System turns of a request are put after it."""
    continuation: Continuation = "question"
    feed_images: bool = True
    """Whether later rounds also read the answer's images."""

    def is_seeded(self) -> bool:
        """Return whether text is sampled."""
        return self.temperature > 0

    def per_record_gib(self) -> float:
        """Return the size of the cache of a prompt of three images, and its answer."""
        most = LONGEST_PROMPT + self.max_new_tokens
        return self.caches_gib(min(most, self.context or most))

    def _work(self) -> Work:
        most = self.max_new_tokens
        return self._decoding(PROMPT_TOKENS, answer_tokens(most), most=most)


class JanusConditionSettings(JanusSettings):
    """The language model with its heads for images, which turns prompts into codes."""

    kind: ClassVar[Kind] = Kind.CONDITION
    stage: ClassVar[str] = "janus-condition"
    target: ClassVar[str] = "plait.generators.janus.condition:JanusCondition"
    seeded: ClassVar[bool] = True

    context: int | None = Field(default=None, ge=1)
    """Most tokens of a prompt and an image together; by default the model's (16,384)."""
    image_temperature: float = Field(default=1.0, gt=0)
    image_top_p: float = Field(default=1.0, gt=0, le=1)
    image_top_k: int = Field(default=0, ge=0)
    """0 for all codes, as the authors sample; `generate` of transformers takes 50 by
    itself."""
    image_greedy: bool = False
    guidance: float = Field(default=5.0, ge=1)
    """Scale of classifier-free guidance (arXiv:2207.12598); 1 for none."""

    def is_seeded(self) -> bool:
        """Return whether codes are sampled."""
        return not self.image_greedy

    @property
    def streams(self) -> int:
        """The rows of the cache that one image takes."""
        return 2 if self.guidance > 1 else 1

    @property
    def _codes(self) -> int:
        vision = self.sizes["vision_config"]
        return int(vision["num_image_tokens"])

    def per_record_gib(self) -> float:
        """Return the size of the caches of an image from a long prompt."""
        return self.streams * self.caches_gib(_LONGEST_DRAWN + self._codes)

    def _work(self) -> Work:
        prompt = answer_tokens(_LONGEST_DRAWN)
        codes = FigureRange.exact(self._codes)
        sizes = {"streams": self.streams, "payload_bytes": 4 * self._codes}
        return self._decoding(prompt, codes, **sizes)


class JanusRenderSettings(JanusSettings):
    """The VQ decoder, which turns codes into pixels. Always in float32."""

    kind: ClassVar[Kind] = Kind.RENDER
    stage: ClassVar[str] = "janus-render"
    target: ClassVar[str] = "plait.generators.janus.models:JanusRender"

    params_b: float | None = unkeyed(0.072, gt=0)
    dtype: Literal["float32"] = "float32"

    def per_record_gib(self) -> float:
        """Return half a GiB of activations for each image of 384 x 384 pixels."""
        return 0.5

    def _work(self) -> Work:
        """Its decoder has the widths of Stable Diffusion's, likewise in float32."""
        pixels = self.sizes["vision_config"]["image_size"] ** 2
        flops = FigureRange.exact(2 * pixels * DECODER_FLOPS_PER_PIXEL)
        return Work(
            weight_bytes=self.weight_bytes,
            flops=flops,
            cpu_s=DRAWN_S,
            usage=usage_of_drawing(pixels),
        )


def janus_pro_1b(
    weights: Weights, overrides: Mapping[str, Any], gpu_gib: float
) -> NativeSystem:
    """Return Janus-Pro-1B; UsageError for overrides that no stage takes."""
    stages = _stages("deepseek-community/Janus-Pro-1B", 1.963, 1.485)
    return assemble("janus-pro-1b", stages, weights, overrides, gpu_gib)


def janus_pro_7b(
    weights: Weights, overrides: Mapping[str, Any], gpu_gib: float
) -> NativeSystem:
    """Return Janus-Pro-7B; UsageError for overrides that no stage takes."""
    stages = _stages("deepseek-community/Janus-Pro-7B", 7.236, 6.592)
    return assemble("janus-pro-7b", stages, weights, overrides, gpu_gib)


def _stages(model: str, draft_b: float, condition_b: float) -> dict[str, BaseModel]:
    """Parameters in billions are what each stage loads."""
    return {
        "draft": JanusDraftSettings(model=model, params_b=draft_b),
        "condition": JanusConditionSettings(model=model, params_b=condition_b),
        "render": JanusRenderSettings(model=model),
        "compose": Rounds(),
    }
