"""The tables in `results/` of a run: their columns, and what each column holds.

A table is one or several Parquet files, which `run.json` lists; what it does not list is
no part of the results. `docs/results.md` shows all of this for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

VERSION = 1
"""Of the schema. Raise it when a column changes its meaning or goes."""
FOLDER = "results"
ABOUT = "run.json"

_TEXT = pa.string()
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""An image as Hugging Face's `datasets` takes it."""
SEGMENT = pa.struct([("type", _TEXT), ("text", _TEXT), ("image", _TEXT)])
"""A run of text, or an image by its SHA-256: `type` is `text` or `image`."""
_CONTENT = pa.list_(SEGMENT)
TURN = pa.struct([("role", _TEXT), ("content", _CONTENT)])
_TURNS = pa.list_(TURN)
PLACED = pa.struct(
    [*SEGMENT, pa.field("part", _TEXT), ("row", pa.int64()), ("item", pa.int32())]
)
"""A segment of an answer; `part` is the file under the run's folder that holds the image,
`row` its record there, `item` its place among the record's images where it has several."""
JOB = pa.struct([("key", _TEXT), ("stage", _TEXT), ("prompt", _TEXT), ("seed", pa.int64())])
"""What was asked of a stage: a key of `records`, the stage's folder, a key of `prompts`."""
_JOBS = pa.list_(JOB)


def _column(name: str, kind: pa.DataType, about: str) -> pa.Field:
    return pa.field(name, kind, metadata={"about": about})


def _table(*columns: pa.Field) -> pa.Schema:
    """Return a schema whose metadata also tell Hugging Face's `datasets` of images."""
    features = {column.name: feature_of(column.type) for column in columns}
    about = json.dumps({"info": {"features": features}})
    version = {b"plait": str(VERSION).encode(), b"huggingface": about.encode()}
    return pa.schema(columns, metadata=version)


