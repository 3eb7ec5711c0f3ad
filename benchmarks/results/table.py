"""A table of results as one value, with its renderers.

    table = ResultTable.of("Bias", ["judge", "value"], [["a", "0.5"], ["b", "0.7"]])
    table.rich      # a terminal; print(table) too
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from plait.benchmarks.plain_console import text_console
from plait.benchmarks.results.bars import BarAxis, Span
from plait.benchmarks.results.numbers import NumberForm
from plait.generators.visible import visible
from plait.scorers.base import Direction
from plait.scorers.statistics.estimate import Estimate

T = TypeVar("T")
TIED = "≈"
ABOUT_TIED = f"{TIED} not shown to be worse than the best."
_NUMBER = re.compile(r"[+-]?\d|-|$")
_BREAK = re.compile(r"(?<=[+@:/_-])(?=[^\W\d])|(?<= )")
"""Where a name may be broken: behind its separators, never inside a word."""
_LEAST_TEXT = 24
"""Characters to a line of a column of text that a terminal has no room for."""
_PADDING = 2
"""Characters beside a column in a terminal, one on each side."""
_TEXT_WIDTH = 120
"""Characters to a line where a table is printed as text from Python."""
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
    tied: bool = False
    """Not shown to be worse than the best of the column."""
    span: Span | None = None
    """Lower end, value and upper end; on the page, a bar where the column has `bars`."""
    rank: str = ""
    """On the page, shown smaller below the text."""
    link: str = ""
    """On the page, where the text leads to."""

    @classmethod
    def of(
        cls, estimate: Estimate, form: NumberForm, *, counted: bool = False, **looks: Any
    ) -> TableCell:
        """Return an estimate, with its interval behind it and, where `counted`, its n."""
        ends = form.interval(estimate.ci95)
        value = estimate.value
        if value is not None:
            low, high = estimate.ci95 or (value, value)
            looks["span"] = low, value, high
        detail = f"{ends} n={estimate.n}".strip() if counted else ends
        return cls(form.number(value), detail, value, estimate.reason, **looks)

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
    bars: BarAxis | None = None
    """On the page and in notebooks, intervals are bars on this axis."""
    link: str = ""
    """On the page, where the heading leads to."""
    detail: str = ""
    """Shown smaller behind the heading: a scale, a count."""

    @property
    def full(self) -> str:
        """Heading and detail on one line."""
        return f"{self.heading} {self.detail}".strip()


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
        """Return a table of texts or cells; `numeric` applies to columns that are texts."""
        columns = []
        for column in head:
            if isinstance(column, str):
                column = TableColumn(column, numeric=numeric)
            columns.append(column)
        return cls(title=title, columns=columns, rows=[*map(_cells_of, rows)], notes=notes)

    @property
    def best(self) -> frozenset[tuple[int, int]]:
        """(row, column) of the best values; ties are all best, a lone value is not."""
        marked: set[tuple[int, int]] = set()
        for j, column in enumerate(self.columns):
            texts: dict[int, str] = {}
            values: dict[int, float] = {}
            for i, row in enumerate(self.rows):
                value = row[j].value
                if value is not None:
                    texts[i] = row[j].text
                    values[i] = value
            # Of a single value nobody can say that it is the best.
            if column.direction is None or len(values) < 2:
                continue
            choose = max if column.direction == "higher" else min
            best = choose(values, key=values.__getitem__)
            for i, text in texts.items():
                # A value that is printed like the best is as good as the best.
                if text == texts[best]:
                    marked.add((i, j))
        return frozenset(marked)

    @property
    def bars(self) -> dict[tuple[int, int], list[float]]:
        """Ends and value of intervals by (row, column), in percent of the column's axis.

        `BarAxis.of` says how far an axis goes.
        """
        found: dict[tuple[int, int], list[float]] = {}
        for j, column in enumerate(self.columns):
            if column.bars is None:
                continue
            for i, row in enumerate(self.rows):
                if span := row[j].span:
                    found[i, j] = column.bars.places(span)
        return found

    @property
    def footnotes(self) -> Sequence[str]:
        """The notes, and what marks in the cells mean."""
        if any(cell.tied for cell in chain.from_iterable(self.rows)):
            return [*self.notes, ABOUT_TIED]
        return [*self.notes]

    @property
    def right(self) -> list[bool]:
        """Which columns are aligned to the right: those of numbers, dashes and nothing."""
        right = []
        for j, column in enumerate(self.columns):
            numeric = column.numeric
            if numeric is None:
                texts = [row[j].full for row in self.rows]
                numeric = bool(texts) and all(map(_NUMBER.match, texts))
            right.append(numeric)
        return right

    def _cells(self, form: Callable[[TableCell, bool], T]) -> list[list[T]]:
        """Return the cells as `form` writes them, which is told whether one is the best."""
        best = self.best
        rows = []
        for i, row in enumerate(self.rows):
            line = []
            for j, cell in enumerate(row):
                line.append(form(cell, (i, j) in best))
            rows.append(line)
        return rows

    @property
    def rich(self) -> RenderableType:
        """For a terminal; details are below the value."""
        return self

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        yield Text(printable(self.title), style="bold")
        if self.rows:
            yield from self._grids(options.max_width)
        for note in self.footnotes:
            yield Text(f" {printable(note)}", style="dim")
        yield Text()

    def _grids(self, room: int) -> Iterator[RenderableType]:
        """The rows in a terminal; columns without room stand below the others."""
        best = self.best
        right = self.right
        columns: list[GridColumn] = []
        used = 0
        for j, heading in enumerate(self.columns):
            # Text flows; words and numbers are never broken, and names of rows only where
            # names may be.
            flows = j > 0 and not right[j]
            first = _PADDING + columns[0].least if columns else 0
            beside = room - first - _PADDING if flows else room // 3
            cells = []
            for i, row in enumerate(self.rows):
                cells.append(_rich_cell(row[j], (i, j) in best, beside, flows=flows))
            side: JustifyMethod = "right" if right[j] else "left"
            column = _grid_column(heading.full, side, cells, room, flows=flows)
            own = _PADDING + column.least
            if len(columns) > 1 and used + own > room:
                yield _grid(columns, room)
                yield Text()
                # The first column names the rows: it begins every grid.
                columns = columns[:1]
                used = first
            columns.append(column)
            used += own
        yield _grid(columns, room)

    @property
    def markdown(self) -> str:
        """For a page, without the title."""
        head = [plain(column.full) for column in self.columns]
        # The line below the heads says how each column is aligned.
        rule = ["---:" if right else "---" for right in self.right]
        lines = [head, rule, *self._cells(_markdown_cell)] if self.rows else []
        grid = "\n".join([f"| {' | '.join(line)} |" for line in lines])
        notes = "\n".join([f"- {plain(note)}" for note in self.footnotes])
        return "\n\n".join(filter(None, (grid, notes)))

    @property
    def latex(self) -> str:
        """For a paper: a float that needs the package booktabs."""
        align = "".join(["r" if right else "l" for right in self.right])
        caption = " ".join(map(escape_latex, [f"{self.title}.", *self.footnotes]))
        head = [escape_latex(column.full) for column in self.columns]
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            _latex_row(head),
            r"\midrule",
            *map(_latex_row, self._cells(_latex_cell)),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    @property
    def csv(self) -> str:
        """For another program: the headings, then one line per row."""
        head = [column.full for column in self.columns]
        rows = []
        for row in self.rows:
            rows.append([cell.full for cell in row])
        return csv_text(head, rows)

    @property
    def html(self) -> str:
        """For a notebook."""
        return self._html()

    def _html(self, *, linked: bool = False) -> str:
        about = {"tied": TIED, "about_tied": ABOUT_TIED}
        template = environment().get_template("table.html.j2")
        return template.render(table=self, linked=linked, **about)

    def __html__(self) -> str:
        return self._html(linked=True)

    def __str__(self) -> str:
        file = io.StringIO()
        text_console(file, _TEXT_WIDTH).print(self)
        return "\n".join(map(str.rstrip, file.getvalue().rstrip().splitlines()))

    def _repr_html_(self) -> str:
        return self.html

    def _repr_markdown_(self) -> str:
        return f"**{plain(self.title)}**\n\n{self.markdown}"


@cache
def environment() -> Environment:
    """Return the templates of the page and of its tables."""
    made = Environment(
        loader=PackageLoader("plait.benchmarks.results.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"printable": printable, "breakable": breakable}
    return made


def printable(text: str) -> str:
    """`text` on one line, with its control characters visible."""
    return visible(" ".join(text.split()))


def breakable(text: str) -> Markup:
    """`text` as HTML that a browser breaks where names may be broken."""
    return Markup("<wbr>").join(map(escape, _BREAK.split(printable(text))))


def _lines(text: str, width: int) -> str:
    """`text` in lines of `width` characters, longer where a word is longer."""
    lines = [""]
    for part in _BREAK.split(printable(text)):
        if lines[-1] and cell_len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def _cells_of(row: Iterable[str | TableCell]) -> list[TableCell]:
    return [TableCell(cell) if isinstance(cell, str) else cell for cell in row]


@dataclass(frozen=True, slots=True)
class GridColumn:
    """A column as a terminal shows it."""

    head: str
    side: JustifyMethod
    cells: Sequence[Text]
    least: int
    """Width below which a word would be broken."""
    widest: int
    """Width at which no text flows into a second line."""


def _grid_column(
    heading: str, side: JustifyMethod, cells: Sequence[Text], room: int, *, flows: bool
) -> GridColumn:
    """Return a column, its heading in lines that are as wide as the cells or a bit more."""
    widest = max(_width(cell.plain) for cell in cells)
    head = _lines(heading, max(widest, room // 8))
    least = widest
    if flows:
        words = max(_longest_word(cell.plain) for cell in cells)
        least = max(words, min(widest, _LEAST_TEXT))
    of_head = _width(head)
    return GridColumn(head, side, cells, max(of_head, least), max(of_head, widest))


def _grid(columns: Sequence[GridColumn], room: int) -> Table:
    grid = Table(box=None, padding=(0, 1), header_style="dim")
    widths = _widths(columns, room - _PADDING * len(columns))
    for column, width in zip(columns, widths, strict=True):
        # One that is alone has no more room than there is.
        width = min(width, max(room - _PADDING, 1))
        grid.add_column(
            Text(column.head), justify=column.side, overflow="fold", width=width
        )
    cells_of_columns = [column.cells for column in columns]
    for row in zip(*cells_of_columns, strict=True):
        grid.add_row(*row)
    return grid


def _widths(columns: Sequence[GridColumn], room: int) -> list[int]:
    """Return the widths of columns that share what room their words leave."""
    widths = [column.least for column in columns]
    spare = max(room - sum(widths), 0)
    needs = [column.widest - column.least for column in columns]
    # Whoever needs least comes first: what it does not use is for the others.
    by_need = sorted(range(len(columns)), key=needs.__getitem__)
    for served, i in enumerate(by_need):
        share = spare // (len(columns) - served)
        more = min(needs[i], share)
        widths[i] += more
        spare -= more
    return widths


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split()), default=0)


def _rich_cell(cell: TableCell, best: bool, width: int, *, flows: bool) -> Text:
    # Where text flows, a word is broken only if no column has room for it.
    words = cell.text.split() if flows else [cell.text]
    text = " ".join([_lines(word, width) for word in words])
    if cell.tied:
        text = f"{TIED} {text}"
    parts = [(text, "bold" if best else "")]
    for line in cell.detail.splitlines():
        parts.append((f"\n{printable(line)}", "dim"))
    return Text.assemble(*parts)


def plain(text: str) -> str:
    """`text` on one line, with Markdown's markup escaped; `_` is none within a word."""
    # A closing bracket makes a link only before one of ( [ :, and an underscore emphasises
    # only where it begins or ends a word: most names of models have neither.
    markup = r"([\\`*|<]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_]))"
    return re.sub(markup, r"\\\1", printable(text))


