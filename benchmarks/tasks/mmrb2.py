"""MMRB2 (Multimodal RewardBench 2): pairs of answers of which people have chosen one.

Read are the files of the four splits, in the layout that `benchmark/build_from_hf.py` of
facebookresearch/MMRB2@7ff0552 writes (CC BY-NC 4.0): those in a folder, or one of them. A
pair is a query, its category the split and its field the source of the prompt; its two
answers are published by the writers A and B, since both are often the same model's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from plait.benchmarks.tasks.published import (
    PREFIX,
    RowGroup,
    RowReader,
    TaskData,
    TaskSet,
    ValidRow,
    task_set,
)
from plait.benchmarks.tasks.reading.images import ImageFolder, image_paths
from plait.benchmarks.tasks.reading.rules import Row, RowError, Rule, brief, of_type
from plait.benchmarks.tasks.reading.sources import load_listed, locate
from plait.generators.document import Content, Document, Image, Query, Text, Turn
from plait.scorers.judging.rubrics import RUBRIC

NAME = "mmrb2"
SPLITS = ("t2i", "edit", "interleaved", "reasoning")
_RUBRICS = dict.fromkeys(SPLITS, "SA") | {"reasoning": "MSR"}
"""Of MMIE's rubrics the one for each split: none was written for MMRB2's prompts."""
SIDES = ("A", "B")
ANSWERS = tuple(f"{PREFIX}{side}" for side in SIDES)
"""The systems that gave the two answers of every pair."""
CHOSEN = "chosen"
"""Metadata of a query: the answer that people prefer, `A` or `B`."""
GENERATOR = "generator_{}"
"""Metadata of a query: the model that wrote the answer of a side."""


def load(place: str, cache: Path) -> TaskSet:
    """Return the pairs of a folder with files of splits, or of one such file.

    Raises TaskError where there is none, and for a file without a list of pairs.
    """
    names = [f"{split}.json" for split in SPLITS]
    found = locate(place, [*names, "*images/*"])
    hint = ": build them with benchmark/build_from_hf.py of MMRB2"
    files = found.files(names, hint)
    entries: list[_Entry] = []
    for file in files:
        for pair in load_listed(file, "pairs"):
            entries.append(_Entry(file.stem, pair))
    images = ImageFolder(found.folder, cache, found.also)
    images.check_all(image_paths(entry.pair for entry in entries))

    def make(entry: _Entry) -> ValidRow:
        return _pair(entry.split, Row.of(entry.pair), images)

    licence = "CC BY-NC 4.0"
    return task_set(
        NAME,
        TaskData(place, found, files),
        RowReader(entries, make, _group),
        licence=licence,
    )


class _Entry(NamedTuple):
    """A row of one split's file."""

    split: str
    pair: Any


def _group(entry: _Entry) -> RowGroup:
    group = RowGroup.of(entry.pair, "id", field="prompt_source")
    return group._replace(category=entry.split)


def _pair(split: str, row: Row, images: ImageFolder) -> ValidRow:
    """Return a pair as a query, and its answers by side; RowError."""
    question = _content(row, "prompt_content", images)
    given = {side: row.object(f"response_{side.lower()}") for side in SIDES}
    chosen = row.text("chosen")
    if chosen not in SIDES:
        raise RowError(Rule.CATEGORY, f"chosen is {brief(chosen)}; it must be A or B")
    metadata = {CHOSEN: chosen, RUBRIC: _RUBRICS[split]}
    for side, response in given.items():
        metadata[GENERATOR.format(side)] = response.text("model_name")
    query = Query(
        id=row.id(),
        category=split,
        field=row.text("prompt_source"),
        turns=(Turn("user", question),),
        wants_images=split != "reasoning",
        metadata=metadata,
    )
    answers = {}
    for side, response in given.items():
        answers[side] = Document(_content(response, "response_content", images))
    return ValidRow(query, answers)


def _content(row: Row, key: str, images: ImageFolder) -> Content:
    """Return a list of `["text", text]` and `["image", path]` without its empty texts."""
    segments: list[Text | Image] = []
    for part in row.list(key):
        if not (isinstance(part, list) and len(part) == 2 and part[0] in ("text", "image")):
            rule = "must be a text or an image and what it holds"
            raise RowError(Rule.WRONG_TYPE, f"a part of {key} {rule}, not {brief(part)}")
        what = of_type(part[1], str, f"a part of {key}")
        if part[0] == "image":
            segments.append(images.image(what))
        elif what:
            segments.append(Text(what))
    if not any(isinstance(part, Image) or part.text.strip() for part in segments):
        raise RowError(Rule.EMPTY, f"{key} is empty")
    return tuple(segments)
