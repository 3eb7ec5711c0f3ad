"""Random models that write words, and begin images and end answers now and then."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from plait.generators.toys import BYTE_LEVEL


def isolate(layer: Any, channels: int = 1) -> None:
    """Keep a decoder layer from the first channels of the residual stream."""
    for written in (layer.self_attn.o_proj, layer.mlp.down_proj):
        written.weight[:channels] = 0.0
    for norm in (layer.input_layernorm, layer.post_attention_layernorm):
        norm.weight[:channels] = 0.0


def held_level(width: int) -> float:
    """Return the constant value of channel 0 in the embeddings of a steered model."""
    return math.sqrt(width) / 2


@torch.no_grad()
def steer(
    lm: Any,
    words: Collection[int],
    unwanted: Collection[int],
    shares: Mapping[int, float],
    context: Sequence[int],
) -> None:
    """Make a random LLaMA or Chameleon write `words` and no `unwanted` ids.

    No layer writes to channel 0 of the residual stream, so it is constant and the head can
    read a bias from it. After each word a token of `shares` follows with about that
    probability. `context` are some ids after which the level of the channel is measured.
    """
    embeddings: Tensor = lm.model.embed_tokens.weight
    embeddings[:, 0] = held_level(embeddings.shape[1])
    for layer in lm.model.layers:
        isolate(layer)
    ids = torch.tensor([list(context)], device=embeddings.device)
    hidden: Tensor = lm.model(input_ids=ids, use_cache=False).last_hidden_state
    level = float(hidden[0, :, 0].float().mean())
    # Words have logits of unit variance, so each weighs exp(1/2) on average.
    mass = math.log(len(words)) + 0.5
    head: Tensor = lm.lm_head.weight
    head[sorted(unwanted), 0] = -12.0 / level
    head[sorted(words), 0] = 0.0
    for token, share in shares.items():
        head[token] = 0.0
        head[token, 0] = (math.log(share) + mass) / level


def byte_level(model: models.BPE, specials: Sequence[str]) -> Tokenizer:
    """Return the tokenizer over a byte-level BPE, as GPT-2 has it."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*specials])
    return tokenizer


def toy_byte_level(
    names: Sequence[str], specials: Sequence[str], size: int | None
) -> Tokenizer:
    """Return a tokenizer of `names`, `specials` among them, all bytes, and the toy words.

    Padded with made-up words to `size` tokens where one is given.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids, merges = BYTE_LEVEL.vocabulary([*names, *alphabet], size)
    return byte_level(models.BPE(vocab=ids, merges=merges), specials)
