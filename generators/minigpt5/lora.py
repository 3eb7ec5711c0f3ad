"""The low-rank updates of stage 2, read strictly and added to the weights once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from generators.loading.layout import Place
from generators.loading.strict import fill
from generators.loading.tensors import shape_of

_ALPHA = 16.0
"""`lora_alpha` of mini_gpt5.py; the files do not hold it."""
_TARGETS = ("q_proj", "v_proj")
_PARTS = {"A": "down", "B": "up"}


class _Update(nn.Module):
    """W + (alpha / rank) B A, of a linear map W."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(rank, linear.in_features))
        self.up = nn.Parameter(torch.empty(linear.out_features, rank))

    @property
    def change(self) -> Tensor:
        return (_ALPHA / len(self.down)) * self.up @ self.down


@torch.no_grad()
def merge(model: Any, stored: Mapping[str, Any], prefix: str, source: str) -> None:
    """Add the updates in `stored` to the weights of a LLaMA.

    Names are peft's below `prefix`; the sum is taken in float32. CheckpointError where a
    layer has none, or where there are others than of queries and values.
    """
    linears = {
        f"layers.{i}.self_attn.{target}": getattr(layer.self_attn, target)
        for i, layer in enumerate(model.model.layers)
        for target in _TARGETS
    }
    rank = _rank(stored, f"{prefix}layers.0.self_attn.q_proj.lora_A.default.weight", source)
    with torch.device("meta"):
        named = {_flat(name): _Update(linear, rank) for name, linear in linears.items()}
        updates = nn.ModuleDict(named)
    fill(
        updates,
        ((k, v) for k, v in stored.items() if k.startswith(f"{prefix}layers.")),
        {
            f"{prefix}{name}.lora_{part}.default.weight": Place(f"{_flat(name)}.{own}")
            for name in linears
            for part, own in _PARTS.items()
        },
        source=source,
        device=model.lm_head.weight.device,
        dtype=torch.float32,
    )
    for name, linear in linears.items():
        merged = linear.weight.float() + updates[_flat(name)].change
        linear.weight.copy_(merged)


def _rank(stored: Mapping[str, Any], name: str, source: str) -> int:
    return shape_of(stored, name, source, 2)[0]


def _flat(name: str) -> str:
    """Names of submodules cannot hold dots."""
    return name.replace(".", "-")
