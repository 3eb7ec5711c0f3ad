"""Creation-MMBench as a task set: 765 creative requests about pictures, 51 tasks.

The published TSV has quoted fields, base64 pictures and one request a row; its columns are
read as `ImageBaseDataset` in vlmeval/dataset/image_base.py of open-compass/VLMEvalKit does.
A model is shown all pictures, then the question (`ImageBaseDataset.build_prompt`); criteria
are split as `build_prompt` of vlmeval/dataset/creation.py splits them. In the text-only
variant, systems read descriptions instead of the pictures.
"""

from __future__ import annotations

import ast
import base64
import binascii
import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.tasks.creation_categories import CATEGORY_OF
from benchmarks.tasks.published import (
    RowGroup,
    ValidRow,
    as_asked,
    digest_of,
    gathered,
    located,
    task_set,
)
from benchmarks.tasks.reading.pictures import PictureCache
from benchmarks.tasks.reading.rules import RowError, Rule, TaskError, shown
from benchmarks.tasks.task_set import TaskSet
from generators.document import Document, Image, Sample, Text, Turn
from generators.system import Variant
from scorers.pairwise.creation import FACTUALITY
from scorers.pairwise.prompts import DESCRIPTION, text_only

REQUIRED = ("index", "question", "image", "task_name", "criteria")
_MOST_CHARACTERS = 2**31 - 1
_LONGEST_INDEX = 64
"""An `image` this short is the index of another row, whose pictures it shares."""

TsvRow = Mapping[str, str]
NAME = "creation-mmbench"
WRITER = "gpt-4o-1120"
"""Who wrote `reference_answer_by_gpt4o`: GPT-4o of 2024-11-20 (paper section 4.1)."""
DESCRIPTIONS = "descriptions.json"
"""Beside the TSV: what the pictures of each row show, {index: text}."""
_ANSWER = "reference_answer_by_gpt4o"
_READ = {*REQUIRED, _ANSWER, "image_path"}

Pictures = tuple[Image, ...] | str
"""Pictures of a row, or the index of the row whose pictures it shares."""
Opened = tuple[TsvRow, Pictures | RowError]
"""A row without its encoded pictures, and the pictures or what is wrong with them."""


def load(place: str, cache: Path) -> TaskSet:
    """The task set at `place`: the TSV, a folder with one, or `hf:ORG/NAME@REV`.

    Pictures are unpacked once, under `cache`. Raises TaskError where there is no
    readable TSV.
    """
    return _loaded(place, cache, with_pictures=True)


def load_text_only(place: str, cache: Path) -> TaskSet:
    """The same, but systems read descriptions instead of the pictures.

    Descriptions are a column `image_description` or the file `descriptions.json` beside
    the TSV; a row without one is a failure. Judges are shown the pictures.
    """
    return _loaded(place, cache, with_pictures=False)


def _loaded(place: str, cache: Path, *, with_pictures: bool) -> TaskSet:
    path, revision = located(place, ("*.tsv", DESCRIPTIONS))
    path = _tsv(path)
    opened = list(_opened(path, PictureCache(cache / NAME)))
    make = _maker(opened, _descriptions(path), with_pictures)
    return task_set(
        NAME if with_pictures else f"{NAME}-text",
        place,
        gathered(opened, make, _known),
        digest=digest_of([path]),
        revision=revision,
        prompt=as_asked if with_pictures else described,
    )


def described(sample: Sample, variant: Variant) -> tuple[Turn, ...]:
    """The question with a description in place of its pictures."""
    return text_only(sample).turns


def _tsv(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("*.tsv"))
    if len(files) != 1:
        raise TaskError(f"{path} must hold one .tsv file; it holds {len(files)}")
    return files[0]


def _descriptions(tsv: Path) -> dict[str, str]:
    path = tsv.with_name(DESCRIPTIONS)
    if not path.is_file():
        return {}
    try:
        texts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TaskError(f"{path} cannot be read: {error}") from None
    if not isinstance(texts, dict):
        raise TaskError(f"{path} must hold {{index: description}}, not {shown(texts)}")
    return {str(index): str(text) for index, text in texts.items()}


def _opened(path: Path, cache: PictureCache) -> Iterator[Opened]:
    """The rows of the TSV, with their pictures put into the cache."""
    for row in rows(path):
        try:
            images: Pictures | RowError = pictures(row["image"], cache)
        except RowError as error:
            images = error
        yield {**row, "image": ""}, images


