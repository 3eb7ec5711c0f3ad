"""The judge's model and tokenizer under each kind of weights, and Phi-3's LongRoPE.

Phi-3 rotates by one set of frequencies in passes over sequences of at most
`original_max_position_embeddings` (4,096) tokens and by another in longer ones, while keys
in the cache stay as they were rotated (`Phi3SuScaledRotaryEmbedding`, modeling_phi3.py,
OpenGVLab/InternVL@2410d1d). transformers chooses once for a whole batch, by its longest
row; here every row has the frequencies it would have alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

from plait.generators.architectures import config_of
from plait.generators.base import Weights
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import Files, read_json, read_stored
from plait.generators.loading.strict import device_of, empty_model, fill, randomise
from plait.scorers.internvl.config import layout_of, model_config, separate
from plait.scorers.internvl.settings import MmieScoreSettings
from plait.scorers.internvl.tokenizer import (
    CONTROLS,
    END,
    PhiTokenizer,
    read_added_tokens,
    toy_tokenizer,
)

KIND = "AutoModelForImageTextToText"
"""transformers' name of what makes an `InternVLForConditionalGeneration`."""
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
"""ImageNet's, of the vision model's input."""


class LongRope(nn.Module):
    """Replaces `Phi3Model.rotary_emb`."""

    short: Tensor
    long: Tensor

    def __init__(self, config: Any, device: torch.device) -> None:
        """For a `Phi3Config`, with or without long factors."""
        super().__init__()
        plain = Phi3RotaryEmbedding(config)
        short = plain.inv_freq
        long = plain.inv_freq
        self.threshold: float = math.inf
        """Most tokens of a sequence in the short frequencies."""
        if plain.rope_type == "longrope":
            original = config.rope_parameters["original_max_position_embeddings"]
            self.threshold = original
            long, _ = ROPE_INIT_FUNCTIONS["longrope"](config, seq_len=original + 1)
        self.register_buffer("short", short.to(device), persistent=False)
        self.register_buffer("long", long.to(device), persistent=False)
        self._scale = float(plain.attention_scaling)
        self._long_prompts: bool | None = None

    def is_long(self, tokens: int) -> bool:
        """Return True for a sequence that is rotated by the long frequencies."""
        return tokens > self.threshold

    @contextmanager
    def prompts(self, long: bool) -> Iterator[None]:
        """A context in which all prompts read at once are long, or all are short.

        Positions do not decide here: a long prompt has early ones too, and padding reaches
        beyond short prompts.
        """
        self._long_prompts = long
        try:
            yield
        finally:
            self._long_prompts = None

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (rows, positions, head size) in the type of `x`."""
        # (rows, positions), or (rows, 1): which are rotated by the long frequencies.
        if self._long_prompts is None:
            long = position_ids >= self.threshold
        else:
            long = torch.full_like(position_ids[:, :1], self._long_prompts).bool()
        frequencies = torch.where(long[..., None], self.long, self.short)
        angles = position_ids[..., None].float() * frequencies
        # As transformers lays them out: the two halves of a head rotate alike.
        both = torch.cat((angles, angles), dim=-1)
        cosines = both.cos() * self._scale
        sines = both.sin() * self._scale
        return cosines.to(x.dtype), sines.to(x.dtype)


_SEED = 20_241_015
"""Seed of the random weights, chosen so that the tiny judge's replies vary and end."""


