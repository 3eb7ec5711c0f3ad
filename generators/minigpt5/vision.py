"""From pictures to the vectors that stand for them in a prompt."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_LAVIS_NORM = 1e-5
"""Epsilon of `ln_vision` (blip2.py); transformers has that of the ViT's layers, 1e-6."""
_TOGETHER = 16
"""Pictures in one pass."""


class PictureEncoder(nn.Module):
    """EVA-ViT-g and Q-Former of BLIP-2 (arXiv:2301.12597), and MiniGPT-4's projection.

    Parameters have the names of transformers' `Blip2Model`, and `llama_proj`.
    """

    def __init__(self, vision: Any, qformer: Any, queries: int, width: int) -> None:
        """Take the configurations of both parts; `width` is that of the language model."""
        super().__init__()
        from transformers import Blip2QFormerModel, Blip2VisionModel

        self.vision_model = Blip2VisionModel._from_config(vision)
        self.vision_model.post_layernorm.eps = _LAVIS_NORM
        self.query_tokens = nn.Parameter(torch.empty(1, queries, qformer.hidden_size))
        self.qformer = Blip2QFormerModel._from_config(qformer)
        self.llama_proj = nn.Linear(qformer.hidden_size, width)
        self.side: int = vision.image_size

    @torch.inference_mode()
    def forward(self, pixels: Tensor) -> Tensor:
        """Vectors (pictures, queries, width) of pixels (pictures, 3, side, side)."""
        parts = torch.split(pixels.to(self.query_tokens), _TOGETHER)
        return torch.cat([self._encoded(part) for part in parts])

    def _encoded(self, pixels: Tensor) -> Tensor:
        seen = self.vision_model(pixel_values=pixels).last_hidden_state
        queries = self.query_tokens.expand(len(pixels), -1, -1)
        read = self.qformer(query_embeds=queries, encoder_hidden_states=seen)
        projected: Tensor = self.llama_proj(read.last_hidden_state)
        return projected
