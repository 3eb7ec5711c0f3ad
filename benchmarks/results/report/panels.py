"""What the page shows of a scorer: tables, a plot, and where systems disagree."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from benchmarks.results import leaderboard as tables
from benchmarks.results.board import Board
from benchmarks.results.figures import ACCENT, drawn, name_rows, short
from benchmarks.results.numbers import NumberForm
from benchmarks.results.table import ResultTable, TableCell
from benchmarks.tasks.controls import TRUTH, is_control
from scorers.base import Scorer, bounds
from scorers.statistics.estimate import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 12
_MOST_WHOLE = 20
"""Widest scale on which whole numbers have a bar each."""
_DISAGREEMENTS = 10
_SIZE = re.compile(r"n=\d+,? ?")


@dataclass(frozen=True, slots=True)
class ScorerPanel:
    """One scorer's part of the page."""

    name: str
    main: ResultTable
    plot: Markup
    apart: ResultTable
    """The queries on which it sets systems furthest apart, the largest first."""
    folded: Sequence[ResultTable]


def panel_of(board: Board, scorer: Scorer, shown: Sequence[str]) -> ScorerPanel:
    """Return one scorer's part; `shown` are the keys of the queries on the page."""
    name, rows = scorer.name, tables.leaderboard(board)
    average = tables.headline(rows, name)
    means = {row["system"]: row["scores"][name][average] for row in rows}
    folded = (
        tables.released_table(board, name),
        tables.matrix_table(board, name),
        _noted(tables.field_table(board, scorer)),
        *tables.criteria_tables(board, name),
        tables.pairs_table(board, name),
    )
    return ScorerPanel(
        name=name,
        main=_noted(tables.scorer_table(board, scorer)),
        plot=scores_plot(board, scorer, means, tables.AVERAGES[average]),
        apart=disagreements_of(board, scorer, shown),
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


def scores_plot(
    board: Board, scorer: Scorer, means: Mapping[str, Mapping[str, Any]], heading: str
) -> Markup:
    """Draw each system's mean with its interval, and a histogram for each category.

    Empty where nothing is scored.
    """
    edges, counts = histograms_of(board, scorer)
    shares = [n.max() / n.sum() for own in counts.values() for n in own.values()]
    if not shares:
        return Markup("")

    def paint(figure: Figure) -> None:
        figure.set_layout_engine("constrained", w_pad=0.15)
        widths = [1.6, *(1.0 for _ in counts)]
        first, *others = figure.subplots(1, len(widths), sharey=True, width_ratios=widths)
        first.set_title(f"{heading}, 95% interval")
        first.grid(True, axis="x")
        for row, cell in enumerate(means.values()):
            if cell["ci95"]:
                first.hlines(row, *cell["ci95"], color=ACCENT, linewidth=5, alpha=0.35)
            if cell["mean"] is not None:
                about = {"markersize": 12, "markeredgewidth": 2.5}
                first.plot(cell["mean"], row, "|", color=ACCENT, **about)
        name_rows(first, [*means])
        for axes, (category, own) in zip(others, counts.items(), strict=True):
            axes.set_title(short(category, 18))
            axes.set_xticks([edges[0], edges[-1]])
            axes.xaxis.set_major_formatter("{x:.3g}")
            axes.tick_params(axis="y", length=0)
            axes.spines["left"].set_visible(False)
            for row, name in enumerate(means):
                if name in own:
                    # Equal shares are equally high in all histograms.
                    heights = 0.85 * own[name] / own[name].sum() / max(shares)
                    base = row + 0.45
                    axes.stairs(
                        base - heights, edges, baseline=base, fill=True, color=ACCENT
                    )

    words = f"means of {len(means)} systems with intervals, histograms of their scores"
    return drawn(420 + 140 * len(counts), 60 + 40 * len(means), words, paint)


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


# --------------------------------------------------------------------- disagreements


def disagreements_of(board: Board, scorer: Scorer, shown: Sequence[str]) -> ResultTable:
    """Return the queries of `shown` on which systems are furthest apart, largest first.

    Among equal disagreements, those on which the other systems are split too come first.
    The ground truth and its controls count only where there are no two other systems.
    """
    names = [s.name for s in board.systems]
    models = [i for i, n in enumerate(names) if n != TRUTH and not is_control(n)]
    columns = models if len(models) > 1 else list(range(len(names)))
    on_page = set(shown)
    at = [i for i, key in enumerate(board.keys) if key in on_page]
    values = board.values[scorer.name][np.ix_(at, columns)]
    several = np.flatnonzero((~np.isnan(values)).sum(axis=1) > 1)
    values, at = values[several], [at[i] for i in several]
    spread = np.nanmax(values, axis=1) - np.nanmin(values, axis=1)
    order = np.lexsort((-np.nanstd(values, axis=1), -spread))[:_DISAGREEMENTS]
    category_of = {q.key: q.category for q in board.queries}
    form = NumberForm.of(scorer.scale)

    def line(i: int) -> list[str | TableCell]:
        key, ends = board.keys[at[i]], (np.nanargmax(values[i]), np.nanargmin(values[i]))
        link = f"#{quote(key, safe='')}"
        texts = [(form.number(float(values[i, j])), names[columns[j]]) for j in ends]
        about = TableCell(key, link=link), category_of[key]
        return [*about, *(TableCell(*text) for text in texts)]

    head = ("query", "category", "highest score", "lowest score")
    rows = [line(i) for i in order.tolist() if spread[i] > 0]
    return ResultTable.of("Where systems disagree most", head, rows, numeric=False)
