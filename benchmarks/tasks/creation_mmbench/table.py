"""The published TSV: quoted fields, base64 pictures, one row a request.

Columns and their forms as `ImageBaseDataset` in vlmeval/dataset/image_base.py of
open-compass/VLMEvalKit reads them.
"""

from __future__ import annotations

import ast
import base64
import binascii
import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.tasks.reading.rules import RowError, Rule, TaskError, shown
from benchmarks.tasks.reading.shelf import Shelf
from generators.document import Image

REQUIRED = ("index", "question", "image", "task_name", "criteria")
_MOST_CHARACTERS = 2**31 - 1
_LONGEST_INDEX = 64
"""An `image` this short is the index of another row, whose pictures it shares."""

TsvRow = Mapping[str, str]


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


def pictures(cell: str, shelf: Shelf) -> tuple[Image, ...] | str:
    """The pictures of a cell, or the index of the row whose pictures it shares.

    A cell holds base64, or a Python list of such. RowError for anything else.
    """
    if not cell:
        raise RowError(Rule.NOT_FOUND, "the row has no picture")
    if len(cell) <= _LONGEST_INDEX:
        return cell
    return tuple(shelf.keep(_decoded(text)) for text in _listed(cell))


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
