"""Plots of one scorer: histograms, and the largest disagreements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import quote

import numpy as np

from benchmarks.results.board import Board
from benchmarks.tasks.controls import TRUTH, is_control
from scorers.base import bounds
from scorers.statistics.estimate import Floats

_BINS = 12
_MOST_WHOLE = 20
"""Widest scale on which whole numbers have a bar each."""
_DISAGREEMENTS = 10


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often one scorer gave which scores to one system in one category."""

    counts: tuple[int, ...]
    label: str
    """In words, for screen readers."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """Histograms over common bins, by category and system."""

    low: str
    high: str
    """The ends of the bins, as text."""
    highest: float
    """The largest share of its histogram in one bar."""
    histograms: Mapping[str, Mapping[str, Histogram | None]]

    def height(self, histogram: Histogram, count: int) -> float:
        """Height of a bar in percent; equal shares are equally high in all histograms."""
        return 100 * count / sum(histogram.counts) / self.highest


def distributions_of(board: Board, scorer: str, scale: str) -> Distributions | None:
    """Of the values behind the means: one per query, the mean of its repeats."""
    values = board.values[scorer]
    known = values[~np.isnan(values)]
    if not known.size:
        return None
    edges, names = _bins(known, scale)
    category_of = {q.key: q.category for q in board.queries}
    categories = np.array([category_of[key] for key in board.keys])
    histograms = {
        c: {
            s.name: _histogram(values[categories == c, i], edges, names)
            for i, s in enumerate(board.systems)
        }
        for c in board.category_names
    }
    histograms = {c: row for c, row in histograms.items() if any(row.values())}
    nonempty = [h for row in histograms.values() for h in row.values() if h]
    highest = max(max(h.counts) / sum(h.counts) for h in nonempty)
    ends = names[0].partition(" to ")[0], names[-1].rpartition(" to ")[2]
    return Distributions(*ends, highest, histograms)


def _bins(known: Floats, scale: str) -> tuple[Floats, list[str]]:
    """Edges of the bins and what each holds: whole numbers, or ranges of equal width."""
    ends = bounds(scale) or (float(known.min()), float(known.max()))
    low, high = min(ends[0], known.min()), max(ends[1], known.max())
    if np.all(known == np.round(known)) and high - low <= _MOST_WHOLE:
        whole = np.arange(math.floor(low), math.ceil(high) + 1)
        return np.append(whole - 0.5, whole[-1] + 0.5), [str(k) for k in whole]
    if ends[1] - ends[0] > 3 * (known.max() - known.min()) > 0:
        low, high = known.min(), known.max()
    # Values too close together to distinguish share one bin of some width.
    high = high if high > low else low + max(abs(low), 1.0) * 1e-6
    edges = np.linspace(low, high, _BINS + 1)
    names = [f"{a:.4g} to {b:.4g}" for a, b in pairwise(edges)]
    return edges, names


def _histogram(column: Floats, edges: Floats, names: Sequence[str]) -> Histogram | None:
    known = column[~np.isnan(column)]
    if not known.size:
        return None
    counts = np.histogram(known, edges)[0].tolist()
    label = ", ".join(f"{n}: {c}" for n, c in zip(names, counts, strict=True) if c)
    return Histogram(tuple(counts), label)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A query on which one scorer puts two systems far apart."""

    query: str
    category: str
    best: tuple[str, float]
    worst: tuple[str, float]

    @property
    def link(self) -> str:
        """Where on the page the query is; an id with a lone surrogate has no address."""
        try:
            return f"#{quote(self.query, safe='')}"
        except UnicodeEncodeError:
            return "#section-answers"


def disagreements_of(board: Board, scorer: str, shown: Sequence[str]) -> list[Disagreement]:
    """The queries among `shown` on which systems are furthest apart, the largest first.

    Among equal disagreements, those on which the other systems are split too come first.
    The ground truth and its controls count only where there are no two other systems.
    """
    names = [s.name for s in board.systems]
    models = [i for i, n in enumerate(names) if n != TRUTH and not is_control(n)]
    columns = models if len(models) > 1 else list(range(len(names)))
    on_page = set(shown)
    rows = [i for i, key in enumerate(board.keys) if key in on_page]
    values = board.values[scorer][np.ix_(rows, columns)]
    several = np.flatnonzero((~np.isnan(values)).sum(axis=1) > 1)
    values = values[several]
    if not values.size:
        return []
    spread = np.nanmax(values, axis=1) - np.nanmin(values, axis=1)
    order = np.lexsort((-np.nanstd(values, axis=1), -spread))[:_DISAGREEMENTS]
    category_of = {q.key: q.category for q in board.queries}
    widest = []
    for i in (int(i) for i in order if spread[i] > 0):
        key = board.keys[rows[int(several[i])]]
        ends = [int(np.nanargmax(values[i])), int(np.nanargmin(values[i]))]
        best, worst = ((names[columns[j]], float(values[i, j])) for j in ends)
        widest.append(Disagreement(key, category_of[key], best, worst))
    return widest
