"""The stages of ImageReward and of LAION's aesthetic predictor, whose heads are alike.

ImageReward, as in ImageReward/ImageReward.py of THUDM/ImageReward: a BLIP reads a question
beside an image. The text encoder attends to the image's tokens, and its first token goes
through linear layers without activations.

The head of the aesthetic predictor (`MLP` in simple_inference.py of
christophschuhmann/improved-aesthetic-predictor@6934dd8, Apache-2.0) has no activations
either: its layers make one affine function of an embedding of length 1, which is the
stage's only record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from timm.models.vision_transformer import VisionTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing
from torch import Tensor, nn
from transformers import BlipTextModel

from plait.generators.architectures import config_of, read_config
from plait.generators.base import Failure, Fault, Outcome, Result, Weights
from plait.generators.checkpoints import with_revision
from plait.generators.content import answer_all
from plait.generators.document import Candidate, Document, Embedding, Score
from plait.generators.images import ImageError, decode
from plait.generators.loading.files import (
    Files,
    config_of_class,
    in_pickle,
    read_json,
    read_tokenizer,
    shape_of,
)
from plait.generators.loading.strict import device_of, fill, identical, randomise
from plait.scorers.clip.model import transform_of
from plait.scorers.embeddings.stage import record_of_vector
from plait.scorers.preferences import AestheticHeadSettings, ImageRewardSettings

MEAN = 0.16717362830052426
STD = 1.0333394966054072
"""Of the rewards of the training data (ImageReward.py)."""
MAX_TOKENS = 35
"""Of a question; every one is padded to it."""
PATCH = 16
HEAD_WIDTH = 64
HEAD = (1024, 128, 64, 16, 1)
UNUSED = ("blip.vision_proj", "blip.text_proj", "blip.text_encoder.embeddings.position_ids")
"""Tensors of the checkpoint that take no part in a reward."""
SEED = 5
HEAD_SEED = 11
WIDTH = 768
TINY_WIDTH = 32
"""Of the embeddings of ViT-L/14, and of the toy CLIP."""
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class _Blip(nn.Module):
    """A BLIP that reads a text beside an image."""

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
        for i, out_width in enumerate(HEAD):
            layers.append(nn.Linear(width, out_width))
            if i < 3:
                # It does nothing here, but the stored weights count it as a layer.
                layers.append(nn.Dropout())
            width = out_width
        self.layers = nn.Sequential(*layers)


class RewardModel(nn.Module):
    """The modules under the names that they have in `ImageReward.pt`."""

    def __init__(
        self, vision: Mapping[str, Any], text: Mapping[str, Any], source: str
    ) -> None:
        super().__init__()
        fields = {**text, "encoder_hidden_size": vision["embed_dim"], "is_decoder": True}
        config = config_of_class("BlipTextConfig", fields, source)
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


class _Pair(NamedTuple):
    """An image and the question that it answers."""

    pixels: Tensor
    """(3, side, side)"""
    text: str


class ImageReward:
    """Scores documents of one image each against their questions."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = ImageRewardSettings(**settings)
        self._device = device_of(config.device)
        loaded = _load_published(config) if weights == "pretrained" else _random(weights)
        model, self._tokenizer, side = loaded
        self._model = model.to(self._device).eval().requires_grad_(False)
        self._transform = transform_of((side, side), {})
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding(length=MAX_TOKENS)
        self._decoders = ThreadPoolExecutor(config.decoders, "decode")

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """Return one reward per document, in order; Failure for a broken image."""
        return answer_all(list(self._decoders.map(self._read, inputs)), self._scores)

    def _read(self, given: Candidate) -> _Pair | Failure:
        try:
            pixels = self._transform(decode(given.document.images[0]))
        except ImageError as error:
            return Failure(str(error))
        return _Pair(pixels, Document(given.question).text)

    def _scores(self, pairs: Sequence[_Pair]) -> list[Outcome[Score]]:
        read = self._tokenizer.encode_batch([pair.text for pair in pairs])
        ids = torch.tensor([text.ids for text in read], device=self._device)
        masks = torch.tensor([text.attention_mask for text in read], device=self._device)
        images = torch.stack([pair.pixels for pair in pairs]).to(self._device)
        with torch.inference_mode():
            rewards: list[float] = self._model(images, ids, masks).double().tolist()
        outcomes: list[Outcome[Score]] = []
        for reward in rewards:
            if math.isnan(reward):
                outcomes.append(Failure("the reward is not a number", Fault.ERROR))
            else:
                outcomes.append(Result(Score(reward), {"images": 1}))
        return outcomes


_Loaded = tuple[RewardModel, Tokenizer, int]
"""With the side of its images."""


def _load_published(settings: ImageRewardSettings) -> _Loaded:
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
    return model, read_tokenizer(words), vision["img_size"]


def _random(weights: Weights) -> _Loaded:
    sizes = config_of("imagereward", tiny=weights == "tiny")
    model = RewardModel(sizes["vision"], sizes["text"], "imagereward.json")
    randomise(model, device=torch.device("cpu"), dtype=torch.float32, seed=SEED)
    return model, word_tokenizer(), sizes["vision"]["img_size"]


def word_tokenizer() -> Tokenizer:
    """Return a tokenizer like BERT's whose tokens are common English words."""
    words = [*_SPECIAL, *" ".join(read_config("words")["english"]).split()]
    # A word may be listed twice.
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    sep = ("[SEP]", vocabulary["[SEP]"])
    cls = ("[CLS]", vocabulary["[CLS]"])
    tokenizer.post_processor = BertProcessing(sep, cls)
    return tokenizer


class AestheticHead:
    """Gives the head itself: the weights of an embedding's numbers, and the bias."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = AestheticHeadSettings(**settings)
        given: Any = {"device": torch.device("cpu"), "dtype": torch.float64}
        if weights == "pretrained":
            source = Files(config.model, config.revision).need(config.file)
            tensors = in_pickle(source)
            width = shape_of(tensors, "layers.0.weight", str(source), 2)[1]
            head = LinearHead(width)
            names = identical(head.state_dict())
            fill(head, tensors.items(), names, source=str(source), **given)
        else:
            width = TINY_WIDTH if weights == "tiny" else WIDTH
            head = LinearHead(width)
            randomise(head, seed=HEAD_SEED, **given)
        layers = head.eval().requires_grad_(False).layers
        # The layers are one affine function: read off at 0 and at each unit vector.
        bias = layers(torch.zeros(1, width, dtype=torch.float64))
        each = layers(torch.eye(width, dtype=torch.float64)) - bias
        self._function = torch.cat([each, bias])[:, 0].numpy()

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Embedding]]:
        """Return (width + 1,) numbers for each input, which is not looked at."""
        return [record_of_vector(self._function, {}) for _ in inputs]
