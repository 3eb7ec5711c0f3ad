"""A text-to-image model whose images depend on prompt and guidance alone; its scorer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from plait.generators.base import Outcome, Result
from plait.generators.document import Candidate, ImageRequest, Score
from plait.generators.images import Drawing, decode


class Painter:
    """Draws a grey that is the lighter the more it is guided, for each prompt otherwise."""

    kind = "render"

    def __init__(
        self,
        guidance: float = 1.0,
        steps: int = 20,
        height: int = 16,
        width: int = 16,
        **_: Any,
    ) -> None:
        self.guidance = guidance
        self.shape = (height, width, 3)

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        return [Result(Drawing(self._grey(str(request.prompt)))) for request in inputs]

    def _grey(self, prompt: str) -> np.ndarray:
        own = hashlib.sha256(prompt.encode()).digest()
        level = own[0] % 100 + self.guidance * (10 + own[1] % 10)
        return np.full(self.shape, round(level), np.uint8)


class Brightness:
    """Scores an answer by the mean grey of its image, in percent of white."""

    kind = "score"
    scale = "0-100"

    def __call__(self, inputs: Sequence[Candidate]) -> list[Outcome[Score]]:
        return [Result(Score(self._mean(candidate))) for candidate in inputs]

    def _mean(self, candidate: Candidate) -> float:
        (image,) = candidate.document.images
        return float(np.asarray(decode(image)).mean() / 2.55)


class Other(Brightness):
    """Another judge."""
