"""DINOv2 and SigLIP2, as transformers has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from PIL import Image as Pillow
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch import Tensor
from transformers import BitImageProcessorPil, SiglipImageProcessorPil

from plait.generators.architectures import config_of
from plait.generators.base import Weights
from plait.generators.errors import CheckpointError
from plait.generators.loading.files import Files, config_of_class, read_tokenizer
from plait.generators.loading.strict import device_of, load_model, randomise
from plait.scorers.clip.model import middle
from plait.scorers.clip.text import TextWindows, TokenIds
from plait.scorers.embeddings.settings import DinoSettings, EmbedSettings, SiglipSettings
from plait.scorers.embeddings.stage import Embed, Encoder, TextEncoder, Transform

SEED = 11
PAD = "<pad>"
END = "<eos>"
"""Tokens of Gemma's tokenizer, by which SigLIP2 reads."""


class DinoEmbed(Embed):
    """Encodes images by DINOv2: the token of the whole image, behind the last norm."""

    settings = DinoSettings

    @staticmethod
    def load(config: DinoSettings, weights: Weights) -> Encoder:
        """Return a `Dinov2Model`."""
        model = _model("Dinov2Model", "dinov2-base", config, weights)
        prepare = _transform(BitImageProcessorPil, "dinov2-base", config, weights)

        def encode(pixels: Tensor) -> Tensor:
            features: Tensor = model(pixels).pooler_output
            return features

        # Of a longer image the centre crop keeps no more than the middle.
        return Encoder(
            lambda image: prepare(middle(image)), encode, model.device, model.dtype
        )


class SiglipEmbed(Embed):
    """Encodes images and texts by SigLIP2.

    Texts are read in lower case, cut and padded to 64 tokens, of which the last that is
    read is the end of the text; nothing is masked (README_siglip2.md of big_vision).
    """

    settings = SiglipSettings

    @staticmethod
    def load(config: SiglipSettings, weights: Weights) -> Encoder:
        """Return a `SiglipModel`; texts' vectors have the length of its logit scale."""
        model = _model("SiglipModel", "siglip2-so400m", config, weights)
        length = model.config.text_config.max_position_embeddings
        tokenizer = _tokenizer(config, weights)
        pad = tokenizer.token_to_id(PAD)
        end = tokenizer.token_to_id(END)
        if pad is None or end is None:
            raise CheckpointError(
                f"the tokenizer of {config.model!r} lacks {PAD} or {END}; only checkpoints "
                "of SigLIP2, which read by Gemma's tokenizer, can be scored with"
            )

        def read(text: str, prefix: str | None) -> TextWindows:
            # `prefix` is of CLIPScore, which has windows.
            tokens = tokenizer.encode(text.lower(), add_special_tokens=False).ids
            window = (*tokens[: length - 1], end)
            return TextWindows((window,), len(tokens), len(tokens) >= length)

        def encode_texts(windows: Sequence[TokenIds]) -> Tensor:
            ids = torch.full((len(windows), length), pad)
            for row, window in zip(ids, windows, strict=True):
                row[: len(window)] = torch.tensor(window)
            ids = ids.to(model.device)
            features: Tensor = model.get_text_features(ids).pooler_output
            return features

        def encode_images(pixels: Tensor) -> Tensor:
            features: Tensor = model.get_image_features(pixels).pooler_output
            return features

        prepare = _transform(SiglipImageProcessorPil, "siglip2-so400m", config, weights)
        texts = TextEncoder(read, encode_texts, float(model.logit_scale.double().exp()))
        return Encoder(prepare, encode_images, model.device, model.dtype, texts)


def _model(kind: str, sizes: str, config: EmbedSettings, weights: Weights) -> Any:
    """Return a model of transformers' class `kind`, whose published size is `sizes`."""
    device = device_of(config.device)
    dtype = getattr(torch, config.dtype)
    if weights == "pretrained":
        return load_model(
            kind, config.model, config.revision, dtype=dtype, device_map={"": device}
        )
    tiny = weights == "tiny"
    fields = config_of(sizes, tiny=tiny)["model"]
    of = getattr(transformers, kind)
    with device:
        model = of(config_of_class(of.config_class, fields, f"{sizes}.json"))
    randomise(model, device=device, dtype=torch.float32 if tiny else dtype, seed=SEED)
    return model.eval().requires_grad_(False)


def _transform(kind: Any, sizes: str, config: EmbedSettings, weights: Weights) -> Transform:
    """Return the checkpoint's own preparation of images, by Pillow as it was published."""
    if weights == "pretrained":
        folder = (
            Files(config.model, config.revision).need("preprocessor_config.json").parent
        )
        processor = kind.from_pretrained(folder)
    else:
        processor = kind(**config_of(sizes, tiny=weights == "tiny")["processor"])

    def transform(image: Pillow.Image) -> Tensor:
        pixels: Tensor = processor(image, return_tensors="pt")["pixel_values"][0]
        return pixels

    return transform


def _tokenizer(config: SiglipSettings, weights: Weights) -> Tokenizer:
    if weights == "pretrained":
        return read_tokenizer(Files(config.model, config.revision).need("tokenizer.json"))
    # Gemma's special tokens, and every byte as one token.
    octets = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [PAD, END, "<bos>", "<unk>", *octets]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return Tokenizer(BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
