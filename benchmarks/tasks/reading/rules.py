"""The rules that rows of a file must keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from plait.generators.document import Query
from plait.generators.errors import PlaitError
from plait.generators.unicode import trouble

T = TypeVar("T")
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
    MARKS = "marks and pictures differ in number"
    CHOICE = "answer is none of the choices"


class RowError(Exception):
    """One row breaks one rule."""

    def __init__(self, rule: Rule, detail: str) -> None:
        super().__init__(f"{rule.value}: {detail}")
        self.rule = rule
        self.detail = detail
        self.released: Query | None = None
        """See `Malformed.released`."""


def brief(value: Any, width: int = 60) -> str:
    """Shorten the repr of `value` for a message."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def of_type(value: Any, kind: type[T], what: str) -> T:
    """Return `value`, which must be of `kind`, and valid Unicode where it is a string."""
    if not isinstance(value, kind):
        name = _KINDS.get(kind, kind.__name__)
        raise RowError(Rule.WRONG_TYPE, f"{what} must be {name}, not {brief(value)}")
    if isinstance(value, str) and (wrong := trouble(value)):
        raise RowError(Rule.NOT_UNICODE, f"{what} has {wrong}")
    return value


def is_id(value: Any) -> bool:
    """Return whether `value` is a string that can name a query."""
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def id_text(value: Any, numbers: bool = False) -> Any:
    """Return an id as text where files may have `numbers`; other values are left."""
    whole = numbers and isinstance(value, int) and not isinstance(value, bool)
    return str(value) if whole else value


class Row(NamedTuple):
    """A row, or an object in it. What it should hold and does not is a RowError."""

    values: Mapping[str, Any]
    where: str = ""
    """Its path from the row, such as `conversations[0]`; empty for the row itself."""

    @classmethod
    def of(cls, value: Any, where: str = "") -> Row:
        """Return an object at `where`; RowError where `value` is none.

        A value that could not be read is the RowError that says why.
        """
        if isinstance(value, RowError):
            raise value
        if not isinstance(value, dict):
            of_type(value, dict, where or "the row")
        return cls(value, where)

    def path(self, key: str) -> str:
        """Return the path of a value, for messages."""
        return f"{self.where}.{key}" if self.where else key

    def get(self, key: str, kind: type[T]) -> T:
        """Return a value, which must be there and of `kind`."""
        value = self.values.get(key)
        # Nearly all are right, and a path is for messages alone.
        if type(value) is kind and (not isinstance(value, str) or value.isascii()):
            return value
        if key not in self.values:
            raise RowError(Rule.MISSING_KEY, f"{self.where or 'the row'} has no {key!r}")
        return of_type(self.values[key], kind, self.path(key))

    def optional(self, key: str, kind: type[T]) -> T:
        """Return a value of `kind`, an empty one where it is missing, null or empty."""
        return of_type(self.values.get(key) or kind(), kind, self.path(key))

    def text(self, key: str) -> str:
        """Return a string, which may be empty."""
        return self.get(key, str)

    def nonblank_text(self, key: str) -> str:
        """Return a string that says something; RowError where it is blank."""
        text = self.text(key)
        if not text.strip():
            raise RowError(Rule.EMPTY, f"{self.path(key)} is empty")
        return text

    def id(self, key: str = "id", *, numbers: bool = False) -> str:
        """Return a string that can name a query; with `numbers`, a whole number too."""
        id = id_text(self.get(key, object), numbers)
        if numbers and not isinstance(id, str):
            rule = "must be a string or a whole number"
            raise RowError(Rule.WRONG_TYPE, f"{self.path(key)} {rule}, not {brief(id)}")
        if not is_id(of_type(id, str, self.path(key))):
            raise RowError(Rule.ID, f"an id is printable and not empty, unlike {brief(id)}")
        return str(id)

    def object(self, key: str) -> Row:
        """Return an object inside."""
        return Row.of(self.get(key, dict), self.path(key))

    def list(self, key: str) -> list[Any]:
        """Return a list."""
        return self.get(key, list)

    def rows(self, key: str) -> Iterator[Row]:
        """Yield the objects of a list."""
        path = self.path(key)
        for i, value in enumerate(self.list(key)):
            where = f"{path}[{i}]"
            yield Row(value, where) if type(value) is dict else Row.of(value, where)
