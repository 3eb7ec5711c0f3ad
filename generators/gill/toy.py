"""A small tokenizer of our own, and weights that interleave although they are random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from generators.gill.language import Language
from generators.gill.tokens import BOS, PAD, byte_level
from generators.toys import BYTE_LEVEL

_LEVEL = 100.0
"""What the head finds in channel 0: so loud that the biases, which are also read as
inputs, can be faint."""
_SCALE = 1.4
"""The scale factor at which the chance of an image is that asked for."""
_FAINTER = 0.5
"""Noise in the logit of [IMG0], lest its absolute value win by being low."""


def toy_tokenizer(size: int | None = None) -> Tokenizer:
    """A byte-level BPE tokenizer, its special tokens where OPT's are.

    Filled up with made-up words to `size` names where one is given.
    """
    names = ["<s>", PAD, BOS, "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    ids, merges = BYTE_LEVEL.vocabulary(names, size)
    return byte_level(models.BPE(vocab=ids, merges=merges))


def word_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids of the whole words of a toy tokenizer, the made-up ones among them."""
    return sorted({*BYTE_LEVEL.ids(tokenizer), *BYTE_LEVEL.made_up_ids(tokenizer)})


def steered(language: Language, words: Sequence[int], asks: float, ends: float) -> None:
    """Make a random OPT ask for images and end its answers now and then, even greedily.

    Channel 0 of the residual stream is held constant, out of the layers' reach, and the
    tied embeddings read from it a bias: greedily, text is written in `words`; after each
    an image is asked for with probability about `asks`, a newline written with `ends`.
    """
    asking, ending = language.tokens.vokens[0], language.tokens.newline
    with torch.no_grad():
        _quieten(language.decoder)
        hidden = _states(language, words)
        language.decoder.final_layer_norm.weight[0] *= _LEVEL / hidden[:, 0].mean()
        noise = float((hidden @ language.embeddings[list(words)].T).float().std())
        bias = torch.full((len(language.embeddings),), -10.0)
        bias[list(words)] = 0.0
        # Half of the time the best of so many normal draws lies below `best`.
        best = NormalDist().inv_cdf(0.5 ** (1 / len(words)))
        bias[ending] = best - NormalDist().inv_cdf(1 - ends)
        bias[asking] = best / _SCALE - _FAINTER * NormalDist().inv_cdf(1 - asks)
        language.embeddings[asking] *= _FAINTER
        for token in (asking, ending):
            _centre(language.embeddings[token], hidden.mean(dim=0))
        language.embeddings[:, 0] = (noise * bias / _LEVEL).to(language.embeddings)


def _centre(embedding: Tensor, mean: Tensor) -> None:
    """Give a token a logit of 0 in the mean state, so that its chance is the noise's."""
    share = (embedding @ mean) / (mean @ mean)
    embedding -= share * mean


def _quieten(decoder: Any) -> None:
    """Hold channel 0, and keep an embedding from being its own likeliest successor."""
    embeddings: Tensor = decoder.embed_tokens.weight
    positions: Tensor = decoder.embed_positions.weight
    width = embeddings.shape[1]
    for table in (embeddings, positions):
        table *= 0.5 / math.sqrt(width)
    embeddings[:, 0] = 0.0
    positions[:, 0] = 0.25
    for layer in decoder.layers:
        # Activations are positive: their mean would favour the same words everywhere.
        layer.fc2.weight -= layer.fc2.weight.mean(dim=1, keepdim=True)
        for written in (layer.self_attn.out_proj.weight, layer.fc2.weight):
            written[0] = 0.0
            # Norms subtract the mean of all channels, so it must not move either.
            written[1:] -= written[1:].mean(dim=0)
        layer.self_attn_layer_norm.weight[0] = 0.0
        layer.final_layer_norm.weight[0] = 0.0
        layer.self_attn.q_proj.weight *= 4.0


def _states(language: Language, words: Sequence[int]) -> Tensor:
    """States (positions, width) of the decoder after some words."""
    context = language.embedded([language.tokens.bos, *words[:60]])
    hidden: Tensor = language.decoder(
        inputs_embeds=context[None], use_cache=False
    ).last_hidden_state
    return hidden[0]
