"""How numbers, counts and reasons are worded in tables; the table for the terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.results.board import Board

Row = Mapping[str, Any]
Cell = Mapping[str, Any]

# Headings by the names of `benchmarks.results.leaderboard`.
COUNTS = {
    "planned": "answers",
    "done": "done",
    "failed": "failed",
    "skipped": "skipped",
    "missing": "not made",
    "unscored": "unscored",
    "not_applicable": "n/a",
    "failed_scores": "failed scores",
    "skipped_scores": "skipped scores",
}
_ONLY_IF_ANY = ("missing", "failed_scores", "skipped_scores")
AVERAGES = {"avg_fixed": "fixed weights", "avg_micro": "per query"}


CONTROLS_SAID = (
    "Answers made worse on purpose from the ground truth. A scorer is to be trusted where "
    "it puts the ground truth above them (order right: the whole interval of the "
    "difference is above 0). Blind: equal on every query, as of a scorer that does not "
    "look at what the control changes."
)
"""What the controls of a leaderboard are for."""


def bounds(scale: str) -> tuple[float, float] | None:
    """The ends of a scale written `LOW-HIGH`; None for any other wording."""
    ends = re.fullmatch(r"(-?\d+(?:\.\d+)?)-(-?\d+(?:\.\d+)?)", scale)
    return (float(ends[1]), float(ends[2])) if ends else None


def decimals(scale: str) -> int:
    """Digits after the point that suit a scale."""
    ends = bounds(scale)
    return 3 if ends and ends[1] - ends[0] <= 3 else 2


def mean_text(cell: Cell) -> str:
    """`23.41`, or a dash where there is no mean."""
    mean = cell["mean"]
    return "-" if mean is None else f"{mean:.{decimals(cell['scale'])}f}"


def cell_text(cell: Cell) -> str:
    """`23.41 [21.90, 24.80] n=37`, or why there is nothing to say."""
    if cell.get("reason") == "not applicable":
        return "n/a"
    return " ".join(
        w for w in (mean_text(cell), interval_text(cell), f"n={cell['n']}") if w
    )


def interval_text(cell: Cell) -> str:
    """`[21.9, 24.8]`, or nothing where there is no interval."""
    if cell["ci95"] is None:
        return ""
    digits = decimals(cell["scale"])
    return "[{:.{d}f}, {:.{d}f}]".format(*cell["ci95"], d=digits)


def counts_shown(rows: Sequence[Row]) -> dict[str, str]:
    """The counts worth a column, with their headings."""
    shown = (k for k in COUNTS if k not in _ONLY_IF_ANY or any_of(rows, k))
    return {k: COUNTS[k] for k in shown}


def any_of(rows: Sequence[Row], count: str) -> bool:
    """Whether any row counts at least one."""
    return any(row[count] for row in rows)


def title_of(board: Board) -> str:
    """Heading of every table: what was asked, and of how many."""
    asked = f"{board.n:,} {'query' if board.n == 1 else 'queries'}"
    repeats = f" x {board.rounds} repeats" if board.rounds > 1 else ""
    return f"{board.selection or asked}{repeats}"


def legend(board: Board) -> str:
    """What the averages are, and how judges were asked."""
    weights = ", ".join(f"{name} {n:,}" for name, n in board.categories.items())
    fixed = (
        f"Fixed weights: category means weighted by {weights}, over the categories that a "
        "scorer speaks of. "
        if weights
        else ""
    )
    judges = "".join(f" {s.name}: {s.manner}." for s in board.scorers if s.manner)
    return (
        "Means with 95% bootstrap intervals by query; n is the number of scored queries. "
        f"{fixed}Per query: mean over all scored queries.{judges}"
    )


def headline(rows: Sequence[Row], scorer: str) -> str:
    """The average to show where there is room for one, the same for all rows.

    `avg_fixed` where any row has it, else `avg_micro`.
    """
    fixed = any(row["scores"][scorer]["avg_fixed"]["mean"] is not None for row in rows)
    return "avg_fixed" if fixed else "avg_micro"


def matrix(
    board: Board, rows: Sequence[Row], scorer: str
) -> tuple[str, dict[str, dict[str, Cell]]] | None:
    """LVLM x text-to-image model: which average, and its cells by row and column.

    None where no two systems are composed.
    """
    pairs = [
        (s, r) for s, r in zip(board.systems, rows, strict=True) if s.writer and s.artist
    ]
    if len(pairs) < 2:
        return None
    average = headline([r for _, r in pairs], scorer)
    cells: dict[str, dict[str, Cell]] = {}
    for system, row in pairs:
        line = cells.setdefault(str(system.writer), {})
        line.setdefault(str(system.artist), row["scores"][scorer][average])
    return average, cells


def kind_text(reason: Row) -> str:
    """`failed: out of memory`."""
    parts = (str(reason["outcome"]).replace("_", " "), reason["fault"])
    return ": ".join(p for p in parts if p)


def reason_text(reason: Row) -> str:
    """The reason, and how many others of its shape were counted with it."""
    more = reason["alike"] - 1 if reason["outcome"] else 0
    return f"{reason['reason']} (and {more:,} alike)" if more else str(reason["reason"])


def printable(text: str) -> str:
    """`text` on one line; escapes and lone surrogates are spelt out."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def terminal(board: Board, rows: Sequence[Row]) -> RenderableType:
    """Averages and outcomes per system, then what went wrong."""
    table = Table(
        title=Text(title_of(board)), title_justify="left", box=None, padding=(0, 1)
    )
    table.add_column("system", overflow="fold")
    shown = {s.name: headline(rows, s.name) for s in board.scorers}
    for scorer in board.scorers:
        heading = f"{scorer.name} ({scorer.scale})\n{AVERAGES[shown[scorer.name]]}"
        table.add_column(Text(heading), justify="right", min_width=16)
    table.add_column("answers and judgements", style="dim", min_width=20)
    for row in rows:
        scores = [_short(row["scores"][name][average]) for name, average in shown.items()]
        table.add_row(Text(printable(row["system"])), *scores, _outcomes(row))
    parts: list[RenderableType] = [table]
    for scorer in board.scorers:
        if scorer.manner:
            parts.append(Text(printable(f"{scorer.name}: {scorer.manner}."), style="dim"))
    if board.warning:
        parts.append(Text(printable(f"Attention: {board.warning}."), style="yellow"))
    return Group(*parts, *_troubles(rows))


def _short(cell: Cell) -> Text:
    parts = ((mean_text(cell), "bold"), (f" n={cell['n']:,}\n", "dim"), interval_text(cell))
    return Text.assemble(*parts)


def _outcomes(row: Row) -> str:
    others = [k for k in COUNTS if k not in ("planned", "done")]
    told = [f"{row[k]:,} {COUNTS[k]}" for k in others if row[k] or k == "failed"]
    return ", ".join([f"{row['done']:,} of {row['planned']:,} done", *told])


def _troubles(rows: Sequence[Row]) -> list[RenderableType]:
    found = [(r["count"], row["system"], r) for row in rows for r in row["reasons"]]
    found.sort(key=lambda f: (-f[0], f[1], f[2]["reason"]))
    if not found:
        return []
    table = Table(box=None, padding=(0, 1), header_style="dim", show_header=False)
    for count, system, reason in found[:5]:
        said = printable(f"{kind_text(reason)}: {reason_text(reason)}")
        table.add_row(f"{count:,} x", Text(printable(system)), Text(said))
    more = len(found) - 5
    tail = (
        [Text(f"and {more} more reasons in leaderboard.md", style="dim")]
        if more > 0
        else []
    )
    return [Text(), table, *tail]
