"""ISG-Bench as a task set: 1,150 requests for texts and images in a given order.

Rows are the lines of ISG-Bench.jsonl, as ISG-eval.py of Dongping-Chen/ISG@de504cd reads
them; images.zip is to be unpacked beside it. Answers of others, in the layout which that
program takes, are the files of the folder `answers/` beside the data, and systems by the
name of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from plait.benchmarks.tasks.published import (
    Answer,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    answers_by_query,
    groups_by_member,
    task_set,
)
from plait.benchmarks.tasks.reading.images import ImageFolder, image_paths
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, brief, of_type
from plait.benchmarks.tasks.reading.sources import load_any_rows, load_lines, locate
from plait.generators.document import Content, Document, Image, Query, Text, Turn
from plait.scorers.judging.isg import BLOCK, IMAGE, LAST

NAME = "isg"
DATA = "ISG-Bench.jsonl"
ANSWERS = "answers"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Style Transfer": (
        "Art Style Transfer",
        "Scene Attribute Transfer",
        "Photo Variation",
        "Portrait Variation",
    ),
    "Progressive": ("Animation Images", "Animation Text-Image", "Attribute Transfer"),
    "3D Scene": ("3D_object", "multi-Perspective Scene Generation"),
    "Image Decomposition": ("Realistic Object Detection", "Imaginary Object Detection"),
    "Image-Text Complementation": ("HowTo", "Scientific"),
    "Temporal Prediction": ("Prediction", "painting"),
    "Visual Story Telling": (
        "visual storytelling text-image",
        "visual storytelling image",
        "visual storytelling text",
    ),
    "VQA": ("Object_VQA", "Historical"),
}
"""The categories of calculate_performance.py; the published average weights them alike.

It leaves out any other task, such as Semantic Segmentation, which here is a category of its
own, without a weight."""
_GROUP_OF = groups_by_member(GROUPS)


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: a checkout, a folder with ISG-Bench.jsonl, or such a file.

    Raises TaskError where there is none, or none of whose lines is JSON.
    """
    found = locate(place, (f"**/{DATA}", "**/images/*"))
    file = found.file(DATA, f"ISG_eval/{DATA}")
    values = load_lines(file)
    images = ImageFolder(file.parent, cache, found.also)
    images.check_all(image_paths(values))
    given = sorted((file.parent / ANSWERS).glob("*.jsonl"))
    last = len(values) - 1
    return task_set(
        NAME,
        TaskData(place, found, [file, *given]),
        RowReader(
            enumerate(values),
            lambda value: _query(Row.of(value[1]), images, value[0] == last),
            _group,
            read_answers({path: load_any_rows(path) for path in given}, cache),
        ),
        categories=dict.fromkeys(GROUPS, 1),
    )


def _group(value: tuple[int, Any]) -> RowGroup:
    group = RowGroup.of(value[1], "id", "Category", "Category")
    return group._replace(category=_GROUP_OF.get(group.field, group.field))


def _query(row: Row, images: ImageFolder, last: bool) -> Query:
    task = row.text("Category")
    if not task:
        raise RowError(Rule.CATEGORY, "the Category is empty")
    question = _content(row, "Query", images)
    golden = _content(row, "Golden", images)
    if not any(isinstance(part, Image) or part.text.strip() for part in question):
        raise RowError(Rule.EMPTY, "Query is empty")
    predict = row.optional("predict", dict)
    of_blocks = _questions(predict, "block_qa", ("subject", "object", "Question"))
    of_images = _questions(predict, "image_qa", ("image", "Question"))
    metadata = {BLOCK: json.dumps(of_blocks), IMAGE: json.dumps(of_images)}
    if last:
        metadata[LAST] = "true"
    return Query(
        id=row.id(),
        category=_GROUP_OF.get(task, task),
        field=task,
        turns=(Turn("user", question),),
        reference=Document(golden),
        wants_images=any(isinstance(part, Image) for part in golden),
        metadata=metadata,
    )


def _content(row: Row, key: str, images: ImageFolder) -> Content:
    """Return a list of `{"type": ..., "content": ...}`; a text may be empty."""
    content = list[Text | Image]()
    for part in row.rows(key):
        if (kind := part.text("type")) not in ("text", "image"):
            detail = f"{part.path('type')} must be text or image, not {brief(kind)}"
            raise RowError(Rule.WRONG_TYPE, detail)
        what = part.text("path" if "path" in part.values else "content")
        content.append(Text(what) if kind == "text" else _image(what, images))
    return tuple(content)


def _image(path: str, images: ImageFolder) -> Image:
    """Return an image; some files have the suffix in lower case, unlike their rows."""
    try:
        return images.image(path)
    except RowError as error:
        suffix = PurePosixPath(path).suffix
        if error.rule is not Rule.NOT_FOUND or suffix == suffix.lower():
            raise
    return images.image(path.removesuffix(suffix) + suffix.lower())


def _questions(
    predict: Mapping[str, Any], level: str, texts: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return the questions of a level that are complete, as the released program asks."""
    value = predict.get(level) or []
    if isinstance(value, dict):
        value = next(iter(value.values()), [])
    questions = []
    for item in of_type(value, list, level):
        row = of_type(item, dict, level)
        if not all(isinstance(row.get(name), str) for name in texts):
            continue
        question = {name: row[name] for name in texts}
        if level == "image_qa":
            question["id"] = row.get("id")
            question["Preliminary"] = row.get("Preliminary", [])
        questions.append(question)
    return questions


def read_answers(
    files: Mapping[Path, list[Any]], cache: Path
) -> dict[str, dict[str, Answer]]:
    """Return the answers in the rows of each file, by the file's name and by query."""
    return {path.stem: _answers(path, rows, cache) for path, rows in files.items()}


def _answers(path: Path, rows: list[Any], cache: Path) -> dict[str, Answer]:
    """Return a file's answers; one without output is empty, which the program counts."""
    files = ImageFolder(path.parent, cache)

    def answer(row: Row) -> Document:
        made = row.values.get("output") is not None
        return Document(_content(row, "output", files) if made else ())

    return answers_by_query(rows, path.name, answer)
