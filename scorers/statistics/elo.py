"""Judged games, the Elo scale, and online Elo, which depends on the order of the games."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

SCALE = 400.0
INITIAL = 1000.0
POINTS = SCALE / math.log(10)
"""Elo points of one natural-log unit of Bradley-Terry strength."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battle:
    """A game on one question; everything is told from the side of `first`."""

    question: str
    first: str
    second: str
    score: float
    """Of `first`: 1 for a win, 0 for a loss, 0.5 for a tie."""
    weight: float = 1.0
    order: int = 0
    """1 where `first` was shown first to the judge, -1 where second, 0 unknown."""
    style: tuple[float, ...] = ()
    """Style differences, `first` minus `second`."""

    @property
    def flipped(self) -> "Battle":
        """The same game told from the other side."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            score=1.0 - self.score,
            order=-self.order,
            style=tuple(-d for d in self.style),
        )

    @property
    def upright(self) -> "Battle":
        """The game told from the side whose name sorts first."""
        return self if self.first <= self.second else self.flipped


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
