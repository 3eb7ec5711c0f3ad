"""UEval as a task set: 1,000 requests for text and images, with criteria for each.

Rows are read as ueval_eval.py of zlab-princeton/UEval@3a5b5ea reads them, in both
published layouts: criteria as strings or objects, `task` or `task_type`, ids as strings or
numbers. Answers of others, in the layout which that program takes, are the files of the
folder `answers/` beside the data, and systems by the name of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.tasks.mmie.official import ImageFiles, claim
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
from benchmarks.tasks.reading.images import ImageCache, ImageFolder
from benchmarks.tasks.reading.parquet import images_of, parquet_files, parquet_rows
from benchmarks.tasks.reading.rules import (
    RowError,
    Rule,
    get,
    id_of,
    load_rows,
    of_type,
    shown,
)
from benchmarks.tasks.reading.sources import digest_of, located
from generators.document import Document, Image, Sample, Text, Turn
from generators.files import safe_name, write_whole
from scorers.judging.criteria import ABOUTS, CLOSED, CLOSED_TASKS, TASK

NAME = "ueval"
ANSWERS = "answers"
OPEN_TASKS = ("art", "life", "tech", "exercise")
KIND_OF: Mapping[str, str] = {
    **dict.fromkeys(OPEN_TASKS, "open"),
    **dict.fromkeys(CLOSED_TASKS, CLOSED),
}
"""Kind of question by task (`get_question_type_from_task`)."""
_REFERENCES = ("text_ref", "image_ref")
_FIELDS = (
    ("text_answer", "image_answer"),
    ("gemini_text_ans", "gemini_image_ans"),
    ("emu_text", "emu_image"),
)
"""Fields of text and images of an answer, as the program and its generators write them."""


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: Parquet, a JSON list, a folder of either, `hf:ORG/NAME@REV`.

    Images are unpacked once, under `cache`. `avg_fixed` weights the eight tasks alike, as
    the published average does. Raises TaskError where there are no readable rows.
    """
    found = located(place, ("**/*.parquet", "**/*.json"))
    folder = found.path if found.path.is_dir() else found.path.parent
    files, kept = ImageFolder(folder, cache, found.also), ImageCache(cache / NAME)
    paths = _files(found.path)
    given = sorted((folder / ANSWERS).glob("*.json"))
    answers = read_answers({path: list(load_rows(path)[0]) for path in given}, cache)

    def make(value: Any) -> ValidRow:
        row = of_type(value, dict, "the row")
        query = _query(row, files, kept)
        own = {w: by_id[query.id] for w, by_id in answers.items() if query.id in by_id}
        return ValidRow(query, own)

    rows = gathered(_rows(paths), make, _known)
    return task_set(
        NAME,
        place,
        rows,
        digest=digest_of([*paths, *given]),
        revision=found.revision,
        categories=dict.fromkeys(KIND_OF, 1),
        fields=("open", CLOSED),
        published_answers=rows.published,
    )


def _files(place: Path) -> list[Path]:
    json_files = [place] if place.is_file() else sorted(place.glob("*.json"))
    if json_files and json_files[0].suffix == ".json":
        return json_files
    return parquet_files(place, "test")


def _rows(paths: Iterable[Path]) -> Iterator[Any]:
    for path in paths:
        yield from load_rows(path)[0] if path.suffix == ".json" else parquet_rows([path])


def _known(value: Any) -> RowGroup:
    row = value if isinstance(value, dict) else {}
    task = _task(row)
    kind = KIND_OF.get(task, UNKNOWN)
    return RowGroup(_id_text(row.get("id")), task if task in KIND_OF else UNKNOWN, kind)


def _task(row: Mapping[str, Any]) -> str:
    named = (row.get(key) for key in (TASK, "task_type"))
    return next((t.strip().lower() for t in named if isinstance(t, str) and t), "")


def _id_text(value: Any) -> str | None:
    number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if number else value if isinstance(value, str) else None


def _id(row: Mapping[str, Any]) -> str:
    """Numbers and strings that are written alike name the same query."""
    return id_of({**row, "id": _id_text(row["id"])} if "id" in row else row)


