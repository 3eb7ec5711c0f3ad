"""A table of results as one value, with its renderers.

    table = ResultTable.of("Bias", ["judge", "value"], [["a", "0.5"], ["b", "0.7"]])
    table.rich      # a terminal
    table.markdown  # a page of Markdown, under a heading
    table.latex     # a paper: booktabs
    table.csv       # another program
    table.html      # a notebook, which shows a table by itself

The best value of a column is bold where the column says which direction is better.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.results.numbers import ABOUT_BEYOND, NumberForm, reaches_beyond
from generators.visible import visible
from scorers.base import Direction
from scorers.statistics.estimate import Estimate

_NUMBER = re.compile(r"[+-]?\d|-|$")
_FORMULA = re.compile(r"[=+\-@\t]")
"""How a cell begins that a spreadsheet would compute."""
_FIGURE = re.compile(r"(-|[+-]?[\d.,]+(e[+-]?\d+)?%?)( \[[\d.,+ -]+\])?( n=[\d,]+)?")
"""A number or a dash, with its interval and count."""
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
}
"""Characters that LaTeX would read as a command or print as another character."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """What one cell shows."""

    text: str
    detail: str = ""
    """Shown smaller behind the text: an interval, a count."""
    value: float | None = None
    """What the best of a column is chosen by; None is never chosen."""

    @classmethod
    def of(
        cls, estimate: Estimate, form: NumberForm, *, counted: bool = False
    ) -> TableCell:
        """An estimate, with its interval behind it and, where `counted`, its n."""
        ends = form.interval(estimate.ci95)
        detail = f"{ends} n={estimate.n}".strip() if counted else ends
        return cls(form.number(estimate.value), detail, estimate.value)

    @property
    def full(self) -> str:
        """Text and detail on one line."""
        return f"{self.text} {self.detail}".strip()


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A heading, and how the cells below it are aligned."""

    heading: str
    direction: Direction | None = None
    """Which values are better; None where no value is marked."""
    numeric: bool | None = None
    """Aligned to the right; None decides by the cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """Columns and rows; every row is as long as there are columns."""

    title: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[TableCell]]
    notes: Sequence[str] = ()
    """Below the table, one a line."""

    @classmethod
    def of(
        cls,
        title: str,
        head: Sequence[str],
        rows: Iterable[Sequence[str]],
        notes: Sequence[str] = (),
        *,
        numeric: bool | None = None,
    ) -> ResultTable:
        """A table of texts; `numeric` applies to all columns."""
        columns = [TableColumn(name, numeric=numeric) for name in head]
        cells = [[TableCell(word) for word in row] for row in rows]
        return cls(title=title, columns=columns, rows=cells, notes=notes)

    @property
    def best(self) -> frozenset[tuple[int, int]]:
        """(row, column) of the best values; ties are all best, a lone value is not."""
        marked: set[tuple[int, int]] = set()
        for j, column in enumerate(self.columns):
            cells = [(row[j], i) for i, row in enumerate(self.rows)]
            values = {i: c.value for c, i in cells if c.value is not None}
            if column.direction is None or len(values) < 2:
                continue
            best = (max if column.direction == "higher" else min)(values.values())
            top = next(cell.text for cell, i in cells if values.get(i) == best)
            # A value that is printed like the best is as good as the best.
            marked |= {(i, j) for cell, i in cells if i in values and cell.text == top}
        return frozenset(marked)

    @property
    def footnotes(self) -> Sequence[str]:
        """The notes, and what marks in the cells mean."""
        marked = any(reaches_beyond(cell.full) for row in self.rows for cell in row)
        return [*self.notes, *([ABOUT_BEYOND] if marked else [])]

    @property
    def right(self) -> list[bool]:
        """Which columns are aligned to the right."""
        return [
            _all_numbers([row[j].full for row in self.rows])
            if column.numeric is None
            else column.numeric
            for j, column in enumerate(self.columns)
        ]

    @property
    def rich(self) -> RenderableType:
        """For a terminal."""
        return _rich(self)

    @property
    def markdown(self) -> str:
        """For a page, without the title."""
        return _markdown(self)

    @property
    def latex(self) -> str:
        """For a paper: a float with booktabs' rules."""
        return _latex(self)

    @property
    def csv(self) -> str:
        """For another program: the headings, then one line per row."""
        return _csv(self)

    @property
    def html(self) -> str:
        """For a notebook, with the title."""
        return _html(self)

    def _repr_html_(self) -> str:
        return self.html

    def _repr_markdown_(self) -> str:
        return f"**{plain(self.title)}**\n\n{self.markdown}"


def printable(text: str) -> str:
    """`text` on one line, with its control characters visible."""
    return visible(" ".join(text.split()))


def _all_numbers(words: Sequence[str]) -> bool:
    """Whether there are only numbers, dashes and empty cells."""
    return bool(words) and all(map(_NUMBER.match, words))


# -------------------------------------------------------------------------- terminal


def _rich(table: ResultTable) -> RenderableType:
    """Title, table and notes; the best values in bold, details dim below the value."""
    grid = Table(box=None, padding=(0, 1), header_style="dim")
    for column, right in zip(table.columns, table.right, strict=True):
        justify: JustifyMethod = "right" if right else "left"
        grid.add_column(Text(printable(column.heading)), justify=justify, overflow="fold")
    for i, row in enumerate(table.rows):
        grid.add_row(*(_text(cell, (i, j) in table.best) for j, cell in enumerate(row)))
    notes = [Text(f" {printable(note)}", style="dim") for note in table.footnotes]
    parts = [grid] if table.rows else []
    return Group(Text(printable(table.title), style="bold"), *parts, *notes, Text())