def feature_of(kind: pa.DataType) -> dict[str, Any]:
    """Return a type as Hugging Face's `datasets` names it."""
    if kind == IMAGE:
        return {"_type": "Image"}
    if pa.types.is_list(kind):
        return {"feature": feature_of(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: feature_of(field.type) for field in kind}
    names = {pa.float64(): "float64", pa.float32(): "float32"}
    return {"dtype": names.get(kind, str(kind)), "_type": "Value"}


def _record_column(name: str, about: str) -> pa.Field:
    return _column(name, _TEXT, f"as in the stage's records: {about}")


def _columns_of_side(side: str) -> list[pa.Field]:
    """Return the columns of one system of a pair."""
    system = f"system {side.upper()}"
    return [
        _column(f"system_{side}", _TEXT, f"name of {system}"),
        _column(f"writer_{side}", _TEXT, f"model that wrote the text of {system}"),
        _column(f"words_{side}", pa.int32(), f"words in the answer of {system}"),
        _column(f"images_{side}", pa.int32(), f"images in the answer of {system}"),
    ]


_SYSTEM = _column("system", _TEXT, "name of the system")
_QUERY = _column("query", _TEXT, "key of the query, as in `queries`")
_REPEAT = _column("repeat", pa.int32(), "which answer to the query, counted from 1")
_SCORER = _column("scorer", _TEXT, "name of the scorer")
_REASON = _column("reason", _TEXT, "why there is no value; empty where there is one")
_FAULT = _column("fault", _TEXT, "kind of failure; empty for any other outcome")
_JOB = _column("jobs", _JOBS, "what was asked of stages for it, in order")
_PART = _column("part", _TEXT, "Parquet file that holds it, under the run's folder")
_ROW = _column("row", pa.int64(), "its row there")

TABLES: Mapping[str, pa.Schema] = {
    "queries": _table(
        _column("query", _TEXT, "unique key: the id, of a malformed row with its number"),
        _column("id", _TEXT, "id in the data"),
        _column("row", pa.int64(), "number of a malformed row in the data, from 0"),
        _column("category", _TEXT, "category of the task set"),
        _column("field", _TEXT, "field of the task set"),
        _column("turns", _TURNS, "the conversation that is answered"),
        _column("wordings", _TEXT, "JSON: turns as they are asked, by variant of systems"),
        _column("reference", _CONTENT, "the ground truth; null where there is none"),
        _column(
            "ends", pa.list_(pa.int32()), "segments up to the end of each answer in it"
        ),
        _column("criteria", _TEXT, "what judges should look for"),
        _column("wants_images", pa.bool_(), "whether an answer should hold images"),
        _column("metadata", _TEXT, "JSON: what else the task set says of it"),
        _column("malformed", _TEXT, "why the row is no query; null where it is one"),
        _column("digest", _TEXT, "of all that is asked and judged by"),
    ),
    "data": _table(
        _column("id", _TEXT, "id of a row of the whole task set"),
        _column("digest", _TEXT, "of all that is asked and judged by"),
    ),
    "answers": _table(
        _SYSTEM,
        _QUERY,
        _REPEAT,
        _column("outcome", _TEXT, "done, failed, skipped or missing"),
        _REASON,
        _FAULT,
        _column("segments", pa.list_(PLACED), "text and images in order; null without"),
        _column("ends", pa.list_(pa.int32()), "segments up to the end of each turn"),
        _column("seed", pa.int64(), "of its text; null where it follows from no seed"),
        _column("thought", pa.bool_(), "whether it begins with its model's thought"),
        _column("tries", _TEXT, "JSON: images drawn, and how a critic judged each"),
        _column("images", pa.int32(), "images in it; null without a document"),
        _column("discarded", pa.int32(), "images drawn for it that a critic did not keep"),
        _JOB,
    ),
    "scores": _table(
        _SYSTEM,
        _QUERY,
        _REPEAT,
        _SCORER,
        _column(
            "outcome",
            _TEXT,
            "scored, unscored, not_applicable, failed, skipped, missing or no_document",
        ),
        _column("value", pa.float64(), "on the scorer's scale; null unless it is scored"),
        _REASON,
        _FAULT,
        _column("detail", _TEXT, "JSON: all that the scorer says of how it came about"),
        _JOB,
    ),
    "parts": _table(
        _SYSTEM,
        _QUERY,
        _REPEAT,
        _SCORER,
        _column("name", _TEXT, "name of the part, such as a criterion"),
        _column("kind", _TEXT, "criterion, penalty, raw or other"),
        _column("value", pa.float64(), "on the part's own scale"),
        _column("unit", _TEXT, "what the value is; empty where it is not declared"),
        _column("scale", _TEXT, "LOW-HIGH, or other words where it has no ends"),
    ),
    "records": _table(
        _column("key", _TEXT, "digest of stage and input"),
        _column("stage", _TEXT, "folder of the stage, as in `run.json`"),
        _column("outcome", _TEXT, "done, failed, skipped, unscored or not_applicable"),
        _FAULT,
        _column("attempts", pa.int32(), "requests to the endpoint; null where unknown"),
        _column("seconds", pa.float64(), "that the stage was busy with it"),
        _column("gpu_seconds", pa.float64(), "times the GPUs that a worker holds"),
        _column("input_tokens", pa.float64(), "tokens read; null where unknown"),
        _column("output_tokens", pa.float64(), "tokens written; null where unknown"),
        _column("pictures", pa.float64(), "images drawn"),
        _column("joules", pa.float64(), "energy; null where unknown"),
        _column("cost", pa.float64(), "money, by the prices in the config"),
        _column("cut", pa.float64(), "replies that ended at the maximum length"),
        _column("at", pa.int64(), "when it was made, in microseconds since 1970"),
        _PART,
        _ROW,
    ),
    "prompts": _table(
        _column("prompt", _TEXT, "digest of the input"),
        _column("kind", _TEXT, "request (to a language model) or image (to be drawn)"),
        _column("turns", _TURNS, "the conversation, of a request"),
        _column("text", _TEXT, "what is to be drawn; null where a payload says it"),
        _column("payload", _TEXT, "digest of the tensors that an image is drawn from"),
        _column("context", _CONTENT, "images and text that it is drawn from besides"),
        _column("seed", pa.int64(), "null where nothing is drawn at random"),
        _column("max_tokens", pa.int32(), "longest reply, where it was limited"),
    ),
    "comparisons": _table(
        _column("series", _TEXT, "name of the comparison, as in the names of its files"),
        _column("protocol", _TEXT, "how answers are compared"),
        _column("mode", _TEXT, "corrected or official"),
        _column("wording", _TEXT, "digest of the prompts"),
        _column("judge", _TEXT, "name of the judge"),
        _column("stage", _TEXT, "digest of the judge's model and settings"),
        _column("query", _TEXT, "id of the query"),
        _column("repeat", pa.int32(), "which answers, counted from 1"),
        _column("judging", pa.int32(), "times the judge had been asked about them before"),
        *_columns_of_side("a"),
        *_columns_of_side("b"),
        _column("order", _TEXT, "ab, or ba where the answer of system B was shown first"),
        _column("aspect", _TEXT, "what was compared, such as preference"),
        _column("outcome", _TEXT, "done, unscored, failed, ..."),
        _column("value", pa.int32(), "from -2 to 2, positive for the answer shown first"),
        _column("marks", pa.list_(pa.float64()), "out of 10, the first shown first"),
        _column("reason", _TEXT, "the verdict as worded, or why there is none"),
        _FAULT,
        _JOB,
    ),
    "embeddings": _table(
        _SCORER,
        _SYSTEM,
        _QUERY,
        _REPEAT,
        _column("of", _TEXT, "answer or truth"),
        _column("vector", pa.list_(pa.float32()), "what a model makes of one image"),
    ),
    "replies": _table(
        _column("key", _TEXT, "digest of stage and input, as in `records`"),
        _record_column("outcome", "done, failed, skipped, unscored or not_applicable"),
        _record_column("fault", "kind of failure"),
        _record_column("reason", "why there is no value"),
        _record_column("usage", "JSON: tokens, images, energy and cost"),
        _record_column("notes", "JSON: what the stage noted, such as the exact prompt"),
        _column("seconds", pa.float64(), "that the stage was busy with it"),
        _column("at", pa.int64(), "when it was made, in microseconds since 1970"),
        _column("segments", _TEXT, "JSON: the reply of a language model"),
        _column("digest", _TEXT, "SHA-256 of the image or the tensors that it made"),
        _column("value", pa.float64(), "of a score"),
        _column("parts", _TEXT, "JSON: of a score"),
        _column("vector", pa.binary(), "always null: see `embeddings`"),
    ),
    "images": _table(
        _column("digest", _TEXT, "SHA-256 of the encoded image"),
        _column("image", IMAGE, "the encoded image"),
    ),
}
