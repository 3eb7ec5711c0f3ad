"""Checkpoints of Anole: where their configurations and tensors are.

Published ones of Anole and its fine-tunes, from a folder or the Hub, have three layouts:
Hugging Face's, with the VQ model inside (`leloy/Anole-7b-v0.1-hf`); a VQ model alone
(`leloy/Anole-7b-v0.1-vqvae-hf`); and Meta's (`GAIR/Anole-7b-v0.1`): `consolidated.pth`,
`params.json`, `vqgan.ckpt`, `vqgan.yaml`. The VQ model has the names of taming-transformers
in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from tokenizers import Tokenizer
from torch import Tensor

from plait.generators.errors import CheckpointError
from plait.generators.loading.files import (
    Files,
    config_of_class,
    count,
    divide,
    in_pickle,
    read_json,
    read_stored,
    read_tokenizer,
    section,
    shape_of,
)
from plait.generators.loading.strict import Layout, Place, identical, same

VQ_PREFIX = "model.vqmodel."
Stored = Iterable[tuple[str, Tensor]]


def open_checkpoint(model: str, revision: str | None = None) -> AnoleCheckpoint:
    """Return the checkpoint of a folder or the Hub; CheckpointError if it is not Anole."""
    files = Files(model, revision)
    path = files.find("config.json")
    config = {} if path is None else read_json(path)
    if "vq_config" in config:
        return AnoleCheckpoint(files, config)
    if "num_embeddings" in config or config.get("model_type") == "chameleon_vqgan":
        return AnoleCheckpoint(files, {"vq_config": config}, vq_prefix="")
    if files.find(_PARAMS) is not None:
        return MetaAnole(files, {})
    raise CheckpointError(
        f"{files.describe()} holds no Anole: neither a config.json with a vq_config "
        f"(the layout of leloy/Anole-7b-v0.1-hf) nor {_PARAMS} (GAIR/Anole-7b-v0.1)"
    )


class AnoleCheckpoint:
    """Hugging Face's layout: safetensors shards, `config.json` and `tokenizer.json`.

    A repository with the VQ model alone has its names without a prefix. Another layout
    differs in where its configurations and tensors are.
    """

    tokenizer_file = "tokenizer.json"

    def __init__(
        self, files: Files, config: Mapping[str, Any], vq_prefix: str = VQ_PREFIX
    ) -> None:
        self.files = files
        self.config = config
        self._prefix = vq_prefix
        self.source = f"checkpoint {files.model!r}"
        """The checkpoint's name, for errors."""
        self.vq_config = self._vq_config()
        """As in `ChameleonVQVAEConfig`."""

    def _vq_config(self) -> Mapping[str, Any]:
        source = f"config.json of {self.source}"
        stored = section(self.config, "vq_config", source)
        # Files may leave out what equals transformers' defaults.
        vq = config_of_class("ChameleonVQVAEConfig", stored, f"vq_config in {source}")
        values: Mapping[str, Any] = vq.to_dict()
        return values

    def tokenizer(self) -> Tokenizer:
        """Return the text tokenizer; CheckpointError where there is no language model."""
        if not self._prefix:
            raise CheckpointError(f"{self.source} holds a VQ model only; it cannot draft")
        return read_tokenizer(self.files.need(self.tokenizer_file))

    def language_config(self) -> Any:
        """Return the language model's `ChameleonConfig`."""
        count(self.config, "vocab_size", f"config.json of {self.source}")
        return config_of_class(
            "ChameleonConfig", self.config, f"config.json of {self.source}"
        )

    def language(self, names: Iterable[str], config: Any) -> tuple[Stored, Layout]:
        """Return the language model's tensors, and where its parameters `names` are."""
        stored = read_stored(self.files, lambda name: not name.startswith(VQ_PREFIX))
        return stored, identical(names)

    def vq_tensors(self) -> Stored:
        """Return the VQ model's tensors under the names of taming-transformers.

        No shard without any of them is read or downloaded.
        """
        prefix = self._prefix
        for name, tensor in read_stored(self.files, lambda name: name.startswith(prefix)):
            yield name.removeprefix(prefix), tensor


