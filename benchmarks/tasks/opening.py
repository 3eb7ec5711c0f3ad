"""OpenING as a task set: open-ended requests for interleaved text and images.

Read are the lines of `test_data.jsonl` as LanceZPF/OpenING@56b663b has them (2,160 in 56
tasks). Answers of others, in the layout which its programs take, are the folders
`MODEL_output` in `gen_outputs/` or beside the data: one file for each query, named by its
id, and systems by the name MODEL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.published import (
    Answer,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading.images import ImageFolder, file_name, image_paths
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, TaskError, brief
from plait.benchmarks.tasks.reading.sources import load_json, load_lines, locate
from plait.generators.base import Failure, Fault
from plait.generators.content import empty
from plait.generators.document import Content, Document, Image, Query, Text, Turn

NAME = "opening"
DATA = "test_data.jsonl"
_FOLDERS = (".", "OpenING-benchmark", "OpenING-Benchmark")
"""Where the file of rows lies in a checkout; its programs spell the name in both ways."""
_OUTPUT = "_output"
_BEGIN = "<BEGIN>"
_IMAGE = "<image>"
"""Marks in texts: where an example begins, and that an image follows the text."""
_WITHOUT = (Rule.NOT_FOUND, Rule.UNDECODABLE)
"""What is wrong with pictures that GPT_score_A.py goes on without."""


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: a checkout, a folder with test_data.jsonl, or such a file.

    Raises TaskError where there is none, or none of whose lines is JSON.
    """
    found = locate(place, (f"**/{DATA}", "**/images/**", f"**/*{_OUTPUT}/*"))
    file = found.file(*(str(Path(folder, DATA)) for folder in _FOLDERS))
    values = load_lines(file)
    images = ImageFolder(file.parent, cache, found.also)
    images.check_all(image_paths(values))
    folders: list[Path] = []
    for pattern in (f"*{_OUTPUT}", f"gen_outputs/*{_OUTPUT}"):
        folders += filter(Path.is_dir, found.folder.glob(pattern))
    given = [*chain.from_iterable(map(_files, sorted(folders)))]
    answers = read_answers({path: _row(path) for path in given}, cache)

    def make(value: Any) -> Query:
        row = Row.of(value)
        try:
            return _query(row, images.image)
        except RowError as error:
            if error.rule in _WITHOUT:
                with suppress(RowError):
                    known = partial(_image_if_there, images)
                    error.released = replace(_query(row, known), reference=None)
            raise

    def group(value: Any) -> RowGroup:
        return RowGroup.of(value, "total_uid", "meta_task_name", "subtask_name")

    files = [file, *given]
    return task_set(
        NAME, TaskData(place, found, files), RowReader(values, make, group, answers)
    )


def _image_if_there(images: ImageFolder, path: str) -> Image | None:
    try:
        return images.image(path)
    except RowError as error:
        if error.rule not in _WITHOUT:
            raise
        return None


def _query(row: Row, image: Callable[[str], Image | None]) -> Query:
    question = _content(_items(row, 0, "input"), image, (_BEGIN, _IMAGE))
    if empty(question):
        raise RowError(Rule.EMPTY, "the input is empty")
    output = _items(row, 1, "output") if len(row.list("conversations")) > 1 else ()
    truth = _content(output, image, (_IMAGE,))
    return Query(
        id=row.id("total_uid"),
        category=row.text("meta_task_name"),
        field=row.text("subtask_name"),
        turns=(Turn("user", tuple(s for s in question if s != Text(""))),),
        reference=Document(truth) if truth else None,
    )


def _items(row: Row, turn: int, key: str) -> Iterator[Row]:
    turns = list(row.rows("conversations"))
    if len(turns) <= turn:
        raise RowError(Rule.MISSING_KEY, f"conversations has no entry {turn}")
    return turns[turn].rows(key)


def _content(
    items: Iterable[Row], image: Callable[[str], Image | None], marks: Sequence[str]
) -> Content:
    """Return each text as the released programs show it, before its image.

    They keep the blanks around marks. An item with neither is an empty text.
    """
    segments: list[Text | Image] = []
    for item in items:
        text = item.optional("text", str).strip()
        for mark in marks:
            text = text.replace(mark, "")
        path = item.optional("image", str)
        if text or not path:
            segments.append(Text(text))
        there = image(path) if path else None
        if there is not None:
            segments.append(there)
    return tuple(segments)


# ------------------------------------------------------------------------------ answers


def _files(folder: Path) -> list[Path]:
    """Return the files of answers: some that are named .jsonl are JSON as well."""
    return sorted(
        (p for p in folder.iterdir() if p.suffix in (".json", ".jsonl")), reverse=True
    )


def read_answers(
    files: Mapping[Path, list[Any]], cache: Path
) -> dict[str, dict[str, Answer]]:
    """Return the answers in files of one row each, by folder's MODEL and by query."""
    read: dict[str, dict[str, Answer]] = {}
    for folder in dict.fromkeys(path.parent for path in files):
        own = {path: rows for path, rows in files.items() if path.parent == folder}
        read[folder.name.removesuffix(_OUTPUT)] = _answers(own, folder, cache)
    return read


def _row(path: Path) -> list[Any]:
    """Return the one row of a file, a string where it cannot be read."""
    try:
        return [load_json(path, dict, "an object")[0]]
    except TaskError as error:
        return [str(error)]


def _answers(
    files: Mapping[Path, list[Any]], folder: Path, cache: Path
) -> dict[str, Answer]:
    """Return a model's answers by query; one that breaks a rule is a failure."""
    images = ImageFolder(folder, cache)

    def image(path: str) -> Image:
        """As the released programs: whatever folder is named, in the folder of answers."""
        return images.image(file_name(path))

    images.check_all(map(file_name, image_paths([*files.values()])))
    answers: dict[str, Answer] = {}
    # The released programs leave out files named .jsonl: of two, .json is the answer.
    for path in sorted(files, key=lambda path: path.suffix == ".json"):
        rows = files[path]
        try:
            if len(rows) != 1 or not isinstance(rows[0], dict):
                said = rows[0] if isinstance(rows[0], str) else brief(rows)
                raise RowError(Rule.WRONG_TYPE, f"not one object: {said}")
            items = _items(Row.of(rows[0]), 1, "output")
            answers[path.stem] = Document(_content(items, image, (_IMAGE,)))
        except RowError as error:
            reason = f"{folder.name}/{path.name}: {error}"
            answers[path.stem] = Failure(reason, Fault.BAD_INPUT)
    return answers
