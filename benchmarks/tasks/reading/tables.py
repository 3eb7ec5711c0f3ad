"""Tables that people save as text: what separates their cells, and which lines are quoted.

Commas, semicolons or tabs separate cells, whichever the header has most of; Excel's first
line `sep=;` says so itself. Quotation marks around cells may hold separators and line
breaks, but in a table of tabs they are part of the text, unless the whole file is quoted as
a table is: sets of prompts such as PartiPrompts have texts that begin with one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from plait.benchmarks.tasks.reading.rules import TaskError
from plait.benchmarks.tasks.reading.sources import TextLines, cells_of_any_length

SUFFIXES = (".csv", ".tsv")
_AT_ONCE = 256
"""Rows that are read at once."""
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
    rows: Iterable[TableRow]
    """Read from the file each time they are iterated over."""

    def fault(self, row: TableRow) -> str | None:
        """Return what is wrong with the number of cells of a row."""
        if len(row.cells) == len(self.names):
            return None
        return f"has {len(row.cells)} cells; the header has {len(self.names)}"


def table_of(path: Path, *, prose: bool = False) -> TextTable:
    """Return the table in a file of text.

    With `prose`, its texts may begin and end with quotation marks of their own: in a table
    of tabs these count as such where some stand that cannot be anything else.
    Last columns without a name and without a value are left out. Raises TaskError, which
    names the line, where quotation marks are open.
    """
    first = next(iter(TextLines(path)), "")
    stated = _SEPARATOR.match(first)
    body = _Body(path, 0 if stated is None else 1)
    separator = _separator(body) if stated is None else stated[1]
    bare = separator == "\t" and not _is_quoted(body, prose)
    rows = _Rows(body, separator, bare)
    header = next(iter(rows), None)
    if header is None:
        return TextTable([], rows)
    names = [name.strip() for name in header.cells]
    width = len(names)
    while names and not names[-1]:
        names.pop()
    # All rows are read once, so that open quotation marks are told before any is used.
    beyond = 0
    for row in rows:
        beyond += any(row.cells[len(names) :])
    if beyond:
        names += [""] * (width - len(names))
    return TextTable(names, _Rows(body, separator, bare, (len(names), width)))


@dataclass(frozen=True, slots=True)
class _Body:
    """The lines of a file behind the one that says what separates cells."""

    path: Path
    before: int
    """How many lines there are before."""

    def __iter__(self) -> Iterator[str]:
        return islice(TextLines(self.path), self.before, None)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a table that are not blank: with its header, unless that is known."""

    body: _Body
    separator: str
    bare: bool
    """Whether quotation marks are part of the texts."""
    left_out: tuple[int, int] | None = None
    """Which cells of rows are, where the header is known: from, to."""

    def __iter__(self) -> Iterator[TableRow]:
        lines = self._lines()
        skipped = 0 if self.left_out is None else 1
        # The limit is that of the process: it is lifted for no longer than a few rows take.
        while rows := self._some(lines):
            yield from rows[skipped:]
            skipped = 0

    def _some(self, lines: Iterator[TableRow]) -> list[TableRow]:
        with cells_of_any_length():
            rows = [*islice(lines, _AT_ONCE)]
        if self.left_out is not None:
            for row in rows:
                # Not those beyond: an empty cell there tells of a separator inside another.
                del row.cells[slice(*self.left_out)]
        return rows

    def _lines(self) -> Iterator[TableRow]:
        reader = csv.reader(
            self.body,
            delimiter=self.separator,
            quoting=csv.QUOTE_NONE if self.bare else csv.QUOTE_MINIMAL,
            skipinitialspace=not self.bare,
            strict=True,
        )
        before = self.body.before
        line = before + 1
        last = before
        try:
            for cells in reader:
                if any(cell.strip() for cell in cells):
                    yield TableRow(line, cells)
                    last = line
                line = before + reader.line_num + 1
        except csv.Error as error:
            raise TaskError(f"{self.body.path}, after line {last}: {error}") from None


def _separator(body: _Body) -> str:
    texts = (line.lstrip() for line in body)
    header = next(filter(None, texts), "").partition("\n")[0]
    is_tsv = body.path.suffix.lower() == ".tsv"
    return "\t" if is_tsv else max(",;\t", key=header.count)


def _is_quoted(body: _Body, prose: bool) -> bool:
    """Return whether quotation marks stand around whole cells of a table of tabs."""
    if not any('"' in line for line in body):
        return not prose
    text = "".join(body)
    return bool((_PROOF.search(text) or not prose) and _QUOTED.fullmatch(text))
