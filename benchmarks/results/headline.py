"""What a reader sees first: who is best, what went wrong, and which answers to look at."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.leaderboard import (
    AVERAGES,
    COUNTS,
    HEADINGS,
    differences,
    headline,
    leaderboard,
    placing,
    rank,
    reasons_of,
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
    kinds: dict[str, list[str]] = {}
    columns: list[tuple[TableColumn, list[TableCell]]] = []
    for scorer in board.scorers:
        column, cells = _column(board, scorer)
        if any(cell.span for cell in cells):
            columns.append((column, cells))
            average = AVERAGES[headline(leaderboard(board), scorer.name)]
            average = "all images" if scorer.of_sets else average
            kinds.setdefault(average, []).append(scorer.name)
    place = [system.name for system in board.systems]
    names = [
        TableCell(name, link=f"#section-system-{place.index(name)}")
        for name in (row["system"] for row in rank(board))
    ]
    head = [TableColumn("system", numeric=False), *(column for column, _ in columns)]
    rows = zip(names, *(cells for _, cells in columns), strict=True)
    of = [f"{kind}: {', '.join(own)}" for kind, own in kinds.items()]
    of = of if len(of) > 1 else [*kinds]
    order = columns[0][0].heading if board.scorers[1:] and columns else ""
    first = f"; the best by {order} first" if order else ""
    notes = [f"Means ({'; '.join(of)}) with 95% intervals{first}."] if of else []
    return ResultTable.of(board.title, head, rows, notes)


def _column(board: Board, scorer: Scorer) -> tuple[TableColumn, list[TableCell]]:
    rows = rank(board)
    place = [system.name for system in board.systems]
    average = headline(rows, scorer.name)
    means = [row["scores"][scorer.name][average] for row in rows]
    tied = _tied(board, scorer)
    sizes = {cell["n"] for cell in means}
    form = NumberForm.of(scorer.scale)
    k = board.scorers.index(scorer)
    cells = []
    for name, plain in zip((row["system"] for row in rows), means, strict=True):
        # A figure of a set has no answers that are worse than others.
        worst = f"#order=worst&scorer={k}&system={place.index(name)}"
        worst = "" if scorer.of_sets else worst
        cell = TableCell.of(estimate_of(plain), form, tied=name in tied, link=worst)
        if len(sizes) > 1:
            cell = replace(cell, detail=f"{cell.detail}\nn={plain['n']:,}".strip())
        cells.append(replace(cell, value=None) if is_reference(name) else cell)
    same = f", n={min(sizes):,}" if len(sizes) == 1 else ""
    about: dict[str, Any] = {"numeric": True, "bars": True, "link": f"#section-scorer-{k}"}
    about["detail"] = f"({scale_text(scorer.scale, scorer.direction)}){same}"
    return TableColumn(scorer.name, scorer.direction, **about), cells


def _tied(board: Board, scorer: Scorer) -> set[str]:
    """Return the systems that a scorer does not show to be worse than its best one.

    Figures of sets are not compared.
    """
    if scorer.of_sets:
        return set()
    rows = leaderboard(board)
    place = placing(rows, scorer)
    known = [r for r in rows if place(r) < math.inf and not is_reference(r["system"])]
    if not known:
        return set()
    best = min(known, key=place)["system"]
    worse = set()
    for one in differences(board):
        if one["scorer"] == scorer.name and best in (one["a"], one["b"]) and one["ci95"]:
            sign = 1 if (one["a"] == best) == (scorer.direction == "higher") else -1
            if min(sign * end for end in one["ci95"]) > 0:
                worse |= {one["a"], one["b"]}
    return {row["system"] for row in known} - worse - {best}


def outcome_texts(board: Board) -> dict[str, str]:
    """Say what came of all answers and judgements: `12 not applicable`, by outcome.

    Answers that add to figures of sets are told by themselves.
    """
    counts = {n: sum(row[n] for row in leaderboard(board)) for n in COUNTS}
    groups = outcome_groups(board).values()
    members = sum(g.counts.total() for g in groups if g.outcome == OF_SETS)
    counts["not_applicable"] -= members
    done = {"done": f"{counts['done']:,} of {counts['planned']:,} answers done"}
    others = [n for n in COUNTS if n not in ("planned", "done", "scored")]
    texts = done | {n: f"{counts[n]:,} {HEADINGS[n]}" for n in others if counts[n]}
    return texts | ({OF_SETS: f"{members:,} in figures of sets"} if members else {})


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
    names = [system.name for system in board.systems]
    models = [i for i, name in enumerate(names) if not is_reference(name)]
    columns = np.array(models if len(models) > 1 else range(len(names)), dtype=int)
    shown = [q.key for q in board.queries if q.key in keys]
    rows = np.searchsorted(board.keys, shown)
    for scorer in board.scorers:
        values = board.values[scorer.name][np.ix_(rows, columns)]
        highest = np.fmax.reduce(values, axis=1, initial=-np.inf)
        spread = highest - np.fmin.reduce(values, axis=1, initial=np.inf)
        if (spread > 0).any():
            at = int(spread.argmax())
            form = NumberForm.of(scorer.scale)
            ends = (int(end(values[at])) for end in (np.nanargmax, np.nanargmin))
            scores = {names[columns[j]]: form.number(float(values[at, j])) for j in ends}
            return Apart(shown[at], scorer.name, scores)
    return None


def terminal_table(board: Board) -> RenderableType:
    """Return averages and outcomes, then reasons of failures."""
    table = headline_table(board)
    table = replace(table, notes=[outcomes_note(board), *table.notes])
    parts: list[RenderableType] = [table.rich]
    about = [*board.about_replies, *board.about_scorers]
    parts += [Text(printable(text), style="dim") for text in about]
    if board.warning:
        parts.append(Text(printable(f"Warning: {board.warning}."), style="yellow"))
    reasons = most_frequent("system", reasons_of(board), FAILURES)
    return Group(*parts, *([reasons.rich] if reasons.rows else []))
