"""CLIP as a model of images and texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from generators.base import Weights
from scorers.clip.model import load_clip
from scorers.clip.text import ClipText, TokenIds
from scorers.embeddings.settings import ClipSettings
from scorers.embeddings.stage import Embed, Encoder, TextEncoder


class ClipEmbed(Embed):
    """Encodes images and texts by a model of open_clip."""

    settings = ClipSettings

    @staticmethod
    def load(config: Any, weights: Weights) -> Encoder:
        """Return a plain CLIP."""
        clip = load_clip(config, weights)
        model, context = clip.model, clip.model.context_length

        def encode(windows: Sequence[TokenIds]) -> Tensor:
            batch = torch.zeros(len(windows), context, dtype=torch.long)
            for row, window in zip(batch, windows, strict=True):
                row[: len(window)] = torch.tensor(window)
            features: Tensor = model.encode_text(batch.to(clip.device))
            return features

        read = ClipText(context, repair=config.processor != "transformers").read
        texts = TextEncoder(read, encode, float(model.logit_scale.double().exp()))
        return Encoder(clip.transform, model.encode_image, clip.device, clip.dtype, texts)
