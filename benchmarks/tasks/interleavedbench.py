"""InterleavedBench as a task set: 815 requests for text and images.

Read is interleaved_bench.json of the Hub's model repository mqliu/InterleavedBench, in a
folder with its images unpacked in `zipped_images/`, as benchmark/sources/interleavedeval.py
of facebookresearch/MMRB2@7ff0552 reads it. Each `<image>` of a turn takes the next image;
those that the question leaves are the ground truth's.

Its five aspects are a rubric in our words, examples/interleavedbench/rubric.toml, for
`judge:NAME`. The benchmark's own evaluator, InterleavedEval, was not compared with it: its
file is on the Hub alone and was not at hand, so no score here is one that it publishes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.benchmarks.tasks.published import (
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    task_set,
    text_of,
)
from plait.benchmarks.tasks.reading.images import ImageFolder, image_paths
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, of_type
from plait.benchmarks.tasks.reading.sources import load_rows, locate
from plait.generators.content import join_texts
from plait.generators.document import Content, Document, Image, Query, Text, Turn
from plait.scorers.judging.rubrics import RUBRIC

NAME = "interleavedbench"
DATA = "interleaved_bench.json"
IMAGES = "zipped_images"
_MARK = "<image>"
_BEGIN = "<BEGIN>"


def load(place: str, cache: Path) -> TaskSet:
    """Return the task set at `place`: a folder with interleaved_bench.json, or that file.

    The category is the task, and answers are judged by MMIE's rubric of stories. Raises
    TaskError where there is none.
    """
    found = locate(place, (DATA, f"{IMAGES}/**"))
    file = found.file(DATA)
    values = load_rows(file)[0]
    images = ImageFolder(file.parent / IMAGES, cache, found.also)
    images.check_all(image_paths(values))

    def make(value: tuple[int, Any]) -> Query:
        return _query(value[0], Row.of(value[1]), images)

    def group(value: tuple[int, Any]) -> RowGroup:
        return RowGroup(str(value[0]), text_of(value[1], "task_name"))

    rows = enumerate(values)
    licence = "Apache-2.0"
    return task_set(
        NAME, TaskData(place, found, [file]), RowReader(rows, make, group), licence=licence
    )


def _query(index: int, row: Row, images: ImageFolder) -> Query:
    """Return the query; its id is its position, since ids recur between tasks."""
    task = row.text("task_name")
    paths = [of_type(path, str, "image") for path in row.list("image")]
    values = [turn.text("value") for turn in list(row.rows("conversations"))[:2]]
    if not values:
        raise RowError(Rule.NO_QUESTION, "conversations is empty")
    drawn = [images.image(path) for path in paths]
    question, rest = _content(values[0], drawn)
    if not question:
        raise RowError(Rule.EMPTY, "the question is empty")
    answer, rest = _content(values[1], rest) if len(values) == 2 else ((), rest)
    truth = (*answer, *rest)
    return Query(
        id=str(index),
        category=task,
        field=task,
        turns=(Turn("user", question),),
        reference=Document(truth) if truth else None,
        metadata={RUBRIC: "SA"},
    )


def _content(text: str, images: list[Image]) -> tuple[Content, list[Image]]:
    """Return texts and images in their order, and the images that are not used.

    A point that begins a piece, and marks of a beginning, are dropped.
    """
    pieces = text.split(_MARK)
    marks = len(pieces) - 1
    if marks > len(images):
        raise RowError(Rule.NOT_FOUND, f"{marks} marks, {len(images)} images")
    segments = list[Text | Image]()
    for i, piece in enumerate(pieces):
        said = piece.replace(_BEGIN, "").strip()
        segments.append(Text(said.removeprefix(".").strip()))
        if i < marks:
            segments.append(images[i])
    return join_texts(segments), images[marks:]
