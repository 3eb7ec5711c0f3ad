"""The two sizes with random weights, tiny and published, and what makes these write.

Tiny models have a small tokenizer; their random weights are adjusted so that they write
pictures between words.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from generators.anole.tokens import (
    BEGIN_IMAGE,
    BOS,
    END_IMAGE,
    EOS,
    AnoleVocabulary,
    image_name,
)
from generators.architectures import config_of
from generators.toys import BYTE_LEVEL


@dataclass(frozen=True, kw_only=True)
class AnoleSize:
    """Dimensions of a Chameleon with its VQ model."""

    language: Mapping[str, Any]
    """Fields of transformers' `ChameleonConfig`."""
    vq: Mapping[str, Any]
    """Fields of `ChameleonVQVAEConfig`."""
    vocabulary: int | None
    """Names in the toy tokenizer, padded with made-up words; None for its words alone."""
    begin_image: float
    """Probability that random weights begin a picture after a word."""
    end: float
    """Probability that they end the answer after a word."""

    def config(self, ids: Mapping[str, int]) -> Any:
        """The `ChameleonConfig` for a vocabulary of token name -> id."""
        from transformers import ChameleonConfig

        sized = {"vocab_size": len(ids), "vocabulary_map": dict(ids)}
        return ChameleonConfig(**self.language, vq_config=dict(self.vq), **sized)


TINY = AnoleSize(
    **config_of("anole", tiny=True), vocabulary=None, begin_image=0.08, end=0.03
)
"""Pictures of 64 x 64 pixels in 64 codes."""

FULL = AnoleSize(
    **config_of("anole", tiny=False), vocabulary=65_536, begin_image=0.01, end=0.004
)
"""Anole-7b-v0.1: 7.01 billion parameters and 68.7 million of the VQ model."""


SPECIALS = (BOS, "<pad>", EOS, "<unk>")
MARKS = (END_IMAGE, BEGIN_IMAGE, "<reserved08706>", "<image>")


def toy_tokenizer(codes: int, size: int | None = None) -> Tokenizer:
    """A byte-level BPE tokenizer with `codes` image tokens, in the published order.

    Padded with made-up words to `size` names where one is given.
    """
    names = [*SPECIALS, *(image_name(code) for code in range(codes)), *MARKS]
    names += sorted(pre_tokenizers.ByteLevel.alphabet())
    ids, merges = BYTE_LEVEL.vocabulary(names, size)
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*SPECIALS, *MARKS])
    return tokenizer


def steer(
    model: Any,
    vocabulary: AnoleVocabulary,
    words: Collection[int],
    begin: float,
    end: float,
) -> None:
    """Make a random Chameleon begin and end pictures and answers now and then.

    No layer writes to channel 0 of the residual stream, so it is constant and the head can
    read a bias from it: text is written in `words`; after each of them a picture begins
    with a probability of about `begin`, and the answer ends with one of about `end`.
    """
    with torch.no_grad():
        _hold_channel(model)
        level = _channel_level(model, vocabulary)
        # Words have logits of unit variance, so each weighs exp(1/2) on average.
        mass = math.log(len(words)) + 0.5
        head: Tensor = model.lm_head.weight
        unwanted = sorted(set(vocabulary.text) - set(words))
        head[unwanted, 0] = -12.0 / level
        head[sorted(words), 0] = 0.0
        for token, share in ((vocabulary.begin_image, begin), (vocabulary.eos, end)):
            head[token] = 0.0
            head[token, 0] = (math.log(share) + mass) / level


def _hold_channel(model: Any) -> None:
    embeddings: Tensor = model.model.embed_tokens.weight
    embeddings[:, 0] = math.sqrt(embeddings.shape[1]) / 2
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[0] = 0.0
        layer.mlp.down_proj.weight[0] = 0.0
        layer.input_layernorm.weight[0] = 0.0
        layer.post_attention_layernorm.weight[0] = 0.0


def _channel_level(model: Any, vocabulary: AnoleVocabulary) -> float:
    """The head's input in channel 0, averaged over some context."""
    context = [vocabulary.bos, *vocabulary.text[:30], *vocabulary.image[:30]]
    ids = torch.tensor([context], device=model.lm_head.weight.device)
    hidden: Tensor = model.model(input_ids=ids, use_cache=False).last_hidden_state
    return float(hidden[0, :, 0].float().mean())
