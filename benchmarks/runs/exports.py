"""`plait export`: runs in other tools' formats.

Documents of one system go to a benchmark's own format, to a table or to Every Eval Ever
(`export_documents`); results of several go to experiment trackers and model pages
(`export_results`), each of which has a file in `exporters`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plait.benchmarks.results.files.schema import IMAGE, feature_of
from plait.benchmarks.runs.answers import QueryAnswer
from plait.benchmarks.runs.exporters import every_eval_ever
from plait.benchmarks.runs.run_data import RunData
from plait.benchmarks.tasks import ueval
from plait.benchmarks.tasks.mmie import official
from plait.benchmarks.tasks.mmie.categories import CATEGORIES, MMIE
from plait.benchmarks.tasks.mmie.official import claim
from plait.cluster.store import read_blob
from plait.generators.base import import_target
from plait.generators.content import text_with_marks
from plait.generators.document import Content, Document, Image, Query
from plait.generators.errors import UsageError
from plait.generators.files import write_whole
from plait.generators.keys import derived_seed
from plait.generators.names import unknown
from plait.generators.system import TEXT_POSITION

FORMATS = ("mmie", "ueval", "parquet", "every-eval-ever")
"""That hold the documents of one system."""
RUN_FORMATS = {
    "wandb": "plait.benchmarks.runs.exporters.wandb_runs:export",
    "mlflow": "plait.benchmarks.runs.exporters.mlflow_runs:export",
    "trackio": "plait.benchmarks.runs.exporters.trackio_runs:export",
    "eval-results": "plait.benchmarks.runs.exporters.eval_results:export",
}
"""That hold the results of several systems, each with what writes it."""
WITH_TASK = ("eval-results",)
"""Of these, those that call a result by a name that the user gives."""
_OF_ALL_REPEATS = ("parquet", "every-eval-ever")
"""Formats with room for several answers to a query."""
_IMAGES = pa.list_(IMAGE)
_TEXT = pa.string()
_NUMBER = pa.int64()
_SCORE = pa.struct(
    [
        ("scorer", _TEXT),
        ("outcome", _TEXT),
        ("value", pa.float64()),
        ("reason", _TEXT),
    ]
)
_SCHEMA = pa.schema(
    [
        ("id", _TEXT),
        ("category", _TEXT),
        ("field", _TEXT),
        ("system", _TEXT),
        ("repeat", _NUMBER),
        ("run_seed", _NUMBER),
        ("seed", _NUMBER),
        ("question", _TEXT),
        ("reference", _TEXT),
        ("text", _TEXT),
        ("images", _IMAGES),
        ("scores", pa.list_(_SCORE)),
        ("question_images", _IMAGES),
        ("reference_images", _IMAGES),
    ]
)
"""Of the format `parquet`."""


def repeats_of(run: RunData, form: str, repeat: int | None) -> Sequence[int]:
    """Return the repeats that a file in the format `form` holds, counted from 1.

    Benchmarks' own have room for one answer to a query: the first by default.
    """
    if repeat is None and form in _OF_ALL_REPEATS:
        return range(1, run.about.repeats + 1)
    return (repeat or 1,)


def export_results(
    run: RunData, system: str | None, form: str, out: Path, task: str | None = None
) -> str:
    """Write results of a run, or of one `system` of it, to `out`; what, in words.

    Args:
        run: The run.
        system: The one system that is written, or None for all.
        form: One of RUN_FORMATS.
        out: A folder, new or empty.
        task: What the numbers are called in a format that asks for it (`eval_results`).

    Raises:
        UsageError: For unknown names, and where the format has no place for the results.
    """
    if system is not None and system not in run.systems:
        raise unknown("system", system, run.systems)
    write: Callable[..., str] = import_target(RUN_FORMATS[form])
    named = {"task": task} if form in WITH_TASK else {}
    return write(run, run.systems if system is None else (system,), out, **named)


def export_documents(
    run: RunData, system: str, form: str, out: Path, repeats: Sequence[int] = (1,)
) -> int:
    """Write the documents of `system` to `out`; how many.

    UsageError for unknown names, and where there is no document.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    answers: list[QueryAnswer] = []
    for number in repeats:
        answers += run.answers(system=system, repeat=number)
    if all(answer.document is None for answer in answers):
        counts = Counter(answer.outcome for answer in answers)
        outcomes = ", ".join(f"{n:,} {name}" for name, n in counts.items())
        raise UsageError(f"{system} has no document to export: {outcomes or 'no answers'}")
    if form == "every-eval-ever":
        claim(out)
        return every_eval_ever.export(run, system, answers, out)
    if form == "parquet":
        return _write_parquet(list(_rows(run, answers)), out)
    documents = [(query, document) for query, document, _ in _documents(answers)]
    if form == "ueval":
        return ueval.export(documents, system, out, read_blob)
    benchmark = MMIE if run.about.categories == CATEGORIES else run.about.name
    return official.export(documents, system, out, read_blob, benchmark)


