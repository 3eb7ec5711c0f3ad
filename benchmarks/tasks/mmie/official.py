"""The file format of the official MMIE scorer, written and read: another tool's answers.

`data.json` beside `images/`, as `dataset.py` and the README of Lillianwei-h/MMIE have it:

    [{"id": ..., "question": items, "answer": items or string, "model": ...,
      "gt_answer": items}]          items = [{"text": ... or null, "image": path or null}]

The official reader needs all five keys and at least one item in `gt_answer`, whose first
item gives the text of reasoning queries. It ignores other keys, in which an export keeps
the category, the field and the benchmark whose queries they are.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from plait.benchmarks.tasks.mmie.categories import (
    BENCHMARK,
    FIELDS,
    MMIE,
    benchmark_of,
    category_of,
    field_of,
    weights_of,
)
from plait.benchmarks.tasks.mmie.prompts import prompts
from plait.benchmarks.tasks.mmie.reader import (
    FILES,
    categories_of,
    content,
    document_of,
    group_of,
)
from plait.benchmarks.tasks.published import (
    Answer,
    RowPlace,
    TaskSet,
    add_answer,
    malformed_row,
)
from plait.benchmarks.tasks.reading.images import ImageFolder, default_folder, image_paths
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, TaskError, of_type
from plait.benchmarks.tasks.reading.sources import load_rows
from plait.generators.base import Failure, Fault
from plait.generators.document import Content, Document, Image, Malformed, Query, Text, Turn
from plait.generators.files import write_whole
from plait.generators.given import GivenAnswers
from plait.scorers.judging.mmie import FIRST_TRUTH, first_truth

T = TypeVar("T")
FILE = FILES[0]
_SIGNATURES = {
    b"\x89PNG": "png",
    b"\xff\xd8\xff": "jpg",
    b"GIF8": "gif",
    b"BM": "bmp",
    b"II*\0": "tif",
    b"MM\0*": "tif",
}


_ANOTHER = Failure(
    "the row's question is not that of the first row with its id", Fault.BAD_INPUT
)
_AGAIN = RowError(Rule.DUPLICATE, "an earlier row has it already")


def export(
    documents: Iterable[tuple[Query, Document]],
    model: str,
    out: Path,
    read: Callable[[Image], bytes],
    benchmark: str = MMIE,
) -> int:
    """Write `documents` for the official scorer into the folder `out`; return how many.

    `read` gives the bytes of an image, which are written unchanged, each image once.
    The official reader leaves out what follows the third image of a row. Raises
    TaskError when `out` holds anything: an export overwrites nothing.
    """
    about = {"model": model, BENCHMARK: benchmark}

    def row(pair: tuple[Query, Document], files: ImageFiles) -> dict[str, Any]:
        return _row(*pair, files) | about

    return write_rows(documents, row, out, FILE, read)


def write_rows(
    values: Iterable[T],
    row: Callable[[T, ImageFiles], dict[str, Any]],
    out: Path,
    name: str,
    read: Callable[[Image], bytes],
) -> int:
    """Write the rows of `values` into the file `name` of `out`, beside their images.

    Returns how many. Raises TaskError when `out` holds anything.
    """
    claim(out)
    (out / "images").mkdir()
    files = ImageFiles(out, read)
    rows = [row(value, files) for value in values]
    # JSON in ASCII, because the official reader opens the file in the locale's encoding.
    write_whole(out / name, json.dumps(rows, indent=1) + "\n")
    return len(rows)


def claim(out: Path) -> None:
    """Make the folder `out`, or accept it if empty; TaskError where it is not."""
    if out.exists() and not out.is_dir():
        raise TaskError(f"{out} is a file; an export needs a folder")
    if out.is_dir() and any(out.iterdir()):
        raise TaskError(f"{out} is not empty; name another folder")
    out.mkdir(parents=True, exist_ok=True)


@dataclass
class ImageFiles:
    """Writes images in the order of first use: `images/0.png`, `images/1.jpg`, ..."""

    out: Path
    read: Callable[[Image], bytes]
    paths: dict[str, str] = field(default_factory=dict)

    def path(self, image: Image) -> str:
        """Return the image's file relative to `out`, written at its first use."""
        if image.digest not in self.paths:
            data = self.read(image)
            path = f"images/{len(self.paths)}.{_extension_of(data)}"
            (self.out / path).write_bytes(data)
            self.paths[image.digest] = path
        return self.paths[image.digest]


