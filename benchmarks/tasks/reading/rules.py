"""Errors of a task set as a whole, and the rules that every row must keep."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from generators.document import Malformed
from generators.errors import PlaitError


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


def malformed(
    row: int,
    id: str | None,
    error: RowError,
    category: str = "unknown",
    field: str = "unknown",
) -> Malformed:
    """The failure in place of row `row` (from 0), naming it, its rule and the value."""
    name = f"row {row} ({id})" if id else f"row {row}"
    return Malformed(
        # A second row with an id must not be mistaken for the first.
        id=id if id and error.rule is not Rule.DUPLICATE else f"row-{row}",
        row=row,
        reason=f"{name}: {error.rule.value}: {error.detail}",
        category=category,
        field=field,
    )


def shown(value: Any, width: int = 60) -> str:
    """The repr of `value`, shortened for a message."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."
