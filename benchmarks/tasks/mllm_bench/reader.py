"""MLLM-Bench's repository as a task set: data/questions.json, pictures, answer files.

Layout of FreedomIntelligence/MLLM-Bench@403f82c9. One published row holds an address for
its question type; it is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.tasks.mllm_bench.answers import Answers, answer_files, id_text
from benchmarks.tasks.mmie.reader import load_rows
from benchmarks.tasks.mmie.rows import Picture, get, of_type
from benchmarks.tasks.published import Entry, Known, digest_of, gathered, located, task_set
from benchmarks.tasks.reading.album import Album
from benchmarks.tasks.reading.rules import RowError, Rule, TaskError
from benchmarks.tasks.task_set import TaskSet
from generators.document import Sample, Text, Turn
from scorers.pairwise.mllm_bench import QUESTION_TYPE

NAME = "mllm-bench"
QUESTIONS = Path("data", "questions.json")


def load(place: str, cache: Path) -> TaskSet:
    """The task set in the checkout at `place`; all answer files in `data/` come with it.

    Raises TaskError where there is no readable `data/questions.json`.
    """
    root, revision = located(place, ("data/**",))
    if not (root / QUESTIONS).is_file():
        raise TaskError(f"{root} has no {QUESTIONS}: give a checkout of MLLM-Bench")
    values, _ = load_rows(root / QUESTIONS)
    album = Album(root, cache, _linked(root, revision))
    album.check(p for value in values if (p := _picture(value)) is not None)
    answers = answer_files(root / "data", besides=QUESTIONS.name)
    rows = gathered(values, _maker(album, answers), _known)
    digest = digest_of([root / QUESTIONS, *answers.paths])
    task = task_set(NAME, place, rows, digest=digest, revision=revision)
    return replace(task, about={**task.about, "unread_answers": dict(answers.unread)})


def _linked(root: Path, revision: str | None) -> tuple[Path, ...]:
    """Where the links of a Hub snapshot lead."""
    return () if revision is None else (root.parents[1] / "blobs",)


def _known(value: Any) -> Known:
    row = value if isinstance(value, dict) else {}
    meta = row.get("meta")
    groups_of = meta if isinstance(meta, dict) else {}
    groups = (groups_of.get("level"), groups_of.get("capability"))
    named = (g if isinstance(g, str) and g else "unknown" for g in groups)
    return Known(id_text(row.get("id")), *named)


def _picture(value: Any) -> Picture | None:
    path = value.get("image_path") if isinstance(value, dict) else None
    return Picture(path) if isinstance(path, str) else None


def _maker(album: Album, answers: Answers) -> Callable[[Any], Entry]:
    def make(value: Any) -> Entry:
        row = of_type(value, dict, "the row")
        id = id_text(row.get("id"))
        if id is None:
            raise RowError(Rule.ID, f"id must be a number or a word, not {row.get('id')!r}")
        return Entry(_sample(row, id, album), answers.of(id))

    return make


def _sample(row: Mapping[str, Any], id: str, album: Album) -> Sample:
    question = get(row, "question", str)
    if not question.strip():
        raise RowError(Rule.EMPTY, "question is empty")
    image = album.image(Picture(get(row, "image_path", str)))
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
