"""Loads the language model with its vocabulary, and the codec, and renders with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer

from plait.generators.anole.checkpoints import AnoleCheckpoint, open_checkpoint
from plait.generators.anole.codec import Codec, vq_model
from plait.generators.anole.settings import AnoleDraftSettings, AnoleRenderSettings
from plait.generators.anole.vocabulary import (
    BEGIN_IMAGE,
    BOS,
    END_IMAGE,
    EOS,
    AnoleVocabulary,
    image_name,
)
from plait.generators.architectures import config_of
from plait.generators.base import Weights
from plait.generators.decoding.payloads import CodesRender
from plait.generators.decoding.steering import steer, toy_byte_level
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import config_of_class
from plait.generators.loading.strict import (
    device_of,
    empty_model,
    fill,
    randomise,
    rebuild_rotary,
)
from plait.generators.loading.taming import dim_random_images, taming_layout
from plait.generators.settings import ModelSettings
from plait.generators.toys import BYTE_LEVEL

_SPECIALS = (BOS, "<pad>", EOS, "<unk>")
_MARKS = (END_IMAGE, BEGIN_IMAGE, "<reserved08706>", "<image>")


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


def language_model(config: Any) -> Any:
    """Return an empty Chameleon LM on the meta device, without its own VQ encoder."""
    model = empty_model("AutoModelForImageTextToText", config)
    del model.model.vqmodel
    return model


def load_language(weights: Weights, settings: AnoleDraftSettings) -> AnoleLanguage:
    """Return the language model; CheckpointError when a published one does not fit."""
    device = device_of(settings.device)
    dtype = getattr(torch, settings.dtype)
    if weights != "pretrained":
        dtype = torch.float32 if weights == "tiny" else dtype
        return random_language(weights, device, dtype)
    checkpoint = open_checkpoint(settings.model, settings.revision)
    tokenizer = checkpoint.tokenizer()
    vocabulary = AnoleVocabulary.of(tokenizer.get_vocab(with_added_tokens=True))
    config = checkpoint.language_config()
    _check_vocabulary(vocabulary, checkpoint, config)
    model = language_model(config)
    stored, layout = checkpoint.language(model.state_dict(), config)
    fill(
        model,
        stored,
        layout,
        source=checkpoint.source,
        device=device,
        dtype=dtype,
        # Meta's rotary frequencies, which are computed anew.
        tolerated=("rope.freqs",),
    )
    rebuild_rotary(model, config, device)
    return AnoleLanguage(model, tokenizer, vocabulary)


def _check_vocabulary(
    vocabulary: AnoleVocabulary, checkpoint: AnoleCheckpoint, config: Any
) -> None:
    """Raise CheckpointError unless the tokens fit the codebook and the embeddings."""
    codes = checkpoint.vq_config["num_embeddings"]
    if len(vocabulary.image) != codes:
        raise CheckpointError(
            f"{checkpoint.source}: the vocabulary names {len(vocabulary.image)} image "
            f"tokens, the codebook has {codes} entries"
        )
    highest = max(*vocabulary.text, *vocabulary.image)
    if highest >= config.vocab_size:
        raise CheckpointError(
            f"{checkpoint.source}: the tokenizer has the id {highest}, but vocab_size is "
            f"{config.vocab_size}; it must be larger than every id"
        )


def load_codec(weights: Weights, settings: ModelSettings) -> Codec:
    """Return the VQ model in float32."""
    device = device_of(settings.device)
    if weights != "pretrained":
        config = config_of("anole", tiny=weights == "tiny")["vq"]
        vq = _empty_vq_model(config)
        randomise(vq, device=device, dtype=torch.float32, seed=_SEED)
        dim_random_images(vq.decoder)
        return Codec(vq, config)
    checkpoint = open_checkpoint(settings.model, settings.revision)
    vq = _empty_vq_model(checkpoint.vq_config)
    levels = len(checkpoint.vq_config["channel_multiplier"])
    fill(
        vq,
        checkpoint.vq_tensors(),
        taming_layout(vq.state_dict(), levels),
        source=f"VQ model of {checkpoint.source}",
        device=device,
        dtype=torch.float32,
        # Of taming's training: no part of the model.
        tolerated=("loss",),
    )
    return Codec(vq, checkpoint.vq_config)


def _empty_vq_model(config: Mapping[str, Any]) -> Any:
    with torch.device("meta"):
        return vq_model(config)


def random_language(
    weights: Weights, device: torch.device, dtype: torch.dtype
) -> AnoleLanguage:
    """Return a seeded random language model that writes interleaved documents."""
    sizes = config_of("anole", tiny=weights == "tiny")
    codes = map(image_name, range(sizes["vq"]["num_embeddings"]))
    # In the published order.
    names = (*_SPECIALS, *codes, *_MARKS)
    specials = (*_SPECIALS, *_MARKS)
    tokenizer = toy_byte_level(names, specials, sizes["vocabulary"])
    ids = tokenizer.get_vocab(with_added_tokens=True)
    vocabulary = AnoleVocabulary.of(ids)
    config = random_config(sizes, ids)
    model = language_model(config)
    randomise(model, device=device, dtype=dtype, seed=_SEED)
    rebuild_rotary(model, config, device)
    words = vocabulary.text if sizes["vocabulary"] else BYTE_LEVEL.ids(tokenizer)
    begins, ends = _SHARES[weights]
    steer(
        model,
        words=words,
        unwanted=set(vocabulary.text) - set(words),
        shares={vocabulary.begin_image: begins, vocabulary.eos: ends},
        context=[vocabulary.bos, *vocabulary.text[:30], *vocabulary.image[:30]],
    )
    return AnoleLanguage(model, tokenizer, vocabulary)


def random_config(sizes: Mapping[str, Any], ids: Mapping[str, int]) -> Any:
    """Return the `ChameleonConfig` of an architecture for a vocabulary of name -> id."""
    named = {"vocab_size": len(ids), "vocabulary_map": dict(ids), "vq_config": sizes["vq"]}
    return config_of_class("ChameleonConfig", sizes["language"] | named, "anole.json")


class AnoleRender(CodesRender):
    """Draws what `AnoleDraft` asked for; takes the fields of `AnoleRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        self.codec = load_codec(weights, AnoleRenderSettings(**settings))
