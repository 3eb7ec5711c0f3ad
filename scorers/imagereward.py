"""The stage of ImageReward: a BLIP that reads a question beside an image, and a head.

As in ImageReward/ImageReward.py of THUDM/ImageReward: the text encoder attends to the
image's tokens, and its first token goes through linear layers without activations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing
from torch import Tensor, nn
from transformers import BlipTextModel

from generators.architectures import config_of, stored
from generators.base import Failure, Fault, Outcome, Result, Weights
from generators.checkpoints import with_revision
from generators.document import Candidate, Document, Score
from generators.images import ImageError, decode
from generators.loading.files import (
    Files,
    configured,
    in_pickle,
    read_json,
    read_tokenizer,
    shape_of,
)
from generators.loading.strict import device_of, fill, identical, randomised
from scorers.clip.model import transform_of
from scorers.embeddings.stage import Transform
from scorers.preferences import ImageRewardSettings

MEAN, STD = 0.16717362830052426, 1.0333394966054072
"""Of the rewards of the training data (ImageReward.py)."""
MAX_TOKENS = 35
"""Of a question; every one is padded to it."""
PATCH, HEAD_WIDTH, HEAD = 16, 64, (1024, 128, 64, 16, 1)
UNUSED = ("blip.vision_proj", "blip.text_proj", "blip.text_encoder.embeddings.position_ids")
"""Tensors of the checkpoint that take no part in a reward."""
SEED = 5
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class _Blip(nn.Module):
    def __init__(self, vision: Mapping[str, Any], text: Any) -> None:
        super().__init__()
        self.visual_encoder = VisionTransformer(
            patch_size=PATCH, num_classes=0, global_pool="", **vision
        )
        self.text_encoder = BlipTextModel(text, add_pooling_layer=False)


class LinearHead(nn.Module):
    """Linear layers without activations between them, from `width` to one number."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, wider in enumerate(HEAD):
            layers.append(nn.Linear(width, wider))
            layers += [nn.Dropout()] if i < 3 else []
            width = wider
        self.layers = nn.Sequential(*layers)


class RewardModel(nn.Module):
    """The modules under the names that they have in `ImageReward.pt`."""

    def __init__(
        self, vision: Mapping[str, Any], text: Mapping[str, Any], source: str
    ) -> None:
        super().__init__()
        fields = {**text, "encoder_hidden_size": vision["embed_dim"], "is_decoder": True}
        config = configured("BlipTextConfig", fields, source)
        self.blip = _Blip(vision, config)
        self.mlp = LinearHead(config.hidden_size)

    def forward(self, pixels: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        """Return rewards (n,) of images (n, 3, side, side) and texts (n, MAX_TOKENS)."""
        seen = self.blip.visual_encoder(pixels)
        read = self.blip.text_encoder(
            input_ids=ids,
            attention_mask=mask,
            encoder_hidden_states=seen,
            encoder_attention_mask=seen.new_ones(seen.shape[:2], dtype=torch.long),
        )
        rewards = self.mlp.layers(read.last_hidden_state[:, 0].float())[:, 0]
        normalised: Tensor = (rewards - MEAN) / STD
        return normalised


class ImageReward:
    """Scores documents of one image each against their questions."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = ImageRewardSettings(**settings)
        self._device = device_of(config.device)
        loaded = _published(config) if weights == "pretrained" else _random(weights)
        self._model = loaded.model.to(self._device).eval().requires_grad_(False)
        self._transform = loaded.transform
        self._tokenizer = loaded.tokenizer
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding(length=MAX_TOKENS)
        self._decoders = ThreadPoolExecutor(config.decoders, "decode")

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """Return one reward per document, in order; Failure for a broken image."""
        pixels = list(self._decoders.map(self._pixels, inputs))
        pairs = [
            (image, given)
            for image, given in zip(pixels, inputs, strict=True)
            if isinstance(image, Tensor)
        ]
        rewards = iter(self._rewards(pairs) if pairs else ())
        return [p if isinstance(p, Failure) else _score(next(rewards)) for p in pixels]

    def _pixels(self, given: Candidate) -> Tensor | Failure:
        try:
            return self._transform(decode(given.document.images[0]))
        except ImageError as error:
            return Failure(str(error))

    def _rewards(self, pairs: Sequence[tuple[Tensor, Candidate]]) -> list[float]:
        texts = [Document(given.question).text for _, given in pairs]
        read = self._tokenizer.encode_batch(texts)
        ids, masks = (
            torch.tensor([getattr(r, part) for r in read], device=self._device)
            for part in ("ids", "attention_mask")
        )
        images = torch.stack([image for image, _ in pairs]).to(self._device)
        with torch.inference_mode():
            rewards: list[float] = self._model(images, ids, masks).double().tolist()
        return rewards


def _score(reward: float) -> Outcome[Score]:
    if reward != reward:
        return Failure("the reward is not a number", Fault.ERROR)
    return Result(Score(reward), {"images": 1})


@dataclass(frozen=True, slots=True)
class _Loaded:
    model: RewardModel
    tokenizer: Tokenizer
    transform: Transform


def _published(settings: ImageRewardSettings) -> _Loaded:
    """Load the checkpoint; CheckpointError where it does not fit."""
    files = Files(settings.model, settings.revision)
    source = files.need("ImageReward.pt")
    tensors = in_pickle(source)
    prefix = "blip.visual_encoder."
    _, tokens, width = shape_of(tensors, f"{prefix}pos_embed", str(source), 3)
    blocks = [name for name in tensors if name.endswith(".norm1.weight")]
    vision = {
        "img_size": round((tokens - 1) ** 0.5) * PATCH,
        "embed_dim": width,
        "depth": len(blocks),
        "num_heads": width // HEAD_WIDTH,
    }
    config = files.need("med_config.json")
    model = RewardModel(vision, read_json(config), str(config))
    fill(
        model,
        tensors.items(),
        identical(model.state_dict()),
        source=str(source),
        device=torch.device("cpu"),
        dtype=torch.float32,
        tolerated=UNUSED,
    )
    words = Files(*with_revision(settings.tokenizer)).need("tokenizer.json")
    return _Loaded(model, read_tokenizer(words), _transform(vision["img_size"]))


def _random(weights: Weights) -> _Loaded:
    sizes = config_of("imagereward", tiny=weights == "tiny")
    model = RewardModel(sizes["vision"], sizes["text"], "imagereward.json")
    randomised(model, device=torch.device("cpu"), dtype=torch.float32, seed=SEED)
    return _Loaded(model, word_tokenizer(), _transform(sizes["vision"]["img_size"]))


def word_tokenizer() -> Tokenizer:
    """Return a tokenizer like BERT's whose tokens are common English words."""
    words = [*_SPECIAL, *" ".join(stored("words")["english"]).split()]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    cls, sep = ((name, vocabulary[name]) for name in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = BertProcessing(sep, cls)
    return tokenizer


def _transform(side: int) -> Transform:
    return transform_of((side, side), {})
