"""How far two texts agree: where the first character differs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDifference:
    """Two texts, compared from the beginning."""

    first_difference: int | None
    """Characters before the first one that differs, or before the end of the shorter
    text; None where the texts are equal."""
    prefix: float
    """Share of the longer text before the first difference; 1 where they are equal."""

    @property
    def equal(self) -> bool:
        """Whether every character is the same."""
        return self.first_difference is None


def text_difference(one: str, other: str) -> TextDifference:
    """The difference of two texts, symmetric in both."""
    if one == other:
        return TextDifference(first_difference=None, prefix=1.0)
    shorter, longer = sorted((len(one), len(other)))
    pairs = enumerate(zip(one, other, strict=False))
    common = next((i for i, (a, b) in pairs if a != b), shorter)
    return TextDifference(first_difference=common, prefix=common / longer)
