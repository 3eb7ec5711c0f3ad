"""The stored form of a stage's results: one Arrow schema per kind of stage.

Image bytes follow the Hugging Face `Image` convention, schema metadata included, so
`datasets.load_dataset("parquet", data_files=...)` shows decoded images. Payloads are
safetensors in one column, one item per image request of a draft. Parts that earlier
versions wrote lack the columns of `ADDED`, which `as_current` completes, and may hold half
characters, which `decode` replaces.

A worker makes records of outcomes with `encode`, and whoever reads them makes outcomes
again with `decode`, of a `RecordRow`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import pyarrow as pa

from plait.cluster.parts import reading
from plait.generators.base import (
    Failure,
    Fault,
    Kind,
    NotApplicable,
    Outcome,
    OutcomeName,
    Result,
    Skip,
    StageInput,
    Unscored,
    outcome_name,
)
from plait.generators.document import (
    Draft,
    Embedding,
    Image,
    ImageRequest,
    Payload,
    Score,
    Text,
)
from plait.generators.logprobs import AnswerTokens, Logprobs
from plait.generators.unicode import valid_text, with_valid_text

_COMMON = [
    ("key", pa.string()),
    ("label", pa.string()),
    ("outcome", pa.string()),
    ("fault", pa.string()),
    ("reason", pa.string()),
    ("usage", pa.string()),
    ("notes", pa.string()),
    ("seconds", pa.float64()),
    ("at", pa.int64()),
]
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_COLUMNS: dict[Kind, list[tuple[str, pa.DataType]]] = {
    Kind.DRAFT: [
        ("text", pa.string()),
        ("segments", pa.string()),
        ("payload", pa.list_(pa.binary())),
        ("images", pa.list_(_IMAGE)),
    ],
    Kind.CONDITION: [("digest", pa.string()), ("payload", pa.list_(pa.binary()))],
    Kind.RENDER: [
        ("digest", pa.string()),
        ("prompt", pa.string()),
        ("image", _IMAGE),
    ],
    Kind.SCORE: [("value", pa.float64()), ("parts", pa.string())],
    Kind.EMBED: [("vector", pa.binary())],
}
# Earlier versions did not tell these kinds apart: what they wrote is read, and joined with
# what is written today.
_COLUMNS[Kind.TRANSFORM] = _COLUMNS[Kind.RENDER]
_COLUMNS[Kind.LOGPROBS] = _COLUMNS[Kind.SCORE]
ADDED: dict[Kind, frozenset[str]] = {Kind.DRAFT: frozenset({"images"})}
"""Columns that parts of earlier versions lack; none of their records needs them."""
LIGHT: dict[Kind, tuple[str, ...]] = {
    Kind.DRAFT: ("segments",),
    Kind.CONDITION: ("digest",),
    Kind.RENDER: ("digest",),
    Kind.TRANSFORM: ("digest",),
    Kind.SCORE: ("value", "parts"),
    Kind.LOGPROBS: ("value", "parts"),
    Kind.EMBED: ("vector",),
}
"""Columns that make an outcome; larger ones are read by those who need them."""
INDEXED = ("key", "outcome", "fault")
"""Columns that the store reads of every record."""


def _huggingface(fields: list[tuple[str, pa.DataType]]) -> dict[bytes, bytes]:
    """The metadata of a schema by which `datasets` knows its columns, images as images."""
    features = {name: _feature(name, kind) for name, kind in fields}
    return {b"huggingface": json.dumps({"info": {"features": features}}).encode()}


def _feature(name: str, kind: pa.DataType) -> dict[str, Any]:
    """What `datasets` calls the type of one column."""
    if name == "image":
        return {"_type": "Image"}
    if name == "images":
        return {"feature": {"_type": "Image"}, "_type": "List"}
    if pa.types.is_list(kind):
        return {"feature": {"dtype": "binary", "_type": "Value"}, "_type": "List"}
    # Arrow calls it `double`.
    dtype = "float64" if kind == pa.float64() else str(kind)
    return {"dtype": dtype, "_type": "Value"}


SCHEMAS: dict[Kind, pa.Schema] = {
    kind: pa.schema(_COMMON + columns, metadata=_huggingface(_COMMON + columns))
    for kind, columns in _COLUMNS.items()
}


def as_current(kind: Kind, table: pa.Table) -> pa.Table:
    """`table` with the columns of today; KeyError where one is missing for no reason."""
    schema = SCHEMAS[kind]
    for name in ADDED.get(kind, frozenset()) - set(table.column_names):
        empty = pa.nulls(table.num_rows, schema.field(name).type)
        table = table.append_column(name, empty)
    return table.select(schema.names).cast(schema)


def kind_of(columns: Collection[str]) -> Kind | None:
    """The kind of stage whose columns these are; None for those of a later version.

    Of kinds that are stored alike it is the first.
    """
    for kind, schema in SCHEMAS.items():
        if set(columns) | ADDED.get(kind, frozenset()) == set(schema.names):
            return kind
    return None


_IN_PART = ".parquet#"


class StoredCell(NamedTuple):
    """Where bytes are in the records of a stage; `Blob.place` is its text."""

    part: str
    """Path of the Parquet part."""
    row: int
    column: str
    item: int | None = None
    """Which of several in the cell."""
    key: str = ""
    """Of the record, which is found by it where its part was joined with others since."""

    @classmethod
    def of(cls, place: str | None) -> StoredCell | None:
        """Return the cell that a place names; None for a file, or for no place."""
        part, in_part, cell = (place or "").rpartition(_IN_PART)
        if not in_part:
            return None
        row, column, item, key = cell.split("#", 3)
        return cls(f"{part}.parquet", int(row), column, int(item) if item else None, key)

    @property
    def place(self) -> str:
        """As `of` reads it."""
        item = "" if self.item is None else self.item
        return f"{self.part}#{self.row}#{self.column}#{item}#{self.key}"


class RecordRow(NamedTuple):
    """What an outcome is made of, and where the rest of the record is stored."""

    outcome: str
    fault: str | None
    reason: str | None
    at: int
    """Microseconds since the epoch."""
    light: tuple[Any, ...]
    """Values of the columns `LIGHT`."""
    part: str
    """Path of the Parquet part."""
    row: int
    key: str = ""

    def cell(self, column: str, item: int | None = None) -> str:
        """Return the place of bytes in it."""
        return StoredCell(self.part, self.row, column, item, self.key).place

    @property
    def final(self) -> bool:
        """Whether running the command again leaves the record as it is."""
        return self.fault is None or Fault(self.fault).final

    def is_settled(self, kind: Kind) -> bool:
        """Return whether it is final, and no draft that `--remake` makes again."""
        if not self.final or kind is not Kind.DRAFT:
            return self.final
        outcome = decode(kind, self)
        return not (isinstance(outcome, Result) and outcome.value.holds_thought)

    def supersedes(self, other: "RecordRow", kind: Kind) -> bool:
        """Settled beats open; the first settled record and the last open one stay."""
        settled = self.is_settled(kind)
        if settled != other.is_settled(kind):
            return settled
        return self.at < other.at if settled else self.at > other.at


class Item(NamedTuple):
    """A job as it travels to a worker, which knows its stage already."""

    key: str
    label: str
    input: StageInput


def encode(
    kind: Kind, items: Sequence[Item], outcomes: Sequence[Outcome[Any]], seconds: float
) -> pa.Table:
    """Records of one batch; `seconds` is the busy time of each record, in seconds."""
    try:
        return _table_of(kind, items, outcomes, seconds)
    except UnicodeEncodeError:
        # Models rarely write half characters: looked for only where Arrow has met one.
        valid = [with_valid_text(outcome) for outcome in outcomes]
        return _table_of(kind, items, valid, seconds)


def _table_of(
    kind: Kind, items: Sequence[Item], outcomes: Sequence[Outcome[Any]], seconds: float
) -> pa.Table:
    # The columns of each result's own; nothing for other outcomes.
    bodies: list[dict[str, Any]] = []
    for item, outcome in zip(items, outcomes, strict=True):
        if isinstance(outcome, Result):
            bodies.append(_body(kind, item, outcome.value))
        else:
            bodies.append({})
    columns: dict[str, list[Any]] = {}
    for name, _ in _COLUMNS[kind]:
        columns[name] = [body.get(name) for body in bodies]
    columns |= {
        "key": [item.key for item in items],
        "label": [item.label for item in items],
        "outcome": [outcome_name(o).value for o in outcomes],
        "fault": [o.fault.value if isinstance(o, Failure) else None for o in outcomes],
        "reason": [getattr(o, "reason", None) for o in outcomes],
        "usage": [_object(getattr(o, "usage", {})) for o in outcomes],
        "notes": [_object(getattr(o, "notes", {})) for o in outcomes],
        "seconds": [seconds] * len(items),
        "at": [time.time_ns() // 1000] * len(items),
    }
    return pa.Table.from_pydict(columns, schema=SCHEMAS[kind])


_json = json.JSONEncoder(ensure_ascii=False).encode


def _object(value: Mapping[str, Any]) -> str:
    """The text of a JSON object."""
    return _json(dict(value)) if value else "{}"


def _body(kind: Kind, item: Item, value: Any) -> dict[str, Any]:
    """The columns of a result that are its kind's own."""
    match kind:
        case Kind.DRAFT:
            return _draft_columns(value)
        case Kind.CONDITION:
            return {"digest": value.digest, "payload": [value.read()]}
        case Kind.RENDER | Kind.TRANSFORM:
            # A `Drawing` is encoded here, off the compute path.
            image = value if isinstance(value, Image) else value.encoded()
            prompt = getattr(item.input, "prompt", None)
            return {"digest": image.digest, "image": _cell(image), "prompt": prompt}
        case Kind.SCORE:
            return {"value": float(value.value), "parts": _object(value.parts)}
        case Kind.LOGPROBS:
            return _logprobs_columns(value)
        case Kind.EMBED:
            return {"vector": value.vector}