def _extension_of(data: bytes) -> str:
    """Return the extension of a file with these bytes; `img` for an unknown format."""
    for start, extension in _SIGNATURES.items():
        if data.startswith(start):
            return extension
    # The first bytes of WebP are those of any RIFF file.
    return "webp" if data[8:12] == b"WEBP" else "img"


def _row(query: Query, document: Document, files: ImageFiles) -> dict[str, Any]:
    """Return the row of one answer, without the model's name."""
    reference = query.reference.segments if query.reference else ()
    return {
        "id": query.id,
        "question": items_of(query.question, files),
        "answer": items_of(document.segments, files),
        "gt_answer": _truth(query, items_of(reference, files)),
        "category": query.category,
        "field": query.field,
    }


def _truth(query: Query, items: list[dict[str, str | None]]) -> list[dict[str, str | None]]:
    """Return the ground truth, whose first item keeps a text that was null or empty."""
    first = query.metadata.get(FIRST_TRUTH)
    if first is not None and (not items or items[0]["text"] != json.loads(first)):
        items = [{"text": json.loads(first), "image": None}, *items]
    return items or [{"text": None, "image": None}]


def items_of(segments: Content, files: ImageFiles) -> list[dict[str, str | None]]:
    """Write `segments` as items; an image joins the text before it, as in the data set."""
    items: list[dict[str, str | None]] = []
    for segment in segments:
        if isinstance(segment, Text):
            items.append({"text": segment.text, "image": None})
        elif items and items[-1]["image"] is None:
            items[-1]["image"] = files.path(segment)
        else:
            items.append({"text": None, "image": files.path(segment)})
    return items


class Output(NamedTuple):
    """One model's answer to one query."""

    query: Query
    document: Document
    model: str
    benchmark: str = MMIE


class Broken(NamedTuple):
    """A row that breaks a rule."""

    row: Malformed
    model: str | None
    """The model it names, if any."""
    again: str | None = None
    """The id, where the model has another answer to it."""


def read_outputs(folder: Path, *, cache: Path | None = None) -> list[Output | Broken]:
    """Read answers in the official format, in file order; broken rows as `Broken`.

    `folder` holds `data.json`, or is the JSON file itself. An answer may be a plain
    string. Raises TaskError when there is no such file or it holds no list.
    """
    path = folder if folder.is_file() else folder / FILE
    values, _ = load_rows(path)
    images = ImageFolder(path.absolute().parent, cache or default_folder())
    images.check_all(image_paths(values))
    first: dict[tuple[str, str], Output] = {}
    return [_read(i, value, images, first) for i, value in enumerate(values)]


def _read(
    row: int, value: Any, images: ImageFolder, first: dict[tuple[str, str], Output]
) -> Output | Broken:
    try:
        output = _output(Row.of(value), images)
    except RowError as error:
        model = value.get("model") if isinstance(value, dict) else None
        named = model if isinstance(model, str) and model.strip() else None
        return Broken(malformed_row(row, group_of(value), error), named)
    id = output.query.id
    model = output.model
    if first.setdefault((id, model), output) == output:
        return output
    again = RowError(Rule.DUPLICATE, f"an earlier row has it for {model!r} already")
    return Broken(malformed_row(row, group_of(value), again), model, id)


