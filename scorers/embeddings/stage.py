"""The stage that encodes single images and texts, whatever the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as Pillow
from torch import Tensor

from plait.generators.base import Failure, Fault, Outcome, Result, Weights
from plait.generators.document import Embedding, EmbedInput, Image, Text, WindowedText
from plait.generators.images import ImageError, decode
from plait.generators.memo import Memo
from plait.scorers.clip.text import TextWindows, TokenIds
from plait.scorers.embeddings.settings import EmbedSettings

Transform = Callable[[Pillow.Image], Tensor]
"""An RGB image to float32 (3, height, width), normalised."""
Features = npt.NDArray[np.float64]
"""(width,)"""


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """How a model reads texts."""

    read: Callable[[str, str | None], TextWindows]
    """What is read of a text: one window, or all of it in windows behind a prefix."""
    encode: Callable[[Sequence[TokenIds]], Tensor]
    """Features (n, width) of windows."""
    scale: float = 1.0
    """The length of texts' vectors: their products with unit vectors are logits."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """A loaded model."""

    transform: Transform
    encode: Callable[[Tensor], Tensor]
    """Features (n, width) of pixels (n, 3, height, width)."""
    device: torch.device
    dtype: torch.dtype
    """Of the pixels."""
    texts: TextEncoder | None = None


class Embed:
    """Encodes single images and texts.

    The vector of an image is as the model gives it. That of a text has the length of the
    scale that the model has learned: its product with a unit vector is the logit. The
    record of a `WindowedText` holds the vectors of all windows, one after another.
    """

    settings: ClassVar[type[EmbedSettings]]

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = self.settings(**settings)
        self.encoder = self.load(config, weights)
        self._decoders = ThreadPoolExecutor(config.decoders, "decode")
        sizes = config.forward_size, config.remembered
        self._images = Memo[str, Image, Features | ImageError](self._encode_images, *sizes)
        self._texts = Memo[TokenIds, TokenIds, Features](self._encode_texts, *sizes)

    @staticmethod
    def load(config: Any, weights: Weights) -> Encoder:
        """Return the model; CheckpointError where its weights are not there or not fit."""
        raise NotImplementedError

    def __call__(self, inputs: Sequence[EmbedInput]) -> list[Outcome[Embedding]]:
        """Return one vector per image or text, in order; Failure for a broken image."""
        # What is encoded, each once: images by digest, and windows of texts.
        images: dict[str, Image] = {}
        windows: dict[TokenIds, TokenIds] = {}
        read: list[Image | TextWindows] = []
        for given in inputs:
            if isinstance(given, Image):
                images[given.digest] = given
                read.append(given)
            else:
                text = self._read(given)
                windows |= zip(text.windows, text.windows, strict=True)
                read.append(text)
        of_images = self._images(images)
        of_windows = self._texts(windows)
        outcomes: list[Outcome[Embedding]] = []
        for one in read:
            if isinstance(one, Image):
                outcomes.append(_of_image(of_images[one.digest]))
            else:
                outcomes.append(self._of_text(one, of_windows))
        return outcomes

    def _read(self, given: Text | WindowedText) -> TextWindows:
        if self.encoder.texts is None:
            raise TypeError(f"{type(self).__name__} encodes images alone")
        prefix = given.prefix if isinstance(given, WindowedText) else None
        return self.encoder.texts.read(given.text, prefix)

    def _encode_images(self, images: list[Image]) -> list[Features | ImageError]:
        pixels = list(self._decoders.map(self._pixels, images))
        # A broken image takes no place in the batch, and its error stands in its own.
        readable = [own for own in pixels if isinstance(own, Tensor)]
        features = iter(self._forward(readable) if readable else ())
        encoded: list[Features | ImageError] = []
        for own in pixels:
            encoded.append(own if isinstance(own, ImageError) else next(features))
        return encoded

    def _pixels(self, image: Image) -> Tensor | ImageError:
        try:
            return self.encoder.transform(decode(image))
        except ImageError as error:
            return error

    def _forward(self, pixels: Sequence[Tensor]) -> Features:
        batch = torch.stack(list(pixels)).to(self.encoder.device, self.encoder.dtype)
        with torch.inference_mode():
            return _plain(self.encoder.encode(batch))

    def _encode_texts(self, windows: list[TokenIds]) -> list[Features]:
        assert self.encoder.texts is not None
        with torch.inference_mode():
            return list(_plain(self.encoder.texts.encode(windows)))

    def _of_text(
        self, text: TextWindows, texts: Mapping[TokenIds, Features]
    ) -> Outcome[Embedding]:
        assert self.encoder.texts is not None
        rows = np.stack([texts[window] for window in text.windows])
        # Models learn a scale of their cosines: of the two vectors the text's carries it.
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        notes = {"n_tokens": text.n_tokens, "truncated": text.truncated}
        return record_of_vector(unit * self.encoder.texts.scale, {"texts": 1}, notes)


def _of_image(features: Features | ImageError) -> Outcome[Embedding]:
    if isinstance(features, ImageError):
        return Failure(str(features))
    return record_of_vector(features, {"images": 1})


def _plain(features: Tensor) -> Features:
    return np.asarray(features.double().cpu().numpy())


def record_of_vector(
    vector: Features, usage: Mapping[str, float], notes: Mapping[str, Any] | None = None
) -> Result[Embedding] | Failure:
    """Return a vector as a record; Failure where it holds other than finite numbers."""
    if not np.isfinite(vector).all():
        return Failure("the model's features are not finite numbers", Fault.ERROR, usage)
    return Result(Embedding(vector.astype("<f4").tobytes()), usage, notes or {})
