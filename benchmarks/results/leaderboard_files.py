"""The files of a leaderboard: JSON and CSV for programs, Markdown and LaTeX for readers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import differences
from plait.benchmarks.results.judges import panels_of, write_judges
from plait.benchmarks.results.leaderboard import COUNTS, leaderboard, parts_of, reasons_of
from plait.benchmarks.results.leaderboard_tables import (
    ABOUT_CONTROLS,
    ABOUT_FAILURES,
    controls_table,
    counts_table,
    criteria_tables,
    field_table,
    legend,
    pairs_table,
    ranking_table,
    scorer_table,
    table_as_released,
    table_of_published,
    variance_table,
)
from plait.benchmarks.results.pairings.comparison import pairings_of
from plait.benchmarks.results.pairings.tables import write_pairings
from plait.benchmarks.results.reasons import FAILURES, failures_csv, reasons_table
from plait.benchmarks.results.table import (
    ResultTable,
    csv_text,
    json_text,
    latex_page,
    plain,
)
from plait.generators.buckets import AnyPath
from plait.generators.files import write_whole
from plait.scorers.base import ReleasedSummary

_ABOUT_RELEASED = (
    "Raw scores from 0 to 6, averaged and rounded as the released scorer prints them."
)
_ABOUT_TRACKS = (
    "Means of dimensions, then of tracks, rounded as the released program prints them; a "
    "dimension in which nothing was judged is 0."
)
_ABOUT_GROUPS = (
    "Means of the types of edit, rounded as the released program prints them, of all "
    "queries and of the intersection; none while a type has no score."
)
_ABOUT_TYPES = "Means of the types of edit, rounded as the released program prints them."
_ABOUT_TASKS = (
    "Means of the tasks, rounded as the released program writes them; the last is the mean "
    "of the tasks that the run has."
)
_ABOUT_TURNS = (
    "Means over all turns, of each class and of each turn, in percent and rounded as the "
    "released program prints them."
)
_ABOUT_SUMMARIES: Mapping[ReleasedSummary, str] = {
    "specv": _ABOUT_TRACKS,
    "gedit": _ABOUT_GROUPS,
    "imgedit": _ABOUT_TYPES,
    "unison": _ABOUT_TASKS,
    "imug": _ABOUT_TURNS,
}
"""What is said of a summary, where it is not that of raw scores."""
_ABOUT_PAIRS = "Mean over the queries that have a score of both systems."


def write_leaderboard(board: Board, root: AnyPath) -> None:
    """Write leaderboard.{json,csv,md,tex}, differences.json and failures.csv.

    And judges.json where there are two judges of one kind, pairings.{json,csv,md,tex} where
    systems form a matrix. Equal boards, equal bytes.
    """
    write_whole(root / "leaderboard.json", json_text(leaderboard(board)))
    write_whole(root / "leaderboard.csv", _as_csv(board))
    write_whole(root / "leaderboard.md", _markdown(board))
    write_whole(root / "leaderboard.tex", _latex(board))
    write_whole(root / "differences.json", json_text(differences(board)))
    write_judges(board, root)
    write_whole(root / FAILURES, failures_csv(board))
    write_pairings(board, root, pairings_of(board))


def _latex(board: Board) -> str:
    """Return a page for papers: a ranked table of each scorer that has a value."""
    tables = []
    for scorer in board.scorers:
        table = ranking_table(board, scorer)
        if _has_value(table):
            tables.append(table)
    published = table_of_published(board)
    if published is not None:
        tables.append(published)
    title = f"Leaderboard: {board.title}"
    return latex_page(title, tables, board.warning, board.brief_warning)


def _has_value(table: ResultTable) -> bool:
    """Return whether any cell of a table is a mean."""
    return any(cell.span for cell in chain.from_iterable(table.rows))


def _as_csv(board: Board) -> str:
    """Return one line for every mean: of a system by a scorer, on all or on one part.

    A system without scorers has one line, with its counts alone.
    """
    head = ["system", "weights", "scorer", "scale", "direction", "part", "group", "mean"]
    head += ["ci95_low", "ci95_high", "n", *COUNTS, "method", "reason"]
    # The columns of a mark are the same for all systems, so any name will do.
    head += board.mark_of("")
    lines = []
    for row in leaderboard(board):
        about = {"system": row["system"], "weights": row["weights"] or ""}
        about |= board.mark_of(row["system"])
        if not row["scores"]:
            line = dict(about)
            for name in ("n", *COUNTS):
                line[name] = row[name]
            lines.append(line)
        for scorer, scores in row["scores"].items():
            about |= {"scorer": scorer, "direction": scores["direction"]}
            for part, group, cell in parts_of(scores):
                line = about | {"part": part, "group": group, **cell}
                if cell["ci95"]:
                    line["ci95_low"], line["ci95_high"] = cell["ci95"]
                lines.append(line)
    rows = []
    for line in lines:
        cells = []
        for name in head:
            value = line.get(name)
            # What is None has no value, which CSV says by an empty cell.
            cells.append("" if value is None else value)
        rows.append(cells)
    return csv_text(head, rows)


def _markdown(board: Board) -> str:
    """Return a page for readers: every table of every scorer, the most read first."""
    parts = [f"# Leaderboard: {board.title}"]
    if board.warning:
        parts.append(f"> **Warning: {plain(board.warning)}**")
    if board.scorers:
        parts.append(legend(board))
    parts += _section(table_of_published(board), 2)
    for scorer in board.scorers:
        parts += _section(scorer_table(board, scorer), 2)
        about = _ABOUT_SUMMARIES.get(scorer.released_summary, _ABOUT_RELEASED)
        parts += _section(table_as_released(board, scorer), 3, about)
        for table in (field_table(board, scorer), *criteria_tables(board, scorer)):
            parts += _section(table, 3)
        parts += _section(variance_table(board, scorer.name), 3)
        parts += _section(pairs_table(board, scorer.name), 3, _ABOUT_PAIRS)
    for panel in panels_of(board):
        # The first table of a panel heads those that follow it.
        for level, table in zip((2, 3, 3), panel.tables(), strict=False):
            parts += _section(table, level)
    parts += _section(controls_table(board), 2, ABOUT_CONTROLS)
    parts += _section(counts_table(board), 2)
    reasons = reasons_table("system", reasons_of(board))
    parts += _section(reasons if reasons.rows else None, 2, ABOUT_FAILURES)
    return "\n\n".join(parts) + "\n"


def _section(table: ResultTable | None, level: int, *remarks: str) -> list[str]:
    """Return a table below its title, and what is said of it; nothing without a table."""
    if table is None:
        return []
    return [f"{'#' * level} {plain(table.title)}", *remarks, table.markdown]
