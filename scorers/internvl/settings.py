"""Settings of the MMIE-Score model, with the official scorer's defaults.

Defaults are those of `main.py` (Lillianwei-h/MMIE@eb0fd6e) and of the `phi3-chat` template
(internvl/conversation.py, OpenGVLab/InternVL@2410d1d). Imports no model code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, model_validator

from generators.base import Kind, StageSpec, Weights
from generators.names import with_overrides
from generators.settings import ModelSettings, unkeyed

PUBLISHED = "MMIE/MMIE-Score"

SYSTEM = (
    "\u4f60\u662f\u7531\u4e0a\u6d77\u4eba\u5de5\u667a\u80fd\u5b9e\u9a8c\u5ba4\u8054\u5408"
    "\u5546\u6c64\u79d1\u6280\u5f00\u53d1\u7684\u4e66\u751f\u591a\u6a21\u6001\u5927\u6a21"
    "\u578b\uff0c\u82f1\u6587\u540d\u53ebInternVL, \u662f\u4e00\u4e2a\u6709\u7528\u65e0"
    "\u5bb3\u7684\u4eba\u5de5\u667a\u80fd\u52a9\u624b\u3002"
)
"""The template's `system_message`, in Chinese, with which the model was trained and is
published."""

_NEW_TOKENS, _TINY_NEW_TOKENS = 1024, 96
_CACHE_GIB = 4096 * 2 * 32 * 3072 * 2 / 2**30
"""Keys and values of one full context of the published model, in bfloat16."""


class MmieScoreSettings(ModelSettings):
    """How the judge reads images and answers. Always greedy, as published."""

    kind: ClassVar[Kind] = Kind.DRAFT
    stage: ClassVar[str] = "mmie-score"
    target: ClassVar[str] = "scorers.internvl.stage:MmieScore"
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
    def _ordered(self) -> "MmieScoreSettings":
        if self.min_tiles > self.max_tiles:
            raise ValueError(
                f"min_tiles {self.min_tiles} exceeds max_tiles {self.max_tiles}"
            )
        return self

    def new_tokens(self, weights: Weights) -> int:
        """Longest reply in tokens."""
        default = _TINY_NEW_TOKENS if weights == "tiny" else _NEW_TOKENS
        return default if self.max_new_tokens is None else self.max_new_tokens

    def keyed(self, weights: Weights) -> dict[str, Any]:
        """As for every model, with the length of the reply made explicit."""
        return super().keyed(weights) | {"max_new_tokens": self.new_tokens(weights)}

    def per_record_gib(self) -> float:
        """Return the cache of one context."""
        return _CACHE_GIB * self.context / 4096 * (2 if self.dtype == "float32" else 1)


def mmie_score(
    weights: Weights, overrides: Mapping[str, Any], gpu_gib: float = 80.0
) -> StageSpec:
    """Return the judge as a stage; UsageError for overrides it does not take.

    The official scorer's way of reading images is the override `fit_context=False`.
    """
    settings = with_overrides(MmieScoreSettings(), overrides, "mmie-score")
    return settings.spec("mmie-score", weights, gpu_gib)


def checkpoint_config(
    vision: Mapping[str, Any], language: Mapping[str, Any], tile: int
) -> dict[str, Any]:
    """Return the `config.json` of an `InternVLChatModel` with an InternViT and a Phi-3."""
    fixed = {
        "num_channels": 3,
        "patch_size": 14,
        "image_size": tile,
        "qkv_bias": True,
        "qk_normalization": False,
        "norm_type": "layer_norm",
        "layer_norm_eps": 1e-6,
        "hidden_act": "gelu",
    }
    return {
        "architectures": ["InternVLChatModel"],
        "model_type": "internvl_chat",
        "template": "phi3-chat",
        "ps_version": "v2",
        "select_layer": -1,
        "downsample_ratio": 0.5,
        "force_image_size": tile,
        "vision_config": fixed | dict(vision),
        "llm_config": {"architectures": ["Phi3ForCausalLM"], **language},
    }


TINY = checkpoint_config(
    {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    },
    {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {
            "type": "su",
            "short_factor": [1.0] * 8,
            "long_factor": [1.0 + i for i in range(8)],
        },
    },
    tile=56,
)
"""Tiles of 56 x 56 pixels in 4 tokens. The vocabulary is that of its tokenizer."""

FULL = checkpoint_config(
    {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
    },
    {
        "vocab_size": 32_020,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 131_072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {
            "type": "su",
            "short_factor": [1.0] * 48,
            "long_factor": [1.0] * 48,
        },
    },
    tile=448,
)
"""InternVL2-4B: InternViT-300M and Phi-3-mini-128k, 4.15 billion parameters. The factors
of its rotary frequencies, which cost nothing, are left at 1."""
