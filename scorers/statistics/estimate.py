"""A number with its interval or the reason why there is none, and the bootstrap.

The bootstrap is for ratings and coefficients of agreement (means have intervals in
`means`). It resamples questions, so that everything known of one question stays together:
two orders of a pair, and the pairs of many systems on one question, are judged on the same
content and are not independent observations; resampling single games, as the released
programs do, makes intervals too narrow. scipy's bootstrap draws observations, without
clusters and with draws that depend on all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
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
            name: None if self.value is None else _round(self.value, places),
            "ci95": self.ci95 and [_round(end, places) for end in self.ci95],
            "n": self.n,
        }
        about = {"method": self.method, "reason": self.reason}
        return plain | {key: text for key, text in about.items() if text}


def excludes_zero(estimate: Estimate) -> bool:
    """Whether an effect or a difference has an interval that excludes 0."""
    return estimate.ci95 is not None and (estimate.ci95[0] > 0 or estimate.ci95[1] < 0)


def _round(value: float, places: int) -> float:
    return round(value, places) + 0.0  # of what rounds to -0.0, 0.0


DRAWS = 1000
METHOD = "percentile bootstrap"
TOO_FEW = f"fewer than {LEAST} questions: no interval"


def bootstrap_weights(questions: Sequence[str], draws: int = DRAWS) -> Floats:
    """Return (draws, questions) Poisson(1) weights; every question has its own stream.

    Poisson bootstrap (Chamandy et al. 2012). A stream is named by the question, so an
    interval depends neither on the order of the games nor on other questions.
    """
    streams = [_stream(question, draws) for question in questions]
    return np.stack(streams, axis=1) if streams else np.zeros((draws, 0))


# Every scorer and every pair of systems on the same questions asks for the same streams.
@lru_cache(maxsize=4096)
def _stream(question: str, draws: int) -> Floats:
    digest = hashlib.sha256(f"0\n{question}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
    return generator.poisson(1.0, draws).astype(np.float64)


def bootstrap_estimate(value: float, samples: Floats, questions: int) -> Estimate:
    """`value` with the interval of its `samples`, NaN where a draw leaves it undefined.

    Percentiles are taken at the level of Student's t instead of the normal's, for the short
    tails of a bootstrap of few questions (Hesterberg 2015, The American Statistician).
    """
    if questions < LEAST:
        return Estimate(value, None, questions, TOO_FEW)
    defined = samples[~np.isnan(samples)]
    # A draw is undefined because of what was drawn: those that are left out are not like
    # those that stay, and few of them do little harm.
    if len(defined) < 0.9 * len(samples):
        return Estimate(value, None, questions, "undefined in over 10% of the draws")
    from scipy import special

    # The share of the normal distribution that lies beyond t, which is less than 2.5%.
    tail = float(special.ndtr(special.stdtrit(questions - 1, (1 - CONFIDENCE) / 2)))
    # Not interpolated: there is no number between a finite and an infinite sample.
    low = float(np.quantile(defined, tail, method="lower"))
    high = float(np.quantile(defined, 1 - tail, method="higher"))
    if not np.isfinite([low, high]).all():
        side = "at all"
        if np.isfinite(high):
            side = "below"
        elif np.isfinite(low):
            side = "above"
        return Estimate(value, None, questions, f"interval not bounded {side}")
    if high - low <= EQUAL * max(abs(low), abs(high)):
        return Estimate(value, None, questions, "the same in all draws: no interval")
    return Estimate(value, (low, high), questions, "", METHOD)
