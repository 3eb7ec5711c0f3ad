"""Loads the language model with its vocabulary, and the codec, for the two stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from generators.anole.codec import Codec, vq_model
from generators.anole.published import AnoleCheckpoint, open_checkpoint
from generators.anole.tokens import (
    BEGIN_IMAGE,
    BOS,
    END_IMAGE,
    EOS,
    AnoleVocabulary,
    image_name,
)
from generators.architectures import config_of
from generators.base import Weights
from generators.decoding.steering import steer
from generators.errors import CheckpointError
from generators.loading.strict import randomised, revived
from generators.toys import BYTE_LEVEL

_SEED = 20_240_708
"""Seed of random weights: the day Anole was published."""
_SHARES: Mapping[Weights, tuple[float, float]] = {
    "tiny": (0.08, 0.03),
    "dummy": (0.01, 0.004),
}
"""Probability that random weights begin an image after a word, and that they end there."""


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
    """Return an empty Chameleon LM on the meta device, without its own VQ encoder."""
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
    """Return the language model; CheckpointError when a published one does not fit."""
    if weights == "pretrained":
        return _published_language(open_checkpoint(model, revision), device, dtype)
    return random_language(weights, device, torch.float32 if weights == "tiny" else dtype)


def load_codec(
    weights: Weights, model: str, revision: str | None, device: torch.device
) -> Codec:
    """Return the VQ model in float32."""
    if weights == "pretrained":
        checkpoint = open_checkpoint(model, revision)
        config = checkpoint.vq_config
    else:
        config = config_of("anole", tiny=weights == "tiny")["vq"]
    with torch.device("meta"):
        vq = vq_model(config)
    if weights == "pretrained":
        checkpoint.fill_vq(vq, device)
    else:
        randomised(vq, device=device, dtype=torch.float32, seed=_SEED)
        with torch.no_grad():
            # Random activations are larger than trained ones: most pixels would be clamped.
            vq.decoder.conv_out.weight *= 0.3
    return Codec(vq, config)


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
    revived(model, config, device)
    return AnoleLanguage(model, tokenizer, vocabulary, config.max_position_embeddings)


def random_language(
    weights: Weights, device: torch.device, dtype: torch.dtype
) -> AnoleLanguage:
    """Return a seeded random language model that writes interleaved documents."""
    sizes = config_of("anole", tiny=weights == "tiny")
    tokenizer = toy_tokenizer(sizes["vq"]["num_embeddings"], sizes["vocabulary"])
    ids = tokenizer.get_vocab(with_added_tokens=True)
    vocabulary = AnoleVocabulary.of(ids)
    config = random_config(sizes, ids)
    model = language_model(config)
    randomised(model, device=device, dtype=dtype, seed=_SEED)
    revived(model, config, device)
    words = vocabulary.text if sizes["vocabulary"] else BYTE_LEVEL.ids(tokenizer)
    marks = (vocabulary.begin_image, vocabulary.eos)
    steer(
        model,
        words,
        set(vocabulary.text) - set(words),
        dict(zip(marks, _SHARES[weights], strict=True)),
        [vocabulary.bos, *vocabulary.text[:30], *vocabulary.image[:30]],
    )
    return AnoleLanguage(model, tokenizer, vocabulary, config.max_position_embeddings)


def random_config(sizes: Mapping[str, Any], ids: Mapping[str, int]) -> Any:
    """Return the `ChameleonConfig` of an architecture for a vocabulary of name -> id."""
    from transformers import ChameleonConfig

    named = {"vocab_size": len(ids), "vocabulary_map": dict(ids)}
    return ChameleonConfig(**sizes["language"], vq_config=dict(sizes["vq"]), **named)


_SPECIALS = (BOS, "<pad>", EOS, "<unk>")
_MARKS = (END_IMAGE, BEGIN_IMAGE, "<reserved08706>", "<image>")


def toy_tokenizer(codes: int, size: int | None) -> Tokenizer:
    """Return a byte-level BPE tokenizer with `codes` image tokens, in the published order.

    Padded with made-up words to `size` names where one is given.
    """
    names = [*_SPECIALS, *(image_name(code) for code in range(codes)), *_MARKS]
    names += sorted(pre_tokenizers.ByteLevel.alphabet())
    ids, merges = BYTE_LEVEL.vocabulary(names, size)
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*_SPECIALS, *_MARKS])
    return tokenizer
