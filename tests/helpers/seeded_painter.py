"""A text-to-image model whose grey depends on prompt, guidance and seed; two scorers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from guided import Brightness, Painter
from noisy_judges import normal

from plait.generators.base import Outcome, Result
from plait.generators.document import Candidate, ImageRequest
from plait.generators.images import Drawing


class Seeded(Painter):
    """Adds some noise by the seed."""

    seeded = True

    def __call__(self, inputs: Sequence[ImageRequest]) -> list[Outcome[Drawing]]:
        drawn: list[Outcome[Drawing]] = []
        for request in inputs:
            grey = self._grey(str(request.prompt)).astype(float)
            noisy = grey + 6 * normal(request.seed, str(request.prompt))
            drawn.append(Result(Drawing(np.clip(noisy, 0, 255).astype(np.uint8))))
        return drawn


class Middle(Brightness):
    """Scores an answer by how near its grey is to that of a third of white."""

    def _mean(self, candidate: Candidate) -> float:
        return max(0.0, 100 - 2 * abs(super()._mean(candidate) - 33))
