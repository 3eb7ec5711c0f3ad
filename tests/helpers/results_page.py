"""The part of docs/results.md that is made of the schema; run it to write it anew.

python tests/helpers/results_page.py
"""

from __future__ import annotations

import re

import pyarrow as pa
from paths import TESTS

from plait.benchmarks.results.files.schema import TABLES

PAGE = TESTS.parent / "docs" / "results.md"
_TABLES = re.compile(r"(?<=<!-- tables -->\n).*?(?=<!-- end of tables -->)", re.DOTALL)


def page_of(text: str) -> str:
    """The page with the columns of all tables as they are today."""
    return _TABLES.sub(lambda _: "\n".join(map(_table, TABLES)), text)


def _table(name: str) -> str:
    rows = [
        f"| `{column.name}` | {_kind(column.type)} | {column.metadata[b'about'].decode()} |"
        for column in TABLES[name]
    ]
    return "\n".join(
        [f"\n### `{name}`\n", "| column | type | |", "|---|---|---|", *rows, ""]
    )


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {_kind(kind.value_type)}"
    if pa.types.is_struct(kind):
        return f"({', '.join(field.name for field in kind)})"
    return str(kind)


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text()))
