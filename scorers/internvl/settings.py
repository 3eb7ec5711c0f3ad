"""Settings of the MMIE-Score model, with the official scorer's defaults.

Defaults are those of `main.py` (Lillianwei-h/MMIE@eb0fd6e) and of the `phi3-chat` template
(internvl/conversation.py, OpenGVLab/InternVL@2410d1d). Imports no model code.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from plait.generators.base import Kind, Weights
from plait.generators.settings import ModelSettings, unkeyed
from plait.generators.work import FigureRange, Work, answer_tokens

PUBLISHED = "MMIE/MMIE-Score"

SYSTEM = (
    "\u4f60\u662f\u7531\u4e0a\u6d77\u4eba\u5de5\u667a\u80fd\u5b9e\u9a8c\u5ba4\u8054\u5408"
    "\u5546\u6c64\u79d1\u6280\u5f00\u53d1\u7684\u4e66\u751f\u591a\u6a21\u6001\u5927\u6a21"
    "\u578b\uff0c\u82f1\u6587\u540d\u53ebInternVL, \u662f\u4e00\u4e2a\u6709\u7528\u65e0"
    "\u5bb3\u7684\u4eba\u5de5\u667a\u80fd\u52a9\u624b\u3002"
)
"""The template's `system_message`, in Chinese, with which the model was trained and is
published."""

_NEW_TOKENS = 1024
_TINY_NEW_TOKENS = 96
_CACHE_GIB = 4096 * 2 * 32 * 3072 * 2 / 2**30
"""Keys and values of one full context of the published model, in bfloat16."""


class MmieScoreSettings(ModelSettings):
    """How the judge reads images and answers. Always greedy, as published."""

    kind: ClassVar[Kind] = Kind.DRAFT
    stage: ClassVar[str] = "mmie-score"
    target: ClassVar[str] = "plait.scorers.internvl.stage:MmieScore"
    spans_gpus: ClassVar[bool] = False

    model: str = unkeyed(PUBLISHED)
    """Also `OpenGVLab/InternVL2-4B`, fine-tunes of it, or a folder in its layout. The
    weights of the default were once replaced: pin a revision to compare results."""
    params_b: float | None = unkeyed(4.15, gt=0)
    system: str = SYSTEM
    """The system message of requests that bring none."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Longest reply; by default 1024 tokens, 96 with `tiny` weights: some never end."""
    min_tiles: int = Field(default=1, ge=1)
    """Fewest tiles an image is cut into. A tile has 448 x 448 pixels and takes 256
    tokens in published checkpoints."""
    max_tiles: int = Field(default=12, ge=1)
    """Most tiles an image is cut into."""
    thumbnail: bool = True
    """Whether the whole image follows as one more tile where there are several."""
    context: int = Field(default=4096, ge=1)
    """Tokens of prompt and reply the judge was trained for (the tokenizer's
    `model_max_length`). It reads longer prompts, but loses its format and its score."""
    fit_context: bool = True
    """Whether all images get fewer tiles where the prompt would exceed `context`. The
    official scorer does not: False applies `max_tiles` alone and notes the excess."""
    reply_room: int = Field(default=512, ge=1)
    """Tokens reserved for the reply when tiles are reduced to fit; the reply to such a
    prompt stays within `context`."""
    tiles_at_once: int = unkeyed(32, ge=1)
    """Most tiles in one pass of the vision model."""
    readers: int = unkeyed(8, ge=1)
    """Threads that decode images and cut them."""

    @model_validator(mode="after")
    def _check_tiles(self) -> "MmieScoreSettings":
        if self.min_tiles > self.max_tiles:
            raise ValueError(
                f"min_tiles {self.min_tiles} exceeds max_tiles {self.max_tiles}"
            )
        return self

    def new_tokens(self, weights: Weights) -> int:
        """Longest reply in tokens."""
        default = _TINY_NEW_TOKENS if weights == "tiny" else _NEW_TOKENS
        return default if self.max_new_tokens is None else self.max_new_tokens

    def key_fields(self, weights: Weights) -> dict[str, Any]:
        """As for every model, with the length of the reply made explicit."""
        return super().key_fields(weights) | {"max_new_tokens": self.new_tokens(weights)}

    def per_record_gib(self) -> float:
        """Return the cache of one context."""
        return _CACHE_GIB * self.context / 4096 * (2 if self.dtype == "float32" else 1)

    def _work(self) -> Work:
        """Its images get as many tiles as the context has room for."""
        most = max(1, self.context - self.reply_room)
        read = FigureRange.between(most / 4, most)
        reply = self.new_tokens("pretrained")
        return self._decoding(read, answer_tokens(reply), most=reply)
