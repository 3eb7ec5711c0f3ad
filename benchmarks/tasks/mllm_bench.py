"""MLLM-Bench's repository as a task set: 420 questions about an image, on six levels.

Read are data/questions.json, the images, and the answer files anchor.json and
data/<model>.json, in the layout of FreedomIntelligence/MLLM-Bench@403f82c9. One published
row holds a web address as its question type; it is kept as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.published import (
    Answer,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    add_answer,
    task_set,
    text_of,
)
from plait.benchmarks.tasks.reading.images import ImageFolder, image_paths
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, TaskError
from plait.benchmarks.tasks.reading.sources import load_rows, locate
from plait.generators.document import Document, Query, Text, Turn
from plait.scorers.pairwise.mllm_bench import QUESTION_TYPE

NAME = "mllm-bench"
QUESTIONS = Path("data", "questions.json")


def load(place: str, cache: Path) -> TaskSet:
    """The task set in the checkout at `place`; it includes all answer files in `data/`.

    Raises TaskError where there is no readable `data/questions.json`.
    """
    found = locate(place, ("data/**",))
    root = found.path
    if not (root / QUESTIONS).is_file():
        raise TaskError(f"{root} has no {QUESTIONS}: give a checkout of MLLM-Bench")
    values, _ = load_rows(root / QUESTIONS)
    images = ImageFolder(root, cache, found.also)
    images.check_all(image_paths(values))
    answers, unread = _read_published(root / "data")
    read = [p for p in _answer_files(root / "data") if p.name not in unread]
    return task_set(
        NAME,
        TaskData(place, found, [root / QUESTIONS, *read]),
        RowReader(values, lambda value: _query(Row.of(value), images), _group, answers),
        unread_answers=unread,
    )


def _group(value: Any) -> RowGroup:
    meta = value.get("meta") if isinstance(value, dict) else None
    groups = (text_of(meta, key) for key in ("level", "capability"))
    return RowGroup(RowGroup.of(value, "id", numbers=True).id, *groups)


def _query(row: Row, images: ImageFolder) -> Query:
    id = row.id(numbers=True)
    question = row.nonblank_text("question")
    image = images.image(row.text("image_path"))
    meta = row.object("meta")
    metadata = {}
    for name, key in ((QUESTION_TYPE, "question type"), ("url", "url")):
        text = meta.values.get(key)
        if isinstance(text, str) and text:
            metadata[name] = text
    return Query(
        id=id,
        category=meta.text("level"),
        field=meta.text("capability"),
        turns=(Turn("user", (image, Text(question))),),
        criteria=row.optional("reference", str) or None,
        wants_images=False,
        metadata=metadata,
    )


def _answer_files(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.glob("*.json")) if p.name != QUESTIONS.name]


def _read_published(folder: Path) -> tuple[dict[str, dict[str, Answer]], dict[str, str]]:
    """Return answers by model and id, and by name of file why it holds none."""
    answers = dict[str, dict[str, Answer]]()
    unread = dict[str, str]()
    for path in _answer_files(folder):
        try:
            # All rows first: a file with a broken one holds no answers at all.
            read = [_answer(Row.of(row)) for row in load_rows(path)[0]]
        except (TaskError, RowError) as error:
            unread[path.name] = str(error)
            continue
        for writer, id, text in read:
            answer = Document((Text(text),) if text else ())
            again = f"{path.name}: {Rule.DUPLICATE}: another answer to {id!r}"
            add_answer(answers.setdefault(writer, {}), id, answer, again)
    return answers, unread


def _answer(row: Row) -> tuple[str, str, str]:
    """Return who answered, the id of the question, and the answer; RowError."""
    writer = row.text("gen_model_id")
    return writer, row.id("unique_idx", numbers=True), row.text("answer")
