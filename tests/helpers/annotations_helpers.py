"""Files of annotations and of scores, and what is read from them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies.agreement.ratings import RatingsByRater, read_ratings
from stages import Constant

from benchmarks.studies.agreement import AgreementSettings, agreement_report

FEW = AgreementSettings(draws=50)

IDS = [f"SA-{i}" for i in range(8)]
SCORED = [1, 2, 3, 4, 5, 6, 0, 2]
RATED = [2, 2, 3, 5, 5, 6, 1, 0]


def write(folder: Path, name: str, content: Any) -> Path:
    """A file of that name: text as it is, anything else as CSV or JSON."""
    path = folder / name
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif path.suffix == ".csv":
        file = io.StringIO()
        columns = list(dict.fromkeys(key for row in content for key in row))
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(content)
        path.write_text(file.getvalue())
    else:
        path.write_text(json.dumps(content))
    return path


def human(path: Path, **options: Any) -> RatingsByRater:
    """People's ratings, read with the usual settings."""
    told: dict[str, Any] = {
        "rater": "annotator",
        "unnamed": "people",
        "scale": "0-6",
    } | options
    return read_ratings(path, **told)


def both(tmp_path: Path, scores: Any, people: Any, **options: Any) -> Mapping[str, Any]:
    """What the report says of these scores and these people."""
    judges = write(tmp_path, "scores.json", scores)
    told: dict[str, Any] = {"settings": FEW} | options
    return agreement_report(judges, write(tmp_path, "human.json", people), **told)


def rows(
    ids: Sequence[str], system: str = "anole", **columns: Sequence[Any]
) -> list[dict[str, Any]]:
    """One row per id, with a column per keyword."""
    made = zip(ids, *columns.values(), strict=True)
    return [
        {"id": i, "system": system, **dict(zip(columns, v, strict=True))} for i, *v in made
    ]


class Pictures(Constant):
    """Counts the pictures of an answer, on the scale of people."""

    scale = "0-6"
