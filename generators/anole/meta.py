"""Anole in Meta's layout: `consolidated.pth`, `params.json`, `vqgan.ckpt`, `vqgan.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from generators.anole.layouts import meta
from generators.anole.published import Published
from generators.errors import CheckpointError
from generators.loading.files import Files, read_json
from generators.loading.strict import fill
from generators.loading.tensors import in_pickle

PARAMS = "models/7b/params.json"
_CONSOLIDATED = "models/7b/consolidated.pth"
_EXTRA_PARAMS = "models/7b/consolidate_params.json"
_TOKENIZER = "tokenizer/text_tokenizer.json"
_VQ = "tokenizer/vqgan.ckpt"
_VQ_CONFIG = "tokenizer/vqgan.yaml"

_CONTEXT = 4096
"""Stands in none of the files; `Options.max_seq_len` of chameleon.py."""


class Meta(Published):
    """One folder as the authors published it."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.vq_config = _vq_config(files.need(_VQ_CONFIG))

    def tokenizer(self) -> Tokenizer:
        """`text_tokenizer.json`."""
        return Tokenizer.from_file(str(self.files.need(_TOKENIZER)))

    @cached_property
    def _state(self) -> Mapping[str, Any]:
        # Memory-mapped: tensors are read when they are moved to the device.
        return in_pickle(self.files.need(_CONSOLIDATED))

    def language_config(self) -> Any:
        """From `params.json` and the tensors' shapes."""
        from transformers import ChameleonConfig

        params = self._params()
        vocabulary = self.tokenizer().get_vocab(with_added_tokens=True)
        rows, width = self._shape("tok_embeddings.weight")
        heads = params["n_heads"]
        return ChameleonConfig(
            vocab_size=rows,
            hidden_size=width,
            intermediate_size=self._shape("layers.0.feed_forward.w1.weight")[0],
            num_hidden_layers=params["n_layers"],
            num_attention_heads=heads,
            num_key_value_heads=params.get("n_kv_heads") or heads,
            rms_norm_eps=params.get("norm_eps", 1e-5),
            rope_parameters={
                "rope_type": "default",
                "rope_theta": params.get("rope_theta", 10_000.0),
            },
            swin_norm=params.get("swin_norm", False),
            max_position_embeddings=_CONTEXT,
            vocabulary_map=vocabulary,
            vq_config=dict(self.vq_config),
        )

    def _params(self) -> dict[str, Any]:
        params = read_json(self.files.need(PARAMS))
        model: dict[str, Any] = params.get("model", {})
        extra = self.files.find(_EXTRA_PARAMS)
        return params | model | (read_json(extra) if extra else {})

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self._state:
            raise CheckpointError(f"{self.source}: {_CONSOLIDATED} lacks {name}")
        return tuple(self._state[name].shape)

    def fill_language(
        self, model: Any, config: Any, device: torch.device, dtype: torch.dtype
    ) -> None:
        """All tensors of `consolidated.pth`; a stray `rope.freqs` is expected there."""
        fill(
            model,
            self._state.items(),
            meta(model.state_dict(), config),
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
    import yaml  # type: ignore[import-untyped]

    params = yaml.safe_load(path.read_text())["model"]["params"]
    sizes = params["ddconfig"]
    return {
        "resolution": sizes["resolution"],
        "in_channels": sizes["in_channels"],
        "base_channels": sizes["ch"],
        "channel_multiplier": list(sizes["ch_mult"]),
        "num_res_blocks": sizes["num_res_blocks"],
        "latent_channels": sizes["z_channels"],
        "double_latent": sizes["double_z"],
        "attn_resolutions": list(sizes["attn_resolutions"]),
        "embed_dim": params["embed_dim"],
        "num_embeddings": params["n_embed"],
    }