def _cell(image: Image) -> dict[str, Any]:
    """An image as `datasets` stores it."""
    data = image.read()
    if data.startswith(b"\x89PNG"):
        extension = "png"
    elif data[8:12] == b"WEBP":
        extension = "webp"
    else:
        extension = "jpg"
    return {"bytes": data, "path": f"{image.digest[:16]}.{extension}"}


def _draft_columns(draft: Draft) -> dict[str, Any]:
    segments: list[dict[str, Any]] = []
    payloads = []
    for segment in draft.segments:
        if isinstance(segment, Text):
            segments.append({"type": "text", "text": segment.text})
            continue
        if isinstance(segment, Image):
            segments.append({"type": "picture", "digest": segment.digest})
            continue
        about = {"type": "image", "prompt": segment.prompt, "payload": None}
        if segment.payload is not None:
            about["payload"] = segment.payload.digest
            payloads.append(segment.payload.read())
        segments.append(about)
    return {
        "text": draft.text,
        "segments": _json(segments),
        "payload": payloads,
        "images": [_cell(image) for image in draft.images],
    }


def _logprobs_columns(logprobs: Logprobs) -> dict[str, Any]:
    answers = {}
    for answer, own in logprobs.answers.items():
        answers[answer] = {"tokens": own.tokens, "logprobs": own.logprobs}
    return {"value": logprobs.value, "parts": _object({"answers": answers})}


