"""The rules that rows of a file must keep, and the failures of those that break one."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from generators.document import Document, Malformed, Sample, changed
from generators.errors import PlaitError
from generators.unicode import trouble

V = TypeVar("V")
UNKNOWN = "unknown"
_KINDS: Mapping[type, str] = {str: "a string", list: "a list", dict: "an object"}


class TaskError(PlaitError, ValueError):
    """A task set that cannot be read at all, or a query that it does not have."""

    exit_status = 2


class Rule(StrEnum):
    """The rules a row must keep; the values are shown to people and counted."""

    MISSING_KEY = "missing key"
    WRONG_TYPE = "wrong type"
    NOT_UNICODE = "text is not Unicode"
    ID = "unusable id"
    SPEAKER = "unknown speaker"
    NO_QUESTION = "no human turn"
    EMPTY = "empty content"
    CATEGORY = "unreadable category"
    DUPLICATE = "duplicate id"
    OUTSIDE = "picture path leaves the data folder"
    NOT_FOUND = "missing picture"
    UNDECODABLE = "undecodable picture"
    BOMB = "decompression bomb"


class RowError(Exception):
    """One row breaks one rule."""

    def __init__(self, rule: Rule, detail: str) -> None:
        super().__init__(f"{rule.value}: {detail}")
        self.rule = rule
        self.detail = detail


class RowGroup(NamedTuple):
    """Id and group as a row states them, whether or not it keeps the rules."""

    id: str | None
    category: str = UNKNOWN
    field: str = UNKNOWN


@dataclass(frozen=True, slots=True)
class ValidRow:
    """A row that keeps all rules."""

    sample: Sample
    answers: Mapping[str, Document] = field(default_factory=dict)
    """Published answers by writer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRows:
    """All rows of a file."""

    samples: tuple[Sample | Malformed, ...]
    """In file order."""
    answers: Mapping[str, Mapping[str, Document]]
    """Published answers by writer and sample id."""
    broken: Mapping[str, int]
    """Malformed rows by the rule they break."""


def gathered(
    values: Iterable[V], make: Callable[[V], ValidRow], known: Callable[[V], RowGroup]
) -> TaskRows:
    """Make rows of `values`; one that breaks a rule becomes a failure, the others run.

    `make` raises RowError. Of rows with the same id only the first is used.
    """
    samples: list[Sample | Malformed] = []
    answers: dict[str, dict[str, Document]] = {}
    broken, first = Counter[str](), dict[str, int]()
    for i, value in enumerate(values):
        group = known(value)
        try:
            _claim(first, group.id, i)
            entry = make(value)
            _claim(first, entry.sample.id, i)
        except RowError as error:
            samples.append(malformed(i, group, error))
            broken[error.rule.value] += 1
            continue
        samples.append(entry.sample)
        for writer, document in entry.answers.items():
            answers.setdefault(writer, {})[entry.sample.id] = document
    return TaskRows(
        samples=tuple(samples), answers=answers, broken=dict(sorted(broken.items()))
    )


def _claim(first: dict[str, int], id: str | None, row: int) -> None:
    if id is not None and (known := first.setdefault(id, row)) != row:
        raise RowError(Rule.DUPLICATE, f"row {known} has {id!r} already")


def malformed(row: int, group: RowGroup, error: RowError) -> Malformed:
    """Return the failure in place of row `row` (from 0): it names row, rule and value."""
    name = f"row {row} ({group.id})" if group.id else f"row {row}"
    return Malformed(
        # A second row with an id must not be mistaken for the first.
        id=group.id if group.id and error.rule is not Rule.DUPLICATE else f"row-{row}",
        row=row,
        reason=f"{name}: {error.rule.value}: {error.detail}",
        category=group.category,
        field=group.field,
    )


def unicode_only(sample: Sample | Malformed, row: int) -> Sample | Malformed:
    """Return the sample at `row`, or a failure where a text of it is not Unicode."""

    def check(text: str) -> str:
        if wrong := trouble(text):
            raise RowError(Rule.NOT_UNICODE, f"{shown(text)} has {wrong}")
        return text

    try:
        changed(sample, str, check)
    except RowError as error:
        id, *known = (
            text if text.isprintable() else None
            for text in (sample.id, sample.category, sample.field)
        )
        return malformed(row, RowGroup(id, *(text or UNKNOWN for text in known)), error)
    return sample


def shown(value: Any, width: int = 60) -> str:
    """Shorten the repr of `value` for a message."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def load_rows(path: Path) -> tuple[list[Any], str]:
    """Return the list that the JSON file at `path` holds, and the file's SHA-256."""
    try:
        data = path.read_bytes()
        rows = json.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path} is not JSON: {error}") from None
    if not isinstance(rows, list):
        raise TaskError(f"{path} must hold a list of rows, not {shown(rows)}")
    return rows, hashlib.sha256(data).hexdigest()


def get(row: Mapping[str, Any], key: str, kind: type, where: str = "the row") -> Any:
    """Return `row[key]`, which must be of `kind`."""
    if key not in row:
        raise RowError(Rule.MISSING_KEY, f"{where} has no {key!r}")
    inside = "" if where == "the row" else f"{where}."
    return of_type(row[key], kind, f"{inside}{key}")


def of_type(value: Any, kind: type, what: str) -> Any:
    """Return `value`, which must be of `kind`, and valid Unicode where it is a string."""
    if not isinstance(value, kind):
        name = _KINDS.get(kind, kind.__name__)
        raise RowError(Rule.WRONG_TYPE, f"{what} must be {name}, not {shown(value)}")
    if isinstance(value, str) and (wrong := trouble(value)):
        raise RowError(Rule.NOT_UNICODE, f"{what} has {wrong}")
    return value


def is_id(value: Any) -> bool:
    """Return whether `value` is a string that can name a query."""
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def id_of(row: Mapping[str, Any], key: str = "id") -> str:
    """Return the id of a row; RowError where it is missing, empty or not printable."""
    id: str = get(row, key, str)
    if not is_id(id):
        raise RowError(Rule.ID, f"an id is printable and not empty, unlike {shown(id)}")
    return id
