"""Short answers about a scene: how many, where, yes or no."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Count:
    """How many there are of a thing."""

    number: int
    name: str | None = None
    """`circle`, `red shape`, `shape`; None where the text does not say."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where the item of a name is."""

    place: str
    name: str | None = None
    """`red circle`; None where the text does not say."""


@dataclass(frozen=True, slots=True)
class YesOrNo:
    """Yes or no."""

    yes: bool


Fact = Count | Location | YesOrNo
