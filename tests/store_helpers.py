"""Records made by hand, for tests of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from trial import writer

from cluster.records import Item, encode
from generators.base import Kind, Outcome, Result
from generators.document import Draft, Request, Text, Turn

SPEC = writer()


def item(key: str) -> Item:
    return Item(key, "label", Request((Turn("user", (Text("q"),)),)))


def draft_table(*outcomes: tuple[str, Outcome[Any]]) -> pa.Table:
    return encode(Kind.DRAFT, [item(k) for k, _ in outcomes], [o for _, o in outcomes], 0.5)


def drafted(text: str = "hello") -> Result[Draft]:
    return Result(Draft((Text(text),)), {"output_tokens": 3}, {"finish": "stop"})


def rows_of_parts(folder: Path) -> list[str]:
    keys = []
    for part in folder.glob("stages/*/part-*.parquet"):
        keys += pq.read_table(part, columns=["key"]).column("key").to_pylist()
    return sorted(keys)