def _query(row: Mapping[str, Any], files: ImageFolder, kept: ImageCache) -> Sample:
    id, task = _id(row), _task(row)
    if task not in KIND_OF:
        valid = ", ".join(KIND_OF)
        raise RowError(Rule.CATEGORY, f"the task is {shown(task)}; valid are {valid}")
    kind = row.get("question_type") or KIND_OF[task]
    if kind not in ("open", CLOSED):
        raise RowError(Rule.CATEGORY, f"question_type is {shown(kind)}; open or closed")
    prompt = get(row, "prompt", str)
    if not prompt.strip():
        raise RowError(Rule.EMPTY, "prompt is empty")
    criteria = {about: _criteria(row, f"{about}_rubrics") for about in ABOUTS}
    told = row.get(TASK)
    return Sample(
        id=id,
        category=task,
        field=kind,
        turns=(Turn("user", (Text(prompt),)),),
        reference=_reference(row, files, kept),
        wants_images=bool(criteria["image"]),
        metadata={ABOUTS[about]: json.dumps(own) for about, own in criteria.items()}
        | ({TASK: told} if isinstance(told, str) else {}),
    )


def _criteria(row: Mapping[str, Any], key: str) -> list[str]:
    criteria = []
    for i, item in enumerate(of_type(row.get(key) or [], list, key)):
        where = f"{key}[{i}]"
        text = (
            item
            if isinstance(item, str)
            else get(of_type(item, dict, where), "criterion", str, where)
        )
        criteria.append(of_type(text, str, where))
    return criteria


def _reference(
    row: Mapping[str, Any], files: ImageFolder, kept: ImageCache
) -> Document | None:
    text, images = (row.get(key) for key in _REFERENCES)
    said = (Text(of_type(text, str, "text_ref")),) if text else ()
    drawn = images_of(images, files, kept, "image_ref") if images else ()
    document = Document((*said, *drawn))
    return document if document.segments else None


# ------------------------------------------------------------------------------ answers


def read_answers(
    files: Mapping[Path, list[Any]], cache: Path
) -> dict[str, dict[str, Answer]]:
    """Return the answers in the rows of each file, by the file's name and by query."""
    return {path.stem: _answers(path, values, cache) for path, values in files.items()}


def _answers(path: Path, values: list[Any], cache: Path) -> dict[str, Answer]:
    files = ImageFolder(path.parent, cache)
    rows = (value for value in values if isinstance(value, dict))
    drawn = (_listed(row.get(image)) for row in rows for _, image in _FIELDS)
    files.check_all(one for several in drawn for one in several if isinstance(one, str))
    return answers_by_query(values, path.name, _id, lambda row: _answer(row, files))


def _answer(row: Mapping[str, Any], files: ImageFolder) -> Document:
    text_field, image_field = next(
        (names for names in _FIELDS if any(name in row for name in names)), _FIELDS[0]
    )
    text = of_type(row.get(text_field) or "", str, text_field)
    value = row.get(image_field) or []
    images = [of_type(one, str, image_field) for one in _listed(value) if one]
    said = (Text(text),) if text else ()
    return Document((*said, *(files.image(path) for path in images)))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def export(
    documents: Iterable[tuple[Sample, Document]],
    model: str,
    out: Path,
    read: Callable[[Image], bytes],
) -> int:
    """Write `documents` for ueval_eval.py into the folder `out`; return how many.

    It is to be run in that folder, to which the paths of images are relative. Their order
    among the text is lost, for which the format has no place. Raises TaskError when `out`
    holds anything.
    """
    claim(out)
    (out / "images").mkdir()
    files = ImageFiles(out, read)
    rows = [
        {
            "id": query.id,
            "text_answer": document.text,
            "image_answer": [files.path(image) for image in document.images],
        }
        for query, document in documents
    ]
    write_whole(
        out / f"{safe_name(model, also='+@')}.json", json.dumps(rows, indent=1) + "\n"
    )
    return len(rows)
