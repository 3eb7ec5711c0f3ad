"""Settings of GILL's two stages, with upstream's defaults, and the system of both.

Upstream is kohjingyu/gill: `generate_for_images_and_texts` (gill/models.py), and
`generate_dialogue` of GILL_Inference_Examples.ipynb, whose dialogue form is used here.
Imports no model code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from plait.generators.architectures import cache_gib
from plait.generators.base import Kind, Weights
from plait.generators.natives import assemble
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.vokens.settings import VokenRenderSettings, states_bytes
from plait.generators.work import PROMPT_TOKENS, Work, answer_tokens
from plait.generators.writing import NativeSystem

PUBLISHED = "jykoh/gill"


class GillDraftSettings(ModelSettings):
    """The language model, which writes text and the states of image tokens."""

    kind: ClassVar[Kind] = Kind.DRAFT
    stage: ClassVar[str] = "gill-draft"
    target: ClassVar[str] = "plait.generators.gill.draft:GillDraft"
    seeded: ClassVar[bool] = True
    companions: ClassVar[tuple[str, ...]] = ("language", "vision")
    spans_gpus: ClassVar[bool] = False

    model: str = unkeyed(PUBLISHED)
    """Hub id or folder with `pretrained_ckpt.pth.tar` and `model_args.json`."""
    language: str = unkeyed("facebook/opt-6.7b")
    """The frozen OPT: a folder, a Hub id, or `ID@REVISION`."""
    vision: str = unkeyed("openai/clip-vit-large-patch14")
    """The frozen CLIP, of which only the vision tower is read; named in the same way."""
    params_b: float | None = unkeyed(7.03, gt=0)

    num_words: int = Field(default=64, ge=1)
    """Maximum number of tokens, an image counting as one. Upstream's dialogues have 32."""
    max_num_rets: int = Field(default=4, ge=0)
    """Maximum number of images of an answer. Upstream's default is 1."""
    min_word_tokens: int = Field(default=0, ge=0)
    """Minimum number of tokens before an image."""
    ret_scale_factor: float = Field(default=1.4, ge=0)
    """Above 1, the logit of [IMG0] becomes its absolute value times this. 1.4 in the
    notebook's dialogue, 1.3 in the demo, 1.0 in the function itself."""
    gen_scale_factor: float = Field(default=1.0, ge=0)
    """Applied to the same logit, after the other; their effects multiply."""
    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """The demo uses 0.95 whenever it samples."""

    newline: Literal["upstream", "first_line", "never"] = "upstream"
    """Where an answer ends: `upstream` at the first newline, unless the first token is
    one; `first_line` at the first newline after any other token; `never`."""
    truncate_caption: bool = True
    """Cut each text after its first line, else after its first full stop."""
    trailing_text: bool = False
    """Keep text after the last image, which upstream drops."""
    show_vokens: bool = False
    """Leave the literal [IMG...] names in the text, as upstream returns it."""

    question: str = "Q: "
    """Put before the text of a user's turn, after the turn's leading images."""
    answer: str = "\nA:"
    """Put after a user's turn."""
    answer_end: str = "\n"
    """Put after an earlier answer."""
    history_images: Literal["pictures", "vokens"] = "pictures"
    """Images of earlier answers are read like any other, or (upstream) replaced by the
    names of the image tokens."""
    always_add_bos: bool = False
    """Begin every piece of text with `</s>`, not only the first of a prompt."""
    resize: Literal["squash", "crop"] = "squash"
    """Images are squashed to the vision tower's square, as in upstream's programs, or
    scaled and cropped to it by CLIP's own processor."""

    @model_validator(mode="after")
    def _sampling(self) -> GillDraftSettings:
        if self.temperature == 0 and self.top_p != 1:
            raise ValueError(
                f"top_p {self.top_p:g} has no effect at temperature 0, which is greedy; "
                "set a temperature or leave top_p at 1"
            )
        return self

    def is_seeded(self) -> bool:
        """Return whether anything is sampled."""
        return self.temperature > 0

    def per_record_gib(self) -> float:
        """Return the size of the cache of a full context."""
        return cache_gib("gill")

    def _work(self) -> Work:
        """One image's states are stored, in float32."""
        answer = answer_tokens(self.num_words)
        stored_bytes = states_bytes("gill")
        return self._decoding(PROMPT_TOKENS, answer, payload_bytes=stored_bytes)


class GillRenderSettings(VokenRenderSettings):
    """GILLMapper in float32, then Stable Diffusion 1.5 in float16, as upstream.

    Guidance leads away from CLIP's encoding of `negative_prompt`, by default of "".
    """

    stage: ClassVar[str] = "gill-render"
    target: ClassVar[str] = "plait.generators.vokens.render:GillRender"

    model: str = unkeyed(PUBLISHED)
    """Hub id or folder with `pretrained_ckpt.pth.tar`."""
    diffusion: str = unkeyed("stable-diffusion-v1-5/stable-diffusion-v1-5")
    """Upstream's `runwayml/stable-diffusion-v1-5`, which is no longer on the Hub."""
    params_b: float | None = unkeyed(1.42, gt=0)


def gill(weights: Weights, overrides: Mapping[str, Any], gpu_gib: float) -> NativeSystem:
    """Return the system draft -> render; UsageError for unknown overrides."""
    stages = {"draft": GillDraftSettings(), "render": GillRenderSettings()}
    return assemble("gill", stages, weights, overrides, gpu_gib, most_images="max_num_rets")
