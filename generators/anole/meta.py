"""Anole in Meta's layout: `consolidated.pth`, `params.json`, `vqgan.ckpt`, `vqgan.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from generators.anole.published import AnoleCheckpoint, meta_layout
from generators.errors import CheckpointError
from generators.loading.files import (
    Files,
    configured,
    count,
    divided,
    in_pickle,
    read_json,
    read_tokenizer,
    section,
    shape_of,
)
from generators.loading.strict import fill

PARAMS = "models/7b/params.json"
_CONSOLIDATED = "models/7b/consolidated.pth"
_EXTRA_PARAMS = "models/7b/consolidate_params.json"
_TOKENIZER = "tokenizer/text_tokenizer.json"
_VQ = "tokenizer/vqgan.ckpt"
_VQ_CONFIG = "tokenizer/vqgan.yaml"

_VQ_SIZES = {
    "resolution": "resolution",
    "in_channels": "in_channels",
    "base_channels": "ch",
    "num_res_blocks": "num_res_blocks",
    "latent_channels": "z_channels",
}
"""transformers' name of a field -> its name in `ddconfig`."""

_CONTEXT = 4096
"""`Options.max_seq_len` of chameleon.py; no file of the checkpoint holds it."""


class MetaAnole(AnoleCheckpoint):
    """A folder as the authors published it."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.vq_config = _vq_config(files.need(_VQ_CONFIG))

    def tokenizer(self) -> Tokenizer:
        """`text_tokenizer.json`."""
        return read_tokenizer(self.files.need(_TOKENIZER))

    @cached_property
    def _state(self) -> Mapping[str, Any]:
        # Memory-mapped: tensors are read when they are moved to the device.
        return in_pickle(self.files.need(_CONSOLIDATED))

    def language_config(self) -> Any:
        """From `params.json` and the tensors' shapes."""
        from transformers import ChameleonConfig

        params = self._params()
        source = f"{PARAMS} of {self.source}"
        rows, width = self._shape("tok_embeddings.weight")
        heads = count(params, "n_heads", source)
        divided(width, heads, f"n_heads is {heads}", source)
        fields = {
            "vocab_size": rows,
            "hidden_size": width,
            "intermediate_size": self._shape("layers.0.feed_forward.w1.weight")[0],
            "num_hidden_layers": count(params, "n_layers", source),
            "num_attention_heads": heads,
            "num_key_value_heads": params.get("n_kv_heads") or heads,
            "rms_norm_eps": params.get("norm_eps", 1e-5),
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": params.get("rope_theta", 10_000.0),
            },
            "swin_norm": params.get("swin_norm", False),
            "max_position_embeddings": _CONTEXT,
            "vocabulary_map": self.tokenizer().get_vocab(with_added_tokens=True),
            "vq_config": dict(self.vq_config),
        }
        return configured(ChameleonConfig, fields, source)

    def _params(self) -> dict[str, Any]:
        path = self.files.need(PARAMS)
        params = read_json(path)
        if "model" in params:
            params |= section(params, "model", str(path))
        extra = self.files.find(_EXTRA_PARAMS)
        return params | (read_json(extra) if extra else {})

    def _shape(self, name: str) -> tuple[int, ...]:
        return shape_of(self._state, name, f"{_CONSOLIDATED} of {self.source}", rank=2)

    def fill_language(
        self, model: Any, config: Any, device: torch.device, dtype: torch.dtype
    ) -> None:
        """All tensors of `consolidated.pth`; its `rope.freqs` is not needed."""
        fill(
            model,
            self._state.items(),
            meta_layout(model.state_dict(), config),
            source=self.source,
            device=device,
            dtype=dtype,
            tolerated=("rope.freqs",),
        )

    def vq_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The `state_dict` of the Lightning checkpoint."""
        yield from in_pickle(self.files.need(_VQ), "state_dict").items()


def _vq_config(path: Path) -> dict[str, Any]:
    """`vqgan.yaml` in the terms of `ChameleonVQVAEConfig`."""
    params = section(section(_yaml(path), "model", str(path)), "params", str(path))
    sizes = section(params, "ddconfig", str(path))
    counts = {ours: count(sizes, theirs, str(path)) for ours, theirs in _VQ_SIZES.items()}
    return counts | {
        "channel_multiplier": _whole_numbers(sizes, "ch_mult", path),
        "double_latent": bool(sizes.get("double_z")),
        "attn_resolutions": _whole_numbers(sizes, "attn_resolutions", path),
        "embed_dim": count(params, "embed_dim", str(path)),
        "num_embeddings": count(params, "n_embed", str(path)),
    }


def _yaml(path: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path} is not YAML: {reason}") from None
    return content if isinstance(content, dict) else {}


def _whole_numbers(values: Mapping[str, Any], name: str, path: Path) -> list[int]:
    numbers = values.get(name)
    if not isinstance(numbers, list) or not all(isinstance(n, int) for n in numbers):
        raise CheckpointError(
            f"{path}: {name} is {numbers!r}; it must be a list of whole numbers"
        )
    return numbers
