"""Tables that people save as text: what separates their cells, and which lines are quoted.

Commas, semicolons or tabs separate cells, whichever the header has most of; Excel's first
line `sep=;` says so itself. Quotation marks around cells may hold separators and line
breaks, but in a table of tabs they are part of the text, unless the whole file is quoted as
a table is: sets of prompts such as PartiPrompts have texts that begin with one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.reading.sources import cells_of_any_length

SUFFIXES = (".csv", ".tsv")
_SEPARATOR = re.compile(r'"?sep=(.)"?\r?\n', re.IGNORECASE)
_CELL = r'(?:"(?:[^"]|"")*+"|[^"\t\r\n]*+)'
_QUOTED = re.compile(rf"{_CELL}(?:(?:\t|\r?\n){_CELL})*+")
"""A table of tabs in which quotation marks stand around whole cells alone."""
_PROOF = re.compile(r'^"|""|"[^"]*[\t\n][^"]*"')
"""Of a quoted table: its first name, a mark inside a cell, or a tab or line break there."""


class TableRow(NamedTuple):
    """The cells of a row that is not blank."""

    line: int
    """Where it begins, from 1."""
    cells: list[str]


class TextTable(NamedTuple):
    """A header and the rows under it, which may have other numbers of cells."""

    names: list[str]
    rows: list[TableRow]

    def fault(self, row: TableRow) -> str | None:
        """Return what is wrong with the number of cells of a row."""
        if len(row.cells) == len(self.names):
            return None
        return f"has {len(row.cells)} cells; the header has {len(self.names)}"


def table_of(text: str, path: Path, *, prose: bool = False) -> TextTable:
    """Return the table in the text of a file.

    With `prose`, its texts may begin and end with quotation marks of their own: in a table
    of tabs these count as such where some stand that cannot be anything else.
    Last columns without a name and without a value are left out. Raises TaskError, which
    names the line, where quotation marks are open.
    """
    stated = _SEPARATOR.match(text)
    before = 0 if stated is None else 1
    body = text if stated is None else text[stated.end() :]
    separator = _separator(body, path) if stated is None else stated[1]
    lines = _lines(body, separator, prose)
    rows: list[TableRow] = []
    try:
        with cells_of_any_length():
            for line, cells in lines:
                if any(cell.strip() for cell in cells):
                    rows.append(TableRow(line + before, cells))
    except csv.Error as error:
        last = rows[-1].line if rows else before
        raise TaskError(f"{path}, after line {last}: {error}") from None
    names = [name.strip() for name in rows[0].cells] if rows else []
    width = len(names)
    while names and not names[-1]:
        names.pop()
    if any(any(row.cells[len(names) :]) for row in rows):
        names += [""] * (width - len(names))
    for row in rows[1:]:
        # Not those beyond: an empty cell there tells of a separator inside another.
        del row.cells[len(names) : width]
    return TextTable(names, rows[1:])


def _separator(text: str, path: Path) -> str:
    header = text.lstrip().partition("\n")[0]
    return "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=header.count)


def _lines(text: str, separator: str, prose: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line, with its number."""
    quoted = (_PROOF.search(text) or not prose) and _QUOTED.fullmatch(text)
    bare = separator == "\t" and not quoted
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        quoting=csv.QUOTE_NONE if bare else csv.QUOTE_MINIMAL,
        skipinitialspace=not bare,
        strict=True,
    )
    last = 0
    for cells in reader:
        yield last + 1, cells
        last = reader.line_num
