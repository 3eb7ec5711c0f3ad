"""What a reader sees first: who is best, what went wrong, and which answers to look at."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from plait.benchmarks.results.bars import BarAxis
from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import about_correction, comparisons, tied_with
from plait.benchmarks.results.leaderboard import (
    AVERAGES,
    COUNTS,
    LeaderboardRow,
    headline,
    leaderboard,
    placing,
    rank,
    reasons_of,
)
from plait.benchmarks.results.leaderboard_tables import (
    HEADINGS,
    Column,
    table_of_published,
)
from plait.benchmarks.results.numbers import NumberForm, estimate_of
from plait.benchmarks.results.reasons import (
    FAILURES,
    OF_SETS,
    most_frequent,
    outcome_groups,
)
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn, printable
from plait.benchmarks.tasks.controls import is_reference
from plait.scorers.base import Scorer, scale_text


def headline_table(board: Board) -> ResultTable:
    """Return one average per scorer, with the best system and what ties with it.

    The ground truth and its controls come last and are never the best. On the page,
    headings lead to what follows about a scorer, and means to a system's worst answers.
    """
    names = []
    for row in rank(board):
        link = f"#section-system-{board.place_of_system[row['system']]}"
        names.append(TableCell(row["system"], link=link))
    head = [TableColumn("system", numeric=False)]
    cells_of_columns = [names]
    shown = []
    for scorer in board.scorers:
        column = _column(board, scorer)
        if column.has_value:
            head.append(column.head)
            cells_of_columns.append([*column.cells])
            shown.append(scorer)
    rows = zip(*cells_of_columns, strict=True)
    return ResultTable.of(board.title, head, rows, _notes(board, shown))


def _notes(board: Board, shown: Sequence[Scorer]) -> list[str]:
    """Say which means are shown of which scorers, and how systems are told apart."""
    if not shown:
        return []
    rows = rank(board)
    kinds: dict[str, list[str]] = {}
    for scorer in shown:
        average = AVERAGES[headline(rows, scorer.name)]
        kind = "all images" if scorer.of_sets else average
        kinds.setdefault(kind, []).append(scorer.name)
    if len(kinds) == 1:
        about = next(iter(kinds))
    else:
        about = "; ".join(f"{kind}: {', '.join(own)}" for kind, own in kinds.items())
    # With a single scorer it goes without saying what orders the rows.
    order = f"; the best by {shown[0].name} first" if len(board.scorers) > 1 else ""
    notes = [f"Means ({about}) with 95% intervals{order}."]
    models = [row["system"] for row in rows if not is_reference(row["system"])]
    if len(models) > 2:
        correction = about_correction(board.correction, models)
        notes.append(f"Told apart at 5% by paired differences: {correction}.")
    return notes


def _column(board: Board, scorer: Scorer) -> Column:
    """Return the means of one scorer; n is in the heading where it is the same for all."""
    rows = rank(board)
    average = headline(rows, scorer.name)
    means = {}
    values = {}
    for row in rows:
        cell = row["scores"][scorer.name][average]
        means[row["system"]] = cell
        if cell["mean"] is not None:
            values[row["system"]] = cell["mean"]
    sizes = {mean["n"] for mean in means.values()}
    tied = _ties(board, scorer)
    ranks = _rank_ranges(rows, scorer)
    form = NumberForm.of(scorer.scale)
    number = board.scorers.index(scorer)
    cells = []
    for name, mean in means.items():
        # A figure of a set has no answers that are worse than others.
        worst = f"#order=worst&scorer={number}&system={board.place_of_system[name]}"
        cell = TableCell.of(
            estimate_of(mean),
            form,
            tied=name in tied,
            link="" if scorer.of_sets else worst,
            # One that is alone has no rank worth telling.
            rank=_rank_text(ranks[name]) if len(ranks) > 1 and name in ranks else "",
        )
        if len(sizes) > 1:
            cell = replace(cell, detail=f"{cell.detail}\nn={mean['n']:,}".strip())
        # Without a value a cell is never the best of its column.
        cells.append(replace(cell, value=None) if is_reference(name) else cell)
    same = f", n={min(sizes):,}" if len(sizes) == 1 else ""
    spans = [cell.span for cell in cells if cell.span]
    head = TableColumn(
        scorer.name,
        scorer.direction,
        numeric=True,
        bars=BarAxis.of(spans, scorer.scale, _widest_tie(board, scorer, values)),
        link=f"#section-scorer-{number}",
        detail=f"({scale_text(scorer.scale, scorer.direction)}){same}",
    )
    return Column(head, cells)


def _ties(board: Board, scorer: Scorer) -> set[str]:
    """Return the systems that a scorer does not show to be worse than its best one.

    Figures of sets are not compared.
    """
    if scorer.of_sets:
        return set()
    rows = leaderboard(board)
    place = placing(rows, scorer)
    ranked = []
    for row in rows:
        if place(row) < math.inf and not is_reference(row["system"]):
            ranked.append(row)
    if not ranked:
        return set()
    best = min(ranked, key=place)["system"]
    names = {row["system"] for row in ranked}
    return names & tied_with(best, comparisons(board)[scorer.name])


def _rank_ranges(
    rows: Sequence[LeaderboardRow], scorer: Scorer
) -> dict[str, tuple[int, int]]:
    """Return the best and worst rank by system, of those that have one."""
    ranges = {}
    for row in rows:
        if rank_of_row := row["scores"][scorer.name].get("rank"):
            low, high = rank_of_row["range95"]
            ranges[row["system"]] = low, high
    return ranges


def _rank_text(ends: tuple[int, int]) -> str:
    low, high = ends
    return f"rank {low}" if low == high else f"rank {low}-{high}"


def _widest_tie(board: Board, scorer: Scorer, values: Mapping[str, float]) -> float:
    """Return the largest distance of two values that cannot be told apart; 0 for none.

    Figures of sets are not compared, so that no two of them are told apart.
    """
    if scorer.of_sets:
        return max(values.values(), default=0.0) - min(values.values(), default=0.0)
    widest = 0.0
    for one in comparisons(board)[scorer.name]:
        if one.better is None and one.a in values and one.b in values:
            widest = max(widest, abs(values[one.a] - values[one.b]))
    return widest


def outcome_texts(board: Board) -> dict[str, str]:
    """Say what came of all answers and judgements: `12 not applicable`, by outcome.

    Answers that add to figures of sets are told by themselves.
    """
    counts = Counter[str]()
    for row in leaderboard(board):
        for name in COUNTS:
            counts[name] += row[name]
    members = 0
    for group in outcome_groups(board).values():
        if group.outcome == OF_SETS:
            members += group.counts.total()
    counts["not_applicable"] -= members
    texts = {"done": f"{counts['done']:,} of {counts['planned']:,} answers done"}
    for name in COUNTS:
        if name not in ("planned", "done", "scored") and counts[name]:
            texts[name] = f"{counts[name]:,} {HEADINGS[name]}"
    if members:
        texts[OF_SETS] = f"{members:,} in figures of sets"
    return texts


def outcomes_note(board: Board) -> str:
    """Return the same in one line."""
    return f"{', '.join(outcome_texts(board).values())}."


class Apart(NamedTuple):
    """The query on which a scorer sets two systems furthest apart."""

    query: str
    scorer: str
    ends: Mapping[str, str]
    """The highest and the lowest score, by system."""


def furthest_apart(board: Board, keys: Collection[str]) -> Apart | None:
    """Return the first such query of `keys`, by the first scorer that has one.

    The ground truth and its controls count only where there are no two other systems.
    """
    names = board.system_names
    models = [i for i, name in enumerate(names) if not is_reference(name)]
    columns = np.array(models if len(models) > 1 else range(len(names)), dtype=int)
    shown = [query.key for query in board.queries if query.key in keys]
    # The keys of a board are sorted.
    rows = np.array([bisect_left(board.keys, key) for key in shown], int)
    for scorer in board.scorers:
        values = board.values[scorer.name][np.ix_(rows, columns)]
        # `fmax` and `fmin` pass over NaN; a query without any score has a spread of -inf.
        highest = np.fmax.reduce(values, axis=1, initial=-np.inf)
        spread = highest - np.fmin.reduce(values, axis=1, initial=np.inf)
        if (spread > 0).any():
            row = int(spread.argmax())
            form = NumberForm.of(scorer.scale)
            scores = {}
            for end in (np.nanargmax, np.nanargmin):
                column = int(end(values[row]))
                scores[names[columns[column]]] = form.number(float(values[row, column]))
            return Apart(shown[row], scorer.name, scores)
    return None


def terminal_table(board: Board) -> RenderableType:
    """Return averages and outcomes, then reasons of failures."""
    table = headline_table(board)
    table = replace(table, notes=[outcomes_note(board), *table.notes])
    parts: list[RenderableType] = [table.rich]
    if (published := table_of_published(board)) is not None:
        parts.append(published.rich)
    about = [*board.about_replies, *board.about_scorers]
    parts += [Text(printable(text), style="dim") for text in about]
    if board.warning:
        parts.append(Text(printable(f"Warning: {board.warning}."), style="yellow"))
    reasons = most_frequent("system", reasons_of(board), FAILURES)
    return Group(*parts, *([reasons.rich] if reasons.rows else []))
