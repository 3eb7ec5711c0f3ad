"""The two sizes we can build without a checkpoint: toy size and the published one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VOKENS = 8
"""`[IMG0]` to `[IMG7]` (`IMG_TOKEN_NUM`, constants.py)."""
ADDED = VOKENS + 1
"""The vokens and `<ImageHere>`: the last rows of the embedding table."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Dimensions of the drafting model and of the mapper behind it."""

    language: Mapping[str, Any]
    """Fields of `LlamaConfig`."""
    vision: Mapping[str, Any]
    """Fields of `Blip2VisionConfig`."""
    qformer: Mapping[str, Any]
    """Fields of `Blip2QFormerConfig`."""
    queries: int
    """Vectors that stand for one picture of the prompt."""
    pieces: int | None
    """How many pieces the toy tokenizer is filled up to; None for just its words."""
    begin_image: float
    """Probability that random weights ask for a picture after a word, of all ids; among
    the fifty that sampling keeps by default it is larger where there are many words."""
    end: float
    """Probability that they end the answer after a word."""


TINY = Size(
    language={
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 2048,
    },
    vision={
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    },
    qformer={
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "encoder_hidden_size": 32,
    },
    queries=4,
    pieces=None,
    begin_image=0.12,
    end=0.02,
)
"""Pictures of 28 x 28 pixels go in as 4 vectors."""

FULL = Size(
    language={
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
    },
    vision={
        "hidden_size": 1408,
        "intermediate_size": 6144,
        "num_hidden_layers": 39,
        "num_attention_heads": 16,
        "image_size": 224,
        "patch_size": 14,
    },
    qformer={
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "encoder_hidden_size": 1408,
    },
    queries=32,
    pieces=32_000,
    begin_image=0.0008,
    end=0.0004,
)
"""Vicuna-7B with 9 more rows, EVA-ViT-g and the Q-Former of BLIP-2."""
