"""Checkpoints in two safetensors files with an index, as the Hub's are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

FILES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def save_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write `tensors` into `folder`, half of the names, in their order, in each file."""
    names = sorted(tensors)
    where = {n: FILES[i >= len(names) // 2] for i, n in enumerate(names)}
    for file in FILES:
        part = {n: tensors[n].contiguous() for n in names if where[n] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 0}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
