"""Loads the language model with its vocabulary, and the codec, for the two stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer

from generators.anole.codec import Codec, vq_model
from generators.anole.meta import PARAMS, MetaAnole
from generators.anole.published import AnoleCheckpoint, HuggingFaceAnole, VQAnole
from generators.anole.sizes import FULL, TINY, AnoleSize, steer, toy_tokenizer
from generators.anole.tokens import AnoleVocabulary
from generators.base import Weights
from generators.errors import CheckpointError
from generators.loading.files import Files, read_json
from generators.loading.strict import randomised, revived
from generators.toys import BYTE_LEVEL

_SEED = 20_240_708
"""Seed of random weights: the day Anole was published."""


def open_checkpoint(model: str, revision: str | None = None) -> AnoleCheckpoint:
    """The checkpoint in a folder or on the Hub; CheckpointError if it is not Anole."""
    files = Files(model, revision)
    path = files.find("config.json")
    config = {} if path is None else read_json(path)
    if "vq_config" in config:
        return HuggingFaceAnole(files, config)
    if "num_embeddings" in config or config.get("model_type") == "chameleon_vqgan":
        return VQAnole(files, config)
    if files.find(PARAMS) is not None:
        return MetaAnole(files)
    raise CheckpointError(
        f"{files.describe()} holds no Anole: neither a config.json with a vq_config "
        f"(the layout of leloy/Anole-7b-v0.1-hf) nor {PARAMS} (GAIR/Anole-7b-v0.1)"
    )


@dataclass(frozen=True)
class AnoleLanguage:
    """A language model that reads and writes Chameleon's tokens."""

    model: Any
    """`ChameleonForConditionalGeneration` without its VQ model."""
    tokenizer: Tokenizer
    vocabulary: AnoleVocabulary
    context: int
    """Most tokens of a sequence."""


def language_model(config: Any) -> Any:
    """An empty Chameleon LM on the meta device, without its encoder-only VQ model."""
    from transformers import AutoModelForImageTextToText

    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config, attn_implementation="sdpa")
    del model.model.vqmodel
    return model.eval().requires_grad_(False)


def load_language(
    weights: Weights,
    model: str,
    revision: str | None,
    device: torch.device,
    dtype: torch.dtype,
) -> AnoleLanguage:
    """The language model with pretrained, dummy or tiny weights.

    Raises CheckpointError when a published checkpoint does not fit.
    """
    if weights == "pretrained":
        return _published_language(open_checkpoint(model, revision), device, dtype)
    if weights == "tiny":
        return random_language(TINY, device, torch.float32)
    return random_language(FULL, device, dtype)


def load_codec(
    weights: Weights, model: str, revision: str | None, device: torch.device
) -> Codec:
    """The VQ model with pretrained, dummy or tiny weights, in float32."""
    if weights == "pretrained":
        checkpoint = open_checkpoint(model, revision)
        return published_codec(checkpoint, device)
    return random_codec((TINY if weights == "tiny" else FULL).vq, device)


def _published_language(
    checkpoint: AnoleCheckpoint, device: torch.device, dtype: torch.dtype
) -> AnoleLanguage:
    tokenizer = checkpoint.tokenizer()
    vocabulary = AnoleVocabulary.of(tokenizer.get_vocab(with_added_tokens=True))
    codes = checkpoint.vq_config["num_embeddings"]
    if len(vocabulary.image) != codes:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary names {len(vocabulary.image)} image "
            f"tokens, the codebook has {codes} entries"
        )
    config = checkpoint.language_config()
    highest = max(*vocabulary.text, *vocabulary.image)
    if highest >= config.vocab_size:
        raise CheckpointError(
            f"{checkpoint.source}: the tokenizer has the id {highest}, but vocab_size is "
            f"{config.vocab_size}; it must be larger than every id"
        )
    model = language_model(config)
    checkpoint.fill_language(model, config, device, dtype)
    return _ready(model, config, tokenizer, vocabulary, device)


def published_codec(checkpoint: AnoleCheckpoint, device: torch.device) -> Codec:
    """The codec of a published checkpoint."""
    with torch.device("meta"):
        model = vq_model(checkpoint.vq_config)
    checkpoint.fill_vq(model, device)
    return Codec(model, checkpoint.vq_config)


def random_language(
    size: AnoleSize, device: torch.device, dtype: torch.dtype
) -> AnoleLanguage:
    """A seeded random language model of `size` that writes interleaved documents."""
    tokenizer = toy_tokenizer(size.vq["num_embeddings"], size.vocabulary)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    vocabulary = AnoleVocabulary.of(ids)
    config = size.config(ids)
    model = language_model(config)
    randomised(model, device=device, dtype=dtype, seed=_SEED)
    language = _ready(model, config, tokenizer, vocabulary, device)
    words = BYTE_LEVEL.ids(tokenizer) if size.vocabulary is None else vocabulary.text
    steer(model, vocabulary, words, size.begin_image, size.end)
    return language


def random_codec(config: Mapping[str, Any], device: torch.device) -> Codec:
    """A seeded random codec."""
    with torch.device("meta"):
        model = vq_model(config)
    randomised(model, device=device, dtype=torch.float32, seed=_SEED)
    with torch.no_grad():
        # Random activations are larger than trained ones: most pixels would be clamped.
        model.decoder.conv_out.weight *= 0.3
    return Codec(model, config)


def _ready(
    model: Any,
    config: Any,
    tokenizer: Tokenizer,
    vocabulary: AnoleVocabulary,
    device: torch.device,
) -> AnoleLanguage:
    revived(model, config, device)
    return AnoleLanguage(model, tokenizer, vocabulary, config.max_position_embeddings)
