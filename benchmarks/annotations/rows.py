"""Rows of a CSV or JSON file, and values in them, with errors that name the place."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tasks.reading.rules import shown
from generators.names import UsageError, unknown

DOCUMENT = "document"
"""Stands for `id` and `system` in files of the MMIE authors' annotation tool."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file."""

    place: str
    """`human.csv line 7`, `human.json entry 3`."""
    values: Mapping[str, Any]

    def wrong(self, column: str, rule: str) -> UsageError:
        """The error for a value that breaks a rule."""
        said = shown(self.values.get(column))
        return UsageError(f"{self.place}: {column} is {said}; {rule}")

    def is_blank(self, column: str) -> bool:
        """Whether the row says nothing there."""
        value = self.values.get(column)
        return value is None or (isinstance(value, str) and not value.strip())

    def text(self, column: str, default: str | None = None) -> str:
        """Text, or a number as it is written; UsageError when blank without default."""
        if self.is_blank(column):
            if default is not None:
                return default
            raise self.wrong(column, "every row must name it")
        value = self.values[column]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.wrong(column, "it must be text")
        return str(value).strip()

    def number(self, column: str, low: float, high: float) -> float:
        """A finite number from `low` to `high`."""
        rule = f"it must be a number from {low:g} to {high:g}"
        value = self.values[column]
        try:
            number = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            raise self.wrong(column, rule) from None
        if isinstance(value, bool) or not low <= number <= high:
            raise self.wrong(column, rule)
        return number

    def whole(self, column: str, default: int) -> int:
        """A whole number from 0."""
        if self.is_blank(column):
            return default
        number = self.number(column, 0, 2**31)
        if number != int(number):
            raise self.wrong(column, "it must be a whole number from 0")
        return int(number)


def read_rows(path: Path) -> list[Row]:
    """The rows of a .csv, .tsv, .json or .jsonl file.

    A CSV file has a header, and commas or semicolons. A JSON file holds a list of
    objects, or one object by document, as the MMIE authors' annotation tool writes it
    (github.com/Lillianwei-h/Viewer, viewer.py: "<id>_<model>"). Raises UsageError for
    other files and for rows without the form of a row.
    """
    readers: Mapping[str, Callable[[Path, str], Iterable[Row]]] = {
        ".csv": _csv,
        ".tsv": _csv,
        ".json": _json,
        ".jsonl": _json_lines,
    }
    if path.suffix.lower() not in readers:
        raise unknown("kind of file", path.name, readers)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    rows = list(readers[path.suffix.lower()](path, text))
    if not rows:
        raise UsageError(f"{path} holds no row")
    return rows


def _csv(path: Path, text: str) -> Iterable[Row]:
    header = text.partition("\n")[0]
    marks = "\t" if path.suffix.lower() == ".tsv" else max(",;", key=header.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=marks)
    names = [name.strip() for name in next(lines, [])]
    if len(set(names)) < len(names) or "" in names:
        raise UsageError(f"{path}: a column is named twice or not at all: {names}")
    for cells in lines:
        place = f"{path.name} line {lines.line_num}"
        if not any(cells):
            continue
        if len(cells) != len(names):
            raise UsageError(f"{place} has {len(cells)} cells; the header has {len(names)}")
        yield Row(place, dict(zip(names, cells, strict=True)))


def _json(path: Path, text: str) -> Iterable[Row]:
    content = _parsed(str(path), text)
    if isinstance(content, dict):
        entries: list[Any] = [
            {**value, DOCUMENT: name} if isinstance(value, dict) else value
            for name, value in content.items()
        ]
    else:
        entries = content if isinstance(content, list) else []
    for number, value in enumerate(entries, 1):
        yield _row(f"{path.name} entry {number}", value)


def _json_lines(path: Path, text: str) -> Iterable[Row]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            place = f"{path.name} line {number}"
            yield _row(place, _parsed(place, line))


def _row(place: str, value: Any) -> Row:
    if not isinstance(value, dict):
        raise UsageError(f"{place} is {shown(value)}; it must be an object")
    return Row(place, value)


def _parsed(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{place} is no JSON: {error}") from None
