"""The toy and the published size, built without a checkpoint, and their steering.

Models of both sizes have a toy tokenizer, and random weights that are changed so that
they request pictures and end their answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from torch import Tensor

from generators.architectures import config_of
from generators.toys import PIECES

VOKENS = 8
"""`[IMG0]` to `[IMG7]` (`IMG_TOKEN_NUM`, constants.py)."""
ADDED = VOKENS + 1
"""The vokens and `<ImageHere>`: the last rows of the embedding table."""


@dataclass(frozen=True, kw_only=True)
class MiniGPT5Size:
    """Dimensions of the drafting model and of the mapper."""

    language: Mapping[str, Any]
    """Fields of `LlamaConfig`."""
    vision: Mapping[str, Any]
    """Fields of `Blip2VisionConfig`."""
    qformer: Mapping[str, Any]
    """Fields of `Blip2QFormerConfig`."""
    queries: int
    """Vectors per picture of a prompt."""
    pieces: int | None
    """Number of pieces to which the toy tokenizer is filled up; None for its words only."""
    begin_image: float
    """Probability that random weights request a picture after a word, among all ids; among
    the fifty that sampling keeps by default, it is larger where there are many words."""
    end: float
    """Probability that they end the answer after a word."""


TINY = MiniGPT5Size(
    **config_of("minigpt5", tiny=True), pieces=None, begin_image=0.12, end=0.02
)
"""A picture of 28 x 28 pixels becomes 4 vectors."""

FULL = MiniGPT5Size(
    **config_of("minigpt5", tiny=False), pieces=32_000, begin_image=0.0008, end=0.0004
)
"""Vicuna-7B with 9 more rows, EVA-ViT-g and the Q-Former of BLIP-2."""


_SPACE = PIECES.space
MARK_PIECE = _SPACE + "###"
_MARK_MERGES = [(_SPACE, "#"), (_SPACE + "#", "#"), (_SPACE + "##", "#"), ("#", "#")]
_SPECIALS = ("<unk>", "<s>", "</s>")


def toy_tokenizer(size: int | None = None) -> Tokenizer:
    """Special pieces, bytes and words in LLaMA's order; filled up to `size` pieces."""
    ids, word_merges = PIECES.vocabulary(_leading_pieces(), size)
    merges = [*_MARK_MERGES, *word_merges]
    model = models.BPE(
        vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    spelling = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    strip = decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([*spelling, strip])
    tokenizer.add_special_tokens(list(_SPECIALS))
    return tokenizer


def _leading_pieces() -> list[str]:
    """The pieces before the words."""
    names = [*_SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), _SPACE]
    names += [chr(code) for code in range(33, 127)]
    return [*names, *(a + b for a, b in _MARK_MERGES)]


@dataclass(frozen=True)
class Steering:
    """Makes a random LLaMA request pictures and end its answers now and then.

    No layer changes channel 0 of the residual stream, so the head reads a bias from it.
    Text consists of `words`; after each, a picture begins with a probability of about
    `begin`, and the answer ends with about `end`.
    """

    words: Sequence[int]
    image: int
    """Id that begins a picture."""
    mark: int
    """Id that ends the answer."""
    begin: float
    end: float

    @torch.no_grad()
    def apply(self, language: Any, encoder: Any) -> None:
        """Change the weights of both in place."""
        self._hold_channel(language, encoder)
        level = self._channel_level(language)
        # Words have logits of unit variance, so each weighs exp(1/2) on average.
        mass = math.log(len(self.words)) + 0.5
        head: Tensor = language.lm_head.weight
        word_rows = head[list(self.words)]
        head[:, 0] = -12.0 / level
        head[list(self.words)] = word_rows
        head[list(self.words), 0] = 0.0
        for token, share in ((self.image, self.begin), (self.mark, self.end)):
            head[token] = 0.0
            head[token, 0] = (math.log(share) + mass) / level

    def _hold_channel(self, language: Any, encoder: Any) -> None:
        embeddings: Tensor = language.model.embed_tokens.weight
        level = math.sqrt(embeddings.shape[1]) / 2
        embeddings[:, 0] = level
        encoder.llama_proj.weight[0] = 0.0
        encoder.llama_proj.bias[0] = level
        for layer in language.model.layers:
            layer.self_attn.o_proj.weight[0] = 0.0
            layer.mlp.down_proj.weight[0] = 0.0
            layer.input_layernorm.weight[0] = 0.0
            layer.post_attention_layernorm.weight[0] = 0.0

    def _channel_level(self, language: Any) -> float:
        """The value of channel 0 at the head, averaged over some context."""
        ids = torch.tensor([list(self.words[:40])], device=language.lm_head.weight.device)
        hidden: Tensor = language.model(input_ids=ids, use_cache=False).last_hidden_state
        return float(hidden[0, :, 0].float().mean())
