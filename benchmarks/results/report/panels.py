"""What the page shows of a scorer: tables and histograms."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from benchmarks.results import leaderboard as tables
from benchmarks.results.board import Board
from benchmarks.results.figures import ACCENT, drawn, name_rows, short
from benchmarks.results.table import ResultTable
from scorers.base import Scorer, bounds
from scorers.statistics.estimate import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 12
_MOST_WHOLE = 20
"""Widest scale on which whole numbers have a bar each."""
_SIZE = re.compile(r"n=\d+,? ?")


@dataclass(frozen=True, slots=True)
class ScorerPanel:
    """One scorer's part of the page."""

    name: str
    main: ResultTable
    plot: Markup
    folded: Sequence[ResultTable]


def panel_of(board: Board, scorer: Scorer) -> ScorerPanel:
    """Return one scorer's part."""
    name = scorer.name
    folded = (
        tables.released_table(board, scorer),
        _noted(tables.field_table(board, scorer)),
        *tables.criteria_tables(board, scorer),
        tables.pairs_table(board, name),
        tables.settings_table(scorer.stages) if scorer.stages else None,
    )
    return ScorerPanel(
        name=name,
        main=_noted(tables.scorer_table(board, scorer)),
        plot=scores_plot(board, scorer),
        folded=[table for table in folded if table is not None],
    )


def _noted(table: ResultTable) -> ResultTable:
    """Return the table with one line on those of its means that have no interval.

    How many values each has is not repeated: it stands behind the mean.
    """
    names: dict[str, dict[str, None]] = defaultdict(dict)
    for j, column in enumerate(table.columns):
        for cell in (row[j] for row in table.rows):
            if cell.value is not None and cell.reason:
                why = _SIZE.sub("", cell.reason).replace(" ()", "")
                names[why][column.heading] = None
    groups = [f"{', '.join(own)}: {why}" for why, own in names.items()]
    notes = [note for note in table.notes if "no scored" in note]
    notes += [f"No interval for {'; for '.join(groups)}."] if groups else []
    return replace(table, notes=notes)


# ------------------------------------------------------------------------------ plot


def scores_plot(board: Board, scorer: Scorer) -> Markup:
    """Draw a histogram of each system's scores for each category; empty without scores."""
    edges, counts = histograms_of(board, scorer)
    names = [row["system"] for row in tables.ranked(board, scorer)]
    shares = [n.max() / n.sum() for own in counts.values() for n in own.values()]
    if not shares:
        return Markup("")

    def paint(figure: Figure) -> None:
        figure.set_layout_engine("constrained", w_pad=0.15)
        (every,) = figure.subplots(1, len(counts), sharey=True, squeeze=False)
        for axes, (category, own) in zip(every, counts.items(), strict=True):
            name_rows(axes, names)
            axes.set_title(short(category, 18))
            axes.set_xticks([edges[0], edges[-1]])
            axes.xaxis.set_major_formatter("{x:.3g}")
            for row, name in enumerate(names):
                if name in own:
                    # Equal shares are equally high in all histograms.
                    heights = 0.85 * own[name] / own[name].sum() / max(shares)
                    base = row + 0.45
                    axes.stairs(
                        base - heights, edges, baseline=base, fill=True, color=ACCENT
                    )

    words = f"histograms of the scores of {len(names)} systems"
    return drawn(240 + 120 * len(counts), 40 + 40 * len(names), words, paint)


def histograms_of(
    board: Board, scorer: Scorer
) -> tuple[Floats, dict[str, dict[str, Floats]]]:
    """Return the edges of common bins, and counts by category and system.

    Of the values behind the means: one per query, over its repeats.
    """
    values = board.values[scorer.name]
    known = values[~np.isnan(values)]
    edges = _edges(known, scorer.scale) if known.size else known
    counts: dict[str, dict[str, Floats]] = {}
    for category in board.category_names if known.size else ():
        own = values[board.rows_of(board.groups_of(category))]
        for system, column in zip(board.systems, own.T, strict=True):
            counted = np.histogram(column[~np.isnan(column)], edges)[0].astype(float)
            if counted.any():
                counts.setdefault(category, {})[system.name] = counted
    return edges, counts


def _edges(known: Floats, scale: str) -> Floats:
    """Return edges of bins: one for each whole number, or bins of equal width."""
    ends = bounds(scale) or (float(known.min()), float(known.max()))
    low, high = min(ends[0], known.min()), max(ends[1], known.max())
    if np.all(known == np.round(known)) and high - low <= _MOST_WHOLE:
        return np.arange(math.floor(low), math.ceil(high) + 2) - 0.5
    if ends[1] - ends[0] > 3 * (known.max() - known.min()) > 0:
        low, high = known.min(), known.max()
    # Values too close together to distinguish share one bin of some width.
    high = high if high > low else low + max(abs(low), 1.0) * 1e-6
    return np.linspace(low, high, _BINS + 1)
