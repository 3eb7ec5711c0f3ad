"""MMRB2 (Multimodal RewardBench 2): pairs of answers of which people have chosen one.

Read are the files of the four splits, in the layout that `benchmark/build_from_hf.py` of
facebookresearch/MMRB2@7ff0552 writes (CC BY-NC 4.0): those in a folder, or one of them. A
pair is a query, its category the split and its field the source of the prompt; its two
answers are published by the writers A and B, since both are often the same model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.tasks.published import (
    PREFIX,
    RowGroup,
    TaskSet,
    ValidRow,
    gathered,
    task_set,
)
from benchmarks.tasks.reading.images import ImageFolder
from benchmarks.tasks.reading.rules import (
    RowError,
    Rule,
    TaskError,
    get,
    id_of,
    is_id,
    load_json,
    of_type,
    shown,
)
from benchmarks.tasks.reading.sources import digest_of, located
from generators.document import Content, Document, Image, Sample, Text, Turn
from scorers.judging.rubrics import RUBRIC

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
    found = located(place, [f"{split}.json" for split in SPLITS] + ["*images/*"])
    root, files = found.path, [found.path]
    if root.is_dir():
        files = [p for split in SPLITS if (p := root / f"{split}.json").is_file()]
    if not files or any(file.stem not in SPLITS for file in files):
        names = ", ".join(f"{split}.json" for split in SPLITS)
        raise TaskError(
            f"{root} is none of {names} and holds none of them: build them with "
            "benchmark/build_from_hf.py of MMRB2"
        )
    values = [(file.stem, value) for file in files for value in _pairs(file)]
    images = ImageFolder(files[0].parent, cache, found.also)
    images.check_all(_image_paths([value for _, value in values]))

    def make(value: tuple[str, Any]) -> ValidRow:
        return _pair(value[0], of_type(value[1], dict, "the pair"), images)

    return task_set(
        NAME,
        place,
        gathered(values, make, _known),
        digest=digest_of(files),
        revision=found.revision,
        licence="CC BY-NC 4.0",
    )


def _pairs(file: Path) -> list[Any]:
    content, _ = load_json(file, dict, "an object with pairs")
    if not isinstance(pairs := content.get("pairs"), list):
        raise TaskError(f"{file}: pairs must be a list, not {shown(pairs)}")
    return pairs


def _image_paths(value: Any) -> Iterator[str]:
    """Yield the paths in all `["image", path]`, of valid pairs or not."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        if value[:1] == ["image"] and len(value) == 2 and isinstance(value[1], str):
            yield value[1]
        for part in value:
            yield from _image_paths(part)


def _known(value: tuple[str, Any]) -> RowGroup:
    split, pair = value
    row: Mapping[str, Any] = pair if isinstance(pair, dict) else {}
    id, source = row.get("id"), row.get("prompt_source")
    named = {"field": source} if isinstance(source, str) and source else {}
    return RowGroup(id if is_id(id) else None, split, **named)


def _pair(split: str, row: Mapping[str, Any], images: ImageFolder) -> ValidRow:
    question = _content(row, "prompt_content", images)
    given = {side: get(row, f"response_{side.lower()}", dict) for side in SIDES}
    if (chosen := get(row, "chosen", str)) not in SIDES:
        raise RowError(Rule.CATEGORY, f"chosen is {shown(chosen)}; it must be A or B")
    generators = {
        GENERATOR.format(side): get(answer, "model_name", str, "the response")
        for side, answer in given.items()
    }
    query = Sample(
        id=id_of(row),
        category=split,
        field=get(row, "prompt_source", str),
        turns=(Turn("user", question),),
        wants_images=split != "reasoning",
        metadata={CHOSEN: chosen, RUBRIC: _RUBRICS[split], **generators},
    )
    answers = {
        side: Document(_content(answer, "response_content", images))
        for side, answer in given.items()
    }
    return ValidRow(query, answers)


def _content(row: Mapping[str, Any], key: str, images: ImageFolder) -> Content:
    """Return a list of `["text", text]` and `["image", path]` without its empty texts."""
    segments: list[Text | Image] = []
    for part in get(row, key, list):
        if not (isinstance(part, list) and len(part) == 2 and part[0] in ("text", "image")):
            rule = "must be a text or an image and what it holds"
            raise RowError(Rule.WRONG_TYPE, f"a part of {key} {rule}, not {shown(part)}")
        what = of_type(part[1], str, f"a part of {key}")
        if part[0] == "image":
            segments.append(images.image(what))
        elif what:
            segments.append(Text(what))
    if not any(isinstance(s, Image) or s.text.strip() for s in segments):
        raise RowError(Rule.EMPTY, f"{key} is empty")
    return tuple(segments)
