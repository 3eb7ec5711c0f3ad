"""Records made by hand, for tests of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from trial import writer

from plait.cluster.records import Item, encode
from plait.generators.base import Kind, Outcome, Result
from plait.generators.document import Draft, Request, Text, Turn

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


def damage(part: Path, column: str, row_group: int = 0, flips: int = 8) -> None:
    """Flip bytes in the middle of a column of a part, as a bad disk does."""
    metadata = pq.ParquetFile(part).metadata.row_group(row_group)
    chunks = [metadata.column(i) for i in range(metadata.num_columns)]
    (chunk,) = (c for c in chunks if c.path_in_schema == column)
    end = (chunk.dictionary_page_offset or chunk.data_page_offset) + (
        chunk.total_compressed_size
    )
    flip(part, *range(end - flips, end))


def flip(part: Path, *offsets: int, by: int = 0xFF) -> None:
    """Flip bits of the bytes of a file at `offsets`."""
    data = bytearray(part.read_bytes())
    for offset in offsets:
        data[offset] ^= by
    part.write_bytes(data)


def without_checksums(part: Path) -> Path:
    """The same part as earlier versions wrote it."""
    old = part.with_name("part-" + "0" * 32 + ".parquet")
    pq.write_table(pq.read_table(part), old, compression="none", row_group_size=64)
    part.unlink()
    return old
