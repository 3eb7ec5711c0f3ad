"""The drafting model for each kind of weights: language model and picture encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from generators.base import Weights
from generators.errors import CheckpointError
from generators.loading.files import Files, configured
from generators.loading.strict import randomised, revived
from generators.minigpt5.blip2 import Blip2
from generators.minigpt5.published import (
    StageCheckpoints,
    companion_files,
    fill_projection,
    fill_vicuna,
    projection_file,
    vicuna_config,
)
from generators.minigpt5.settings import MiniGPT5DraftSettings
from generators.minigpt5.sizes import (
    ADDED,
    FULL,
    MARK_PIECE,
    TINY,
    MiniGPT5Size,
    Steering,
    toy_tokenizer,
)
from generators.minigpt5.tokens import (
    JsonTokenizer,
    MiniGPT5Vocabulary,
    stored_bos,
    stored_tokenizer,
)
from generators.minigpt5.vision import PictureEncoder
from generators.toys import PIECES

_SEED = 20_231_003
"""Seed of the random weights: the day on which the paper appeared."""


@dataclass(frozen=True)
class MiniGPT5Writer:
    """A language model that reads pictures and writes text and vokens."""

    language: Any
    """`LlamaForCausalLM`."""
    encoder: PictureEncoder
    vocabulary: MiniGPT5Vocabulary
    context: int
    """Maximum number of positions of a sequence."""


def load_writer(
    weights: Weights,
    settings: MiniGPT5DraftSettings,
    device: torch.device,
    dtype: torch.dtype,
) -> MiniGPT5Writer:
    """The drafting model; CheckpointError when published files do not fit."""
    if weights == "pretrained":
        return _published(settings, device, dtype)
    if weights == "tiny":
        return random_writer(TINY, device, torch.float32)
    return random_writer(FULL, device, dtype)


def language_model(config: Any) -> Any:
    """An empty LLaMA on the meta device."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def picture_encoder(
    vision: Mapping[str, Any], qformer: Mapping[str, Any], queries: int, width: int
) -> PictureEncoder:
    """An empty picture encoder on the meta device."""
    from transformers import Blip2QFormerConfig, Blip2VisionConfig

    vision_config = configured(Blip2VisionConfig, vision, "the ViT of BLIP-2")
    qformer_config = configured(Blip2QFormerConfig, qformer, "the Q-Former of BLIP-2")
    with torch.device("meta"):
        encoder = PictureEncoder(vision_config, qformer_config, queries, width)
    return encoder.eval().requires_grad_(False)


def _published(
    settings: MiniGPT5DraftSettings, device: torch.device, dtype: torch.dtype
) -> MiniGPT5Writer:
    # Small files are read first, so that a wrong path fails before gigabytes are loaded.
    model = Files(settings.model, settings.revision)
    vicuna = companion_files(settings.language)
    projection = projection_file(model, settings.projection)
    blip2 = Blip2(companion_files(settings.vision))
    stages = StageCheckpoints(model, settings.finetuned)
    tokenizer = stored_tokenizer(vicuna)
    vocabulary = MiniGPT5Vocabulary.of(
        tokenizer, stages.rows(), stored_bos(vicuna, tokenizer)
    )
    config = vicuna_config(vicuna, vocabulary.rows)
    encoder = picture_encoder(*blip2.configs(), config.hidden_size)
    blip2.fill(encoder, device, dtype)
    fill_projection(encoder, projection, device, dtype)
    language = language_model(config)
    fill_vicuna(language, vicuna, config, device, dtype)
    stages.fill_language(language, device, dtype)
    revived(language, config, device)
    return MiniGPT5Writer(language, encoder, vocabulary, config.max_position_embeddings)


def random_writer(
    size: MiniGPT5Size, device: torch.device, dtype: torch.dtype
) -> MiniGPT5Writer:
    """A seeded random model of `size` that writes interleaved answers."""
    tokenizer = toy_tokenizer(size.pieces)
    pieces = JsonTokenizer(tokenizer)
    vocabulary = MiniGPT5Vocabulary.of(pieces, pieces.size + ADDED, bos=1)
    config = llama_config(size, vocabulary.rows)
    language = language_model(config)
    encoder = picture_encoder(size.vision, size.qformer, size.queries, config.hidden_size)
    for module in (language, encoder):
        randomised(module, device=device, dtype=dtype, seed=_SEED)
    revived(language, config, device)
    mark = pieces.id_of(MARK_PIECE)
    assert mark is not None
    words = PIECES.ids(tokenizer) if size.pieces is None else range(300, pieces.size)
    steering = Steering(words, vocabulary.begin_image, mark, size.begin_image, size.end)
    steering.apply(language, encoder)
    return MiniGPT5Writer(language, encoder, vocabulary, config.max_position_embeddings)


def llama_config(size: MiniGPT5Size, rows: int) -> Any:
    """The `LlamaConfig` of a size whose tables have `rows` rows."""
    from transformers import LlamaConfig

    return LlamaConfig(**size.language, vocab_size=rows)


def context_of(writer: MiniGPT5Writer, requested: int | None) -> int:
    """Maximum positions of prompt and answer; CheckpointError for more than trained."""
    if requested is not None and requested > writer.context:
        raise CheckpointError(
            f"context {requested} exceeds the model's {writer.context} positions"
        )
    return requested or writer.context
