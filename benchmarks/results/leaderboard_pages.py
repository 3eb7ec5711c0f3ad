"""The files of a leaderboard, and the leaderboard in a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.results import leaderboard_tables as tables_of
from benchmarks.results.board import Board
from benchmarks.results.leaderboard import COUNTS, differences, leaderboard
from benchmarks.results.pairings.files import write_pairings
from benchmarks.results.reasons import FAILURES, failures_csv
from benchmarks.results.table import ResultTable, csv_text, latex_page, plain, printable
from benchmarks.results.wording import (
    ABOUT_CONTROLS,
    ABOUT_FAILURES,
    LeaderboardRow,
    kind_text,
    legend,
    reason_text,
    title_of,
)
from generators.files import write_whole
from scorers.base import Scorer

_IN_TERMINAL = 5
"""Reasons shown in a terminal."""
_RELEASED = (
    "Raw scores from 0 to 6, averaged and rounded as the released scorer prints them."
)
_PAIRED = "Mean over the queries that have a score of both systems."


def write_leaderboard(board: Board, root: Path) -> None:
    """Write leaderboard.{json,csv,md,tex}, differences.json and failures.csv.

    And pairings.{json,csv,md,tex} where systems form a matrix. Equal boards, equal bytes.
    """
    rows, pairs = leaderboard(board), differences(board)
    write_whole(root / "leaderboard.json", _as_json(rows))
    write_whole(root / "leaderboard.csv", _as_csv(board, rows))
    write_whole(root / "leaderboard.md", _markdown(board, rows, pairs))
    write_whole(root / "leaderboard.tex", _latex(board, rows))
    write_whole(root / "differences.json", _as_json(pairs))
    write_whole(root / FAILURES, failures_csv(board))
    write_pairings(board, root)


# -------------------------------------------------------------------------- terminal


def terminal_table(board: Board) -> RenderableType:
    """Averages and outcomes per system, then reasons of failures."""
    rows = leaderboard(board)
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


def _markdown(
    board: Board, rows: Sequence[LeaderboardRow], pairs: Sequence[LeaderboardRow]
) -> str:
    """The whole leaderboard as one Markdown page."""
    parts = [f"# Leaderboard: {title_of(board)}"]
    if board.warning:
        parts.append(f"> **Warning: {plain(board.warning)}**")
    parts += [legend(board, rows)] if board.scorers else []
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


def _latex(board: Board, rows: Sequence[LeaderboardRow]) -> str:
    """One ranked table per scorer, for inclusion in a paper."""
    ranked = (tables_of.ranked_table(board, rows, s) for s in board.scorers)
    warning = board.warning, board.brief_warning
    return latex_page(f"Leaderboard: {title_of(board)}", ranked, *warning)


# ------------------------------------------------------------------------ JSON, CSV


def _as_json(content: Any) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _as_csv(board: Board, rows: list[dict[str, Any]]) -> str:
    """One line per system, scorer and group."""
    head = [
        "system",
        "weights",
        "scorer",
        "scale",
        "direction",
        "part",
        "group",
        "mean",
        "ci95_low",
    ]
    head += ["ci95_high", "n", *COUNTS, "method", "reason", *board.mark]
    lines = (board.mark | line for row in rows for line in _csv_lines(row))
    return csv_text(head, ([line.get(name, "") for name in head] for line in lines))


def _csv_lines(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    about = {"system": row["system"], "weights": row["weights"] or ""}
    if not row["scores"]:
        yield about | {"n": row["n"]} | {name: row[name] for name in COUNTS}
    for scorer, scores in row["scores"].items():
        cells = [
            ("avg_fixed", "", scores["avg_fixed"]),
            ("avg_micro", "", scores["avg_micro"]),
        ]
        cells += [("category", name, c) for name, c in scores["categories"].items()]
        cells += [("field", name, c) for name, c in scores["fields"].items()]
        for part, group, cell in cells:
            low, high = cell["ci95"] or ("", "")
            line = about | {k: v for k, v in cell.items() if v is not None}
            line |= {"scorer": scorer, "direction": scores["direction"]}
            line |= {"part": part, "group": group}
            yield line | {"ci95_low": low, "ci95_high": high}
