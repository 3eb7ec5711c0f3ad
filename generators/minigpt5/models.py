"""The drafting model for each kind of weights: language model and image encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, decoders, models, normalizers

from generators.architectures import config_of
from generators.base import Weights
from generators.checkpoints import with_revision
from generators.decoding.steering import held_level, steer
from generators.loading.files import Files, configured
from generators.loading.strict import randomised, revived
from generators.minigpt5.published import (
    StageCheckpoints,
    fill_projection,
    fill_vicuna,
    projection_file,
    vicuna_config,
)
from generators.minigpt5.settings import MiniGPT5DraftSettings
from generators.minigpt5.tokens import (
    ADDED,
    JsonTokenizer,
    MiniGPT5Vocabulary,
    stored_bos,
    stored_tokenizer,
)
from generators.minigpt5.vision import Blip2, ImageEncoder
from generators.toys import PIECES

_SEED = 20_231_003
"""Seed of the random weights: the day on which the paper appeared."""
_SHARES: Mapping[Weights, tuple[float, float]] = {
    "tiny": (0.12, 0.02),
    "dummy": (0.0008, 0.0004),
}
"""Probabilities that random weights request an image after a word, among all ids, and that
they end the answer. Among the fifty ids that sampling keeps by default, they are larger
where there are many words."""


@dataclass(frozen=True)
class MiniGPT5Language:
    """A language model that writes text and vokens."""

    model: Any
    """`LlamaForCausalLM`."""
    vocabulary: MiniGPT5Vocabulary
    context: int
    """Maximum number of positions of a sequence."""


class MiniGPT5Models(NamedTuple):
    """The models of the drafting stage."""

    language: MiniGPT5Language
    encoder: ImageEncoder


def load_models(
    weights: Weights,
    settings: MiniGPT5DraftSettings,
    device: torch.device,
    dtype: torch.dtype,
) -> MiniGPT5Models:
    """Return the drafting models; CheckpointError when published files do not fit."""
    if weights == "pretrained":
        return _published(settings, device, dtype)
    return random_models(weights, device, torch.float32 if weights == "tiny" else dtype)


def language_model(config: Any) -> Any:
    """Return an empty LLaMA on the meta device."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def image_encoder(
    vision: Mapping[str, Any], qformer: Mapping[str, Any], queries: int, width: int
) -> ImageEncoder:
    """Return an empty image encoder on the meta device."""
    from transformers import Blip2QFormerConfig, Blip2VisionConfig

    vision_config = configured(Blip2VisionConfig, vision, "the ViT of BLIP-2")
    qformer_config = configured(Blip2QFormerConfig, qformer, "the Q-Former of BLIP-2")
    with torch.device("meta"):
        encoder = ImageEncoder(vision_config, qformer_config, queries, width)
    return encoder.eval().requires_grad_(False)


def _published(
    settings: MiniGPT5DraftSettings, device: torch.device, dtype: torch.dtype
) -> MiniGPT5Models:
    # Small files are read first, so that a wrong path fails before gigabytes are loaded.
    where = (device, dtype)
    model = Files(settings.model, settings.revision)
    vicuna = Files(*with_revision(settings.language))
    projection = projection_file(model, settings.projection)
    blip2 = Blip2(Files(*with_revision(settings.vision)))
    stages = StageCheckpoints(model, settings.finetuned)
    tokenizer = stored_tokenizer(vicuna)
    bos = stored_bos(vicuna, tokenizer)
    vocabulary = MiniGPT5Vocabulary.of(tokenizer, stages.rows(), bos)
    config = vicuna_config(vicuna, vocabulary.rows)
    encoder = image_encoder(*blip2.configs(), config.hidden_size)
    blip2.fill(encoder, *where)
    fill_projection(encoder, projection, *where)
    language = language_model(config)
    fill_vicuna(language, vicuna, config, *where)
    stages.fill_language(language, *where)
    revived(language, config, device)
    longest = config.max_position_embeddings
    return MiniGPT5Models(MiniGPT5Language(language, vocabulary, longest), encoder)


def random_models(
    weights: Weights, device: torch.device, dtype: torch.dtype
) -> MiniGPT5Models:
    """Return seeded random models that write interleaved answers."""
    sizes = config_of("minigpt5", tiny=weights == "tiny")
    tokenizer = toy_tokenizer(sizes["vocabulary"])
    pieces = JsonTokenizer(tokenizer)
    vocabulary = MiniGPT5Vocabulary.of(pieces, pieces.size + ADDED, bos=1)
    config = llama_config(sizes, vocabulary.rows)
    model = language_model(config)
    parts = (sizes["vision"], sizes["qformer"], sizes["queries"])
    encoder = image_encoder(*parts, config.hidden_size)
    for module in (model, encoder):
        randomised(module, device=device, dtype=dtype, seed=_SEED)
    revived(model, config, device)
    encoder.llama_proj.weight[0] = 0.0
    encoder.llama_proj.bias[0] = held_level(config.hidden_size)
    made_up = range(300, pieces.size)
    words = made_up if sizes["vocabulary"] else PIECES.ids(tokenizer)
    marks = (vocabulary.begin_image, pieces.id_of(_MARK_PIECE))
    shares = {m: s for m, s in zip(marks, _SHARES[weights], strict=True) if m is not None}
    steer(model, words, set(range(vocabulary.rows)) - set(words), shares, [*words][:40])
    longest = config.max_position_embeddings
    return MiniGPT5Models(MiniGPT5Language(model, vocabulary, longest), encoder)


def llama_config(sizes: Mapping[str, Any], rows: int) -> Any:
    """Return the `LlamaConfig` of an architecture whose tables have `rows` rows."""
    from transformers import LlamaConfig

    return LlamaConfig(**sizes["language"], vocab_size=rows)


_SPACE = PIECES.space
_MARK_PIECE = _SPACE + "###"
_MARK_MERGES = [(_SPACE, "#"), (_SPACE + "#", "#"), (_SPACE + "##", "#"), ("#", "#")]
_SPECIALS = ("<unk>", "<s>", "</s>")


def toy_tokenizer(size: int | None = None) -> Tokenizer:
    """Return special pieces, bytes and words in LLaMA's order, filled up to `size`."""
    names = [*_SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), _SPACE]
    names += [chr(code) for code in range(33, 127)]
    names += [a + b for a, b in _MARK_MERGES]
    ids, word_merges = PIECES.vocabulary(names, size)
    merges = [*_MARK_MERGES, *word_merges]
    model = models.BPE(
        vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    spelling = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    strip = decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([*spelling, strip])
    tokenizer.add_special_tokens(list(_SPECIALS))
    return tokenizer
