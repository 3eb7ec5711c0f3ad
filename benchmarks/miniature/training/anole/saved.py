"""Writes the mini Anole as Hugging Face's layout of Anole: one folder, float16."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor

from benchmarks.miniature.training.anole.vq import VQ
from benchmarks.miniature.training.saved import save_halves
from generators.anole.published import VQ_PREFIX, taming_layout
from generators.files import write_whole


def save_anole(model: Any, vq: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """`config.json`, `tokenizer.json` and `model.safetensors`, with the VQ model inside."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {**model.state_dict(), **vq_tensors(vq)}
    save_halves(tensors, folder / "model.safetensors", format="pt")
    config = {**model.config.to_dict(), "dtype": "float16"}
    write_whole(folder / "config.json", f"{json.dumps(config, indent=2)}\n".encode())
    write_whole(folder / "tokenizer.json", tokenizer.to_str(pretty=False).encode())


def vq_tensors(vq: Any) -> dict[str, Tensor]:
    """The VQ model's tensors under the names and shapes of the published file."""
    state = vq.state_dict()
    layout = taming_layout(state, len(VQ["channel_multiplier"]), VQ_PREFIX)
    tensors = {name: state[place.name] for name, place in layout.items()}
    # The attention's matrices are 1 x 1 convolutions there.
    return {
        n: t[:, :, None, None] if _is_projection(n, t) else t for n, t in tensors.items()
    }


def _is_projection(name: str, tensor: Tensor) -> bool:
    return ".attn_1." in name and tensor.ndim == 2
