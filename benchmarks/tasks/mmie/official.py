"""The file format of the official MMIE scorer, written and read.

`data.json` beside `images/`, as `dataset.py` and the README of Lillianwei-h/MMIE have it:

    [{"id": ..., "question": items, "answer": items or string, "model": ...,
      "gt_answer": items}]          items = [{"text": ... or null, "image": path or null}]

The official reader needs all five keys and at least one item in `gt_answer`, whose first
item gives the text of reasoning queries. It ignores other keys, in which an export keeps
the category and the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tasks.mmie.categories import category_of, field_of
from benchmarks.tasks.mmie.reader import failure, load_rows
from benchmarks.tasks.mmie.rows import (
    Parts,
    PictureSource,
    content,
    get,
    id_of,
    of_type,
    says_nothing,
    stated_categories,
)
from benchmarks.tasks.reading import checks
from benchmarks.tasks.reading.pictures import PictureFolder
from benchmarks.tasks.reading.rules import RowError, Rule, TaskError
from generators.document import Content, Document, Image, Malformed, Sample, Text, Turn
from generators.files import write_whole
from scorers.judging.released import FIRST_TRUTH, first_truth

__all__ = ["Broken", "Output", "export", "read_outputs"]

_SIGNATURES = {
    b"\x89PNG": "png",
    b"\xff\xd8\xff": "jpg",
    b"GIF8": "gif",
    b"BM": "bmp",
    b"II*\0": "tif",
    b"MM\0*": "tif",
}


def export(
    documents: Iterable[tuple[Sample, Document]],
    model: str,
    out: Path,
    read: Callable[[Image], bytes],
) -> int:
    """Write `documents` for the official scorer into the folder `out`; how many.

    `read` gives the bytes of a picture, which are written unchanged, each picture once.
    The official reader leaves out what follows the third picture of a row. Raises
    TaskError when `out` holds anything: an export overwrites nothing.
    """
    claim(out)
    (out / "images").mkdir()
    pictures = PictureFiles(out, read)
    rows = [_row(sample, document, model, pictures) for sample, document in documents]
    # JSON in ASCII, because the official reader opens the file in the locale's encoding.
    write_whole(out / FILE, json.dumps(rows, indent=1) + "\n")
    return len(rows)


def claim(out: Path) -> None:
    """Make the folder `out`, or accept it if empty; TaskError where it is not."""
    if out.exists() and not out.is_dir():
        raise TaskError(f"{out} is a file; an export needs a folder")
    if out.is_dir() and any(out.iterdir()):
        raise TaskError(f"{out} is not empty; name another folder")
    out.mkdir(parents=True, exist_ok=True)


@dataclass
class PictureFiles:
    """Writes pictures in the order of first use: `images/0.png`, `images/1.jpg`, ..."""

    out: Path
    read: Callable[[Image], bytes]
    paths: dict[str, str] = field(default_factory=dict)

    def path(self, image: Image) -> str:
        """The picture's file relative to `out`, written at its first use."""
        if image.digest not in self.paths:
            data = self.read(image)
            path = f"images/{len(self.paths)}.{_extension(data)}"
            (self.out / path).write_bytes(data)
            self.paths[image.digest] = path
        return self.paths[image.digest]


def _extension(data: bytes) -> str:
    known = (name for start, name in _SIGNATURES.items() if data.startswith(start))
    return next(known, "webp" if data[8:12] == b"WEBP" else "img")


def _row(
    sample: Sample, document: Document, model: str, pictures: PictureFiles
) -> dict[str, Any]:
    reference = sample.reference.segments if sample.reference else ()
    return {
        "id": sample.id,
        "question": items_of(sample.question, pictures),
        "answer": items_of(document.segments, pictures),
        "model": model,
        "gt_answer": _truth(sample, items_of(reference, pictures)),
        "category": sample.category,
        "field": sample.field,
    }


def _truth(
    sample: Sample, items: list[dict[str, str | None]]
) -> list[dict[str, str | None]]:
    """The ground truth, whose first item keeps a text that was null or empty."""
    first = sample.metadata.get(FIRST_TRUTH)
    if first is not None and (not items or items[0]["text"] != json.loads(first)):
        items = [{"text": json.loads(first), "image": None}, *items]
    return items or [{"text": None, "image": None}]


def items_of(segments: Content, pictures: PictureFiles) -> list[dict[str, str | None]]:
    """`segments` as items; a picture joins the text before it, as in the data set."""
    items: list[dict[str, str | None]] = []
    for segment in segments:
        if isinstance(segment, Text):
            items.append({"text": segment.text, "image": None})
        elif items and items[-1]["image"] is None:
            items[-1]["image"] = pictures.path(segment)
        else:
            items.append({"text": None, "image": pictures.path(segment)})
    return items


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
    """The model it names, if any."""


def read_outputs(folder: Path, *, cache: Path | None = None) -> list[Output | Broken]:
    """Answers in the official format, in file order; rows that break a rule as `Broken`.

    `folder` holds `data.json`, or is the JSON file itself. An answer may be a plain
    string. Raises TaskError when there is no such file or it holds no list.
    """
    path = folder if folder.is_file() else folder / FILE
    values, _ = load_rows(path)
    album = PictureFolder(path.absolute().parent, cache or checks.default_folder())
    parsed = [_parsed(value) for value in values]
    _refuse_repeated(parsed)
    album.check_all(p for row in parsed if isinstance(row, _Parsed) for p in row.pictures)
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
    def pictures(self) -> tuple[PictureSource, ...]:
        parts = (*self.question, *self.answer, *self.reference)
        return tuple(p for p in parts if isinstance(p, PictureSource))


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
    position: int, row: _Parsed | RowError, value: Any, album: PictureFolder
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
