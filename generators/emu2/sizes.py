"""The two sizes we can build without a checkpoint: toy size and the published one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class VisionSize:
    """Dimensions of the vision encoder, and of what is pooled from it."""

    width: int
    layers: int
    heads: int
    mlp_width: int
    patch: int
    grid: int
    """Patches along a side of a picture."""
    norm_eps: float = 1e-6
    queries: int
    """Vectors that stand for one picture; a square number."""

    @property
    def side(self) -> int:
        """Pixels along a side of a picture."""
        return self.patch * self.grid


@dataclass(frozen=True, kw_only=True)
class Size:
    """Dimensions of one Emu2 model."""

    vision: VisionSize
    language: Mapping[str, Any]
    """Fields of transformers' `LlamaConfig`."""
    attention: float = 1.0
    """Factor on random attention. Above 1 answers depend more on their questions, and
    regression becomes chaotic: a rounding error grows from vector to vector."""

    def config(self, rows: int) -> Any:
        """The `LlamaConfig` for a vocabulary of `rows` tokens."""
        from transformers import LlamaConfig

        return LlamaConfig(**self.language, vocab_size=rows)


_TINY_VISION = VisionSize(
    width=64, layers=2, heads=4, mlp_width=128, patch=8, grid=8, queries=16
)
_FULL_VISION = VisionSize(
    width=1792, layers=64, heads=16, mlp_width=15_360, patch=14, grid=32, queries=256
)

TINY_CHAT = Size(
    vision=_TINY_VISION,
    language={
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
    },
    attention=4.0,
)
"""Pictures of 64 x 64 pixels in 16 vectors."""

FULL_CHAT = Size(
    vision=_FULL_VISION,
    language={
        "hidden_size": 6656,
        "intermediate_size": 17_920,
        "num_hidden_layers": 60,
        "num_attention_heads": 52,
        "num_key_value_heads": 52,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
    },
)
"""Emu2-Chat: 36.9 billion parameters (Emu2/emu/conf of baaivision/Emu)."""

TINY_GEN = replace(TINY_CHAT, vision=replace(_TINY_VISION, queries=16), attention=1.0)
FULL_GEN = replace(FULL_CHAT, vision=replace(_FULL_VISION, queries=64))
"""Emu2-Gen's multimodal encoder: a quarter of Chat's vectors for each picture."""
