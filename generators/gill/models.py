"""Loads what the drafting stage needs: the language model and its eyes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from generators.base import Weights
from generators.checkpoints import with_revision
from generators.errors import CheckpointError
from generators.gill.language import (
    Language,
    language_model,
    opt_config,
    published_language,
)
from generators.gill.published import ARGUMENTS, CHECKPOINT, VOKENS, Additions, Published
from generators.gill.settings import GillDraftSettings
from generators.gill.sizes import FULL, SEED, TINY, Size, steered, toy_tokenizer, word_ids
from generators.gill.tokens import Tokens, opt_tokenizer
from generators.gill.vision import (
    Vision,
    plain_processor,
    published_processor,
    published_tower,
    vision_tower,
)
from generators.loading.devices import device_of
from generators.loading.files import Files
from generators.loading.strict import randomised


@dataclass(frozen=True)
class Drafter:
    """All that drafts."""

    language: Language
    vision: Vision


def load_drafter(weights: Weights, told: GillDraftSettings) -> Drafter:
    """The drafting models under one of the three kinds of weights.

    Raises CheckpointError when a published checkpoint or a companion does not fit.
    """
    device = device_of(told.device)
    if weights == "tiny":
        return random_drafter(TINY, device, torch.float32)
    dtype: torch.dtype = getattr(torch, told.dtype)
    if weights == "dummy":
        return random_drafter(FULL, device, dtype)
    return _published(told, device, dtype)


def _published(
    told: GillDraftSettings, device: torch.device, dtype: torch.dtype
) -> Drafter:
    checkpoint = Published(Files(told.model, told.revision))
    language_files = Files(*with_revision(told.language))
    vision_files = Files(*with_revision(told.vision))
    added = checkpoint.additions(device, dtype)
    tokens = Tokens(opt_tokenizer(language_files), len(added.vokens))
    _check_ids(checkpoint, tokens)
    tower = published_tower(vision_files, device, dtype)
    _check_vokens(checkpoint, added, opt_config(language_files).word_embed_proj_dim)
    _check_projection(checkpoint, added, tower.config.hidden_size)
    vision = Vision(
        tower,
        published_processor(vision_files),
        added.visual,
        checkpoint.argument("n_visual_tokens"),
    )
    language = published_language(language_files, tokens, added.vokens, device, dtype)
    return Drafter(language, vision)


def _check_ids(checkpoint: Published, tokens: Tokens) -> None:
    """The ids a checkpoint was trained with are those that the vocabulary leads to."""
    trained = checkpoint.arguments.get("gen_token_idx", list(tokens.vokens))
    if trained != list(tokens.vokens):
        raise CheckpointError(
            f"{checkpoint.source} was trained with image tokens {trained} ({ARGUMENTS}), "
            f"but after the language model's vocabulary they are {list(tokens.vokens)}"
        )


def _check_vokens(checkpoint: Published, added: Additions, width: int) -> None:
    """The image tokens are as wide as the language model's own."""
    shape = tuple(added.vokens.shape)
    if shape != (checkpoint.argument("num_tokens"), width):
        raise CheckpointError(
            f"{CHECKPOINT} of {checkpoint.source}: {VOKENS} has the shape {shape}, but the "
            f"language model's embeddings have {width} values each"
        )


def _check_projection(checkpoint: Published, added: Additions, pooled: int) -> None:
    """Pictures are projected from the vision tower to whole embeddings."""
    width = added.vokens.shape[1] * checkpoint.argument("n_visual_tokens")
    if tuple(added.visual.weight.shape) != (width, pooled):
        raise CheckpointError(
            f"{checkpoint.source} projects pictures by "
            f"{tuple(added.visual.weight.shape)}, but {ARGUMENTS} and the vision tower ask "
            f"for ({width}, {pooled})"
        )


def random_drafter(size: Size, device: torch.device, dtype: torch.dtype) -> Drafter:
    """Seeded random models of `size` that write interleaved documents."""
    return Drafter(_language(size, device, dtype), _vision(size, device, dtype))


def _language(size: Size, device: torch.device, dtype: torch.dtype) -> Language:
    from transformers import OPTConfig

    tokens = Tokens(toy_tokenizer(size.vocabulary), size.vokens)
    config = OPTConfig(**size.language, vocab_size=tokens.size)
    model = language_model(config)
    randomised(model, device=device, dtype=dtype, seed=SEED)
    language = Language(model.decoder, tokens, config.max_position_embeddings)
    steered(language, word_ids(tokens.tokenizer), size.asks, size.ends)
    return language


def _vision(size: Size, device: torch.device, dtype: torch.dtype) -> Vision:
    from transformers import CLIPVisionConfig

    config = CLIPVisionConfig(**size.vision)
    tower = vision_tower(config)
    wide = size.visual_tokens * size.language["word_embed_proj_dim"]
    with torch.device("meta"):
        projection = torch.nn.Linear(config.hidden_size, wide)
    for part in (tower, projection):
        randomised(part, device=device, dtype=dtype, seed=SEED)
    processor = plain_processor(config.image_size)
    return Vision(tower.to(device), processor, projection, size.visual_tokens)
