"""The table of a comparison as grids for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.grid import Grid, estimate_text
from scorers.pairwise.table import Row, Table

_PARTS = {"overall": "All questions", "category": "By category", "field": "By field"}


def grids(table: Table) -> Iterator[Grid]:
    """One grid per part of the table and set of values, overall ones first."""
    for part, title in _PARTS.items():
        rows = [row for row in table.rows if row.part == part]
        for names in dict.fromkeys(tuple(row.values) for row in rows):
            if names:
                yield _grid(title, [r for r in rows if tuple(r.values) == names], names)


def _grid(title: str, rows: Sequence[Row], names: Sequence[str]) -> Grid:
    grouped = any(row.group for row in rows)
    counts = any(row.counts for row in rows)
    head = [*(["group"] if grouped else []), "system", "against", *names]
    return Grid(
        title=title,
        head=[*head, "replies"] if counts else head,
        lines=[_line(row, names, grouped, counts) for row in rows],
    )


def _line(row: Row, names: Sequence[str], grouped: bool, counts: bool) -> list[str]:
    line = [row.group] if grouped else []
    line += [row.system or "(all)", row.opponent or "-"]
    line += [estimate_text(row.values[name]) for name in names]
    return [*line, counts_text(row)] if counts else line


def counts_text(row: Row) -> str:
    """`40 questions, 78 read, 2 unread`: what there was, and what is missing."""
    always = ("questions", "read")
    told = [n for n in row.counts if n in always or (row.counts[n] and n in _MISSING)]
    return ", ".join(f"{row.counts[n]:,} {n.replace('_', ' ')}" for n in told)


_MISSING = (
    "unjudged",
    "unread",
    "failed",
    "skipped",
    "not_applicable",
    "one_order",
    "no_order",
    "factuality_unread",
    "factuality_failed",
)