def _markdown_cell(cell: TableCell, best: bool) -> str:
    text = f"**{plain(cell.text)}**" if best else plain(cell.text)
    mark = f"{TIED} " if cell.tied else ""
    return f"{mark}{text} {plain(cell.detail)}".strip()


def escape_latex(text: str) -> str:
    """`text` on one line, escaped for LaTeX."""
    return printable(text).translate(_LATEX)


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: TableCell, best: bool) -> str:
    text = rf"\textbf{{{escape_latex(cell.text)}}}" if best else escape_latex(cell.text)
    detail = rf" {{\scriptsize {escape_latex(cell.detail)}}}" if cell.detail else ""
    return text + detail


def json_text(content: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Plain data for people to read too; ValueError for a number that JSON lacks."""
    form: dict[str, Any] = {"indent": 2, "ensure_ascii": False, "allow_nan": False}
    return json.dumps(content, default=default, **form) + "\n"


def csv_text(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Headings and rows; an apostrophe before texts that spreadsheets would compute."""
    file = io.StringIO()
    # The module's own lines end in CRLF.
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows(map(_csv_cell, row) for row in (head, *rows))
    return file.getvalue()


def _csv_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # A text such as "=1+2" is computed by the spreadsheet that opens it, and one of a
    # model's answer may do harm; "-0.5 [-1.0, 0.2]" begins alike and is left as it is.
    is_formula = _FORMULA.match(value) and not _FIGURE.fullmatch(value)
    return visible(f"'{value}" if is_formula else value)


def markdown_page(title: str, remarks: Iterable[str], tables: Iterable[ResultTable]) -> str:
    """Return a Markdown page of tables under headings of the second level."""
    parts = [f"# {plain(title)}", *map(plain, remarks)]
    for table in tables:
        parts += [f"## {plain(table.title)}", table.markdown]
    # A remark may be empty, and so may a table without rows and notes.
    return "\n\n".join(filter(None, parts)) + "\n"


def latex_page(
    title: str, tables: Iterable[ResultTable], warning: str = "", brief: str = ""
) -> str:
    """LaTeX tables to include: the warning as a comment, its `brief` form in captions."""
    remarks = [f"{title}. Needs the package booktabs."]
    if warning:
        remarks.append(f"Warning: {warning}")
    head = "".join([f"% {printable(remark)}\n" for remark in remarks])
    caption = rf"\caption{{\textbf{{{escape_latex(brief)}}} " if brief else r"\caption{"
    texts = [head]
    for table in tables:
        texts.append(table.latex.replace(r"\caption{", caption, 1))
    return "\n".join(texts)