def _documents(
    answers: Sequence[QueryAnswer],
) -> Iterator[tuple[Query, Document, QueryAnswer]]:
    """Yield the answers that are there, with their queries."""
    for answer in answers:
        query = answer.query.sample
        document = answer.document
        if isinstance(query, Query) and document is not None:
            yield query, document, answer


def _write_parquet(rows: list[dict[str, Any]], out: Path) -> int:
    """Write a row for each document: texts with a mark in place of each image, and images.

    `seed` is that of its text, and null where the system's text follows from no seed.
    `datasets.load_dataset("parquet", data_files=...)` shows the images decoded.
    """
    claim(out)
    features = {field.name: feature_of(field.type) for field in _SCHEMA}
    about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = pa.Table.from_pylist(rows, schema=_SCHEMA.with_metadata(about))
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, row_group_size=64)
    write_whole(out / "documents.parquet", buffer.getvalue().to_pybytes())
    return len(rows)


def _rows(run: RunData, answers: Sequence[QueryAnswer]) -> Iterator[dict[str, Any]]:
    """Yield the row of each document, as `_SCHEMA` has it."""
    seed = run.about.seed
    seeded = set()
    for system in run.results.systems:
        draft = system.roles.get("draft")
        if draft is not None and draft.seeded:
            seeded.add(system.name)
    for query, document, answer in _documents(answers):
        own_seed = None
        if answer.system in seeded:
            own_seed = derived_seed(seed, query.id, answer.repeat - 1, TEXT_POSITION)
        scores = []
        for name, verdict in answer.scores.items():
            scores.append(
                {
                    "scorer": name,
                    "outcome": verdict.outcome,
                    "value": verdict.value,
                    "reason": verdict.reason,
                }
            )
        yield {
            "id": query.id,
            "category": query.category,
            "field": query.field,
            "system": answer.system,
            "repeat": answer.repeat,
            "run_seed": seed,
            "seed": own_seed,
            "question": text_with_marks(query.question),
            "reference": query.reference and text_with_marks(query.reference.segments),
            "text": text_with_marks(document.segments),
            "images": [_cell(image) for image in document.images],
            "scores": scores,
            "question_images": _cells(query.question),
            "reference_images": query.reference and _cells(query.reference.segments),
        }


def _cells(content: Content) -> list[dict[str, Any]]:
    """Return the images of a query; of one that the run could not keep, its name alone."""
    cells = []
    for segment in content:
        if not isinstance(segment, Image):
            continue
        if segment.data or segment.place:
            cells.append(_cell(segment))
        else:
            cells.append({"bytes": None, "path": segment.digest})
    return cells


def _cell(image: Image) -> dict[str, Any]:
    return {"bytes": read_blob(image), "path": f"{image.digest[:16]}.png"}
