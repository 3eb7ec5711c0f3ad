"""ISG-Bench as a task set: 1,150 requests for texts and images in a given order.

Rows are the lines of ISG-Bench.jsonl, as ISG-eval.py of Dongping-Chen/ISG@de504cd reads
them; images.zip is to be unpacked beside it. Answers of others, in the layout which that
program takes, are the files of the folder `answers/` beside the data, and systems by the
name of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.tasks.published import (
    UNKNOWN,
    Answer,
    RowGroup,
    TaskSet,
    ValidRow,
    answers_by_query,
    gathered,
    task_set,
)
from benchmarks.tasks.reading.images import ImageFolder
from benchmarks.tasks.reading.rules import (
    RowError,
    Rule,
    TaskError,
    get,
    id_of,
    is_id,
    load_lines,
    of_type,
    shown,
)
from benchmarks.tasks.reading.sources import digest_of, located
from generators.document import Content, Document, Image, Sample, Text, Turn
from scorers.judging.isg import BLOCK, IMAGE, LAST

NAME = "isg"
DATA = "ISG-Bench.jsonl"
ANSWERS = "answers"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Style Transfer": (
        *("Art Style Transfer", "Scene Attribute Transfer"),
        *("Photo Variation", "Portrait Variation"),
    ),
    "Progressive": ("Animation Images", "Animation Text-Image", "Attribute Transfer"),
    "3D Scene": ("3D_object", "multi-Perspective Scene Generation"),
    "Image Decomposition": ("Realistic Object Detection", "Imaginary Object Detection"),
    "Image-Text Complementation": ("HowTo", "Scientific"),
    "Temporal Prediction": ("Prediction", "painting"),
    "Visual Story Telling": (
        *("visual storytelling text-image", "visual storytelling image"),
        "visual storytelling text",
    ),
    "VQA": ("Object_VQA", "Historical"),
}
"""The categories of calculate_performance.py; the published average weights them alike.

It leaves out any other task, such as Semantic Segmentation, which here is a category of its
own, without a weight."""
_GROUP_OF = {task: group for group, tasks in GROUPS.items() for task in tasks}


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: a checkout, a folder with ISG-Bench.jsonl, or such a file.

    Raises TaskError where there is none, and for a line that is not JSON.
    """
    found = located(place, (f"**/{DATA}", "**/images/*"))
    files = (found.path, found.path / DATA, found.path / "ISG_eval" / DATA)
    file = next(filter(Path.is_file, files), None)
    if file is None:
        raise TaskError(f"{found.path} holds no {DATA}")
    values = load_lines(file)
    images = ImageFolder(file.parent, cache, found.also)
    images.check_all(_paths(values))
    given = sorted((file.parent / ANSWERS).glob("*.jsonl"))
    answers = read_answers({path: load_lines(path) for path in given}, cache)
    last = len(values) - 1

    def make(value: tuple[int, Any]) -> ValidRow:
        i, row = value
        query = _query(of_type(row, dict, "the row"), images, i == last)
        own = {w: by_id[query.id] for w, by_id in answers.items() if query.id in by_id}
        return ValidRow(query, own)

    rows = gathered(enumerate(values), make, _known)
    return task_set(
        NAME,
        place,
        rows,
        digest=digest_of([file, *given]),
        revision=found.revision,
        categories=dict.fromkeys(GROUPS, 1),
        published_answers=rows.published,
    )


def _paths(values: list[Any]) -> Iterator[str]:
    """Yield the paths of the images of queries and ground truths, of valid rows or not."""
    rows = [row for row in values if isinstance(row, dict)]
    for part in (p for row in rows for p in _of(row, "Query") + _of(row, "Golden")):
        path = part.get("content") if isinstance(part, dict) else None
        if isinstance(path, str) and part.get("type") == "image":
            yield path


def _of(row: Mapping[str, Any], key: str) -> list[Any]:
    return value if isinstance(value := row.get(key), list) else []


def _known(value: tuple[int, Any]) -> RowGroup:
    row = value[1] if isinstance(value[1], dict) else {}
    id, named = row.get("id"), row.get("Category")
    task = named if isinstance(named, str) and named else UNKNOWN
    return RowGroup(id if is_id(id) else None, _GROUP_OF.get(task, task), task)


def _query(row: Mapping[str, Any], images: ImageFolder, last: bool) -> Sample:
    if not (task := get(row, "Category", str)):
        raise RowError(Rule.CATEGORY, "the Category is empty")
    question, golden = (_content(row, key, images) for key in ("Query", "Golden"))
    if not any(isinstance(s, Image) or s.text.strip() for s in question):
        raise RowError(Rule.EMPTY, "Query is empty")
    predict = of_type(row.get("predict") or {}, dict, "predict")
    questions = {
        BLOCK: _questions(predict, "block_qa", ("subject", "object", "Question")),
        IMAGE: _questions(predict, "image_qa", ("image", "Question")),
    }
    return Sample(
        id=id_of(row),
        category=_GROUP_OF.get(task, task),
        field=task,
        turns=(Turn("user", question),),
        reference=Document(golden),
        wants_images=any(isinstance(s, Image) for s in golden),
        metadata={level: json.dumps(own) for level, own in questions.items()}
        | ({LAST: "true"} if last else {}),
    )


def _content(row: Mapping[str, Any], key: str, images: ImageFolder) -> Content:
    """Return a list of `{"type": ..., "content": ...}`; a text may be empty."""
    content = list[Text | Image]()
    for i, value in enumerate(get(row, key, list)):
        where = f"{key}[{i}]"
        part = of_type(value, dict, where)
        kind = get(part, "type", str, where)
        if kind not in ("text", "image"):
            rule = "must be text or image"
            raise RowError(Rule.WRONG_TYPE, f"{where}.type {rule}, not {shown(kind)}")
        what = get(part, "path" if "path" in part else "content", str, where)
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
    rows = [of_type(one, dict, level) for one in of_type(value, list, level)]
    complete = [row for row in rows if all(isinstance(row.get(t), str) for t in texts)]
    also: dict[str, Any] = {"id": None, "Preliminary": []} if level == "image_qa" else {}
    keys = (*texts, *also)
    return [{key: (also | row)[key] for key in keys} for row in complete]


def read_answers(
    files: Mapping[Path, list[Any]], cache: Path
) -> dict[str, dict[str, Answer]]:
    """Return the answers in the rows of each file, by the file's name and by query."""
    return {path.stem: _answers(path, rows, cache) for path, rows in files.items()}


def _answers(path: Path, rows: list[Any], cache: Path) -> dict[str, Answer]:
    files = ImageFolder(path.parent, cache)

    def answer(row: Mapping[str, Any]) -> Document:
        return Document(_content(row, "output", files))

    return answers_by_query(rows, path.name, id_of, answer)
