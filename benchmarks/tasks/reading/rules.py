"""The rules that rows of a file must keep."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from generators.errors import PlaitError
from generators.unicode import trouble

T = TypeVar("T")
_BEGIN = re.compile(r"[ \t\n\r]*\[[ \t\n\r]*(\][ \t\n\r]*)?")
_BETWEEN = re.compile(r"[ \t\n\r]*([,\]])[ \t\n\r]*")
"""Marks of a JSON list before its first item, and after each."""
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


def shown(value: Any, width: int = 60) -> str:
    """Shorten the repr of `value` for a message."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def load_json(path: Path, kind: type[T], what: str) -> tuple[T, str]:
    """Return what the JSON file at `path` holds, of `kind`, and the file's SHA-256."""
    text, digest = _text_of(path)
    with _decoding(path):
        content = json.loads(text)
    if not isinstance(content, kind):
        raise TaskError(f"{path} must hold {what}, not {shown(content)}")
    return content, digest


def load_rows(path: Path) -> tuple[Rows, str]:
    """Return the rows of the list that a JSON file holds, and the file's SHA-256."""
    text, digest = _text_of(path)
    return Rows(path, text), digest


def load_lines(path: Path) -> list[Any]:
    """Return the values of a file of JSON lines; TaskError names a line that is none."""
    try:
        lines = path.read_text("utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None
    values = []
    for number, line in enumerate(lines, start=1):
        try:
            values += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            raise TaskError(f"{path}, line {number} is not JSON: {error}") from None
    return values


def _text_of(path: Path) -> tuple[str, str]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TaskError(f"{path} cannot be read: {error.strerror or error}") from None
    with _decoding(path):
        return data.decode("utf-8-sig"), hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def _decoding(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path} is not JSON: {error}") from None


@dataclass(frozen=True)
class Rows:
    """The rows of a JSON file, decoded one by one, each time they are iterated over.

    As objects they take several times the memory of their text. Raises TaskError where
    the file is not JSON or holds no list.
    """

    path: Path
    text: str = field(repr=False)

    def __iter__(self) -> Iterator[Any]:
        """Yield each row."""
        begin = _BEGIN.match(self.text)
        if begin is None:
            load_json(self.path, list, "a list of rows")
            return
        decode, at, ended = json.JSONDecoder().raw_decode, begin.end(), begin[1]
        with _decoding(self.path):
            while not ended:
                row, at = decode(self.text, at)
                yield row
                mark = _BETWEEN.match(self.text, at)
                if mark is None:
                    raise json.JSONDecodeError("Expecting ',' delimiter", self.text, at)
                at, ended = mark.end(), mark[1] == "]"
            if at < len(self.text):
                raise json.JSONDecodeError("Extra data", self.text, at)


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
