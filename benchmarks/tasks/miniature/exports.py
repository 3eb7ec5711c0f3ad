"""Queries of the miniature world as an ordinary folder in MMIE's format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.tasks.miniature.reader import NAME
from benchmarks.tasks.mmie.categories import BENCHMARK
from benchmarks.tasks.mmie.official import ImageFiles, claim, items_of
from benchmarks.tasks.mmie.reader import CRITERIA, FILES
from generators.document import Content, Image, Sample
from generators.files import write_whole


def export_samples(samples: Sequence[Sample], out: Path) -> None:
    """Write `data.json` and `images/` into the folder `out`, for the MMIE reader.

    Raises TaskError when `out` holds anything: an export overwrites nothing.
    """
    claim(out)
    (out / "images").mkdir()
    pictures = ImageFiles(out, Image.read)
    rows = [_row(sample, pictures) for sample in samples]
    write_whole(out / FILES[0], json.dumps(rows, indent=1) + "\n")


def _row(sample: Sample, pictures: ImageFiles) -> dict[str, Any]:
    answer = sample.reference.segments if sample.reference else ()
    return {
        "id": sample.id,
        BENCHMARK: NAME,
        "category": sample.category,
        "field": sample.field,
        CRITERIA: sample.criteria,
        "conversations": [
            _turn("human", sample.question, pictures),
            _turn("gpt", answer, pictures),
        ],
    }


def _turn(speaker: str, content: Content, pictures: ImageFiles) -> dict[str, Any]:
    return {"from": speaker, "content": items_of(content, pictures)}
