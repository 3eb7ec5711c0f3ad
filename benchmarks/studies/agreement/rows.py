"""Rows of a CSV or JSON file, each with a score, a preference or a vote.

Errors name the place, the value and the rule.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from benchmarks.tasks.reading.rules import shown
from generators.errors import UsageError
from generators.names import unknown
from scorers.base import bounds
from scorers.statistics.preferences import Vote

DOCUMENT = "document"
"""Replaces `id` and `system` in files of the MMIE authors' annotation tool."""


@dataclass(frozen=True, slots=True)
class RatingRow:
    """One row of a file."""

    place: str
    """`human.csv line 7`, `human.json entry 3`."""
    values: Mapping[str, Any]

    def wrong(self, column: str, rule: str) -> UsageError:
        """The error for a value that breaks a rule."""
        value = shown(self.values.get(column))
        return UsageError(f"{self.place}: {column} is {value}; {rule}")

    def is_blank(self, column: str) -> bool:
        """True where the row has no value in the column."""
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


def read_rows(path: Path) -> list[RatingRow]:
    """The rows of a .csv, .tsv, .json or .jsonl file.

    A CSV file has a header, and commas or semicolons. A JSON file holds a list of
    objects, or one object by document, as the MMIE authors' annotation tool writes it
    (github.com/Lillianwei-h/Viewer, viewer.py: "<id>_<model>"). Raises UsageError for
    other files and for rows without the form of a row.
    """
    readers: Mapping[str, Callable[[Path, str], Iterable[RatingRow]]] = {
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


def _csv(path: Path, text: str) -> Iterable[RatingRow]:
    header = text.partition("\n")[0]
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;", key=header.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    names = [name.strip() for name in next(lines, [])]
    if len(set(names)) < len(names) or "" in names:
        raise UsageError(f"{path}: a column is named twice or not at all: {names}")
    for cells in lines:
        place = f"{path.name} line {lines.line_num}"
        if not any(cells):
            continue
        if len(cells) != len(names):
            raise UsageError(f"{place} has {len(cells)} cells; the header has {len(names)}")
        yield RatingRow(place, dict(zip(names, cells, strict=True)))


def _json(path: Path, text: str) -> Iterable[RatingRow]:
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


def _json_lines(path: Path, text: str) -> Iterable[RatingRow]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            place = f"{path.name} line {number}"
            yield _row(place, _parsed(place, line))


def _row(place: str, value: Any) -> RatingRow:
    if not isinstance(value, dict):
        raise UsageError(f"{place} is {shown(value)}; it must be an object")
    return RatingRow(place, value)


def _parsed(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{place} is not valid JSON: {error}") from None


Form = Literal["score", "preference", "vote"]
FORMS: tuple[Form, ...] = get_args(Form)
Value = float | Vote
CRITERIA = "criteria"
PENALTY = "penalty"
_VERDICTS = "each criterion must be 0 or 1, as in 1;0;1;1;0;1"


def value_of(row: RatingRow, form: Form, scale: str) -> Value | None:
    """The row's value; None where the rater left it blank. UsageError if not valid."""
    if form == "score" and (verdicts := criteria_of(row)):
        return _sum_of_criteria(row, verdicts, scale)
    if row.is_blank(form):
        return None
    if form == "vote":
        return _vote(row)
    low, high = (-2.0, 2.0) if form == "preference" else ends_of(scale)
    return row.number(form, low, high)


def ends_of(scale: str) -> tuple[float, float]:
    """Lowest and highest value of a scale; UsageError where it is not LOW-HIGH."""
    ends = bounds(scale)
    if ends is None or ends[0] >= ends[1]:
        raise UsageError(f"scale {scale!r} is not of the form LOW-HIGH, such as 0-6")
    return ends


def criteria_of(row: RatingRow) -> list[str]:
    """The row's verdicts by criterion where they stand for a score; none if left blank."""
    if not row.is_blank("score"):
        return []
    criteria = row.values.get(CRITERIA)
    if isinstance(criteria, str):
        criteria = criteria.replace(",", " ").replace(";", " ").split()
    if isinstance(criteria, Mapping):
        criteria = list(criteria.values())
    if criteria is not None and not isinstance(criteria, list):
        raise row.wrong(CRITERIA, _VERDICTS)
    return [str(v).strip().lower() for v in criteria or []]


def _sum_of_criteria(row: RatingRow, verdicts: Sequence[str], scale: str) -> float:
    """Criteria met, less the penalty, at least 0."""
    points = {"0": 0, "1": 1, "false": 0, "true": 1}
    penalty = row.values.get(PENALTY)
    fine = "0" if row.is_blank(PENALTY) else str(penalty).strip().lower()
    if not all(v in points for v in verdicts):
        raise row.wrong(CRITERIA, _VERDICTS)
    if fine.removeprefix("-") not in points:
        raise row.wrong(PENALTY, "it must be 0 or 1")
    total = max(0, sum(points[v] for v in verdicts) - points[fine.removeprefix("-")])
    if not ends_of(scale)[0] <= total <= ends_of(scale)[1]:
        raise row.wrong(CRITERIA, f"they sum to {total}, which is not on the scale {scale}")
    return float(total)


def _vote(row: RatingRow) -> Vote:
    vote = row.text("vote").casefold()
    choices: dict[str, Vote] = {"undecided": "undecided", "tie": "undecided"}
    sides: tuple[Vote, Vote] = ("system", "baseline")
    for side in sides:
        choices[row.text(side, side).casefold()] = side
        choices.setdefault(side, side)
    if vote.startswith("unable to decide"):
        return "undecided"
    if vote not in choices:
        raise row.wrong("vote", f"valid: {', '.join(choices)}, unable to decide")
    return choices[vote]
