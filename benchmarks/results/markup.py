"""Text and tables as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.results.tables import printable

_NUMBER = re.compile(r"[+-]?\d|-|$")


def plain(text: str) -> str:
    """`text` on one line, without what Markdown would take for markup."""
    return re.sub(r"([\\`*|<]|\](?=[(\[:]))", r"\\\1", printable(text))


def markdown_table(
    head: Sequence[str], lines: Sequence[Sequence[str]], *, numbers_right: bool = True
) -> str:
    """A table; columns of nothing but numbers and dashes are set to the right."""
    right = [False] * len(head)
    if numbers_right and lines:
        right = [all(map(_NUMBER.match, column)) for column in zip(*lines, strict=True)]
    rule = ["---:" if is_right else "---" for is_right in right]
    rows = [[plain(w) for w in head], rule, *([plain(w) for w in line] for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
