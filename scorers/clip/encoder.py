"""Unit-length CLIP features of pictures and of token windows, remembered across calls."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from generators.document import Image
from generators.pictures import PictureError, decode
from scorers.clip.model import Clip
from scorers.clip.text import Tokens

Features = npt.NDArray[np.float64]
"""(width,), of length 1."""

K = TypeVar("K")
V = TypeVar("V")
F = TypeVar("F")


class Memo(Generic[K, V, F]):
    """A function of batches that remembers its latest results."""

    def __init__(
        self, compute: Callable[[list[V]], list[F]], group: int, size: int
    ) -> None:
        self._compute = compute
        self._group = group
        self._size = size
        self._recent: OrderedDict[K, F] = OrderedDict()

    def __call__(self, wanted: Mapping[K, V]) -> dict[K, F]:
        """The result of every key; those not remembered are computed in groups."""
        found = {k: self._recent[k] for k in wanted if k in self._recent}
        missing = [k for k in wanted if k not in found]
        for first in range(0, len(missing), self._group):
            keys = missing[first : first + self._group]
            results = self._compute([wanted[k] for k in keys])
            found.update(zip(keys, results, strict=True))
        self._remember(found)
        return found

    def _remember(self, found: Mapping[K, F]) -> None:
        for key, result in found.items():
            self._recent[key] = result
            self._recent.move_to_end(key)
        while len(self._recent) > self._size:
            self._recent.popitem(last=False)


class ClipEncoder:
    """The two towers of a CLIP model."""

    def __init__(
        self,
        clip: Clip,
        *,
        forward_size: int = 64,
        decoders: int = 4,
        remembered: int = 4096,
    ) -> None:
        self._clip = clip
        self._decoders = ThreadPoolExecutor(decoders, thread_name_prefix="decode")
        self._images: Memo[str, Image, Features | PictureError] = Memo(
            self._encode_images, forward_size, remembered
        )
        self._texts: Memo[Tokens, Tokens, Features] = Memo(
            self._encode_texts, forward_size, remembered
        )

    def images(self, images: Iterable[Image]) -> dict[str, Features | PictureError]:
        """Features by digest; for a picture that cannot be read, the error that says why.

        A picture is decoded by `generators.pictures` and prepared as `pixels` says.
        """
        return self._images({image.digest: image for image in images})

    def texts(self, windows: Iterable[Tokens]) -> dict[Tokens, Features]:
        """Features of token windows that start and end as CLIP expects."""
        return self._texts({window: window for window in windows})

    def _encode_images(self, images: list[Image]) -> list[Features | PictureError]:
        pixels = list(self._decoders.map(self._pixels, images))
        readable = [p for p in pixels if isinstance(p, torch.Tensor)]
        rows: Iterable[Features] = ()
        if readable:
            batch = torch.stack(readable).to(self._clip.dtype)
            rows = self._forward(self._clip.model.encode_image, batch)
        features = iter(rows)
        return [p if isinstance(p, PictureError) else next(features) for p in pixels]

    def _pixels(self, image: Image) -> torch.Tensor | PictureError:
        try:
            return self._clip.transform(decode(image))
        except PictureError as error:
            return error

    def _encode_texts(self, windows: list[Tokens]) -> list[Features]:
        batch = torch.zeros(len(windows), self._clip.model.context_length, dtype=torch.long)
        for row, window in zip(batch, windows, strict=True):
            row[: len(window)] = torch.tensor(window)
        return list(self._forward(self._clip.model.encode_text, batch))

    def _forward(self, tower: Callable[..., Any], batch: torch.Tensor) -> Features:
        with torch.inference_mode():
            rows = tower(batch.to(self._clip.device)).double().cpu().numpy()
        return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))
