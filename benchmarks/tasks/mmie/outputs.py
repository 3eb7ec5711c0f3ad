"""Answers in the official scorer's format, read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tasks.mmie.categories import category_of, field_of
from benchmarks.tasks.mmie.reader import failure, load_rows
from benchmarks.tasks.mmie.rows import (
    Parts,
    Picture,
    content,
    get,
    id_of,
    of_type,
    says_nothing,
    stated_categories,
)
from benchmarks.tasks.reading import checks
from benchmarks.tasks.reading.album import Album
from benchmarks.tasks.reading.rules import RowError, Rule
from generators.document import Document, Malformed, Sample, Text, Turn
from scorers.judging.released import first_truth

FILE = "data.json"


class Output(NamedTuple):
    """One model's answer to one query."""

    sample: Sample
    document: Document
    model: str


class Broken(NamedTuple):
    """A row that breaks a rule."""

    row: Malformed
    model: str | None
    """Whose answer it should have been, where it says so."""


def read_outputs(folder: Path, *, cache: Path | None = None) -> list[Output | Broken]:
    """Answers in the official format, in file order; rows that break a rule as Broken.

    `folder` holds `data.json`, or is the JSON file itself. An answer may be a plain
    string. Raises TaskError when there is no such file or it holds no list.
    """
    path = folder if folder.is_file() else folder / FILE
    values, _ = load_rows(path)
    album = Album(path.absolute().parent, cache or checks.default_folder())
    parsed = [_parsed(value) for value in values]
    _refuse_repeated(parsed)
    album.check(p for row in parsed if isinstance(row, _Parsed) for p in row.pictures)
    return [_output(i, row, values[i], album) for i, row in enumerate(parsed)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    id: str
    category: str
    field: str
    model: str
    question: Parts
    answer: Parts
    reference: Parts
    metadata: Mapping[str, str]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        parts = (*self.question, *self.answer, *self.reference)
        return tuple(p for p in parts if isinstance(p, Picture))


def _parsed(value: Any) -> _Parsed | RowError:
    try:
        row = of_type(value, dict, "the row")
        id = id_of(row)
        gt_answer = get(row, "gt_answer", list)
        if not gt_answer:
            raise RowError(Rule.EMPTY, "gt_answer has no item")
        return _Parsed(
            id=id,
            category=category_of(id, stated_categories(row)),
            field=field_of(of_type(row.get("field", "unknown"), str, "field")),
            model=get(row, "model", str),
            question=content(get(row, "question", list), "question"),
            answer=_answer(row),
            reference=content(gt_answer, "gt_answer"),
            metadata=first_truth(gt_answer),
        )
    except RowError as error:
        return error


def _answer(row: Mapping[str, Any]) -> Parts:
    if isinstance(row.get("answer"), str):
        return (Text(get(row, "answer", str)),)
    return content(get(row, "answer", list), "answer")


def _refuse_repeated(parsed: list[_Parsed | RowError]) -> None:
    """Turn every row but the first of an id and model into a failure, in place."""
    first: dict[tuple[str, str], int] = {}
    for i, row in enumerate(parsed):
        if isinstance(row, _Parsed) and first.setdefault((row.id, row.model), i) != i:
            detail = f"row {first[row.id, row.model]} has it for {row.model!r} already"
            parsed[i] = RowError(Rule.DUPLICATE, detail)


def _output(
    position: int, row: _Parsed | RowError, value: Any, album: Album
) -> Output | Broken:
    try:
        if isinstance(row, RowError):
            raise row
        reference = album.content(row.reference)
        sample = Sample(
            id=row.id,
            category=row.category,
            field=row.field,
            turns=(Turn("user", album.content(row.question)),),
            reference=None if says_nothing(reference) else Document(reference),
            wants_images=row.category != "MSR",
            metadata=row.metadata,
        )
        return Output(sample, Document(album.content(row.answer)), row.model)
    except RowError as error:
        model = value.get("model") if isinstance(value, dict) else None
        named = isinstance(model, str) and bool(model.strip())
        return Broken(failure(position, value, error), model if named else None)