def rows_of(kind: Kind, table: pa.Table, part: str, first: int = 0) -> dict[str, RecordRow]:
    """Return the records of a part by key; `table` starts at row `first`."""
    places = range(first, first + table.num_rows)
    return {row.key: row for row in iter_rows(kind, table, part, places)}


def iter_rows(
    kind: Kind, table: pa.Table, part: str, places: Sequence[int]
) -> Iterator[RecordRow]:
    """Yield the records of a table; `places` says in which row of `part` each is.

    The table has the columns of `INDEXED` and the `value_columns`.
    """
    names = (*INDEXED, *value_columns(kind))
    columns = [table.column(name).to_pylist() for name in names]
    for place, key, outcome, fault, reason, at, *light in zip(
        places, *columns, strict=True
    ):
        yield RecordRow(outcome, fault, reason, at, tuple(light), part, place, key)


def value_columns(kind: Kind) -> tuple[str, ...]:
    """Columns of which a record's values are read: its reason, its time, what is light."""
    return ("reason", "at", *LIGHT[kind])


def decode(kind: Kind, row: RecordRow) -> Outcome[Any]:
    """Return the outcome a record holds; large bytes stay in the store until they are read.

    Raises DamagedPart where the stored values are not valid.
    """
    reason = row.reason or ""
    if row.outcome == OutcomeName.FAILED:
        return Failure(reason, Fault(row.fault or Fault.ERROR))
    if row.outcome in _UNMADE:
        return _UNMADE[row.outcome](reason)
    with reading(row.part):
        match kind:
            case Kind.DRAFT:
                return Result(_draft(row))
            case Kind.CONDITION:
                return Result(Payload(row.light[0], place=row.cell("payload", 0)))
            case Kind.RENDER | Kind.TRANSFORM:
                return Result(Image(row.light[0], place=row.cell("image.bytes")))
            case Kind.SCORE:
                return Result(Score(row.light[0], json.loads(row.light[1])))
            case Kind.LOGPROBS:
                return Result(_logprobs(row))
            case Kind.EMBED:
                return Result(Embedding(row.light[0]))


_UNMADE: dict[str, type[Skip | Unscored | NotApplicable]] = {
    OutcomeName.SKIPPED: Skip,
    OutcomeName.UNSCORED: Unscored,
    OutcomeName.NOT_APPLICABLE: NotApplicable,
}


def _logprobs(row: RecordRow) -> Logprobs:
    answers = {}
    for answer, own in json.loads(row.light[1])["answers"].items():
        answers[answer] = AnswerTokens(tuple(own["tokens"]), tuple(own["logprobs"]))
    return Logprobs(answers)


def _draft(row: RecordRow) -> Draft:
    # Images and payloads are in columns of their own, in the order of the segments.
    payloads = count()
    images = count()
    segments: list[Text | Image | ImageRequest] = []
    for about in json.loads(row.light[0]):
        if about["type"] == "text":
            segments.append(Text(valid_text(about["text"])))
            continue
        if about["type"] == "picture":
            place = row.cell("images", next(images))
            segments.append(Image(about["digest"], place=place))
            continue
        prompt = about["prompt"]
        payload = about["payload"]
        if payload is not None:
            payload = Payload(payload, place=row.cell("payload", next(payloads)))
        segments.append(ImageRequest(prompt and valid_text(prompt), payload))
    return Draft(tuple(segments))
