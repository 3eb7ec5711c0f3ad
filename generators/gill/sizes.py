"""The two sizes we can build without a checkpoint: toy size and the published one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HEADS = 4
"""Of the mapper; stands in no file (`TextFcLayer`, gill/layers.py)."""

SEED = 20_230_526
"""Of the random weights; GILL was published on that day."""


@dataclass(frozen=True, kw_only=True)
class MapperSize:
    """Dimensions of GILLMapper."""

    states: int
    """Width of the language model's states."""
    width: int
    layers: int
    """Of the encoder, and again of the decoder."""
    inner: int
    """Width of the feed-forward layers."""
    queries: int
    out: int
    """Width of the diffusion model's prompt embeddings."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Dimensions of all parts of a GILL."""

    language: Mapping[str, Any]
    """Fields of transformers' `OPTConfig`, all but the vocabulary's size."""
    vision: Mapping[str, Any]
    """Fields of `CLIPVisionConfig`."""
    mapper: MapperSize
    visual_tokens: int = 4
    """Embeddings that stand for one picture in a prompt."""
    vokens: int = 8
    """Image tokens [IMG0], [IMG1], ..."""
    vocabulary: int | None = None
    """How many names the toy tokenizer is filled up to; None for just its words."""
    asks: float = 0.08
    """Probability that random weights ask for an image after a word, by default."""
    ends: float = 0.02
    """Probability that they write a newline after a word."""


TINY = Size(
    language={
        "hidden_size": 64,
        "word_embed_proj_dim": 64,
        "ffn_dim": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 2048,
    },
    vision={
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 28,
        "patch_size": 14,
    },
    mapper=MapperSize(states=64, width=32, layers=2, inner=64, queries=77, out=32),
)

FULL = Size(
    language={
        "hidden_size": 4096,
        "word_embed_proj_dim": 4096,
        "ffn_dim": 16384,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
    },
    vision={
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 224,
        "patch_size": 14,
    },
    mapper=MapperSize(states=4096, width=512, layers=4, inner=2048, queries=77, out=768),
    vocabulary=50_265,
)
"""OPT-6.7B, the vision tower of CLIP ViT-L/14, and GILL's own 50 million parameters."""
