"""Phi-3's LongRoPE for batches of unequal length.

Phi-3 rotates by one set of frequencies in passes over sequences of at most
`original_max_position_embeddings` (4,096) tokens and by another in longer ones, while keys
in the cache stay as they were rotated (`Phi3SuScaledRotaryEmbedding`, modeling_phi3.py,
OpenGVLab/InternVL@2410d1d). transformers chooses once for a whole batch, by its longest
row; here every row has the frequencies it would have alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding


class LongRope(nn.Module):
    """Takes the place of `Phi3Model.rotary_emb`."""

    short: Tensor
    long: Tensor

    def __init__(self, config: Any, device: torch.device) -> None:
        """For a `Phi3Config`, with or without long factors."""
        super().__init__()
        plain = Phi3RotaryEmbedding(config)
        short, long = plain.inv_freq, plain.inv_freq
        self.threshold: float = math.inf
        """Most tokens of a sequence in the short frequencies."""
        if plain.rope_type == "longrope":
            original = config.rope_parameters["original_max_position_embeddings"]
            self.threshold = original
            long, _ = ROPE_INIT_FUNCTIONS["longrope"](config, seq_len=original + 1)
        self.register_buffer("short", short.to(device), persistent=False)
        self.register_buffer("long", long.to(device), persistent=False)
        self._scale = float(plain.attention_scaling)
        self._long_prompts: bool | None = None

    def is_long(self, tokens: int) -> bool:
        """Whether a sequence of so many tokens is rotated by the long frequencies."""
        return tokens > self.threshold

    @contextmanager
    def prompts(self, long: bool) -> Iterator[None]:
        """Within, all prompts read at once are long ones, or all are short ones.

        What a row is told by its position alone: padding reaches beyond short prompts.
        """
        self._long_prompts = long
        try:
            yield
        finally:
            self._long_prompts = None

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (rows, positions, head size) in the type of `x`."""
        if self._long_prompts is None:
            long = position_ids >= self.threshold
        else:
            long = torch.full_like(position_ids[:, :1], self._long_prompts).bool()
        frequencies = torch.where(long[..., None], self.long, self.short)
        angles = position_ids[..., None].float() * frequencies
        both = torch.cat((angles, angles), dim=-1)
        cosines, sines = both.cos() * self._scale, both.sin() * self._scale
        return cosines.to(x.dtype), sines.to(x.dtype)
