"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def number(value: float) -> str:
    """Four digits."""
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose first row is its heading."""
    head, *body = rows
    rule = ["---", *["---:"] * (len(head) - 1)]
    return ["| " + " | ".join(row) + " |" for row in (head, rule, *body)]


def columns(rows: Sequence[Sequence[str]]) -> str:
    """The same table for a terminal."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i > 1 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
