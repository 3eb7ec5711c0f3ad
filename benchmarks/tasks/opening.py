"""OpenING as a task set: open-ended requests for interleaved text and images.

Read are the lines of `test_data.jsonl` as LanceZPF/OpenING@56b663b has them (2,160 in 56
tasks). Answers of others, in the layout which its programs take, are the folders
`MODEL_output` in `gen_outputs/` or beside the data: one file for each query, named by its
id, and systems by the name MODEL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.tasks.published import (
    UNKNOWN,
    Answer,
    RowGroup,
    TaskSet,
    ValidRow,
    gathered,
    task_set,
)
from benchmarks.tasks.reading.images import ImageFolder, image_paths
from benchmarks.tasks.reading.rules import (
    RowError,
    Rule,
    TaskError,
    get,
    id_of,
    is_id,
    load_json,
    load_lines,
    of_type,
    shown,
)
from benchmarks.tasks.reading.sources import digest_of, located
from generators.base import Failure, Fault
from generators.content import empty
from generators.document import Content, Document, Image, Sample, Text, Turn

NAME = "opening"
DATA = "test_data.jsonl"
_FOLDERS = (".", "OpenING-benchmark", "OpenING-Benchmark")
"""Where the file of rows lies in a checkout; its programs spell the name in both ways."""
_OUTPUT = "_output"
_BEGIN, _IMAGE = "<BEGIN>", "<image>"
"""Marks in texts: where an example begins, and that an image follows the text."""


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: a checkout, a folder with test_data.jsonl, or such a file.

    Raises TaskError where there is none, and for a line that is not JSON.
    """
    found = located(place, (f"**/{DATA}", "**/images/**", f"**/*{_OUTPUT}/*"))
    root = found.path if found.path.is_dir() else found.path.parent
    files = [root / folder / DATA for folder in _FOLDERS]
    file = found.path if found.path.is_file() else next(filter(Path.is_file, files), None)
    if file is None:
        raise TaskError(f"{root} does not hold {DATA}, nor does OpenING-benchmark/ in it")
    values = load_lines(file)
    images = ImageFolder(file.parent, cache, found.also)
    images.check_all(image_paths(values))
    folders = sorted(
        path
        for pattern in (f"*{_OUTPUT}", f"gen_outputs/*{_OUTPUT}")
        for path in root.glob(pattern)
        if path.is_dir()
    )
    answers = read_answers(
        {path: _row(path) for folder in folders for path in _files(folder)}, cache
    )

    def make(value: Any) -> ValidRow:
        query = _query(of_type(value, dict, "the row"), images)
        own = {w: by_id[query.id] for w, by_id in answers.items() if query.id in by_id}
        return ValidRow(query, own)

    rows = gathered(values, make, _known)
    return task_set(
        NAME,
        place,
        rows,
        digest=digest_of([file, *(path for f in folders for path in _files(f))]),
        revision=found.revision,
        published_answers=rows.published,
    )


def _known(value: Any) -> RowGroup:
    row = value if isinstance(value, dict) else {}
    id, *groups = (row.get(k) for k in ("total_uid", "meta_task_name", "subtask_name"))
    names = (name if isinstance(name, str) and name else UNKNOWN for name in groups)
    return RowGroup(id if is_id(id) else None, *names)


def _query(row: Mapping[str, Any], images: ImageFolder) -> Sample:
    question = _content(_items(row, 0, "input"), images.image, (_BEGIN, _IMAGE))
    if empty(question):
        raise RowError(Rule.EMPTY, "the input is empty")
    output = _items(row, 1, "output") if len(row["conversations"]) > 1 else ()
    return Sample(
        id=id_of(row, "total_uid"),
        category=get(row, "meta_task_name", str),
        field=get(row, "subtask_name", str),
        turns=(Turn("user", tuple(s for s in question if s != Text(""))),),
        reference=Document(_content(output, images.image, (_IMAGE,))) if output else None,
    )


def _items(row: Mapping[str, Any], turn: int, key: str) -> Sequence[Mapping[str, Any]]:
    turns = get(row, "conversations", list)
    if len(turns) <= turn:
        raise RowError(Rule.MISSING_KEY, f"conversations has no entry {turn}")
    where = f"conversations[{turn}]"
    items = get(of_type(turns[turn], dict, where), key, list, where)
    return [of_type(v, dict, f"{where}.{key}[{i}]") for i, v in enumerate(items)]


def _content(
    items: Sequence[Mapping[str, Any]],
    image: Callable[[str], Image],
    marks: Sequence[str],
) -> Content:
    """Return each text as the released programs show it, before its image.

    They keep the blanks around marks. An item with neither is an empty text.
    """
    segments: list[Text | Image] = []
    for item in items:
        text = of_type(item.get("text") or "", str, "a text").strip()
        for mark in marks:
            text = text.replace(mark, "")
        path = of_type(item.get("image") or "", str, "an image")
        if text or not path:
            segments.append(Text(text))
        if path:
            segments.append(image(path))
    return tuple(segments)


# ------------------------------------------------------------------------------ answers


def _files(folder: Path) -> list[Path]:
    """Return the files of answers: some that are named .jsonl are JSON as well.

    Of two for one query, that named .json comes last.
    """
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
        return images.image(PurePosixPath(path).name)

    images.check_all(PurePosixPath(path).name for path in image_paths([*files.values()]))
    answers: dict[str, Answer] = {}
    for path, rows in files.items():
        try:
            if len(rows) != 1 or not isinstance(rows[0], dict):
                said = rows[0] if isinstance(rows[0], str) else shown(rows)
                raise RowError(Rule.WRONG_TYPE, f"not one object: {said}")
            row = rows[0]
            answer = Document(_content(_items(row, 1, "output"), image, (_IMAGE,)))
        except RowError as error:
            reason = f"{folder.name}/{path.name}: {error}"
            answers[path.stem] = Failure(reason, Fault.BAD_INPUT)
        else:
            answers[path.stem] = answer
    return answers
