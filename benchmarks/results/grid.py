"""A small table of words, for a terminal and for a Markdown page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.results.markup import markdown_table, plain
from benchmarks.results.tables import printable
from scorers.ratings.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Cells by line; every line is as long as the head."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    """Said below the table, one a line."""

    @property
    def rich(self) -> RenderableType:
        """For a terminal."""
        table = Table(box=None, padding=(0, 1), header_style="dim")
        for name in self.head:
            table.add_column(Text(name), overflow="fold")
        for line in self.lines:
            table.add_row(*(Text(printable(cell)) for cell in line))
        notes = [Text(f" {printable(note)}", style="dim") for note in self.notes]
        parts = [table] if self.lines else []
        return Group(Text(self.title, style="bold"), *parts, *notes, Text())

    @property
    def markdown(self) -> str:
        """For a page, under a heading of the second level."""
        table = markdown_table(self.head, self.lines, numbers_right=False)
        notes = [f"- {plain(note)}" for note in self.notes]
        parts = [f"## {plain(self.title)}", table if self.lines else ""]
        return "\n\n".join(part for part in (*parts, "\n".join(notes)) if part)


def page(title: str, remarks: Iterable[str], grids: Iterable[Grid]) -> str:
    """A Markdown page of tables."""
    parts = [f"# {plain(title)}", *(plain(r) for r in remarks if r)]
    return "\n\n".join([*parts, *(g.markdown for g in grids)]) + "\n"


def estimate_text(estimate: Estimate) -> str:
    """`12.3 [8.0, 17.1] n=37`, or a dash and the reason."""
    if estimate.value is None:
        return f"- ({estimate.reason})" if estimate.reason else "-"
    ends = "" if estimate.ci95 is None else " [{:.2f}, {:.2f}]".format(*estimate.ci95)
    return f"{estimate.value:.2f}{ends} n={estimate.n}"
