"""Text that tokenizers and files take: without lone surrogates, which Python and JSON hold.

What a model writes is mended where it becomes a result (`with_valid_text`), or is read from
records of earlier versions (`valid_text`); what a person gives is refused, by name, where
it is read (`trouble`). Nothing in between meets any.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from plait.generators.base import Failure, Outcome, Result, Skip
from plait.generators.document import replace_parts

_LONE = re.compile("[\ud800-\udfff]")
_ESCAPED = 0xDC00
"""Less a byte that is not UTF-8, the surrogate of Python's `surrogateescape`."""
REPLACED = "replaced_characters"
"""Name of the note that says how many characters of a result were replaced."""


def trouble(text: str) -> str | None:
    """Return what is wrong with a text; None where it is valid."""
    lone = None if text.isascii() else _LONE.search(text)
    if lone is None:
        return None
    byte = ord(lone[0]) - _ESCAPED
    what = f"the byte {byte:#x}, no UTF-8," if 0x80 <= byte <= 0xFF else "a lone surrogate"
    return f"{what} at character {lone.start()}"


def valid_text(text: str) -> str:
    """Return `text` with U+FFFD for every lone surrogate."""
    return _LONE.sub("\ufffd", text)


def with_valid_text(outcome: Outcome[Any]) -> Outcome[Any]:
    """Return `outcome` with U+FFFD for every lone surrogate; their number is noted."""
    count = 0

    def valid(text: str) -> str:
        nonlocal count
        new, replaced = _LONE.subn("\ufffd", text)
        count += replaced
        return new if replaced else text

    new: Outcome[Any] = replace_parts(outcome, str, valid)
    if count and isinstance(new, Result | Skip | Failure):
        return replace(new, notes={**new.notes, REPLACED: count})
    return new