_MODEL = "models/7b"
_TOKENS = "tokenizer"
_PARAMS = f"{_MODEL}/params.json"
_CONSOLIDATED = f"{_MODEL}/consolidated.pth"
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

    tokenizer_file = f"{_TOKENS}/text_tokenizer.json"

    def _vq_config(self) -> Mapping[str, Any]:
        return _vq_config(self.files.need(f"{_TOKENS}/vqgan.yaml"))

    @cached_property
    def _state(self) -> Mapping[str, Any]:
        # Memory-mapped: tensors are read when they are moved to the device.
        return in_pickle(self.files.need(_CONSOLIDATED))

    def language_config(self) -> Any:
        """Return what `params.json` and the tensors' shapes say."""
        params = self._params()
        source = f"{_PARAMS} of {self.source}"
        rows, width = self._shape("tok_embeddings.weight")
        heads = count(params, "n_heads", source)
        divide(width, heads, f"n_heads is {heads}", source)
        theta = params.get("rope_theta", 10_000.0)
        fields = {
            "vocab_size": rows,
            "hidden_size": width,
            "intermediate_size": self._shape("layers.0.feed_forward.w1.weight")[0],
            "num_hidden_layers": count(params, "n_layers", source),
            "num_attention_heads": heads,
            "num_key_value_heads": params.get("n_kv_heads") or heads,
            "rms_norm_eps": params.get("norm_eps", 1e-5),
            "rope_parameters": {"rope_type": "default", "rope_theta": theta},
            "swin_norm": params.get("swin_norm", False),
            "max_position_embeddings": _CONTEXT,
            "vocabulary_map": self.tokenizer().get_vocab(with_added_tokens=True),
            "vq_config": dict(self.vq_config),
        }
        return config_of_class("ChameleonConfig", fields, source)

    def _params(self) -> dict[str, Any]:
        path = self.files.need(_PARAMS)
        params = read_json(path)
        if "model" in params:
            params |= section(params, "model", str(path))
        extra = self.files.find(f"{_MODEL}/consolidate_params.json")
        return params | (read_json(extra) if extra else {})

    def _shape(self, name: str) -> tuple[int, ...]:
        return shape_of(self._state, name, f"{_CONSOLIDATED} of {self.source}", rank=2)

    def language(self, names: Iterable[str], config: Any) -> tuple[Stored, Layout]:
        """Return all tensors of `consolidated.pth`, and Meta's names."""
        return self._state.items(), meta_layout(names, config)

    def vq_tensors(self) -> Stored:
        """Return the `state_dict` of the Lightning checkpoint."""
        return in_pickle(self.files.need(f"{_TOKENS}/vqgan.ckpt"), "state_dict").items()


def _vq_config(path: Path) -> dict[str, Any]:
    """Return `vqgan.yaml` in the terms of `ChameleonVQVAEConfig`."""
    source = str(path)
    params = section(section(_yaml(path), "model", source), "params", source)
    sizes = section(params, "ddconfig", source)
    counts = {ours: count(sizes, theirs, source) for ours, theirs in _VQ_SIZES.items()}
    return counts | {
        "channel_multiplier": _whole_numbers(sizes, "ch_mult", source),
        "double_latent": bool(sizes.get("double_z")),
        "attn_resolutions": _whole_numbers(sizes, "attn_resolutions", source),
        "embed_dim": count(params, "embed_dim", source),
        "num_embeddings": count(params, "n_embed", source),
    }


def _yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path} is not YAML: {reason}") from None
    return content if isinstance(content, dict) else {}


def _whole_numbers(values: Mapping[str, Any], name: str, source: str) -> list[int]:
    numbers = values.get(name)
    if not isinstance(numbers, list) or not all(isinstance(one, int) for one in numbers):
        raise CheckpointError(
            f"{source}: {name} is {numbers!r}; it must be a list of whole numbers"
        )
    return numbers


_META = {
    "embed_tokens": "tok_embeddings",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "self_attn.q_norm": "attention.q_normalization",
    "self_attn.k_norm": "attention.k_normalization",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "lm_head": "output",
}
"""From transformers' Chameleon names to Meta's (chameleon/inference/transformer.py)."""


def meta_layout(names: Iterable[str], config: Any) -> Layout:
    """Return the layout of `consolidated.pth` for a Chameleon LM of `config`."""
    return {_meta_name(name): Place(name, _meta_change(name, config)) for name in names}


def _meta_name(name: str) -> str:
    """Return Meta's name of one of transformers' parameters."""
    name = name.removeprefix("model.")
    for ours, theirs in _META.items():
        name = re.sub(rf"(^|\.){re.escape(ours)}\.", rf"\g<1>{theirs}.", name)
    return name


def _meta_change(name: str, config: Any) -> Callable[[Tensor], Tensor]:
    """Return how a stored tensor is changed for the parameter of that name.

    Meta rotates neighbouring channels, transformers the two halves of a head, so those of
    queries and keys change their order.
    """
    heads = config.num_key_value_heads if ".k_" in name else config.num_attention_heads

    def projection(stored: Tensor) -> Tensor:
        """Return (heads * channels, inputs) with the channels of each head reordered."""
        by_head = stored.view(heads, -1, stored.shape[-1])
        return _halves(by_head, 1).flatten(0, 1)

    def norm(stored: Tensor) -> Tensor:
        """Return (heads, channels): Meta stores one row, which all heads share."""
        return _halves(stored, 0).expand(heads, -1)

    if re.search(r"\.[qk]_proj\.weight$", name):
        return projection
    if re.search(r"\.[qk]_norm\.(weight|bias)$", name):
        return norm
    return same


def _halves(states: Tensor, axis: int) -> Tensor:
    """Return the channels along `axis` with the even ones first, then the odd ones."""
    before = states.shape[:axis]
    after = states.shape[axis + 1 :]
    pairs = states.reshape(*before, -1, 2, *after)
    return pairs.transpose(axis, axis + 1).reshape(states.shape)
