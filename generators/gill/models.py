"""Loads the models of the drafting stage: the language model and the vision tower."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from generators.base import Weights
from generators.checkpoints import with_revision
from generators.errors import CheckpointError
from generators.gill.networks import (
    GillLanguage,
    GillVision,
    language_model,
    opt_config,
    plain_processor,
    published_language,
    published_processor,
    published_tower,
    vision_tower,
)
from generators.gill.published import (
    ARGUMENTS,
    CHECKPOINT,
    VOKENS,
    Additions,
    GillCheckpoint,
)
from generators.gill.settings import GillDraftSettings
from generators.gill.sizes import (
    FULL,
    SEED,
    TINY,
    GillSize,
    steered,
    toy_tokenizer,
    word_ids,
)
from generators.gill.tokens import GillTokens, opt_tokenizer
from generators.loading.files import Files
from generators.loading.strict import device_of, randomised


@dataclass(frozen=True)
class GillModels:
    """The models of the drafting stage."""

    language: GillLanguage
    vision: GillVision


def load_models(weights: Weights, settings: GillDraftSettings) -> GillModels:
    """The drafting models under one of the three kinds of weights.

    Raises CheckpointError when a published checkpoint or a companion does not fit.
    """
    device = device_of(settings.device)
    if weights == "tiny":
        return random_models(TINY, device, torch.float32)
    dtype: torch.dtype = getattr(torch, settings.dtype)
    if weights == "dummy":
        return random_models(FULL, device, dtype)
    return _published(settings, device, dtype)


def _published(
    settings: GillDraftSettings, device: torch.device, dtype: torch.dtype
) -> GillModels:
    checkpoint = GillCheckpoint(Files(settings.model, settings.revision))
    language_files = Files(*with_revision(settings.language))
    vision_files = Files(*with_revision(settings.vision))
    added = checkpoint.additions(device, dtype)
    tokens = GillTokens(opt_tokenizer(language_files), len(added.vokens))
    _check_ids(checkpoint, tokens)
    tower = published_tower(vision_files, device, dtype)
    _check_vokens(checkpoint, added, opt_config(language_files).word_embed_proj_dim)
    _check_projection(checkpoint, added, tower.config.hidden_size)
    vision = GillVision(
        tower,
        published_processor(vision_files),
        added.visual,
        checkpoint.argument("n_visual_tokens"),
    )
    language = published_language(language_files, tokens, added.vokens, device, dtype)
    return GillModels(language, vision)


def _check_ids(checkpoint: GillCheckpoint, tokens: GillTokens) -> None:
    """Check that the checkpoint was trained with the ids that follow the vocabulary."""
    trained = checkpoint.arguments.get("gen_token_idx", list(tokens.vokens))
    if trained != list(tokens.vokens):
        raise CheckpointError(
            f"{checkpoint.source} was trained with image tokens {trained} ({ARGUMENTS}), "
            f"but after the language model's vocabulary they are {list(tokens.vokens)}"
        )


def _check_vokens(checkpoint: GillCheckpoint, added: Additions, width: int) -> None:
    """Check that the image tokens have the width of the language model's embeddings."""
    shape = tuple(added.vokens.shape)
    if shape != (checkpoint.argument("num_tokens"), width):
        raise CheckpointError(
            f"{CHECKPOINT} of {checkpoint.source}: {VOKENS} has the shape {shape}, but the "
            f"language model's embeddings have {width} values each"
        )


def _check_projection(checkpoint: GillCheckpoint, added: Additions, pooled: int) -> None:
    """Check that the projection leads from the vision tower to whole embeddings."""
    width = added.vokens.shape[1] * checkpoint.argument("n_visual_tokens")
    if tuple(added.visual.weight.shape) != (width, pooled):
        raise CheckpointError(
            f"{checkpoint.source} projects pictures by "
            f"{tuple(added.visual.weight.shape)}, but {ARGUMENTS} and the vision tower "
            f"require ({width}, {pooled})"
        )


def random_models(size: GillSize, device: torch.device, dtype: torch.dtype) -> GillModels:
    """Seeded random models of `size` that write interleaved documents."""
    return GillModels(_language(size, device, dtype), _vision(size, device, dtype))


def _language(size: GillSize, device: torch.device, dtype: torch.dtype) -> GillLanguage:
    from transformers import OPTConfig

    tokens = GillTokens(toy_tokenizer(size.vocabulary), size.vokens)
    config = OPTConfig(**size.language, vocab_size=tokens.size)
    model = language_model(config)
    randomised(model, device=device, dtype=dtype, seed=SEED)
    language = GillLanguage(model.decoder, tokens, config.max_position_embeddings)
    steered(language, word_ids(tokens.tokenizer), size.asks, size.ends)
    return language


def _vision(size: GillSize, device: torch.device, dtype: torch.dtype) -> GillVision:
    from transformers import CLIPVisionConfig

    config = CLIPVisionConfig(**size.vision)
    tower = vision_tower(config)
    projected = size.visual_tokens * size.language["word_embed_proj_dim"]
    with torch.device("meta"):
        projection = torch.nn.Linear(config.hidden_size, projected)
    for part in (tower, projection):
        randomised(part, device=device, dtype=dtype, seed=SEED)
    processor = plain_processor(config.image_size)
    return GillVision(tower.to(device), processor, projection, size.visual_tokens)
