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
from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.published import (
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
)
from plait.benchmarks.tasks.reading.images import ImageFolder, image_paths
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, brief
from plait.benchmarks.tasks.reading.sources import load_rows, locate
from plait.generators.document import Content, Document, Query, Text, Turn
from plait.scorers.answers import KNOWN, LETTER
from plait.scorers.judging.criteria import ABOUTS

NAME = "realunify"
FILES = ("GEU_direct.json", "UEG_direct.json")


def load(place: str, cache: Path) -> TaskSet:
    """The queries of a folder with the files, of one of them, or of `hf:ORG/NAME@REV`.

    The category is the task, the field GEU or UEG. Raises TaskError where there is none.
    """
    found = locate(place, (*FILES, "image/**"))
    paths = found.files(FILES)
    images = ImageFolder(found.folder, cache, found.also)
    values: list[tuple[str, Any]] = []
    for path in paths:
        rows, _ = load_rows(path)
        values += [(path.name[:3], row) for row in rows]
    images.check_all(image_paths(row for _, row in values))

    def make(value: tuple[str, Any]) -> Query:
        return _query(value[0], Row.of(value[1]), images)

    def group(value: tuple[str, Any]) -> RowGroup:
        return RowGroup.of(value[1], "", "task_type")._replace(field=value[0])

    fields = ("GEU", "UEG")
    licence = "academic research only"
    return task_set(
        NAME,
        TaskData(place, found, paths),
        RowReader(values, make, group),
        fields=fields,
        licence=licence,
    )


def _query(axis: str, row: Row, images: ImageFolder) -> Query:
    task = row.text("task_type")
    index = row.id("index", numbers=True)
    prompt = row.nonblank_text("evaluation_prompt" if axis == "GEU" else "prompt")
    content: Content = (Text(prompt),)
    reference = None
    if axis == "GEU":
        content = (images.image(row.text("input_image")), *content)
        metadata, reference = _choices(row)
    else:
        criteria: list[str] = []
        for asked in row.rows("question_list"):
            question = asked.text("question")
            answer = asked.text("answer")
            criteria.append(f"To the question {question!r}, the answer is {answer}.")
        metadata = {ABOUTS["image"]: json.dumps(criteria)}
    return Query(
        id=f"{axis}_{index}_{task}",
        category=task,
        field=axis,
        turns=(Turn("user", content),),
        reference=reference,
        wants_images=axis == "UEG",
        metadata=metadata,
    )


def _choices(row: Row) -> tuple[dict[str, str], Document]:
    options = row.list("option")
    truth = row.text("answer")
    letters = [chr(ord("A") + i) for i in range(len(options))]
    if truth not in letters:
        valid = ", ".join(letters)
        raise RowError(Rule.CATEGORY, f"answer is {brief(truth)}, not one of {valid}")
    known = {"form": LETTER, "truth": truth, "of": len(options)}
    return {KNOWN: json.dumps(known)}, Document((Text(truth),))
