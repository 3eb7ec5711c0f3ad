"""The table of a comparison: rows of estimates with counts of all that is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from scorers.statistics.estimate import Estimate

Part = Literal["overall", "category", "field"]


class Grouped(Protocol):
    """What has a category and a field."""

    @property
    def category(self) -> str: ...  # noqa: D102

    @property
    def field(self) -> str: ...  # noqa: D102


G = TypeVar("G", bound=Grouped)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStanding:
    """One system against another, or rated among all, on one group of questions."""

    system: str
    """Empty for what belongs to the group as a whole, as the effect of order."""
    opponent: str = ""
    """Empty where the system is rated among all."""
    part: Part = "overall"
    group: str = ""
    """Name of the category or field."""
    values: Mapping[str, Estimate]
    counts: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        about = {"system": self.system, "opponent": self.opponent}
        values = {name: value.as_json() for name, value in self.values.items()}
        return about | {
            "part": self.part,
            "group": self.group,
            "values": values,
            "counts": dict(self.counts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """Everything a protocol says of the games it was given."""

    protocol: str
    mode: str
    baseline: str | None
    rows: tuple[PairStanding, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        about = {"protocol": self.protocol, "mode": self.mode, "baseline": self.baseline}
        return about | {"rows": [row.as_json() for row in self.rows]}


def groups(games: Sequence[G]) -> Iterator[tuple[Part, str, list[G]]]:
    """All games, then those of each category, then those of each field."""
    yield "overall", "", list(games)
    for name in _names(g.category for g in games):
        yield "category", name, [g for g in games if g.category == name]
    for name in _names(g.field for g in games):
        yield "field", name, [g for g in games if g.field == name]


def _names(met: Iterable[str]) -> list[str]:
    return sorted(set(met) - {""})
