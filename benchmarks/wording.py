"""Numbers with the word for what they count."""

from __future__ import annotations


def quantity(number: int, one: str, many: str = "") -> str:
    """Return `1 query` or `1,200 queries`; `many` is a plural that is not the usual one."""
    if number == 1:
        return f"1 {one}"
    usual = f"{one[:-1]}ies" if one.endswith("y") else f"{one}s"
    return f"{number:,} {many or usual}"
