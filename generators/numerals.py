"""Numbers that people and models write as text, read strictly."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def number_of(text: str) -> float | None:
    """Return the number that is all of `text` but blanks around it; None for any other.

    Unlike `float`, it takes neither `1_0` nor `nan`, `inf` or digits of other scripts. A
    number too large for a float is infinite.
    """
    return float(text) if _NUMBER.fullmatch(text.strip()) else None
