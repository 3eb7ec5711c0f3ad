"""Published checkpoints of Anole and its fine-tunes, from a folder or the Hub.

Three layouts: Hugging Face's, with the VQ model inside (`leloy/Anole-7b-v0.1-hf`); a VQ
model alone (`leloy/Anole-7b-v0.1-vqvae-hf`); and Meta's (`GAIR/Anole-7b-v0.1`). The VQ
model has the names of taming-transformers in all of them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from generators.errors import CheckpointError
from generators.loading.files import (
    Files,
    configured,
    count,
    read_tokenizer,
    section,
    stored_tensors,
)
from generators.loading.strict import Layout, Place, fill, identical, renamed, same

_TAMING = [
    (r"conv_norm_out", "norm_out"),
    (r"conv_shortcut", "nin_shortcut"),
    (r"mid_block\.resnets\.0", "mid.block_1"),
    (r"mid_block\.resnets\.1", "mid.block_2"),
    (r"mid_block\.attentions\.0", "mid.attn_1"),
    (r"attn_1\.group_norm", "attn_1.norm"),
    (r"attn_1\.to_([qkv])", r"attn_1.\1"),
    (r"attn_1\.to_out\.0", "attn_1.proj_out"),
    (r"down_blocks\.(\d+)\.resnets", r"down.\1.block"),
    (r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample"),
    (r"up_blocks\.(\d+)\.resnets", r"up.\1.block"),
    (r"up_blocks\.(\d+)\.upsamplers\.0", r"up.\1.upsample"),
]
"""From diffusers' names to those of taming-transformers (diffusionmodules/model.py)."""


def taming_layout(names: Iterable[str], levels: int, prefix: str = "") -> Layout:
    """The layout of a VQ checkpoint for the parameters `names` of a `VQModel`."""
    return {prefix + _taming_name(name, levels): _vq_place(name) for name in names}


def _taming_name(name: str, levels: int) -> str:
    name = renamed(name, _TAMING)
    # taming counts the decoder's levels from the full resolution down, diffusers up.
    return re.sub(r"^decoder\.up\.(\d+)", lambda m: f"decoder.up.{_flip(m, levels)}", name)


def _flip(match: re.Match[str], levels: int) -> int:
    return levels - 1 - int(match[1])


def _vq_place(name: str) -> Place:
    """The attention's projections are 1 x 1 convolutions in the file."""
    if re.search(r"attentions\.0\.to_.*weight$", name):
        return Place(name, _as_matrix)
    return Place(name)


def _as_matrix(kernel: Tensor) -> Tensor:
    return kernel.reshape(kernel.shape[:2]) if kernel.dim() == 4 else kernel


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
    """The layout of `consolidated.pth` for a Chameleon LM of `config`."""
    return {_meta_name(name): Place(name, _meta_change(name, config)) for name in names}


def _meta_name(name: str) -> str:
    name = name.removeprefix("model.")
    for ours, theirs in _META.items():
        name = re.sub(rf"(^|\.){re.escape(ours)}\.", rf"\g<1>{theirs}.", name)
    return name


def _meta_change(name: str, config: Any) -> Callable[[Tensor], Tensor]:
    """Meta rotates neighbouring channels, transformers the two halves of a head."""
    heads = config.num_key_value_heads if ".k_" in name else config.num_attention_heads
    if re.search(r"\.[qk]_proj\.weight$", name):
        return lambda stored: _halves(stored.view(heads, -1, stored.shape[-1]), 1).flatten(
            0, 1
        )
    if re.search(r"\.[qk]_norm\.(weight|bias)$", name):
        return lambda stored: _halves(stored, 0).expand(heads, -1)
    return same


def _halves(states: Tensor, axis: int) -> Tensor:
    """Channels along `axis` with the even ones first, then the odd ones."""
    before, after = states.shape[:axis], states.shape[axis + 1 :]
    pairs = states.reshape(*before, -1, 2, *after)
    return pairs.transpose(axis, axis + 1).reshape(states.shape)


VQ_PREFIX = "model.vqmodel."


class AnoleCheckpoint(ABC):
    """A checkpoint: its configuration, its tokenizer, and how it fills our modules."""

    vq_config: Mapping[str, Any]
    """As in `ChameleonVQVAEConfig`."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @property
    def source(self) -> str:
        """The checkpoint's name, for errors."""
        return f"checkpoint {self.files.model!r}"

    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The text tokenizer."""

    @abstractmethod
    def language_config(self) -> Any:
        """The language model's `ChameleonConfig`."""

    @abstractmethod
    def fill_language(
        self, model: Any, config: Any, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Fill a language model, strictly."""

    @abstractmethod
    def vq_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The VQ model's tensors under the names of taming-transformers."""

    def fill_vq(self, model: Any, device: torch.device) -> None:
        """Fill a `VQModel`, strictly, in float32."""
        layout = taming_layout(
            model.state_dict(), len(self.vq_config["channel_multiplier"])
        )
        fill(
            model,
            self.vq_tensors(),
            layout,
            source=f"VQ model of {self.source}",
            device=device,
            dtype=torch.float32,
            tolerated=("loss",),
        )


class HuggingFaceAnole(AnoleCheckpoint):
    """Safetensors shards with `config.json` and `tokenizer.json`."""

    def __init__(self, files: Files, config: Mapping[str, Any]) -> None:
        super().__init__(files)
        from transformers import ChameleonVQVAEConfig

        self.config = config
        self._config_file = f"config.json of {self.source}"
        stored = section(config, "vq_config", self._config_file)
        # Files may leave out what equals transformers' defaults.
        vq = configured(ChameleonVQVAEConfig, stored, f"vq_config in {self._config_file}")
        self.vq_config = vq.to_dict()

    def tokenizer(self) -> Tokenizer:
        """`tokenizer.json`."""
        return read_tokenizer(self.files.need("tokenizer.json"))

    def language_config(self) -> Any:
        """`config.json`."""
        from transformers import ChameleonConfig

        count(self.config, "vocab_size", self._config_file)
        return configured(ChameleonConfig, self.config, self._config_file)

    def fill_language(
        self, model: Any, config: Any, device: torch.device, dtype: torch.dtype
    ) -> None:
        """All tensors but the VQ model's, shard by shard."""
        fill(
            model,
            self._tensors(lambda name: not name.startswith(VQ_PREFIX)),
            identical(model.state_dict()),
            source=self.source,
            device=device,
            dtype=dtype,
        )

    def vq_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """From `model.vqmodel.`; only shards that hold it are read or downloaded."""
        for name, tensor in self._tensors(lambda name: name.startswith(VQ_PREFIX)):
            yield name.removeprefix(VQ_PREFIX), tensor

    def _tensors(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Tensor]]:
        return stored_tensors(self.files, wanted)


class VQAnole(HuggingFaceAnole):
    """A repository with the VQ model alone, its names without a prefix."""

    def __init__(self, files: Files, config: Mapping[str, Any]) -> None:
        super().__init__(files, {"vq_config": config})

    def language_config(self) -> Any:
        """CheckpointError: there is no language model."""
        raise self._no_language()

    def tokenizer(self) -> Tokenizer:
        """CheckpointError: there is no language model."""
        raise self._no_language()

    def _no_language(self) -> CheckpointError:
        return CheckpointError(f"{self.source} holds a VQ model only; it cannot draft")

    def vq_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor of the file."""
        return self._tensors(lambda _: True)
