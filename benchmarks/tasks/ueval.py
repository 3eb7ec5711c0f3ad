"""UEval as a task set: 1,000 requests for text and images, with criteria for each.

Rows are read as ueval_eval.py of zlab-princeton/UEval@3a5b5ea reads them, in both
published layouts: criteria as strings or objects, `task` or `task_type`, ids as strings or
numbers. Answers of others, in the layout which that program takes, are the files of the
folder `answers/` beside the data, and systems by the name of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from plait.benchmarks.tasks.mmie.official import ImageFiles, write_rows
from plait.benchmarks.tasks.published import (
    Answer,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    answers_by_query,
    task_set,
)
from plait.benchmarks.tasks.reading.files import published_files, published_rows
from plait.benchmarks.tasks.reading.images import (
    ImageCache,
    ImageFolder,
    image_paths,
    images_of,
    is_data_url,
)
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, brief, of_type
from plait.benchmarks.tasks.reading.sources import (
    load_rows,
    locate,
)
from plait.generators.document import Document, Image, Query, Text, Turn
from plait.generators.files import safe_name
from plait.scorers.judging.criteria import ABOUTS, CLOSED, CLOSED_TASKS, TASK

NAME = "ueval"
ANSWERS = "answers"
OPEN_TASKS = ("art", "life", "tech", "exercise")
KIND_OF: Mapping[str, str] = {
    **dict.fromkeys(OPEN_TASKS, "open"),
    **dict.fromkeys(CLOSED_TASKS, CLOSED),
}
"""Kind of question by task (`get_question_type_from_task`)."""
_FIELDS = (
    ("text_answer", "image_answer"),
    ("gemini_text_ans", "gemini_image_ans"),
    ("emu_text", "emu_image"),
)
"""Fields of text and images of an answer, as the program and its generators write them."""


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: Parquet, JSON, a folder of either, `hf:ORG/NAME@REV`.

    Images are unpacked once, under `cache`. `avg_fixed` weights the eight tasks alike, as
    the published average does. Raises TaskError where there are no readable rows.
    """
    found = locate(place, ("**/*.parquet", "**/*.json", "**/*.jsonl", "**/*.arrow"))
    images = ImageFolder(found.folder, cache, found.also)
    kept = ImageCache(cache / NAME)
    paths = published_files(found.path, "test")
    given = sorted((found.folder / ANSWERS).glob("*.json"))
    answers = read_answers({path: list(load_rows(path)[0]) for path in given}, cache)
    return task_set(
        NAME,
        TaskData(place, found, [*paths, *given]),
        RowReader(
            published_rows(paths),
            lambda value: _query(Row.of(value), images, kept),
            _group,
            answers,
        ),
        categories=dict.fromkeys(KIND_OF, 1),
        fields=("open", CLOSED),
    )


def _group(value: Any) -> RowGroup:
    task = _task(value) if isinstance(value, dict) else ""
    groups = (task, KIND_OF[task]) if task in KIND_OF else ()
    return RowGroup(RowGroup.of(value, "id", numbers=True).id, *groups)


def _task(row: Mapping[str, Any]) -> str:
    """Return the task of a row, which has other names in the two layouts."""
    for key in (TASK, "task_type"):
        name = row.get(key)
        if isinstance(name, str) and name:
            return name.strip().lower()
    return ""


def _query(row: Row, files: ImageFolder, kept: ImageCache) -> Query:
    id = row.id(numbers=True)
    task = _task(row.values)
    if task not in KIND_OF:
        valid = ", ".join(KIND_OF)
        raise RowError(Rule.CATEGORY, f"the task is {brief(task)}; valid are {valid}")
    kind = row.values.get("question_type") or KIND_OF[task]
    if kind not in ("open", CLOSED):
        raise RowError(Rule.CATEGORY, f"question_type is {brief(kind)}; open or closed")
    prompt = row.nonblank_text("prompt")
    criteria = {}
    metadata = {}
    for about, key in ABOUTS.items():
        criteria[about] = _criteria(row, f"{about}_rubrics")
        metadata[key] = json.dumps(criteria[about])
    # As the file has it: the released program looks for it under this key alone.
    told = row.values.get(TASK)
    if isinstance(told, str):
        metadata[TASK] = told
    text = row.optional("text_ref", str)
    drawn = images_of(row.values.get("image_ref") or [], files, kept, "image_ref")
    said = (Text(text),) if text else ()
    truth = Document((*said, *drawn))
    return Query(
        id=id,
        category=task,
        field=kind,
        turns=(Turn("user", (Text(prompt),)),),
        reference=truth if truth.segments else None,
        wants_images=bool(criteria["image"]),
        metadata=metadata,
    )


def _criteria(row: Row, key: str) -> list[str]:
    """Return criteria, each a string or in an object."""
    criteria = []
    for i, item in enumerate(row.optional(key, list)):
        where = f"{key}[{i}]"
        if isinstance(item, str):
            criteria.append(of_type(item, str, where))
        else:
            criteria.append(Row.of(item, where).text("criterion"))
    return criteria


# ------------------------------------------------------------------------------ answers


def read_answers(
    files: Mapping[Path, list[Any]], cache: Path
) -> dict[str, dict[str, Answer]]:
    """Return the answers in the rows of each file, by the file's name and by query."""
    return {path.stem: _answers(path, values, cache) for path, values in files.items()}


def _answers(path: Path, values: list[Any], cache: Path) -> dict[str, Answer]:
    files = _image_folder(path, values, cache)
    files.check_all(image_paths(values))
    return answers_by_query(
        values, path.name, lambda row: _answer(row, files), numbers=True
    )


def _image_folder(path: Path, values: list[Any], cache: Path) -> ImageFolder:
    """Return the folder to which paths of images are relative: mostly that of the file.

    The benchmark's generators write paths from where they run, so that those of
    `results/gemini.json` begin with `results/`, too.
    """
    own = path.parent
    named = (name for name in image_paths(values) if not is_data_url(name))
    first = next(named, "")
    folders = PureWindowsPath(first).parts[:-1]
    if not (own / first).is_file():
        for depth in range(1, len(folders) + 1):
            if own.parts[-depth:] == folders[:depth]:
                return ImageFolder(own.parents[depth - 1], cache)
    return ImageFolder(own, cache)


def _answer(row: Row, files: ImageFolder) -> Document:
    present = [names for names in _FIELDS if row.values.keys() & {*names}]
    text_field, image_field = present[0] if present else _FIELDS[0]
    segments: list[Text | Image] = []
    if text := row.optional(text_field, str):
        segments.append(Text(text))
    value = row.values.get(image_field) or []
    paths = []
    for path in value if isinstance(value, list) else [value]:
        if path:
            paths.append(of_type(path, str, image_field))
    segments += map(files.image, paths)
    return Document(tuple(segments))


def export(
    documents: Iterable[tuple[Query, Document]],
    model: str,
    out: Path,
    read: Callable[[Image], bytes],
) -> int:
    """Write `documents` for ueval_eval.py into the folder `out`; return how many.

    It is to be run in that folder, to which the paths of images are relative. Their order
    among the text is lost, for which the format has no place. Raises TaskError when `out`
    holds anything.
    """

    def row(pair: tuple[Query, Document], files: ImageFiles) -> dict[str, Any]:
        query, document = pair
        images = [files.path(image) for image in document.images]
        return {"id": query.id, "text_answer": document.text, "image_answer": images}

    return write_rows(documents, row, out, f"{safe_name(model, also='+@')}.json", read)
