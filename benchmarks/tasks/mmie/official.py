"""The file format of the official MMIE scorer, written and read.

`data.json` beside `images/`, as `dataset.py` and the README of Lillianwei-h/MMIE have it:

    [{"id": ..., "question": items, "answer": items or string, "model": ...,
      "gt_answer": items}]          items = [{"text": ... or null, "image": path or null}]

Its reader wants all five keys and at least one item in `gt_answer`, of whose first it
takes the text for reasoning queries. It passes over other keys, which keep the category
and the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.tasks.mmie.outputs import FILE, Broken, Output, read_outputs
from benchmarks.tasks.reading.rules import TaskError
from generators.document import Content, Document, Image, Sample, Text
from generators.files import write_whole
from scorers.judging.released import FIRST_TRUTH

__all__ = ["Broken", "Output", "export", "read_outputs"]

_SIGNATURES = {
    b"\x89PNG": "png",
    b"\xff\xd8\xff": "jpg",
    b"GIF8": "gif",
    b"BM": "bmp",
    b"II*\0": "tif",
    b"MM\0*": "tif",
}


def export(
    documents: Iterable[tuple[Sample, Document]],
    model: str,
    out: Path,
    read: Callable[[Image], bytes],
) -> int:
    """Write `documents` for the official scorer into the folder `out`; how many.

    `read` gives the bytes of a picture, which are written unchanged, each picture once.
    The official reader leaves out what follows the third picture of a row. Raises
    TaskError when `out` holds anything: an export overwrites nothing.
    """
    claim(out)
    (out / "images").mkdir()
    pictures = _Pictures(out, read)
    rows = [_row(sample, document, model, pictures) for sample, document in documents]
    # JSON in ASCII, because the official reader opens the file in the locale's encoding.
    write_whole(out / FILE, json.dumps(rows, indent=1) + "\n")
    return len(rows)


def claim(out: Path) -> None:
    """Make the folder `out`, or take it where it is empty; TaskError where it is not."""
    if out.exists() and not out.is_dir():
        raise TaskError(f"{out} is a file; an export needs a folder")
    if out.is_dir() and any(out.iterdir()):
        raise TaskError(f"{out} is not empty; name another folder")
    out.mkdir(parents=True, exist_ok=True)


@dataclass
class _Pictures:
    """Writes pictures as they are first met, `images/0.png`, `images/1.jpg`, ..."""

    out: Path
    read: Callable[[Image], bytes]
    paths: dict[str, str] = field(default_factory=dict)

    def path(self, image: Image) -> str:
        if image.digest not in self.paths:
            data = self.read(image)
            path = f"images/{len(self.paths)}.{_extension(data)}"
            (self.out / path).write_bytes(data)
            self.paths[image.digest] = path
        return self.paths[image.digest]


def _extension(data: bytes) -> str:
    known = (name for start, name in _SIGNATURES.items() if data.startswith(start))
    return next(known, "webp" if data[8:12] == b"WEBP" else "img")


def _row(
    sample: Sample, document: Document, model: str, pictures: _Pictures
) -> dict[str, Any]:
    reference = sample.reference.segments if sample.reference else ()
    return {
        "id": sample.id,
        "question": _items(sample.question, pictures),
        "answer": _items(document.segments, pictures),
        "model": model,
        "gt_answer": _truth(sample, _items(reference, pictures)),
        "category": sample.category,
        "field": sample.field,
    }


def _truth(
    sample: Sample, items: list[dict[str, str | None]]
) -> list[dict[str, str | None]]:
    """The ground truth, whose first item keeps a text that was null or empty."""
    told = sample.metadata.get(FIRST_TRUTH)
    if told is not None and (not items or items[0]["text"] != json.loads(told)):
        items = [{"text": json.loads(told), "image": None}, *items]
    return items or [{"text": None, "image": None}]


def _items(segments: Content, pictures: _Pictures) -> list[dict[str, str | None]]:
    """`segments` as items; a picture joins the text before it, as in the data set."""
    items: list[dict[str, str | None]] = []
    for segment in segments:
        if isinstance(segment, Text):
            items.append({"text": segment.text, "image": None})
        elif items and items[-1]["image"] is None:
            items[-1]["image"] = pictures.path(segment)
        else:
            items.append({"text": None, "image": pictures.path(segment)})
    return items
