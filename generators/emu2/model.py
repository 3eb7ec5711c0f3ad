"""Emu2's network: vision encoder, language model, and the way from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from generators.emu2.sizes import VisionSize
from generators.emu2.tokens import IMAGE, Tokens
from generators.emu2.vision import VisionEncoder


class Emu2Network(nn.Module):
    """The modules of a checkpoint, under the names of the native layout but for `lm`."""

    def __init__(self, vision: VisionSize, config: Any) -> None:
        from transformers import LlamaForCausalLM

        super().__init__()
        self.visual = VisionEncoder(vision)
        self.lm = LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
        self.project_up = nn.Linear(vision.width, config.hidden_size, bias=False)
        self.project_down = nn.Linear(config.hidden_size, vision.width, bias=False)


def empty_network(vision: VisionSize, config: Any) -> Emu2Network:
    """The network on the meta device, without values."""
    with torch.device("meta"):
        network = Emu2Network(vision, config)
    return network.eval().requires_grad_(False)


@dataclass(frozen=True)
class Emu2:
    """A loaded model with its vocabulary."""

    network: Any
    """An `Emu2Network` with values."""
    tokens: Tokens
    context: int
    """Most positions of a sequence."""

    @property
    def vision(self) -> VisionSize:
        """Dimensions of the vision encoder."""
        size: VisionSize = self.network.visual.size
        return size

    @property
    def picture(self) -> int:
        """Positions a picture takes in a prompt, with its two marks."""
        return self.vision.queries + 2

    @torch.inference_mode()
    def seen(self, pixels: Sequence[Tensor]) -> Tensor:
        """Vectors (pictures, queries, width) of prepared pictures (3, side, side)."""
        weight = self.network.project_up.weight
        if not pixels:
            none: Tensor = weight.new_zeros(0, self.vision.queries, self.vision.width)
            return none
        batch = torch.stack(list(pixels)).to(weight.device, weight.dtype)
        vectors: Tensor = self.network.visual(batch)
        return vectors

    @torch.inference_mode()
    def embedded(self, ids: Sequence[int], vectors: Tensor) -> Tensor:
        """Embeddings (positions, hidden) of a prompt with its pictures' `vectors` in it."""
        embed = self.network.lm.get_input_embeddings()
        read = torch.tensor(list(ids), device=embed.weight.device)
        states: Tensor = embed(read)
        raised: Tensor = self.network.project_up(vectors.flatten(0, 1))
        states[read == self.tokens[IMAGE]] = raised.to(states)
        return states
