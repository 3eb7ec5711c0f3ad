"""The stage behind `clipscore`: documents in, mean similarity of their pairs out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from generators.base import Failure, Fault, Outcome, Result, Unscored, Weights
from generators.document import Candidate, Score
from generators.images import ImageError
from scorers.clip.model import ClipEncoder, Features, load_clip
from scorers.clip.text import ClipText, TextWindows, TokenIds
from scorers.clipscore import NO_IMAGE, ClipSettings, ImageTextPair, pairs_of

HESSEL_WEIGHT = 2.5
"""w of CLIP-S = w * max(cos, 0): Hessel et al. 2021, section 3."""
EXCERPT = 100
"""Characters of a pair's text shown in its parts; the whole is in the document."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """An image, its text, and the windows CLIP reads of it."""

    pair: ImageTextPair
    reading: TextWindows

    @property
    def has_text(self) -> bool:
        """True where there is a text to compare the image with."""
        return self.reading.n_tokens > 0


class ClipScore:
    """Scores documents. All pairs of a batch go through each tower together.

    A result's `value` is the mean of 2.5 * max(cos, 0) over the pairs with text. Its
    `parts` hold the same mean as `clipscore_hessel`, the mean of 100 * cos (not clamped)
    as `cosine_100`, and every pair: `text` (its beginning), `n_tokens`, `windows`,
    `truncated`, `cos`, and both scalings; null where the image has no text. `likeness`
    is the mean cosine between the features of two images, over all pairs of the images
    with text; null where there are fewer than two. Equal images count as alike.
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        config = ClipSettings(**settings)
        clip = load_clip(config, weights)
        self.encoder = ClipEncoder(clip, config)
        self.text = ClipText(config.prefix, config.long_text, clip.model.context_length)
        self._best_window_only = config.long_text == "max"

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        """One score per document; Unscored without pairs, Failure for a broken image."""
        groups = [self._comparisons(candidate) for candidate in inputs]
        scored = [c for group in groups for c in group if c.has_text]
        images = self.encoder.images(c.pair.image for c in scored)
        texts = self.encoder.texts(w for c in scored for w in c.reading.windows)
        return [self._outcome(group, images, texts) for group in groups]

    def _comparisons(self, candidate: Candidate) -> list[Comparison]:
        pairs = pairs_of(candidate.document, self.text.clean)
        return [Comparison(pair, self.text.read(pair.text)) for pair in pairs]

    def _outcome(
        self,
        group: list[Comparison],
        images: Mapping[str, Features | ImageError],
        texts: Mapping[TokenIds, Features],
    ) -> Outcome[Score]:
        if not group:
            return Unscored(NO_IMAGE)
        scored = [c for c in group if c.has_text]
        if not scored:
            return Unscored("the document holds no text to compare its images with")
        shown: list[Features] = []
        for comparison in scored:
            image = images[comparison.pair.image.digest]
            if isinstance(image, ImageError):
                number = comparison.pair.position + 1
                return Failure(f"image {number} of {len(group)}: {image}")
            shown.append(image)
        cosines = {
            c.pair.position: self._cosine(image, [texts[w] for w in c.reading.windows])
            for c, image in zip(scored, shown, strict=True)
        }
        if not np.isfinite(list(cosines.values())).all():
            return Failure("CLIP's features are not finite numbers", Fault.ERROR)
        return _result(group, cosines, _likeness(shown))

    def _cosine(self, image: Features, windows: list[Features]) -> float:
        texts = np.stack(windows)
        if self._best_window_only:
            return float(np.max(texts @ image))
        mean = texts.mean(axis=0)
        return float(mean @ image / np.linalg.norm(mean))


def _likeness(images: list[Features]) -> float | None:
    """Return mean of the cosines of all pairs, in [-1, 1]."""
    if len(images) < 2:
        return None
    rows = np.stack(images)
    pairs = np.triu_indices(len(rows), 1)
    return float(np.mean((rows @ rows.T)[pairs]))


def _result(
    group: list[Comparison], cosines: Mapping[int, float], likeness: float | None
) -> Result[Score]:
    values = list(cosines.values())
    hessel = float(np.mean([_hessel(v) for v in values]))
    parts = {
        "clipscore_hessel": hessel,
        "cosine_100": float(np.mean([100 * v for v in values])),
        "scored_pairs": len(values),
        "unscored_pairs": len(group) - len(values),
        "likeness": likeness,
        "pairs": [_part(c, cosines.get(c.pair.position)) for c in group],
    }
    windows = sum(len(c.reading.windows) for c in group if c.has_text)
    usage = {"images": len(values), "texts": windows}
    truncated = sum(c.reading.truncated for c in group)
    return Result(Score(hessel, parts), usage, {"truncated_pairs": truncated})


def _part(comparison: Comparison, cosine: float | None) -> dict[str, Any]:
    reading = comparison.reading
    return {
        "image": comparison.pair.position,
        "text": comparison.pair.text[:EXCERPT],
        "n_tokens": reading.n_tokens,
        "windows": len(reading.windows) if comparison.has_text else 0,
        "truncated": reading.truncated,
        "cos": cosine,
        "clipscore_hessel": None if cosine is None else _hessel(cosine),
        "cosine_100": None if cosine is None else 100 * cosine,
    }


def _hessel(cosine: float) -> float:
    return HESSEL_WEIGHT * max(cosine, 0.0)