def _maker(
    opened: Sequence[Opened], descriptions: Mapping[str, str], with_pictures: bool
) -> Callable[[Opened], ValidRow]:
    by_index = {row["index"]: images for row, images in opened}

    def make(value: Opened) -> ValidRow:
        row, images = value
        index = _index(row)
        sample = _sample(row, index, _resolved(images, by_index))
        if index in descriptions:
            about = {**sample.metadata, DESCRIPTION: descriptions[index]}
            sample = replace(sample, metadata=about)
        if not with_pictures and not sample.metadata.get(DESCRIPTION):
            raise RowError(Rule.MISSING_KEY, f"no {DESCRIPTION} in place of the pictures")
        answer = row.get(_ANSWER, "")
        return ValidRow(sample, {WRITER: Document((Text(answer),))} if answer else {})

    return make


def _resolved(
    images: Pictures | RowError, by_index: Mapping[str, Pictures | RowError]
) -> tuple[Image, ...]:
    """The pictures of a row, its own or those of the row it names."""
    own = by_index.get(images) if isinstance(images, str) else images
    if isinstance(own, RowError):
        raise own
    if not isinstance(own, tuple):
        raise RowError(Rule.NOT_FOUND, f"no row {shown(images)} has pictures to share")
    return own


def _known(value: Opened) -> RowGroup:
    task = value[0]["task_name"]
    index = value[0]["index"]
    if task not in CATEGORY_OF:
        return RowGroup(index or None)
    return RowGroup(index or None, CATEGORY_OF[task], task)


def _index(row: TsvRow) -> str:
    index = row["index"]
    if not index.strip() or not index.isprintable():
        raise RowError(Rule.ID, f"an index is printable and not empty, unlike {index!r}")
    return index


def _sample(row: TsvRow, index: str, images: tuple[Image, ...]) -> Sample:
    task = row["task_name"]
    if task not in CATEGORY_OF:
        raise RowError(Rule.CATEGORY, f"no category has the task {shown(task)}")
    if not row["question"].strip():
        raise RowError(Rule.EMPTY, "question is empty")
    preference, factuality = _criteria(row["criteria"])
    rest = {k: v for k, v in row.items() if k not in _READ and v}
    return Sample(
        id=index,
        category=CATEGORY_OF[task],
        field=task,
        turns=(Turn("user", (*images, Text(row["question"]))),),
        criteria=preference,
        wants_images=False,
        metadata=rest | ({FACTUALITY: factuality} if factuality else {}),
    )


def _criteria(cell: str) -> tuple[str, str]:
    """Criteria of preference and of visual factuality; the last of each kind counts."""
    try:
        criteria = ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        criteria = cell
    if not isinstance(criteria, dict):
        criteria = {"subjective": cell}
    kinds = {False: "", True: ""}
    for name, text in criteria.items():
        kinds["subjective" in str(name).lower()] = str(text)
    if not kinds[True].strip():
        raise RowError(Rule.MISSING_KEY, f"no subjective criteria in {shown(cell)}")
    return kinds[True], kinds[False]


def rows(path: Path) -> Iterator[TsvRow]:
    """The rows of the TSV at `path`, by column; missing cells are empty.

    Raises TaskError when it cannot be read or lacks a column.
    """
    before = csv.field_size_limit(_MOST_CHARACTERS)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, delimiter="\t", restval="")
            _refuse_columns(path, table.fieldnames or ())
            for row in table:
                yield {name: value for name, value in row.items() if name is not None}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f"{path} cannot be read as a TSV: {error}") from None
    finally:
        csv.field_size_limit(before)


def _refuse_columns(path: Path, names: Sequence[str]) -> None:
    if lacking := [name for name in REQUIRED if name not in names]:
        raise TaskError(
            f"{path} lacks the columns {', '.join(lacking)} of the published TSV; it has "
            f"{', '.join(names) or 'none'}"
        )


def pictures(cell: str, cache: PictureCache) -> tuple[Image, ...] | str:
    """The pictures of a cell, or the index of the row whose pictures it shares.

    A cell holds base64, or a Python list of base64 strings. RowError for anything else.
    """
    if not cell:
        raise RowError(Rule.NOT_FOUND, "the row has no picture")
    if len(cell) <= _LONGEST_INDEX:
        return cell
    return tuple(cache.add(_decoded(text)) for text in _listed(cell))


def _listed(cell: str) -> list[str]:
    if not cell.startswith("["):
        return [cell]
    try:
        images = ast.literal_eval(cell)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise RowError(Rule.WRONG_TYPE, f"image is not a list: {shown(cell)}") from None
    if not images or not all(isinstance(text, str) for text in images):
        raise RowError(Rule.WRONG_TYPE, f"image is not a list of strings: {shown(cell)}")
    return list(images)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RowError(
            Rule.UNDECODABLE, f"image is not base64: {shown(text, 40)}"
        ) from None
