"""Fills a module with stored tensors, one at a time, and tolerates no difference."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from generators.anole.layouts import Layout
from generators.checkpoints import CheckpointError

_NAMED = 8
"""How many keys of one kind an error lists."""


@dataclass
class _Differences:
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)

    def raise_if_any(self, source: str) -> None:
        """One error for all of them."""
        found = {
            "missing": self.missing,
            "unexpected": self.unexpected,
            "of the wrong shape": self.misshapen,
        }
        parts = [f"{len(k)} {what}: {_listed(k)}" for what, k in found.items() if k]
        if parts:
            raise CheckpointError(f"{source} does not fit the model: {'; '.join(parts)}")


def fill(
    module: nn.Module,
    stored: Iterable[tuple[str, Tensor]],
    layout: Layout,
    *,
    source: str,
    device: torch.device,
    dtype: torch.dtype,
    tolerated: Collection[str] = (),
) -> None:
    """Put every stored tensor into its place in `module`, on `device` as `dtype`.

    `module` may be on the meta device: parameters are replaced, never copied twice.
    Names in `tolerated` (and below them) may be there or not. Raises CheckpointError
    that names every missing, unexpected and mis-shaped key.
    """
    shapes = {name: value.shape for name, value in module.state_dict().items()}
    differences = _Differences()
    open_places = dict(layout)
    for key, tensor in stored:
        place = open_places.pop(key, None)
        if place is None:
            if not any(key == t or key.startswith(f"{t}.") for t in tolerated):
                differences.unexpected.append(key)
            continue
        value = _changed(place.change, tensor)
        if value is None or value.shape != shapes[place.name]:
            wanted = tuple(shapes[place.name])
            differences.misshapen.append(f"{key} {tuple(tensor.shape)}, not {wanted}")
            continue
        _assign(module, place.name, value.to(device, dtype).contiguous())
    differences.missing = sorted(open_places)
    differences.raise_if_any(source)


def _changed(change: Any, tensor: Tensor) -> Tensor | None:
    try:
        result: Tensor = change(tensor)
    except (RuntimeError, IndexError):
        # A tensor of another rank or size than the layout's own reshape can take.
        return None
    return result


def _assign(module: nn.Module, name: str, value: Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, nn.Parameter(value, requires_grad=False))


def _listed(keys: list[str]) -> str:
    more = f", and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + more


def randomised(
    module: nn.Module, *, device: torch.device, dtype: torch.dtype, seed: int
) -> None:
    """Fill `module` with random values made on `device`: no file, no host memory.

    Weights are normal with deviation 1 / sqrt(inputs), so that activations keep their
    size (an embedding has one input); norms are 1 and biases 0.
    """
    generator = torch.Generator(device).manual_seed(seed)
    for name, value in module.state_dict().items():
        new = torch.empty(value.shape, device=device, dtype=dtype)
        if name.endswith("bias"):
            new.zero_()
        elif value.dim() == 1 or "norm" in name:
            new.fill_(1.0)
        else:
            inputs = 1 if "embed" in name else value[0].numel()
            new.normal_(0.0, inputs**-0.5, generator=generator)
        _assign(module, name, new)
