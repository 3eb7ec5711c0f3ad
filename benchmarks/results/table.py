"""A table of results as one value, with its renderers.

    table = ResultTable.of("Bias", ["judge", "value"], [["a", "0.5"], ["b", "0.7"]])
    table.rich      # a terminal
    table.markdown  # a page of Markdown, under a heading
    table.latex     # a paper: booktabs
    table.csv       # another program
    table.html      # a notebook, which shows a table by itself, and the page of a run

The best value of a column is bold where the column says which direction is better.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.results.numbers import NumberForm
from generators.visible import visible
from scorers.base import Direction
from scorers.statistics.estimate import Estimate

T = TypeVar("T")
_NUMBER = re.compile(r"[+-]?\d|-|$")
_FORMULA = re.compile(r"[=+\-@\t]")
"""How a cell begins that a spreadsheet would compute."""
_FIGURE = re.compile(r"(-|[+-]?[\d.,]+(e[+-]?\d+)?%?)( \[[\d.,+ -]+\])?( n=[\d,]+)?")
"""A number or a dash, with its interval and count."""
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        **{c: f"\\{c}" for c in "&%$#_{}"},
    }
)
"""Characters that LaTeX would read as a command or print as another character."""


@dataclass(frozen=True, slots=True)
class TableCell:
    """What one cell shows."""

    text: str
    detail: str = ""
    """Shown smaller behind the text: an interval, a count."""
    value: float | None = None
    """What the best of a column is chosen by; None is never chosen."""
    reason: str = ""
    """Why there is no interval."""
    tint: int = 0
    """On the page, the share of colour behind the text in percent; below 0 for harm."""
    marked: bool = False
    """On the page, underlined."""
    link: str = ""
    """On the page, where the text leads to."""

    @classmethod
    def of(
        cls, estimate: Estimate, form: NumberForm, *, counted: bool = False, **looks: Any
    ) -> TableCell:
        """An estimate, with its interval behind it and, where `counted`, its n."""
        ends = form.interval(estimate.ci95)
        detail = f"{ends} n={estimate.n}".strip() if counted else ends
        text = form.number(estimate.value)
        return cls(text, detail, estimate.value, estimate.reason, **looks)

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
        head: Iterable[str | TableColumn],
        rows: Iterable[Iterable[str | TableCell]],
        notes: Sequence[str] = (),
        *,
        numeric: bool | None = None,
    ) -> ResultTable:
        """A table of texts or cells; `numeric` applies to columns that are texts."""
        columns = [
            TableColumn(c, numeric=numeric) if isinstance(c, str) else c for c in head
        ]
        cells = [[TableCell(c) if isinstance(c, str) else c for c in row] for row in rows]
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
    def right(self) -> list[bool]:
        """Which columns are aligned to the right: those of numbers, dashes and nothing."""
        return [
            bool(self.rows) and all(_NUMBER.match(row[j].full) for row in self.rows)
            if column.numeric is None
            else column.numeric
            for j, column in enumerate(self.columns)
        ]

    def _cells(self, form: Callable[[TableCell, bool], T]) -> list[list[T]]:
        """The cells in one form, given each and whether it is the best of its column."""
        best = self.best
        return [
            [form(cell, (i, j) in best) for j, cell in enumerate(row)]
            for i, row in enumerate(self.rows)
        ]

    @property
    def rich(self) -> RenderableType:
        """For a terminal; details are below the value."""
        grid = Table(box=None, padding=(0, 1), header_style="dim")
        for column, right in zip(self.columns, self.right, strict=True):
            justify: JustifyMethod = "right" if right else "left"
            heading = Text(printable(column.heading))
            grid.add_column(heading, justify=justify, overflow="fold")
        for row in self._cells(_rich_cell):
            grid.add_row(*row)
        notes = [Text(f" {printable(note)}", style="dim") for note in self.notes]
        parts = [grid] if self.rows else []
        return Group(Text(printable(self.title), style="bold"), *parts, *notes, Text())

    @property
    def markdown(self) -> str:
        """For a page, without the title."""
        head = [plain(column.heading) for column in self.columns]
        rule = ["---:" if right else "---" for right in self.right]
        lines = [head, rule, *self._cells(_markdown_cell)] if self.rows else []
        grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        notes = "\n".join(f"- {plain(note)}" for note in self.notes)
        return "\n\n".join(part for part in (grid, notes) if part)

    @property
    def latex(self) -> str:
        """For a paper: a float that needs the package booktabs."""
        align = "".join("r" if right else "l" for right in self.right)
        head = [escaped(column.heading) for column in self.columns]
        rows = [" & ".join(row) + r" \\" for row in (head, *self._cells(_latex_cell))]
        caption = " ".join(escaped(text) for text in (f"{self.title}.", *self.notes))
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
        lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule", rows[0], r"\midrule"]
        lines += [*rows[1:], r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        return "\n".join(lines) + "\n"

    @property
    def csv(self) -> str:
        """For another program: the headings, then one line per row."""
        head = [column.heading for column in self.columns]
        return csv_text(head, ([cell.full for cell in row] for row in self.rows))

    @property
    def html(self) -> str:
        """For a notebook and for the page, whose style hides the title."""
        return environment().get_template("table.html.j2").render(table=self)

    def __html__(self) -> str:
        return self.html

    def _repr_html_(self) -> str:
        return self.html

    def _repr_markdown_(self) -> str:
        return f"**{plain(self.title)}**\n\n{self.markdown}"


@cache
def environment() -> Environment:
    """Return the templates of the page and of its tables."""
    made = Environment(
        loader=PackageLoader("benchmarks.results.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["printable"] = printable
    return made


def printable(text: str) -> str:
    """`text` on one line, with its control characters visible."""
    return visible(" ".join(text.split()))


def _rich_cell(cell: TableCell, best: bool) -> Text:
    parts: list[tuple[str, str]] = [(printable(cell.text), "bold" if best else "")]
    parts += [(f"\n{printable(cell.detail)}", "dim")] if cell.detail else []
    return Text.assemble(*parts)


def plain(text: str) -> str:
    """`text` on one line, with Markdown's markup escaped."""
    return re.sub(r"([\\`*|<]|\](?=[(\[:]))", r"\\\1", printable(text))


def _markdown_cell(cell: TableCell, best: bool) -> str:
    text = f"**{plain(cell.text)}**" if best else plain(cell.text)
    return f"{text} {plain(cell.detail)}".strip()


def escaped(text: str) -> str:
    """`text` on one line, escaped for LaTeX."""
    return printable(text).translate(_LATEX)


def _latex_cell(cell: TableCell, best: bool) -> str:
    text = rf"\textbf{{{escaped(cell.text)}}}" if best else escaped(cell.text)
    detail = rf" {{\scriptsize {escaped(cell.detail)}}}" if cell.detail else ""
    return text + detail


def json_text(content: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Plain data for people to read too; ValueError for a number that JSON lacks."""
    form: dict[str, Any] = {"indent": 2, "ensure_ascii": False, "allow_nan": False}
    return json.dumps(content, default=default, **form) + "\n"


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
