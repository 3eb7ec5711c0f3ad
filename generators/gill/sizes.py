"""The toy and the published size, built without a checkpoint, and their steering.

Models of both sizes have a toy tokenizer, and random weights that are changed so that
they request images and end their answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor

from generators.architectures import config_of
from generators.gill.networks import GillLanguage
from generators.gill.tokens import BOS, PAD, byte_level
from generators.toys import BYTE_LEVEL

HEADS = 4
"""Attention heads of the mapper, from `TextFcLayer` (gill/layers.py); no file has them."""

SEED = 20_230_526
"""Seed of the random weights: the day on which GILL was published."""


@dataclass(frozen=True, kw_only=True)
class MapperSize:
    """Dimensions of GILLMapper."""

    states: int
    """Width of the language model's states."""
    width: int
    layers: int
    """Of the encoder, and again of the decoder."""
    inner: int
    """Width of the feed-forward layers."""
    queries: int
    out: int
    """Width of the diffusion model's prompt embeddings."""


@dataclass(frozen=True, kw_only=True)
class GillSize:
    """Dimensions of all parts of a GILL model."""

    language: Mapping[str, Any]
    """Fields of transformers' `OPTConfig`, except the vocabulary size."""
    vision: Mapping[str, Any]
    """Fields of `CLIPVisionConfig`."""
    mapper: MapperSize
    visual_tokens: int = 4
    """Embeddings per picture of a prompt."""
    vokens: int = 8
    """Image tokens [IMG0], [IMG1], ..."""
    vocabulary: int | None = None
    """Number of names to which the toy tokenizer is filled up; None for its words only."""
    asks: float = 0.08
    """Probability that random weights request an image after a word, by default."""
    ends: float = 0.02
    """Probability that they write a newline after a word."""


def _sections(tiny: bool) -> dict[str, Any]:
    sections = config_of("gill", tiny=tiny)
    return sections | {"mapper": MapperSize(**sections["mapper"])}


TINY = GillSize(**_sections(tiny=True))
FULL = GillSize(**_sections(tiny=False), vocabulary=50_265)
"""OPT-6.7B, the vision tower of CLIP ViT-L/14, and GILL's 50 million parameters."""


_LEVEL = 100.0
"""The value of channel 0 at the output layer: large, so that the biases, which are also
read as inputs, can be small."""
_SCALE = 1.4
"""The scale factor at which an image has the requested probability."""
_REDUCED = 0.5
"""Factor on the noise of [IMG0]'s logit, so that a low logit does not win by its
absolute value."""


def toy_tokenizer(size: int | None = None) -> Tokenizer:
    """A byte-level BPE tokenizer, its special tokens where OPT's are.

    It is filled up with made-up words to `size` names where a size is given.
    """
    names = ["<s>", PAD, BOS, "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    ids, merges = BYTE_LEVEL.vocabulary(names, size)
    return byte_level(models.BPE(vocab=ids, merges=merges))


def word_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids of the whole words of a toy tokenizer, including the made-up ones."""
    return sorted({*BYTE_LEVEL.ids(tokenizer), *BYTE_LEVEL.made_up_ids(tokenizer)})


def steered(language: GillLanguage, words: Sequence[int], asks: float, ends: float) -> None:
    """Make a random OPT request images and end its answers now and then, even greedily.

    No layer changes channel 0 of the residual stream, so the tied embeddings read a bias
    from it. Greedy text consists of `words`; after each, an image is requested with a
    probability of about `asks`, and a newline is written with `ends`.
    """
    asking, ending = language.tokens.vokens[0], language.tokens.newline
    with torch.no_grad():
        _hold_channel(language.decoder)
        hidden = _states(language, words)
        language.decoder.final_layer_norm.weight[0] *= _LEVEL / hidden[:, 0].mean()
        noise = float((hidden @ language.embeddings[list(words)].T).float().std())
        bias = torch.full((len(language.embeddings),), -10.0)
        bias[list(words)] = 0.0
        # The median of the maximum of as many normal samples as there are words.
        best = NormalDist().inv_cdf(0.5 ** (1 / len(words)))
        bias[ending] = best - NormalDist().inv_cdf(1 - ends)
        bias[asking] = best / _SCALE - _REDUCED * NormalDist().inv_cdf(1 - asks)
        language.embeddings[asking] *= _REDUCED
        for token in (asking, ending):
            _centre(language.embeddings[token], hidden.mean(dim=0))
        language.embeddings[:, 0] = (noise * bias / _LEVEL).to(language.embeddings)


def _centre(embedding: Tensor, mean: Tensor) -> None:
    """Give a token a logit of 0 in the mean state, so that its chance is the noise's."""
    share = (embedding @ mean) / (mean @ mean)
    embedding -= share * mean


def _hold_channel(decoder: Any) -> None:
    """Hold channel 0 constant, and stop tokens from predicting themselves."""
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


def _states(language: GillLanguage, words: Sequence[int]) -> Tensor:
    """States (positions, width) of the decoder after some words."""
    context = language.embed([language.tokens.bos, *words[:60]])
    hidden: Tensor = language.decoder(
        inputs_embeds=context[None], use_cache=False
    ).last_hidden_state
    return hidden[0]
