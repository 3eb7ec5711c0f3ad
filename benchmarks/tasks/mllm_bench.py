"""MLLM-Bench's repository as a task set: 420 questions about an image, on six levels.

Read are data/questions.json, the images, and the answer files anchor.json and
data/<model>.json, in the layout of FreedomIntelligence/MLLM-Bench@403f82c9. One published
row holds a web address as its question type; it is kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.tasks.published import RowGroup, TaskSet, ValidRow, gathered, task_set
from benchmarks.tasks.reading.images import ImageFolder, image_paths
from benchmarks.tasks.reading.rules import (
    RowError,
    Rule,
    TaskError,
    get,
    is_id,
    load_rows,
    of_type,
)
from benchmarks.tasks.reading.sources import digest_of, located
from generators.document import Document, Sample, Text, Turn
from scorers.pairwise.mllm_bench import QUESTION_TYPE

NAME = "mllm-bench"
QUESTIONS = Path("data", "questions.json")


def load(place: str, cache: Path) -> TaskSet:
    """The task set in the checkout at `place`; it includes all answer files in `data/`.

    Raises TaskError where there is no readable `data/questions.json`.
    """
    found = located(place, ("data/**",))
    root = found.path
    if not (root / QUESTIONS).is_file():
        raise TaskError(f"{root} has no {QUESTIONS}: give a checkout of MLLM-Bench")
    values, _ = load_rows(root / QUESTIONS)
    images = ImageFolder(root, cache, found.also)
    images.check_all(image_paths(values))
    answers, unread = _published(root / "data")

    def make(value: Any) -> ValidRow:
        row = of_type(value, dict, "the row")
        id = _id(row, "id")
        given = {w: by_id[id] for w, by_id in answers.items() if id in by_id}
        return ValidRow(_query(row, id, images), given)

    rows = gathered(values, make, _known)
    read = [p for p in _answer_files(root / "data") if p.name not in unread]
    return task_set(
        NAME,
        place,
        rows,
        digest=digest_of([root / QUESTIONS, *read]),
        revision=found.revision,
        published_answers=rows.published,
        unread_answers=unread,
    )


def _known(value: Any) -> RowGroup:
    row = value if isinstance(value, dict) else {}
    meta = row.get("meta")
    groups_of = meta if isinstance(meta, dict) else {}
    groups = (groups_of.get("level"), groups_of.get("capability"))
    named = (g if isinstance(g, str) and g else "unknown" for g in groups)
    return RowGroup(_id_text(row.get("id")), *named)


def _query(row: Mapping[str, Any], id: str, images: ImageFolder) -> Sample:
    question = get(row, "question", str)
    if not question.strip():
        raise RowError(Rule.EMPTY, "question is empty")
    image = images.image(get(row, "image_path", str))
    meta = get(row, "meta", dict)
    criteria = of_type(row.get("reference") or "", str, "reference")
    about = {QUESTION_TYPE: meta.get("question type"), "url": meta.get("url")}
    return Sample(
        id=id,
        category=get(meta, "level", str, "meta"),
        field=get(meta, "capability", str, "meta"),
        turns=(Turn("user", (image, Text(question))),),
        criteria=criteria or None,
        wants_images=False,
        metadata={k: v for k, v in about.items() if isinstance(v, str) and v},
    )


def _answer_files(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.glob("*.json")) if p.name != QUESTIONS.name]


def _published(folder: Path) -> tuple[dict[str, dict[str, Document]], dict[str, str]]:
    """Return answers by model and id, and by name of file why it holds none."""
    answers, unread = dict[str, dict[str, Document]](), dict[str, str]()
    for path in _answer_files(folder):
        try:
            read = [_answer(row) for row in load_rows(path)[0]]
        except (TaskError, RowError) as error:
            unread[path.name] = str(error)
            continue
        for writer, id, document in read:
            answers.setdefault(writer, {})[id] = document
    return answers, unread


def _answer(value: Any) -> tuple[str, str, Document]:
    row = of_type(value, dict, "the answer")
    id = _id(row, "unique_idx")
    writer = get(row, "gen_model_id", str, "the answer")
    answer = get(row, "answer", str, "the answer")
    return writer, id, Document((Text(answer),) if answer else ())


def _id(row: Mapping[str, Any], key: str) -> str:
    if (id := _id_text(row.get(key))) is None:
        raise RowError(Rule.ID, f"{key} must be a number or a word, not {row.get(key)!r}")
    return id


def _id_text(value: Any) -> str | None:
    number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if number or is_id(value) else None
