"""Queries with answers of two systems, judges of known faults, and people who rate some.

python tests/helpers/rating_simulation.py [REPLICATES [DESIGN...]]    how intervals hold

What a query asks makes its answers alike, over systems and repeats, and may sway a judge.
People's ratings are whole numbers from 0 to 6, or yes and no, of a normal quality, so that
the mean rating of all answers to all queries that there could be is known in closed form.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from plait.scorers.statistics.corrected import (
    Corrected,
    RatedAnswers,
    correct_difference,
    correct_mean,
)

Floats = npt.NDArray[np.float64]
SCALE = (0.0, 6.0)
SPREAD = 1.5
"""Standard deviation of quality: of its parts by query, by answer, and of its repeats."""
BY_QUERY = 0.6
BY_SYSTEM = 0.5
MEANS = (3.6, 3.2)
"""Of the quality of both systems."""
FAVOUR = 1.5
"""What a biased judge adds to the second system."""


@dataclass(frozen=True)
class Design:
    """How many queries there are, and which of the answers are rated."""

    queries: int = 300
    repeats: int = 1
    ratings: int = 100
    """Of the answers of both systems."""
    whole_queries: bool = False
    """Whether all answers to a query that is drawn are rated, and else none."""


class Answers(NamedTuple):
    """(queries, systems, repeats): how good answers are, and what a judge says of them."""

    quality: Floats
    judged: Floats


Judge = Callable[[np.random.Generator, Floats], Floats]


def _excellent(rng: np.random.Generator, quality: Floats) -> Floats:
    return quality + rng.normal(0, 0.4, quality.shape)


def _biased(rng: np.random.Generator, quality: Floats) -> Floats:
    favour = np.array([0.0, FAVOUR]).reshape(1, 2, 1)
    return 2 + 0.5 * quality + favour + rng.normal(0, 0.8, quality.shape)


def _useless(rng: np.random.Generator, quality: Floats) -> Floats:
    return rng.normal(3, 1.5, quality.shape)


def _led_by_the_query(rng: np.random.Generator, quality: Floats) -> Floats:
    """Scores that follow the query alone, whatever the answer."""
    of_query = rng.normal(3, 1.5, (len(quality), 1, 1))
    return of_query + rng.normal(0, 0.3, quality.shape)


JUDGES: dict[str, Judge] = {
    "excellent": _excellent,
    "biased": _biased,
    "useless": _useless,
    "led by the query": _led_by_the_query,
}


def quality_of(rng: np.random.Generator, design: Design) -> Floats:
    """(queries, systems, repeats) qualities, which a query has in common."""
    shape = (design.queries, 2, design.repeats)
    rest = math.sqrt(1 - BY_QUERY**2 - BY_SYSTEM**2)
    parts = BY_QUERY * rng.normal(size=(shape[0], 1, 1))
    parts = parts + BY_SYSTEM * rng.normal(size=(*shape[:2], 1))
    parts = parts + rest * rng.normal(size=shape)
    return np.array(MEANS).reshape(1, 2, 1) + SPREAD * parts


def levels(quality: Floats) -> Floats:
    """Whole numbers from 0 to 6."""
    return np.clip(np.round(quality), *SCALE)


def true_means() -> Floats:
    """(systems,) expectation of `levels`: the sum of P(level > k)."""
    ends = np.arange(SCALE[1]) + 0.5
    above = special.ndtr((np.array(MEANS)[:, None] - ends) / SPREAD)
    return np.asarray(above.sum(axis=1))


def draw_rated(rng: np.random.Generator, design: Design) -> npt.NDArray[np.bool_]:
    """(queries, systems, repeats) whether an answer is rated, drawn at random."""
    shape = (design.queries, 2, design.repeats)
    chosen = np.zeros(shape, dtype=bool)
    if design.whole_queries:
        count = design.ratings // (shape[1] * shape[2])
        chosen[rng.permutation(shape[0])[:count]] = True
    else:
        chosen.reshape(-1)[rng.permutation(chosen.size)[: design.ratings]] = True
    return chosen


def sides(judged: Floats, rated: Floats) -> tuple[RatedAnswers, RatedAnswers]:
    """Both systems' answers."""
    queries = [f"{q:05}" for q in range(len(judged)) for _ in range(judged.shape[2])]
    first, second = (
        RatedAnswers(queries, judged[:, s].reshape(-1), rated[:, s].reshape(-1))
        for s in (0, 1)
    )
    return first, second


@dataclass
class Held:
    """How often intervals hold the truth, and how wide they are."""

    shown: int = 0
    held: int = 0
    alone_held: int = 0
    off: float = 0.0
    widths: float = 0.0
    alone_widths: float = 0.0
    lams: float = 0.0
    effective: float = 0.0

    def count(self, one: Corrected, truth: float) -> None:
        """Add the outcome of one replicate."""
        if one.corrected.ci95 is None or one.ratings.ci95 is None:
            return
        assert one.corrected.value is not None
        assert one.effective is not None
        low, high = one.corrected.ci95
        alone_low, alone_high = one.ratings.ci95
        self.shown += 1
        self.held += low <= truth <= high
        self.alone_held += alone_low <= truth <= alone_high
        self.off += one.corrected.value - truth
        self.widths += high - low
        self.alone_widths += alone_high - alone_low
        self.lams += one.lam
        self.effective += one.effective / one.rated

    @property
    def coverage(self) -> float:
        """The share of corrected intervals that hold the truth."""
        return self.held / self.shown

    @property
    def width(self) -> float:
        """Mean width of corrected intervals, over that of intervals of ratings alone."""
        return self.widths / self.alone_widths

    @property
    def texts(self) -> Sequence[str]:
        """All of it."""
        numbers = (self.coverage, self.alone_held / self.shown, self.off / self.shown)
        more = (self.width, self.lams / self.shown, self.effective / self.shown)
        return [f"{self.shown:,}", *(f"{number:.4f}" for number in (*numbers, *more))]


def simulate(judge: str, design: Design, replicates: int, seed: int = 0) -> list[Held]:
    """Return how intervals of the first system's mean and of the difference hold."""
    rng = np.random.default_rng([seed, *judge.encode()])
    truth = true_means()
    of_mean = Held()
    of_difference = Held()
    for _ in range(replicates):
        quality = quality_of(rng, design)
        judged = JUDGES[judge](rng, quality)
        rated = np.where(draw_rated(rng, design), levels(quality), np.nan)
        first, second = sides(judged, rated)
        of_mean.count(correct_mean([first], SCALE), float(truth[0]))
        difference = correct_difference([first], [second], SCALE)
        of_difference.count(difference, float(truth[0] - truth[1]))
    return [of_mean, of_difference]


DESIGNS = {
    "30 ratings": Design(ratings=30),
    "100 ratings": Design(ratings=100),
    "400 of 600": Design(ratings=400),
    "3 repeats": Design(queries=200, repeats=3, ratings=200),
    "50 whole queries": Design(ratings=100, whole_queries=True),
    "3 repeats, 33 whole": Design(queries=200, repeats=3, ratings=200, whole_queries=True),
}


def main(replicates: int = 10_000, *names: str) -> None:
    """Print a line for each design, judge and estimate."""
    print("design | judge | of | shown | coverage | alone | bias | width | lambda | worth")
    for name in names or DESIGNS:
        for judge in JUDGES:
            both = simulate(judge, DESIGNS[name], replicates)
            for what, held in zip(("mean", "difference"), both, strict=True):
                print(" | ".join([name, judge, what, *held.texts]), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
