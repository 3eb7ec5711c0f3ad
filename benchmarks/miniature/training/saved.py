"""What a training leaves in its folders: weights in halves, and what was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from generators.files import write_whole


def save_halves(tensors: Mapping[str, Tensor], place: Path, **metadata: str) -> None:
    """Write float16 safetensors; a reader never finds half a file."""
    halves = {name: t.detach().half().contiguous() for name, t in tensors.items()}
    partial = place.with_suffix(".part")
    save_file(halves, partial, metadata=metadata or None)
    write_whole(place, partial.read_bytes())
    partial.unlink()


def write_measured(state: Path, facts: Any) -> None:
    """Write `measured.json` beside the state of a training."""
    write_whole(state / "measured.json", json.dumps(facts, indent=1) + "\n")


def parameter_count(module: nn.Module) -> int:
    """Numbers that a module learns or has learned."""
    return sum(p.numel() for p in module.parameters())
