"""Intervals by drawing questions again: all that is known of one question stays together.

For ratings and coefficients of agreement; means have intervals of their own (`means`).
Two orders of a pair, and the pairs of many systems on one question, are judged on the
same content and are no independent observations; drawing single games (as the released
programs do) makes intervals too narrow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import special

from scorers.statistics.estimate import CONFIDENCE, EQUAL, LEAST, Estimate, Floats

DRAWS = 1000
METHOD = "percentile bootstrap"
TOO_FEW = f"fewer than {LEAST} questions: no interval"


def weights(questions: Sequence[str], draws: int = DRAWS, seed: int = 0) -> Floats:
    """(draws, questions) Poisson(1) weights; every question has its own stream.

    Poisson bootstrap (Chamandy et al. 2012). A stream is named by the question, so an
    interval depends neither on the order of the games nor on other questions.
    """
    streams = [_stream(question, draws, seed) for question in questions]
    return np.stack(streams, axis=1) if streams else np.zeros((draws, 0))


@lru_cache(maxsize=4096)
def _stream(question: str, draws: int, seed: int) -> Floats:
    digest = hashlib.sha256(f"{seed}\n{question}".encode(errors="surrogatepass")).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
    return generator.poisson(1.0, draws).astype(np.float64)


def estimate(value: float, drawn: Floats, questions: int) -> Estimate:
    """`value` with the interval of its draws; NaN marks draws in which it is undefined.

    Percentiles stand at the level of Student's t instead of the normal's, for the short
    tails of a bootstrap of few questions (Hesterberg 2015, The American Statistician).
    """
    if questions < LEAST:
        return Estimate(value, None, questions, TOO_FEW)
    known = drawn[~np.isnan(drawn)]
    if len(known) < 0.9 * len(drawn):
        return Estimate(value, None, questions, "undefined in over 10% of the draws")
    tail = _tail(questions - 1)
    # Not interpolated: between a finite and an infinite draw there is no number.
    low = float(np.quantile(known, tail, method="lower"))
    high = float(np.quantile(known, 1 - tail, method="higher"))
    if reason := _reason(low, high):
        return Estimate(value, None, questions, reason)
    return Estimate(value, (low, high), questions, "", METHOD)


def _reason(low: float, high: float) -> str:
    """Why these ends are no interval."""
    if not np.isfinite([low, high]).all():
        side = "below" if np.isfinite(high) else "above" if np.isfinite(low) else "at all"
        return f"interval not bounded {side}"
    if high - low <= EQUAL * max(abs(low), abs(high)):
        return "the same in all draws: no interval"
    return ""


def _tail(freedom: int) -> float:
    return float(special.ndtr(special.stdtrit(freedom, (1 - CONFIDENCE) / 2)))