def _text(cell: TableCell, best: bool) -> Text:
    parts: list[tuple[str, str]] = [(printable(cell.text), "bold" if best else "")]
    parts += [(f"\n{printable(cell.detail)}", "dim")] if cell.detail else []
    return Text.assemble(*parts)


# -------------------------------------------------------------------------- Markdown


def plain(text: str) -> str:
    """`text` on one line, with Markdown's markup escaped."""
    return re.sub(r"([\\`*|<]|\](?=[(\[:]))", r"\\\1", printable(text))


def _markdown(table: ResultTable) -> str:
    """The table and its notes, without the title."""
    rule = ["---:" if right else "---" for right in table.right]
    lines = [[plain(c.heading) for c in table.columns], rule]
    best = table.best
    for i, row in enumerate(table.rows):
        lines.append([_markdown_cell(c, (i, j) in best) for j, c in enumerate(row)])
    grid = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    notes = "\n".join(f"- {plain(note)}" for note in table.footnotes)
    return "\n\n".join(part for part in (grid if table.rows else "", notes) if part)


def _markdown_cell(cell: TableCell, best: bool) -> str:
    text = f"**{plain(cell.text)}**" if best else plain(cell.text)
    return f"{text} {plain(cell.detail)}".strip()


# ----------------------------------------------------------------------------- LaTeX


def escaped(text: str) -> str:
    """`text` on one line, escaped for LaTeX."""
    return "".join(_LATEX.get(c, c) for c in printable(text))


def _latex(table: ResultTable) -> str:
    """A float that needs the package booktabs."""
    align = "".join("r" if right else "l" for right in table.right)
    head = " & ".join(escaped(c.heading) for c in table.columns)
    best = table.best
    rows = [
        " & ".join(_latex_cell(c, (i, j) in best) for j, c in enumerate(row)) + r" \\"
        for i, row in enumerate(table.rows)
    ]
    caption = " ".join(escaped(text) for text in (f"{table.title}.", *table.footnotes))
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
    lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule", head + r" \\", r"\midrule"]
    lines += [*rows, r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def _latex_cell(cell: TableCell, best: bool) -> str:
    text = rf"\textbf{{{escaped(cell.text)}}}" if best else escaped(cell.text)
    detail = rf" {{\scriptsize {escaped(cell.detail)}}}" if cell.detail else ""
    return text + detail


# ------------------------------------------------------------------------------- CSV


def csv_text(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Headings and rows; an apostrophe before texts that spreadsheets would compute."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows(map(_csv_cell, row) for row in (head, *rows))
    return file.getvalue()


def _csv_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    guarded = _FORMULA.match(value) and not _FIGURE.fullmatch(value)
    return visible(f"'{value}" if guarded else value)


def _csv(table: ResultTable) -> str:
    """Headings and rows; a cell's detail follows its text."""
    head = [column.heading for column in table.columns]
    return csv_text(head, ([cell.full for cell in row] for row in table.rows))


# ------------------------------------------------------------------------------ HTML


def _html(table: ResultTable) -> str:
    """Title as caption, the table, and the notes below it."""
    sides = ["right" if right else "left" for right in table.right]
    names = [c.heading for c in table.columns]
    head = "".join(
        f'<th style="text-align:{side}">{escape(printable(name))}</th>'
        for name, side in zip(names, sides, strict=True)
    )
    best, rows = table.best, []
    for i, row in enumerate(table.rows):
        cells = (_html_cell(c, (i, j) in best, sides[j]) for j, c in enumerate(row))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    notes = "".join(f"<li>{escape(printable(note))}</li>" for note in table.footnotes)
    return (
        f"<table><caption>{escape(printable(table.title))}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        + (f"<ul>{notes}</ul>" if notes else "")
    )


def _html_cell(cell: TableCell, best: bool, side: str) -> str:
    text = escape(printable(cell.text))
    text = f"<b>{text}</b>" if best else text
    detail = f" <small>{escape(printable(cell.detail))}</small>" if cell.detail else ""
    return f'<td style="text-align:{side}">{text}{detail}</td>'


# ----------------------------------------------------------------------------- pages


def markdown_page(title: str, remarks: Iterable[str], tables: Iterable[ResultTable]) -> str:
    """A Markdown page of tables under headings of the second level."""
    parts = [f"# {plain(title)}", *(plain(r) for r in remarks if r)]
    for table in tables:
        parts += [f"## {plain(table.title)}", table.markdown]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex_page(
    title: str, tables: Iterable[ResultTable], warning: str = "", brief: str = ""
) -> str:
    """LaTeX tables to include: the warning as a comment, its `brief` form in captions."""
    remarks = [f"{title}. Needs the package booktabs."]
    remarks += [f"Warning: {warning}"] if warning else []
    head = "".join(f"% {printable(remark)}\n" for remark in remarks)
    caption = rf"\caption{{\textbf{{{escaped(brief)}}} " if brief else r"\caption{"
    texts = (table.latex.replace(r"\caption{", caption, 1) for table in tables)
    return "\n".join([head, *texts])
