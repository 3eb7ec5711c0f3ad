"""The stage that encodes single images and texts by a CLIP model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from generators.base import Failure, Fault, Outcome, Result, Weights
from generators.document import Candidate, Embedding, Image
from generators.images import ImageError
from scorers.clip.model import ClipEncoder, Features, load_clip
from scorers.clip.text import ClipText, TextWindows, TokenIds
from scorers.preferences import ClipEmbedSettings


class ClipEmbed:
    """Encodes documents of one image or one text.

    The vector of an image is as the model's tower gives it. That of a text has the length
    of the scale that the model has learned: its product with a unit vector is the logit.
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = ClipEmbedSettings(**settings)
        clip = load_clip(config, weights)
        self.encoder = ClipEncoder(clip, config, unit=False)
        context = clip.model.context_length
        self.text = ClipText(context=context, repair=config.processor != "transformers")
        self._scale = float(clip.model.logit_scale.double().exp())

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Embedding]]:
        """Return one vector per document, in order; Failure for a broken image."""
        parts = [given.document.segments[0] for given in inputs]
        images = self.encoder.images(p for p in parts if isinstance(p, Image))
        read = {
            p.text: self.text.read(self.text.clean(p.text))
            for p in parts
            if not isinstance(p, Image)
        }
        texts = self.encoder.texts(w for text in read.values() for w in text.windows)
        return [
            self._of_image(images[p.digest])
            if isinstance(p, Image)
            else self._of_text(read[p.text], texts)
            for p in parts
        ]

    def _of_image(self, vector: Features | ImageError) -> Outcome[Embedding]:
        if isinstance(vector, ImageError):
            return Failure(str(vector))
        return embedded(vector, {"images": 1})

    def _of_text(
        self, text: TextWindows, texts: Mapping[TokenIds, Features]
    ) -> Outcome[Embedding]:
        (window,) = text.windows
        unit = texts[window] / np.linalg.norm(texts[window])
        notes = {"n_tokens": text.n_tokens, "truncated": text.truncated}
        return embedded(unit * self._scale, {"texts": 1}, notes)


def embedded(
    vector: Features, usage: Mapping[str, float], notes: Mapping[str, Any] | None = None
) -> Result[Embedding] | Failure:
    """Return a vector as a record; Failure where it holds other than finite numbers."""
    if not np.isfinite(vector).all():
        return Failure("the model's features are not finite numbers", Fault.ERROR, usage)
    return Result(Embedding(vector.astype("<f4").tobytes()), usage, notes or {})
