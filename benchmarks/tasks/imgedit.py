"""ImgEdit's basic benchmark as a task set: 737 requests to edit an image, of nine types.

Read is `basic_edit.json` of Benchmark/Basic in PKU-YuanGroup/ImgEdit@547185d, or
`singleturn.json` of its unpacked Benchmark.tar, with the images beside it or in the folder
`original_images`. Answers of others are the files `edited_images/MODEL/KEY.png` beside it,
and systems by the name MODEL. The parts of several turns are judged by people there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from plait.benchmarks.tasks.edited import model_folders, names_file, read_edited
from plait.benchmarks.tasks.published import (
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
    text_of,
)
from plait.benchmarks.tasks.reading.images import ImageFolder
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, brief, is_id
from plait.benchmarks.tasks.reading.sources import load_json, locate
from plait.generators.document import Query, Text, Turn
from plait.scorers.judging.imgedit import ASPECTS, EDIT_TYPE

NAME = "imgedit"
FILES = (
    *("basic_edit.json", "Benchmark/Basic/basic_edit.json", "Basic/basic_edit.json"),
    *("singleturn.json", "singleturn/singleturn.json"),
    "Benchmark/singleturn/singleturn.json",
)
ORIGINALS = "original_images"
EDITED = "edited_images"


class Entry(NamedTuple):
    """An edit and its key in the file."""

    key: str
    value: Any


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: the file, its folder, or a checkout.

    The category is the type of edit, which `avg_fixed` weights alike. Raises TaskError
    where there is no such file, or where it holds no object.
    """
    found = locate(place, (*FILES, "**/*.jpg", "**/*.png"))
    file = found.file(*FILES)
    content, _ = load_json(file, dict, "an object of edits by key")
    entries = [Entry(key, value) for key, value in content.items()]
    folder = file.parent
    originals = folder / ORIGINALS
    images = ImageFolder(originals if originals.is_dir() else folder, cache, found.also)
    images.check_all(_image_paths(entries))
    files: dict[str, str] = {}
    for entry in entries:
        if _names_file(entry):
            files[entry.key] = f"{entry.key}.png"
    answers = {}
    for model in model_folders(folder / EDITED):
        answers[model.name] = read_edited(model, files, cache, found.also)
    return task_set(
        NAME,
        TaskData(place, found, [file]),
        RowReader(entries, lambda entry: _query(entry, images), _group, answers),
        categories=dict.fromkeys(ASPECTS, 1),
    )


def _image_paths(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the paths of the images to be edited, of rows that state one."""
    for entry in entries:
        # In this file an edit's `id` is the path of its image.
        path = entry.value.get("id") if _is_row(entry) else None
        if isinstance(path, str):
            yield path


def _is_row(entry: Entry) -> bool:
    return isinstance(entry.value, Mapping)


def _names_file(entry: Entry) -> bool:
    return is_id(entry.key) and names_file(entry.key)


def _group(entry: Entry) -> RowGroup:
    key = entry.key if _names_file(entry) else None
    return RowGroup(key, text_of(entry.value, EDIT_TYPE), "")


def _query(entry: Entry, images: ImageFolder) -> Query:
    if not _names_file(entry):
        raise RowError(Rule.ID, f"a key names files here, unlike {brief(entry.key)}")
    row = Row.of(entry.value)
    kind = row.text(EDIT_TYPE)
    if kind not in ASPECTS:
        valid = ", ".join(ASPECTS)
        raise RowError(Rule.CATEGORY, f"{EDIT_TYPE} is {brief(kind)}; valid are {valid}")
    instruction = row.nonblank_text("prompt")
    original = images.image(row.nonblank_text("id"))
    return Query(
        id=entry.key,
        category=kind,
        field="",
        turns=(Turn("user", (original, Text(instruction))),),
        metadata={EDIT_TYPE: kind},
    )
