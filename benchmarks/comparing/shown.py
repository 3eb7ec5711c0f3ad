"""The table of a comparison as grids for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results.grid import Grid, estimate_text
from benchmarks.results.tables import kind_text, reason_text
from scorers.pairwise.table import Standing, Standings
from scorers.ratings.estimate import Estimate

_JUDGED = "no question judged"
_IN_TERMINAL = 5
"""Reasons that a terminal is shown."""
_PARTS = {"overall": "All questions", "category": "By category", "field": "By field"}


def told_apart(table: Standings) -> Standings:
    """`table` where questions read in one order are told apart from those not judged."""
    return replace(table, rows=tuple(replace(r, values=_values(r)) for r in table.rows))


def _values(row: Standing) -> Mapping[str, Estimate]:
    found = dict(row.values)
    for name, value in found.items():
        read = "factuality_read" if name.startswith("visual_factuality") else "read"
        if value.reason == _JUDGED and row.counts.get(read):
            found[name] = replace(value, reason="no question read in both orders")
    return found


def reasons_grid(why: Mapping[str, Sequence[Mapping[str, Any]]]) -> Grid:
    """Why pairs and replies have no verdict, the most frequent reasons first."""
    told = [(pair, reason) for pair, found in why.items() for reason in found]
    told.sort(key=lambda one: -one[1]["count"])
    return Grid(
        title="Reasons",
        head=["pair", "count", "outcome", "reason"],
        lines=[[p, f"{r['count']:,}", kind_text(r), reason_text(r)] for p, r in told],
    )


def brief(grid: Grid, place: Path) -> Grid:
    """The first lines, and where the others are."""
    more = len(grid.lines) - _IN_TERMINAL
    notes = [f"and {more} more in {place.name}"] if more > 0 else []
    return replace(grid, lines=grid.lines[:_IN_TERMINAL], notes=notes)


def grids(table: Standings) -> Iterator[Grid]:
    """One grid per part of the table and set of values, overall ones first."""
    for part, title in _PARTS.items():
        rows = [row for row in table.rows if row.part == part]
        for names in dict.fromkeys(tuple(row.values) for row in rows):
            if names:
                yield _grid(title, [r for r in rows if tuple(r.values) == names], names)


def _grid(title: str, rows: Sequence[Standing], names: Sequence[str]) -> Grid:
    grouped = any(row.group for row in rows)
    counts = any(row.counts for row in rows)
    head = [*(["group"] if grouped else []), "system", "against", *names]
    return Grid(
        title=title,
        head=[*head, "replies"] if counts else head,
        lines=[_line(row, names, grouped, counts) for row in rows],
    )


def _line(row: Standing, names: Sequence[str], grouped: bool, counts: bool) -> list[str]:
    line = [row.group] if grouped else []
    line += [row.system or "(all)", row.opponent or "-"]
    line += [estimate_text(row.values[name]) for name in names]
    return [*line, counts_text(row)] if counts else line


def counts_text(row: Standing) -> str:
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
