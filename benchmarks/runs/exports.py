"""Documents of a run in other tools' formats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.runs.experiment import Experiment
from benchmarks.tasks.mmie import official
from cluster.plan import Evaluation, evaluations
from cluster.store import Store, read_blob
from generators.base import Result
from generators.document import Document, Image, Sample, Text
from generators.files import write_whole
from generators.names import unknown

FORMATS = ("mmie", "parquet")


def export_documents(
    experiment: Experiment, store: Store, system: str, form: str, out: Path
) -> int:
    """Write the documents of `system` to `out`; how many. UsageError for unknown names."""
    names = [s.name for s in experiment.systems]
    if system not in names:
        raise unknown("system", system, names)
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    documents = list(_documents(experiment, store, system))
    if form == "mmie":
        official.export(documents, system, out, read_blob)
    else:
        _write_parquet(documents, system, out)
    return len(documents)


def _documents(
    experiment: Experiment, store: Store, system: str
) -> Iterator[tuple[Sample, Document]]:
    systems = [s for s in experiment.systems if s.name == system]
    # Without scorers: a document is exported whether or not it has been scored.
    plan = replace(experiment.plan, systems=systems, scorers=(), repeats=1)
    for evaluation in evaluations(plan, store):
        if not isinstance(evaluation, Evaluation):
            continue
        sample, document = evaluation.sample, evaluation.document
        if isinstance(sample, Sample) and isinstance(document, Result):
            yield sample, document.value


def _write_parquet(
    documents: list[tuple[Sample, Document]], system: str, out: Path
) -> None:
    """One row per document: text with a mark in place of each picture, and the pictures.

    `datasets.load_dataset("parquet", data_files=...)` shows the pictures decoded.
    """
    official.claim(out)
    rows = [_row(sample, document, system) for sample, document in documents]
    picture = {"_type": "Image"}
    features: dict[str, Any] = {
        name: {"dtype": "string", "_type": "Value"} for name in _SCHEMA.names[:-1]
    }
    features["images"] = {"feature": picture, "_type": "List"}
    about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = pa.Table.from_pylist(rows, schema=_SCHEMA.with_metadata(about))
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, row_group_size=64)
    write_whole(out / "documents.parquet", buffer.getvalue().to_pybytes())


_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("category", pa.string()),
        ("field", pa.string()),
        ("system", pa.string()),
        ("text", pa.string()),
        ("images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
    ]
)


def _row(sample: Sample, document: Document, system: str) -> dict[str, Any]:
    images = [_cell(image) for image in document.images]
    parts = [s.text if isinstance(s, Text) else "<image>" for s in document.segments]
    return {
        "id": sample.id,
        "category": sample.category,
        "field": sample.field,
        "system": system,
        "text": "\n".join(parts),
        "images": images,
    }


def _cell(image: Image) -> dict[str, Any]:
    return {"bytes": read_blob(image), "path": f"{image.digest[:16]}.png"}
