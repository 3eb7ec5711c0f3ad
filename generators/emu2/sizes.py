"""The two sizes with random weights, tiny and published, and what makes these write.

Tiny models have a small tokenizer; their random weights are adjusted so that they write
sentences and end them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from generators.architectures import config_of
from generators.emu2.tokens import Emu2Tokens
from generators.loading.llama import trained_pieces
from generators.toys import WORDS


@dataclass(frozen=True, kw_only=True)
class VisionSize:
    """Dimensions of the vision encoder and of its pooled output."""

    width: int
    layers: int
    heads: int
    mlp_width: int
    patch: int
    grid: int
    """Patches along a side of a picture."""
    norm_eps: float = 1e-6
    queries: int
    """Vectors that stand for one picture; a square number."""

    @property
    def side(self) -> int:
        """Pixels along a side of a picture."""
        return self.patch * self.grid


@dataclass(frozen=True, kw_only=True)
class Emu2Size:
    """Dimensions of one Emu2 model."""

    vision: VisionSize
    language: Mapping[str, Any]
    """Fields of transformers' `LlamaConfig`."""
    attention: float = 1.0
    """Factor on random attention. Above 1 answers depend more on their questions, and
    regression becomes chaotic: a rounding error grows from vector to vector."""

    def config(self, rows: int) -> Any:
        """The `LlamaConfig` for a vocabulary of `rows` tokens."""
        from transformers import LlamaConfig

        return LlamaConfig(**self.language, vocab_size=rows)


def _size(tiny: bool, attention: float = 1.0, **vision: int) -> Emu2Size:
    sections = config_of("emu2", tiny=tiny)
    size = VisionSize(**{**sections["vision"], **vision})
    return Emu2Size(vision=size, language=sections["language"], attention=attention)


TINY_CHAT = _size(tiny=True, attention=4.0)
"""Pictures of 64 x 64 pixels in 16 vectors."""

FULL_CHAT = _size(tiny=False)
"""Emu2-Chat: 36.9 billion parameters (Emu2/emu/conf of baaivision/Emu)."""

TINY_GEN = _size(tiny=True)
FULL_GEN = _size(tiny=False, queries=64)
"""Emu2-Gen's multimodal encoder: a quarter of Chat's vectors for each picture."""


END = "."
"""The token after which tiny models may end."""

_PIECES = 480
"""Bytes, characters, and enough merges to make each word one piece."""
_SHARPNESS = 4.0
"""Random logits are so flat that beam search would end at once."""
_FORBIDDEN = -30.0
_END_LOGIT = 30.0


def toy_pieces() -> Any:
    """A sentencepiece model with LLaMA's options in which each word is one piece."""
    from sentencepiece import SentencePieceProcessor

    lines = [" ".join([*WORDS[i:], *WORDS[:i], END]) for i in range(len(WORDS))]
    ids = {"pad_id": -1, "unk_id": 0, "bos_id": 1, "eos_id": 2}
    model = trained_pieces(lines, _PIECES, character_coverage=1.0, **ids)
    return SentencePieceProcessor(model_proto=model)


def toy_tokens(
    added: Sequence[str], first: int | None = None, strip: bool = True
) -> Emu2Tokens:
    """A small vocabulary with the special tokens `added`, numbered from `first` on.

    LLaMA's own come after 32,000 pieces; by default they follow the last piece here.
    """
    pieces = toy_pieces()
    start = pieces.get_piece_size() if first is None else first
    return Emu2Tokens(pieces, {name: start + i for i, name in enumerate(added)}, strip)


def word_ids(tokens: Emu2Tokens) -> list[int]:
    """Ids of the words and of the full stop, which is the last."""
    ids: list[list[int]] = tokens.pieces.encode([*WORDS, END])
    return [piece for [piece] in ids]


def isolate_channels(layer: Any, attention: float) -> None:
    """Keep a decoder layer from channels 0 and 1 of the residual stream.

    Attention is sharpened and strengthened by the factor `attention`.
    """
    with torch.no_grad():
        layer.self_attn.q_proj.weight *= attention
        layer.self_attn.o_proj.weight *= attention
        layer.self_attn.o_proj.weight[:2] = 0.0
        layer.mlp.down_proj.weight[:2] = 0.0
        layer.input_layernorm.weight[:2] = 0.0
        layer.post_attention_layernorm.weight[:2] = 0.0


def steer(lm: Any, tokens: Emu2Tokens) -> None:
    """Make a random LLaMA of isolated channels write words, and end only after a full stop.

    Channel 0 is constant: the head reads from it which tokens are not words. Channel 1 is
    set by the full stop alone: the head reads from it that the answer may end.
    """
    words = word_ids(tokens)
    with torch.no_grad():
        _mark(lm.model.embed_tokens.weight, words[-1])
        after_word, after_end = _levels(lm, tokens, words)
        head: Tensor = lm.lm_head.weight
        word_rows = head[words] * _SHARPNESS
        word_rows[:, :2] = 0.0
        head.zero_()
        head[:, 0] = _FORBIDDEN / after_word[0]
        head[words] = word_rows
        head[tokens["</s>"], 1] = (_END_LOGIT - _FORBIDDEN) / after_end[1]


def _mark(embeddings: Tensor, end: int) -> None:
    strength = embeddings.shape[1] ** 0.5 / 2
    embeddings[:, 0] = strength
    embeddings[:, 1] = 0.0
    embeddings[end, 1] = strength


def _levels(lm: Any, tokens: Emu2Tokens, words: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The head's input in channels 0 and 1, after a word and after the full stop."""
    ids = torch.tensor([[tokens["<s>"], *words]], device=lm.lm_head.weight.device)
    hidden: Tensor = lm.model(input_ids=ids, use_cache=False).last_hidden_state
    return hidden[0, -2, :2], hidden[0, -1, :2]