def _output(row: Row, images: ImageFolder) -> Output:
    id = row.id()
    truth = row.list("gt_answer")
    if not truth:
        raise RowError(Rule.EMPTY, "gt_answer has no item")
    category = category_of(id, categories_of(row))
    model = row.text("model")
    question = content(row, "question", images)
    answer = _answer(row, images)
    query = Query(
        id=id,
        category=category,
        field=field_of(of_type(row.values.get("field", "unknown"), str, "field")),
        turns=(Turn("user", question),),
        reference=document_of(content(row, "gt_answer", images)),
        wants_images=category != "MSR",
        metadata=first_truth(truth),
    )
    return Output(query, answer, model, benchmark_of(row.values))


def _answer(row: Row, images: ImageFolder) -> Document:
    if isinstance(row.values.get("answer"), str):
        return Document((Text(row.text("answer")),))
    return Document(content(row, "answer", images))


def read_answers(
    files: Mapping[Path, list[Any]], cache: Path
) -> dict[str, dict[str, Answer]]:
    """Return what each model answered in the rows of `files`, by query id.

    Questions and ground truths are not looked at: their images may be elsewhere. A row that
    breaks a rule is a failure of the model it names, otherwise of every model; where it has
    no id, it stands under a `RowPlace`.
    """
    answers: dict[str, dict[str, Answer]] = {}
    of_all: dict[str, Answer] = {}
    for path, values in files.items():
        images = ImageFolder(path.parent, cache)
        given_values = [row.get("answer") for row in values if isinstance(row, dict)]
        images.check_all(image_paths(given_values))
        for i, value in enumerate(values):
            model = value.get("model") if isinstance(value, dict) else None
            own = answers.setdefault(model, {}) if isinstance(model, str) else of_all
            group = group_of(value)
            try:
                row = Row.of(value)
                row.id()
                row.text("model")
                given: Answer = _answer(row, images)
            except RowError as error:
                given = Failure(malformed_row(i, group, error).reason, Fault.BAD_INPUT)
            again = malformed_row(i, group, _AGAIN).reason
            add_answer(own, group.id or RowPlace(f"row-{i}"), given, again)
    if not answers:
        return {"": of_all}
    return {model: of_all | own for model, own in answers.items()}


def systems_of_folder(folder: Path) -> tuple[TaskSet, tuple[GivenAnswers, ...]]:
    """Return the queries in `folder` and one system per model that answered them.

    Raises TaskError when there is no readable `data.json`. A row that breaks a rule is a
    failure of the model it names where another row has the query; otherwise of every model,
    since it may have been any model's row. Two answers of a model to a query are a failure.
    """
    known: dict[str, Query] = {}
    answers: dict[str, dict[str, Document | Failure]] = defaultdict(dict)
    benchmarks = set()
    faults = []
    for read in read_outputs(folder):
        if isinstance(read, Broken):
            faults.append(read)
            continue
        query = read.query
        same = known.setdefault(query.id, query).turns == query.turns
        answers[read.model][query.id] = read.document if same else _ANOTHER
        benchmarks.add(read.benchmark)
    queries: dict[str, Query | Malformed] = dict(known)
    broken = Counter[str]()
    # After all answers, since a later row may be the one that has the query.
    for row, model, again in faults:
        # A reason names the row, then the rule that it breaks.
        broken[row.reason.split(": ")[1]] += 1
        failure = Failure(row.reason, Fault.BAD_INPUT)
        if model is not None and again is not None:
            answers[model][again] = failure
        elif model is not None and row.id in known:
            answers[model].setdefault(row.id, failure)
        else:
            id = f"row-{row.row}" if row.id in queries else row.id
            queries[id] = replace(row, id=id)
    about = {
        "name": folder.name,
        "source": str(folder),
        "malformed": dict(sorted(broken.items())),
    }
    task = TaskSet(
        name=folder.name,
        samples=tuple(queries.values()),
        prompt=prompts(None),
        categories=weights_of(benchmarks),
        fields=FIELDS,
        about=about,
    )
    systems = []
    for name, own in answers.items():
        systems.append(GivenAnswers(name=name, answers=own))
    return task, tuple(systems)