@dataclass(frozen=True)
class JudgeModel:
    """A model that reads tiles and token ids, and the tokenizer that makes the ids."""

    model: Any
    """`InternVLForConditionalGeneration`."""
    tokenizer: PhiTokenizer
    rope: LongRope
    tile_side: int
    """Pixels along a side of a tile."""
    tile_tokens: int
    """Tokens one tile takes in a prompt."""
    positions: int
    """Most tokens the model can hold, the reply included."""

    @property
    def decoder(self) -> Any:
        """The Phi-3 without its head."""
        return self.model.model.language_model

    @torch.inference_mode()
    def features(self, tiles: Tensor, at_once: int) -> Tensor:
        """The decoder's (tiles, tokens, width) for grey levels (tiles, side, side, 3)."""
        head = self.model.lm_head.weight
        features = []
        for part in torch.split(tiles, at_once):
            pixels = normalise(part.to(head.device)).to(head.dtype)
            output = self.model.get_image_features(pixels, return_dict=True)
            features.append(output.pooler_output)
        return torch.cat(features)

    @torch.inference_mode()
    def embeddings(self, ids: Tensor) -> Tensor:
        """Return the decoder's embeddings of ids."""
        embed = self.decoder.get_input_embeddings()
        rows: Tensor = embed(ids.to(embed.weight.device))
        return rows

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Return scores of the next token: (rows, vocabulary) of (rows, width)."""
        scores: Tensor = self.model.lm_head(hidden)
        return scores


def normalise(tiles: Tensor) -> Tensor:
    """Grey levels as float32 (tiles, 3, side, side) with ImageNet's mean and deviation."""
    shares = tiles.permute(0, 3, 1, 2).float() / 255
    mean = shares.new_tensor(MEAN).view(1, 3, 1, 1)
    deviation = shares.new_tensor(DEVIATION).view(1, 3, 1, 1)
    return (shares - mean) / deviation


def load(weights: Weights, settings: MmieScoreSettings) -> JudgeModel:
    """Return the judge; CheckpointError names what does not fit in a checkpoint."""
    device = device_of(settings.device)
    dtype = getattr(torch, settings.dtype)
    if weights == "pretrained":
        return load_published(Files(settings.model, settings.revision), device, dtype)
    return _random(device, dtype, tiny=weights == "tiny")


def load_published(files: Files, device: torch.device, dtype: torch.dtype) -> JudgeModel:
    """Return the judge of a checkpoint in the published layout."""
    source = f"checkpoint {files.model!r}"
    config = model_config(read_json(files.need("config.json")), source)
    model = empty_model(KIND, config)
    tokenizer = load_tokenizer(files)
    rows = config.text_config.vocab_size
    if missing := [token.name for token in CONTROLS if token.name not in tokenizer.names]:
        raise CheckpointError(f"the tokenizer of {source} lacks {', '.join(missing)}")
    if beyond := [token.name for token in CONTROLS if tokenizer.id(token) >= rows]:
        raise CheckpointError(
            f"{source}: the ids of {', '.join(beyond)} are beyond the vocabulary of {rows}"
        )
    fill(
        model,
        separate(read_stored(files, pickled=None)),
        layout_of(model.state_dict()),
        source=source,
        device=device,
        dtype=dtype,
    )
    return _ready(model, tokenizer, device)


def load_tokenizer(files: Files) -> PhiTokenizer:
    """Return the tokenizer of a checkpoint, from the files transformers 4.37 reads."""
    config = read_json(files.need("tokenizer_config.json"))
    older = "added_tokens_decoder" not in config
    ids = read_json(files.need("added_tokens.json")) if older else None
    model = files.need("tokenizer.model").read_bytes()
    return PhiTokenizer(model, config, read_added_tokens(config, ids))


def _random(device: torch.device, dtype: torch.dtype, *, tiny: bool) -> JudgeModel:
    """Return a random judge at published or toy size, with the toy tokenizer.

    The factors of its rotary frequencies, which cost nothing, are 1 at published size. It
    writes nothing but the tokenizer's words, and sometimes ends its reply: all other tokens
    score 0, which the best of so many words always exceeds.
    """
    tokenizer, words, size = toy_tokenizer()
    sizes = config_of("internvl2-4b", tiny=tiny)
    language = sizes["llm_config"] | ({"vocab_size": size} if tiny else {})
    config = model_config({**sizes, "llm_config": language}, "the built-in size")
    model = empty_model(KIND, config)
    randomise(model, device=device, dtype=torch.float32 if tiny else dtype, seed=_SEED)
    head = model.lm_head.weight
    silent = torch.ones(len(head), dtype=torch.bool)
    silent[[*words, tokenizer.id(END)]] = False
    head[silent.to(head.device)] = 0.0
    return _ready(model, tokenizer, device)


def _ready(model: Any, tokenizer: PhiTokenizer, device: torch.device) -> JudgeModel:
    rope = LongRope(model.config.text_config, device)
    model.model.language_model.rotary_emb = rope
    return JudgeModel(
        model,
        tokenizer,
        rope,
        tile_side=model.config.vision_config.image_size[0],
        tile_tokens=model.config.image_seq_length,
        positions=model.config.text_config.max_position_embeddings,
    )
