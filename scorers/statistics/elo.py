"""The Elo scale, and online Elo updates, which depend on the order of the games."""

from __future__ import annotations

import math
from collections.abc import Iterable

from scorers.statistics.battles import Battle

SCALE = 400.0
INITIAL = 1000.0
POINTS = SCALE / math.log(10)
"""Elo points of one natural-log unit of Bradley-Terry strength."""


def expected(rating: float, other: float) -> float:
    """Expected score of a system against another, 1 / (1 + 10^((other-rating)/400)).

    ProBench section 2 prints the exponent with the opposite sign, which would favour the
    lower rating; its program and MLLM-Bench's have it as here.
    """
    return float(1 / (1 + 10 ** ((other - rating) / SCALE)))


def online_elo(
    battles: Iterable[Battle], k: float, initial: float = INITIAL
) -> dict[str, float]:
    """Ratings after updating through `battles` in the order given.

    A battle of weight w moves both ratings by k * w * (score - expected) at once, as
    MLLM-Bench's scripts/cal_clo.py@403f82c9 does with its counts of votes.
    """
    ratings: dict[str, float] = {}
    for b in battles:
        first = ratings.setdefault(b.first, initial)
        second = ratings.setdefault(b.second, initial)
        step = k * b.weight
        ratings[b.first] = first + step * (b.score - expected(first, second))
        ratings[b.second] = second + step * (1 - b.score - expected(second, first))
    return ratings
