"""GILL's frozen networks: an OPT that knows the image tokens, and CLIP's vision tower."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import torch
from PIL import Image as Pillow
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

from generators.architectures import config_of
from generators.base import Weights
from generators.checkpoints import with_revision
from generators.document import Image
from generators.gill.published import (
    GillCheckpoint,
    clip_config,
    clip_processor,
    fill_clip,
    fill_opt,
    opt_config,
)
from generators.gill.settings import GillDraftSettings
from generators.gill.tokens import BOS, PAD, GillTokens, byte_level, opt_tokenizer
from generators.loading.files import Files
from generators.loading.strict import device_of, randomised
from generators.pictures import decode
from generators.toys import BYTE_LEVEL

SEED = 20_230_526
"""Seed of the random weights: the day on which GILL was published."""
_SHARES = (0.08, 0.02)
"""Probabilities that random weights request an image after a word, by default, and that
they write a newline."""
_MAX_BATCH = 64
"""Maximum number of images in one pass through the tower."""


@dataclass(frozen=True)
class GillLanguage:
    """A decoder that reads embeddings and writes ids."""

    decoder: Any
    """transformers' `OPTDecoder`."""
    tokens: GillTokens
    context: int
    """The maximum length of a sequence, in tokens."""

    @property
    def embeddings(self) -> Tensor:
        """(ids, width); they are also the output layer."""
        weight: Tensor = self.decoder.embed_tokens.weight
        return weight

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits (rows, ids) in float32 of states (rows, width)."""
        return (hidden @ self.embeddings.T).float()


class GillVision:
    """Turns images into embeddings of the language model."""

    def __init__(
        self, tower: Any, processor: Any, projection: nn.Linear, tokens: int
    ) -> None:
        self.tower = tower
        self._processor = processor
        self.projection = projection
        self.tokens = tokens
        """Embeddings per image."""

    def pixels(self, image: Image, resize: Literal["squash", "crop"]) -> Tensor:
        """Return the tower's input (3, side, side); PictureError for a broken image.

        `squash` is the bicubic resize of upstream's demo and notebook before CLIP's own
        processor, which then only scales the values.
        """
        picture = decode(image)
        if resize == "squash":
            crop = self._processor.crop_size
            side = (crop["width"], crop["height"])
            picture = picture.resize(side, Pillow.Resampling.BICUBIC)
        pixels = self._processor(picture, return_tensors="np").pixel_values
        return torch.from_numpy(pixels[0])

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        """Return embeddings (images, tokens, width) of pixels (images, 3, side, side)."""
        weight = self.projection.weight
        pooled = [
            self.tower(pixel_values=part.to(weight)).pooler_output
            for part in torch.split(pixels, _MAX_BATCH)
        ]
        embedded: Tensor = self.projection(torch.cat(pooled))
        return embedded.view(len(pixels), self.tokens, -1)


class GillModels(NamedTuple):
    """The models of the drafting stage."""

    language: GillLanguage
    vision: GillVision


def language_model(config: Any) -> Any:
    """Return an empty `OPTModel` on the meta device."""
    from transformers import AutoModel

    with torch.device("meta"):
        model = AutoModel.from_config(config, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def vision_tower(config: Any) -> Any:
    """Return an empty `CLIPVisionModel`: parameters on the meta device, buffers real."""
    from accelerate import init_empty_weights
    from transformers import AutoModel

    with init_empty_weights(include_buffers=False):
        model = AutoModel.from_config(config, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def load_models(weights: Weights, settings: GillDraftSettings) -> GillModels:
    """Return the drafting models under one of the three kinds of weights.

    Raises CheckpointError when a published checkpoint or a companion does not fit.
    """
    device, dtype = device_of(settings.device), getattr(torch, settings.dtype)
    if weights == "pretrained":
        return _published(settings, device, dtype)
    return random_models(weights, device, torch.float32 if weights == "tiny" else dtype)


def _published(
    settings: GillDraftSettings, device: torch.device, dtype: torch.dtype
) -> GillModels:
    where = (device, dtype)
    checkpoint = GillCheckpoint(Files(settings.model, settings.revision))
    opt, clip = (Files(*with_revision(n)) for n in (settings.language, settings.vision))
    added = checkpoint.additions(*where)
    tokens = GillTokens(opt_tokenizer(opt), len(added.vokens))
    checkpoint.check_ids(tokens)
    tower = vision_tower(clip_config(clip))
    fill_clip(tower, clip, *where)
    config = opt_config(opt)
    checkpoint.check_widths(added, config.word_embed_proj_dim, tower.config.hidden_size)
    visual_tokens = checkpoint.argument("n_visual_tokens")
    vision = GillVision(tower.to(device), clip_processor(clip), added.visual, visual_tokens)
    rows, config.vocab_size = config.vocab_size, tokens.size
    model = language_model(config)
    fill_opt(model, opt, rows, tokens, *where)
    language = GillLanguage(model.decoder, tokens, config.max_position_embeddings)
    language.embeddings[-len(added.vokens) :] = added.vokens.to(language.embeddings)
    return GillModels(language, vision)


def random_models(weights: Weights, device: torch.device, dtype: torch.dtype) -> GillModels:
    """Return seeded random models that write interleaved documents."""
    sizes = config_of("gill", tiny=weights == "tiny")
    language = _random_language(sizes, device, dtype)
    return GillModels(language, _random_vision(sizes, device, dtype))


def _random_language(
    sizes: Mapping[str, Any], device: torch.device, dtype: torch.dtype
) -> GillLanguage:
    from transformers import OPTConfig

    tokens = GillTokens(toy_tokenizer(sizes["vocabulary"]), sizes["vokens"])
    config = OPTConfig(**sizes["language"], vocab_size=tokens.size)
    model = language_model(config)
    randomised(model, device=device, dtype=dtype, seed=SEED)
    language = GillLanguage(model.decoder, tokens, config.max_position_embeddings)
    made_up = BYTE_LEVEL.made_up_ids(tokens.tokenizer)
    words = sorted({*BYTE_LEVEL.ids(tokens.tokenizer), *made_up})
    _steer(language, words, *_SHARES)
    return language


def _random_vision(
    sizes: Mapping[str, Any], device: torch.device, dtype: torch.dtype
) -> GillVision:
    from transformers import CLIPImageProcessorPil, CLIPVisionConfig

    config = CLIPVisionConfig(**sizes["vision"])
    tower = vision_tower(config)
    projected = sizes["visual_tokens"] * sizes["language"]["word_embed_proj_dim"]
    with torch.device("meta"):
        projection = nn.Linear(config.hidden_size, projected)
    for part in (tower, projection):
        randomised(part, device=device, dtype=dtype, seed=SEED)
    side = config.image_size
    crop = {"height": side, "width": side}
    processor = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=crop)
    return GillVision(tower.to(device), processor, projection, sizes["visual_tokens"])


def toy_tokenizer(size: int | None = None) -> Tokenizer:
    """Return a byte-level BPE tokenizer, its special tokens where OPT's are.

    It is filled up with made-up words to `size` names where a size is given.
    """
    names = ["<s>", PAD, BOS, "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    ids, merges = BYTE_LEVEL.vocabulary(names, size)
    return byte_level(models.BPE(vocab=ids, merges=merges))


_LEVEL = 100.0
"""The value of channel 0 at the output layer: large, so that the biases, which are also
read as inputs, can be small."""
_SCALE = 1.4
"""The scale factor at which an image has the requested probability."""
_REDUCED = 0.5
"""Factor on the noise of [IMG0]'s logit, so that a low logit does not win by its
absolute value."""


@torch.no_grad()
def _steer(language: GillLanguage, words: Sequence[int], asks: float, ends: float) -> None:
    """Make a random OPT request images and end its answers now and then, even greedily.

    No layer changes channel 0 of the residual stream, so the tied embeddings read a bias
    from it. Greedy text consists of `words`; after each, an image is requested with a
    probability of about `asks`, and a newline is written with `ends`.
    """
    asking, ending = language.tokens.vokens[0], language.tokens.newline
    table, decoder = language.embeddings, language.decoder
    _hold_channel(decoder)
    context = table[torch.tensor([language.tokens.bos, *words[:60]], device=table.device)]
    hidden: Tensor = decoder(inputs_embeds=context[None], use_cache=False)[0][0]
    decoder.final_layer_norm.weight[0] *= _LEVEL / hidden[:, 0].mean()
    noise = float((hidden @ table[list(words)].T).float().std())
    bias = torch.full((len(table),), -10.0)
    bias[list(words)] = 0.0
    # The median of the maximum of as many normal samples as there are words.
    best = NormalDist().inv_cdf(0.5 ** (1 / len(words)))
    bias[ending] = best - NormalDist().inv_cdf(1 - ends)
    bias[asking] = best / _SCALE - _REDUCED * NormalDist().inv_cdf(1 - asks)
    table[asking] *= _REDUCED
    mean = hidden.mean(dim=0)
    for token in (asking, ending):
        # A logit of 0 in the mean state, so that the token's chance is the noise's.
        table[token] -= (table[token] @ mean) / (mean @ mean) * mean
    table[:, 0] = (noise * bias / _LEVEL).to(table)


def _hold_channel(decoder: Any) -> None:
    """Hold channel 0 constant, and stop tokens from predicting themselves."""
    embeddings: Tensor = decoder.embed_tokens.weight
    positions: Tensor = decoder.embed_positions.weight
    for table in (embeddings, positions):
        table *= 0.5 / math.sqrt(embeddings.shape[1])
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
