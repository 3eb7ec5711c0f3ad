"""A number with its interval, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
LEAST = 5
"""No interval is made of fewer independent units: the whole range of 4 values misses the
centre of their population in one case of 8, and nothing reaches beyond that range."""
EQUAL = 1e-12
"""Numbers that differ by less than this share of their size differ by rounding only."""
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Estimate:
    """What was estimated from `n` units: queries, questions, pairs of scores."""

    value: float | None
    ci95: tuple[float, float] | None = None
    n: int = 0
    reason: str = ""
    """Why the value or the interval is missing."""
    method: str = ""
    """How the interval was made; empty where there is none."""

    def as_json(self, name: str = "value") -> dict[str, Any]:
        """Plain data, the value under `name`; rounded, to leave out the noise of sums."""
        known = [n for n in (self.value, *(self.ci95 or ())) if n is not None]
        size = max(map(abs, known), default=0.0)
        # Of numbers below 0.1 six significant digits, by the largest of them.
        places = _DIGITS if not 0 < size < 0.1 else _DIGITS - 1 - floor(log10(size))
        plain: dict[str, Any] = {
            name: None if self.value is None else round(self.value, places),
            "ci95": None if self.ci95 is None else [round(e, places) for e in self.ci95],
            "n": self.n,
        }
        about = {"method": self.method, "reason": self.reason}
        return plain | {key: text for key, text in about.items() if text}
