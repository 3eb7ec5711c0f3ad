"""Answers made elsewhere, by the columns of their files.

| column | it holds |
|---|---|
| `id`, else `question_id`, `index`, ... | that of the query |
| `answer`, `text`, `response` or `prediction` | text with `<image>` marks, or a list |
| `messages` or `conversations` | a chat; the turns of the assistant are the answer |
| `images` or `image`, `image_1`, ... | as of queries; without marks, behind the text |
| `system` or `model` | whose answer it is, in a file of several |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.own_data import FoundRows, find_rows
from plait.benchmarks.tasks.published import Answer, RowPlace, add_answer
from plait.benchmarks.tasks.reading.columns import (
    ANSWERS,
    AS_NAMED,
    MESSAGES,
    Columns,
    DataReading,
)
from plait.benchmarks.tasks.reading.content import ContentReader, is_chat, parse_content
from plait.benchmarks.tasks.reading.files import FileRow
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, id_text, is_id
from plait.generators.base import Failure, Fault
from plait.generators.document import Document

NAME = "rows"


def find_answers(place: str, reading: DataReading = AS_NAMED) -> FoundRows:
    """Return the files of answers at `place`; TaskError as `find_rows` and without ids."""
    rows = find_rows(place, ANSWERS, "answer", reading)
    rows.columns.require("id", str(rows.found.path))
    return rows


def read_answers(
    rows: FoundRows, cache: Path, reading: DataReading = AS_NAMED
) -> dict[str, dict[str, Answer]]:
    """Return the answers by system and query; a row that breaks a rule is a failure.

    Where the system of a row cannot be told, its failure is that of every one.
    """
    reader = rows.reader(cache, reading)
    answers = _Answers(rows.columns, reader, rows.in_tables)
    listed = [*rows.rows]
    answers.reader.prepare(_values_with_images(rows.columns, listed))
    names = dict.fromkeys(filter(None, map(answers.system, listed)))
    by_system: dict[str, dict[str, Answer]] = {name: {} for name in names} or {"": {}}
    for row in listed:
        id = answers.id(row)
        given = answers.answer(row)
        again = f"{row.where}: {Rule.DUPLICATE.value}: an earlier answer has the id already"
        name = answers.system(row)
        whose = by_system if name is None else [name]
        for system in whose:
            add_answer(by_system[system], id, given, again)
    return by_system


def _values_with_images(columns: Columns, rows: Iterable[FileRow]) -> Iterator[Any]:
    """Yield the values of rows that may name images."""
    for row in rows:
        if isinstance(row.value, dict):
            yield columns.value(row.value, "images")
            yield columns.value(row.value, "answer")


@dataclass(frozen=True)
class _Answers:
    """Makes answers of rows."""

    columns: Columns
    reader: ContentReader
    in_table: bool
    """Whether a list can only stand in a text."""

    def system(self, row: FileRow) -> str | None:
        """Return whose answer a row is; empty where a file is one system's."""
        if not self.columns.has("system"):
            return ""
        own = row.value if isinstance(row.value, dict) else {}
        name = self.columns.value(own, "system")
        return name if is_id(name) and "/" not in name else None

    def id(self, row: FileRow) -> str:
        """Return the id of the query, or the row's place where it has none."""
        own = row.value if isinstance(row.value, dict) else {}
        id = id_text(self.columns.value(own, "id"), numbers=True)
        return id if is_id(id) else RowPlace(row.where)

    def answer(self, row: FileRow) -> Answer:
        """Return the answer of a row, or what rule it breaks."""
        try:
            if isinstance(row.value, RowError):
                raise row.value
            own = Row.of(row.value, "the answer").values
            (name,) = self.columns.by_meaning["id"]
            Row(own).id(name, numbers=True)
            if self.system(row) is None:
                told = self.columns.told["system"]
                detail = f"{told} is no name of a system: {own.get(told)!r}"
                raise RowError(Rule.WRONG_TYPE, detail)
            return self._document(own)
        except RowError as error:
            return Failure(f"{row.where}: {error}", Fault.BAD_INPUT)

    def _document(self, own: Mapping[str, Any]) -> Document:
        """Return what was said; RowError where there is nothing at all."""
        (name,) = self.columns.by_meaning["answer"]
        value = self.columns.value(own, "answer")
        images = self.reader.images(self.columns.value(own, "images"), "images")
        if value is None and not images:
            raise RowError(Rule.EMPTY, f"{name} is empty, and there are no images")
        found = parse_content(value, in_table=self.in_table or name.lower() in MESSAGES)
        if is_chat(found):
            turns = self.reader.turns(found, images, name)
            said = [turn.content for turn in turns if turn.role == "assistant"]
            if not said:
                raise RowError(Rule.EMPTY, f"{name} has no turn of the assistant")
            return Document.of(said)
        return Document(self.reader.content(found, images, name, images_first=False))
