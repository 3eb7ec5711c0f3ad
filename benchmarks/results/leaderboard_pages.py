"""A leaderboard in a terminal, as a page of Markdown, and as LaTeX tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.results import leaderboard_tables as tables_of
from benchmarks.results.board import Board
from benchmarks.results.reasons import FAILURES
from benchmarks.results.table import ResultTable, escaped, plain, printable
from benchmarks.results.wording import (
    ABOUT_CONTROLS,
    ABOUT_FAILURES,
    LeaderboardRow,
    interval_methods,
    kind_text,
    legend,
    reason_text,
    title_of,
)
from scorers.base import Scorer

_IN_TERMINAL = 5
"""Reasons shown in a terminal."""
_RELEASED = (
    "Raw scores from 0 to 6, averaged and rounded as the released scorer prints them."
)
_PAIRED = "Mean over the queries that have a score of both systems."


# -------------------------------------------------------------------------- terminal


def terminal(board: Board, rows: Sequence[LeaderboardRow]) -> RenderableType:
    """Averages and outcomes per system, then reasons of failures."""
    parts: list[RenderableType] = [tables_of.headline_table(board, rows).rich]
    for scorer in board.scorers:
        if scorer.manner:
            parts.append(Text(printable(f"{scorer.name}: {scorer.manner}."), style="dim"))
    if board.warning:
        parts.append(Text(printable(f"Warning: {board.warning}."), style="yellow"))
    return Group(*parts, *_reasons(rows))


def _reasons(rows: Sequence[LeaderboardRow]) -> list[RenderableType]:
    """The most frequent reasons over all systems, and the file with every missing value."""
    known = [(r["count"], row["system"], r) for row in rows for r in row["reasons"]]
    ranked = [one for one in known if "kinds" not in one[2]]
    ranked.sort(key=lambda one: (-one[0], one[1], one[2]["reason"]))
    if not ranked:
        return []
    table = Table(box=None, padding=(0, 1), show_header=False)
    for count, system, reason in ranked[:_IN_TERMINAL]:
        text = printable(_one_reason(reason))
        table.add_row(f"{count:,} x", Text(printable(system)), Text(text))
    kinds = sum(r.get("kinds", 1) for _, _, r in known) - len(ranked[:_IN_TERMINAL])
    more = f"and {kinds:,} more {'kind' if kinds == 1 else 'kinds'}; " if kinds else ""
    return [table, Text(f"{more}each one is named in {FAILURES}", style="dim")]


def _one_reason(reason: LeaderboardRow) -> str:
    return ": ".join(part for part in (kind_text(reason), reason_text(reason)) if part)


# -------------------------------------------------------------------------- Markdown


def markdown(
    board: Board, rows: Sequence[LeaderboardRow], pairs: Sequence[LeaderboardRow]
) -> str:
    """The whole leaderboard as one Markdown page."""
    parts = [f"# Leaderboard: {title_of(board)}"]
    if board.warning:
        parts.append(f"> **Warning: {plain(board.warning)}**")
    parts += [legend(board, interval_methods(rows))] if board.scorers else []
    for scorer in board.scorers:
        parts += _scorer_part(board, rows, scorer)
        own = [p for p in pairs if p["scorer"] == scorer.name]
        parts += _part(tables_of.pairs_table(own), 3, _PAIRED) if own else []
    parts += _part(tables_of.controls_table(board), 2, ABOUT_CONTROLS)
    parts += _part(tables_of.counts_table(rows), 2)
    parts += _part(tables_of.reasons_table(rows), 2, ABOUT_FAILURES)
    return "\n\n".join(parts) + "\n"


def _scorer_part(board: Board, rows: Sequence[LeaderboardRow], scorer: Scorer) -> list[str]:
    parts = _part(tables_of.scorer_table(board, rows, scorer), 2)
    parts += _part(tables_of.released_table(rows, scorer.name), 3, _RELEASED)
    parts += _part(tables_of.field_table(board, rows, scorer), 3)
    for table in tables_of.criteria_tables(board, scorer.name):
        parts += _part(table, 3)
    return parts + _part(tables_of.matrix_table(board, rows, scorer.name), 3)


def _part(table: ResultTable | None, level: int, *remarks: str) -> list[str]:
    """Heading, remarks and table; empty where there is no table."""
    if table is None:
        return []
    return [f"{'#' * level} {plain(table.title)}", *remarks, table.markdown]


# ----------------------------------------------------------------------------- LaTeX


def latex(board: Board, rows: Sequence[LeaderboardRow]) -> str:
    """One ranked table per scorer, for inclusion in a paper."""
    remarks = [f"Leaderboard: {title_of(board)}. Needs the package booktabs."]
    remarks += [f"Warning: {board.warning}"] if board.warning else []
    head = "".join(f"% {printable(remark)}\n" for remark in remarks)
    ranked = (tables_of.ranked_table(board, rows, s).latex for s in board.scorers)
    return "\n".join([head, *_warned(ranked, board.warning)])


def _warned(tables: Iterable[str], warning: str) -> Iterable[str]:
    """Tables with the warning in their captions, if there is one."""
    for table in tables:
        if warning:
            label = f"\\textbf{{Warning: {escaped(warning)}.}}"
            yield table.replace("\\caption{", f"\\caption{{{label} ", 1)
        else:
            yield table
