"""MLLM-Bench's repository as a task set: 420 questions about an image, on six levels.

Read are data/questions.json, the images, and the answer files anchor.json and
data/<model>.json, in the layout of FreedomIntelligence/MLLM-Bench@403f82c9. One published
row holds a web address as its question type; it is kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.tasks.published import task_set
from benchmarks.tasks.reading.images import ImageFolder, image_paths
from benchmarks.tasks.reading.rules import (
    RowError,
    RowGroup,
    Rule,
    TaskError,
    ValidRow,
    gathered,
    get,
    load_rows,
    of_type,
    shown,
)
from benchmarks.tasks.reading.sources import digest_of, located
from benchmarks.tasks.task_set import TaskSet
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
    answers = answer_files(root / "data", besides=QUESTIONS.name)

    def make(value: Any) -> ValidRow:
        row = of_type(value, dict, "the row")
        id = id_text(row.get("id"))
        if id is None:
            raise RowError(Rule.ID, f"id must be a number or a word, not {row.get('id')!r}")
        return ValidRow(_sample(row, id, images), answers.of(id))

    rows = gathered(values, make, _known)
    digest = digest_of([root / QUESTIONS, *answers.paths])
    task = task_set(NAME, place, rows, digest=digest, revision=found.revision)
    return replace(task, about={**task.about, "unread_answers": dict(answers.unread)})


def _known(value: Any) -> RowGroup:
    row = value if isinstance(value, dict) else {}
    meta = row.get("meta")
    groups_of = meta if isinstance(meta, dict) else {}
    groups = (groups_of.get("level"), groups_of.get("capability"))
    named = (g if isinstance(g, str) and g else "unknown" for g in groups)
    return RowGroup(id_text(row.get("id")), *named)


def _sample(row: Mapping[str, Any], id: str, images: ImageFolder) -> Sample:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFiles:
    """What the answer files of a folder hold."""

    paths: tuple[Path, ...]
    by_writer: Mapping[str, Mapping[str, Document]]
    unread: Mapping[str, str]
    """Files that are not answer files, and why."""

    def of(self, id: str) -> dict[str, Document]:
        """Return all answers to one question, by writer."""
        return {w: by_id[id] for w, by_id in self.by_writer.items() if id in by_id}


def answer_files(folder: Path, besides: str) -> AnswerFiles:
    """Read the answers in the JSON files of `folder`, except the file `besides`."""
    paths, answers, unread = [], dict[str, dict[str, Document]](), dict[str, str]()
    for path in sorted(folder.glob("*.json")):
        if path.name == besides:
            continue
        try:
            rows = [_answer(row) for row in load_rows(path)[0]]
        except (TaskError, RowError) as error:
            unread[path.name] = str(error)
            continue
        paths.append(path)
        for writer, id, document in rows:
            answers.setdefault(writer, {})[id] = document
    return AnswerFiles(paths=tuple(paths), by_writer=answers, unread=unread)


def _answer(value: Any) -> tuple[str, str, Document]:
    row = of_type(value, dict, "the answer")
    id = id_text(row.get("unique_idx"))
    if id is None:
        raise RowError(Rule.ID, f"unique_idx is {shown(row.get('unique_idx'))}")
    writer = get(row, "gen_model_id", str, "the answer")
    answer = get(row, "answer", str, "the answer")
    return writer, id, Document((Text(answer),) if answer else ())


def id_text(value: Any) -> str | None:
    """Return an id as text; None where the value is not a valid id."""
    number = isinstance(value, int) and not isinstance(value, bool)
    word = isinstance(value, str) and value.strip() != "" and value.isprintable()
    return str(value) if number or word else None
