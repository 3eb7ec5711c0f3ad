"""Numbers with the word for what they count."""

from __future__ import annotations


def quantity(number: int, one: str, many: str = "") -> str:
    """Return `1 query` or `1,200 queries`; the plural is `one` with an s by default."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
