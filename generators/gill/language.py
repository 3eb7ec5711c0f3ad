"""GILL's language model: an OPT whose tied embeddings include the image tokens'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.gill.tokens import Tokens
from generators.loading.files import Files, configured, count, read_json
from generators.loading.strict import Layout, Place, fill, identical
from generators.loading.tensors import stored_tensors

_EMBEDDINGS = "decoder.embed_tokens.weight"


@dataclass(frozen=True)
class Language:
    """A decoder that reads embeddings and writes ids."""

    decoder: Any
    """transformers' `OPTDecoder`."""
    tokens: Tokens
    context: int
    """Most tokens of a sequence."""

    @property
    def embeddings(self) -> Tensor:
        """(ids, width), which also give the logits."""
        weight: Tensor = self.decoder.embed_tokens.weight
        return weight

    def embedded(self, ids: Sequence[int]) -> Tensor:
        """Embeddings (ids, width)."""
        return self.embeddings[torch.tensor(list(ids), device=self.embeddings.device)]

    def logits(self, hidden: Tensor) -> Tensor:
        """(rows, ids) in float32, of states (rows, width) after the last norm."""
        return (hidden @ self.embeddings.T).float()


def language_model(config: Any) -> Any:
    """An empty `OPTModel` on the meta device."""
    from transformers import OPTModel

    with torch.device("meta"):
        model = OPTModel._from_config(config, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def opt_config(files: Files) -> Any:
    """The `OPTConfig` of a published OPT; CheckpointError when it is not valid."""
    from transformers import OPTConfig

    path = files.need("config.json")
    values = read_json(path)
    count(values, "vocab_size", str(path))
    return configured(OPTConfig, values, str(path))


def published_language(
    files: Files, tokens: Tokens, vokens: Tensor, device: torch.device, dtype: torch.dtype
) -> Language:
    """A published OPT, its embeddings extended to all `tokens`, the last being `vokens`.

    Raises CheckpointError when the checkpoint does not fit.
    """
    config = opt_config(files)
    stored, config.vocab_size = config.vocab_size, tokens.size
    model = language_model(config)
    fill(
        model,
        _tensors(files),
        _layout(model, stored, tokens),
        source=f"language model {files.model!r}",
        device=device,
        dtype=dtype,
        tolerated=("lm_head.weight",),
    )
    language = Language(model.decoder, tokens, config.max_position_embeddings)
    language.embeddings[-len(vokens) :] = vokens.to(language.embeddings)
    return language


def _tensors(files: Files) -> Iterator[tuple[str, Tensor]]:
    """OPT's tensors; files of `OPTModel` and `OPTForCausalLM` differ in one prefix."""
    for name, tensor in stored_tensors(files):
        yield name.removeprefix("model."), tensor


def _layout(model: Any, stored: int, tokens: Tokens) -> Layout:
    layout = dict(identical(model.state_dict()))

    def extended(tensor: Tensor) -> Tensor:
        """All ids' rows; upstream resizes to the tokenizer and overwrites the last ones."""
        if len(tensor) != stored or stored < tokens.vokens[0]:
            raise IndexError
        missing = tensor.new_zeros(max(0, tokens.size - stored), *tensor.shape[1:])
        return torch.cat([tensor[: tokens.size], missing])

    layout[_EMBEDDINGS] = Place(_EMBEDDINGS, extended)
    return layout
