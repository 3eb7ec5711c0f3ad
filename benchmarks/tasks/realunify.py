"""RealUnify as a task set: do drawing and understanding help each other?

Read are GEU_direct.json (multiple choice about an image: `known-answer`) and
UEG_direct.json (requests for an image), as FrankYang-17/RealUnify@0b76a10 describes them:
those in a folder, or one of them. Questions about an image of the latter are criteria of
the query, for `criteria:NAME`. By eval_generation.py of that repository an image is right
only where all of them are: that score is not given here. For academic research alone (its
README).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.tasks.published import RowGroup, TaskSet, ValidRow, gathered, task_set
from benchmarks.tasks.reading.images import ImageFolder
from benchmarks.tasks.reading.rules import (
    RowError,
    Rule,
    TaskError,
    get,
    load_rows,
    of_type,
    shown,
)
from benchmarks.tasks.reading.sources import digest_of, located
from generators.document import Content, Document, Image, Sample, Text, Turn
from scorers.answers import KNOWN, LETTER
from scorers.judging.criteria import ABOUTS

NAME = "realunify"
FILES = ("GEU_direct.json", "UEG_direct.json")


def load(place: str, cache: Path) -> TaskSet:
    """The queries of a folder with the files, of one of them, or of `hf:ORG/NAME@REV`.

    The category is the task, the field GEU or UEG. Raises TaskError where there is none.
    """
    found = located(place, (*FILES, "image/**"))
    paths = [found.path]
    if found.path.is_dir():
        paths = [p for name in FILES if (p := found.path / name).is_file()]
    if not paths or any(path.name not in FILES for path in paths):
        raise TaskError(
            f"{found.path} is none of {', '.join(FILES)} and holds none of them"
        )
    images = ImageFolder(paths[0].parent, cache, found.also)
    values = [(path.name[:3], row) for path in paths for row in load_rows(path)[0]]
    images.check_all(
        path
        for _, row in values
        if isinstance(row, dict) and isinstance(path := row.get("input_image"), str)
    )

    def make(value: tuple[str, Any]) -> ValidRow:
        axis, row = value[0], of_type(value[1], dict, "the row")
        return ValidRow(_query(axis, row, images))

    return task_set(
        NAME,
        place,
        gathered(values, make, _known),
        digest=digest_of(paths),
        revision=found.revision,
        fields=("GEU", "UEG"),
        licence="academic research only",
    )


def _known(value: tuple[str, Any]) -> RowGroup:
    axis, row = value
    task = row.get("task_type") if isinstance(row, dict) else None
    named = {"category": task} if isinstance(task, str) and task else {}
    return RowGroup(None, field=axis, **named)


def _query(axis: str, row: Mapping[str, Any], images: ImageFolder) -> Sample:
    task, index = get(row, "task_type", str), row.get("index")
    if not isinstance(index, int | str) or isinstance(index, bool):
        raise RowError(Rule.ID, f"index is {shown(index)}, not a number or a string")
    prompt = get(row, "evaluation_prompt" if axis == "GEU" else "prompt", str)
    if not prompt.strip():
        raise RowError(Rule.EMPTY, "the prompt is empty")
    content: Content = (Text(prompt),)
    reference = None
    if axis == "GEU":
        image: Image = images.image(get(row, "input_image", str))
        content = (image, *content)
        metadata, reference = _choices(row)
    else:
        questions = get(row, "question_list", list)
        metadata = {ABOUTS["image"]: json.dumps([_criterion(q) for q in questions])}
    return Sample(
        id=f"{axis}_{index}_{task}",
        category=task,
        field=axis,
        turns=(Turn("user", content),),
        reference=reference,
        wants_images=axis == "UEG",
        metadata=metadata,
    )


def _choices(row: Mapping[str, Any]) -> tuple[dict[str, str], Document]:
    options, truth = get(row, "option", list), get(row, "answer", str)
    letters = [chr(ord("A") + i) for i in range(len(options))]
    if truth not in letters:
        valid = ", ".join(letters)
        raise RowError(Rule.CATEGORY, f"answer is {shown(truth)}, not one of {valid}")
    known = {"form": LETTER, "truth": truth, "of": len(options)}
    return {KNOWN: json.dumps(known)}, Document((Text(truth),))


def _criterion(value: Any) -> str:
    item = of_type(value, dict, "question_list")
    question, answer = (
        get(item, key, str, "question_list") for key in ("question", "answer")
    )
    return f"To the question {question!r}, the answer is {answer}."
