"""What the page draws and lists of one scorer: its scores, the largest disagreements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from benchmarks.results.board import Board
from benchmarks.results.figures import ACCENT, drawn, name_rows, short
from benchmarks.results.numbers import NumberForm
from benchmarks.tasks.controls import TRUTH, is_control
from scorers.base import bounds
from scorers.statistics.estimate import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 12
_MOST_WHOLE = 20
"""Widest scale on which whole numbers have a bar each."""
_DISAGREEMENTS = 10


@dataclass(frozen=True, slots=True)
class Distributions:
    """How often one scorer gave which scores, over common bins."""

    edges: Floats
    counts: Mapping[str, Mapping[str, Floats]]
    """Of each bin, by category and system; of those that have a score."""


def distributions_of(board: Board, scorer: str, scale: str) -> Distributions | None:
    """Return those of the values behind the means: one per query, over its repeats."""
    values = board.values[scorer]
    known = values[~np.isnan(values)]
    if not known.size:
        return None
    edges = _edges(known, scale)
    category_of = {q.key: q.category for q in board.queries}
    categories = np.array([category_of[key] for key in board.keys])
    counts: dict[str, dict[str, Floats]] = {}
    for category in board.category_names:
        for i, system in enumerate(board.systems):
            column = values[categories == category, i]
            if (own := column[~np.isnan(column)]).size:
                histogram = np.histogram(own, edges)[0].astype(float)
                counts.setdefault(category, {})[system.name] = histogram
    return Distributions(edges, counts)


def _edges(known: Floats, scale: str) -> Floats:
    """Edges of the bins: a bin for each whole number, or bins of equal width."""
    ends = bounds(scale) or (float(known.min()), float(known.max()))
    low, high = min(ends[0], known.min()), max(ends[1], known.max())
    if np.all(known == np.round(known)) and high - low <= _MOST_WHOLE:
        return np.arange(math.floor(low), math.ceil(high) + 2) - 0.5
    if ends[1] - ends[0] > 3 * (known.max() - known.min()) > 0:
        low, high = known.min(), known.max()
    # Values too close together to distinguish share one bin of some width.
    high = high if high > low else low + max(abs(low), 1.0) * 1e-6
    return np.linspace(low, high, _BINS + 1)


def scores_plot(
    spread: Distributions, means: Sequence[tuple[str, Mapping[str, Any]]], heading: str
) -> Markup:
    """Draw each system's mean with its interval, and a histogram for each category."""
    names, categories = [name for name, _ in means], list(spread.counts)
    shares = [n.max() / n.sum() for row in spread.counts.values() for n in row.values()]

    def paint(figure: Figure) -> None:
        figure.set_layout_engine("constrained", w_pad=0.15)
        widths = [1.6, *(1.0 for _ in categories)]
        first, *others = figure.subplots(1, len(widths), sharey=True, width_ratios=widths)
        first.set_title(f"{heading}, 95% interval")
        first.grid(True, axis="x")
        for row, (_, cell) in enumerate(means):
            mean, ci95 = cell["mean"], cell["ci95"]
            if ci95:
                ends = map(NumberForm.of(cell["scale"]).within, ci95)
                first.hlines(row, *ends, color=ACCENT, linewidth=5, alpha=0.35)
            if mean is not None:
                first.plot(mean, row, "|", color=ACCENT, markersize=12, markeredgewidth=2.5)
        name_rows(first, names)
        for axes, category in zip(others, categories, strict=True):
            axes.set_title(short(category, 18))
            axes.set_xticks([spread.edges[0], spread.edges[-1]])
            axes.xaxis.set_major_formatter("{x:.3g}")
            axes.tick_params(axis="y", length=0)
            axes.spines["left"].set_visible(False)
            for row, name in enumerate(names):
                if (counts := spread.counts[category].get(name)) is not None:
                    # Equal shares are equally high in all histograms.
                    heights = 0.85 * counts / counts.sum() / max(shares)
                    bars = row + 0.45 - heights
                    axes.stairs(
                        bars, spread.edges, baseline=row + 0.45, fill=True, color=ACCENT
                    )

    words = f"means of {len(names)} systems with intervals, histograms of their scores"
    return drawn(420 + 140 * len(categories), 60 + 40 * len(names), words, paint)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A query on which one scorer puts two systems far apart."""

    query: str
    category: str
    best: tuple[str, float]
    worst: tuple[str, float]

    @property
    def link(self) -> str:
        """Where on the page the query is."""
        return f"#{quote(self.query, safe='')}"


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
