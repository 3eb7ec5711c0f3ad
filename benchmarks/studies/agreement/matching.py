"""People's ratings beside a judge's: what both rated, and what has no counterpart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.studies.agreement.ratings import (
    About,
    RatingsByRater,
    Unit,
    category_by_id,
    kind_of,
)
from benchmarks.studies.agreement.rows import Value

EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedUnit:
    """A unit that a judge and at least one person have rated."""

    unit: Unit
    about: About
    judge: Value
    human: Mapping[str, Value]
    """By annotator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """What came of setting one judge beside the people."""

    judge: str
    matches: list[RatedUnit]
    no_score: Counter[str]
    """Rated by people, known to the judge's side, and without a score: by reason."""
    unmatched: Mapping[Unit, str]
    """Rated by people and not among the judge's documents at all, and what is unknown."""
    not_annotated: int
    """Scored by the judge, rated by nobody."""

    def counts(self) -> dict[str, Any]:
        """Every unit of either side, by what became of it."""
        lost = Counter(self.unmatched.values())
        annotated = len(self.matches) + self.no_score.total() + len(self.unmatched)
        return {
            "annotated": annotated,
            "matched": len(self.matches),
            "no_score": dict(sorted(self.no_score.items())),
            "unmatched": dict(sorted(lost.items())),
            "unmatched_examples": [list(u) for u in sorted(self.unmatched)[:EXAMPLES]],
            "not_annotated": self.not_annotated,
        }


def matched(judges: RatingsByRater, people: RatingsByRater) -> list[Matched]:
    """People's ratings beside each judge's, in the order of the judges' names."""
    rated = by_unit(people)
    names = sorted({*judges.values, *judges.missing})
    return [_matched(name, judges, people, rated) for name in names]


def by_unit(people: RatingsByRater) -> dict[Unit, dict[str, Value]]:
    """Each unit's values by annotator."""
    units: dict[Unit, dict[str, Value]] = {}
    for annotator, values in sorted(people.values.items()):
        for unit, value in values.items():
            units.setdefault(unit, {})[annotator] = value
    return units


def _matched(
    name: str,
    judges: RatingsByRater,
    people: RatingsByRater,
    rated: Mapping[Unit, dict[str, Value]],
) -> Matched:
    scored, missing = judges.values.get(name, {}), judges.missing.get(name, {})
    matches = [
        RatedUnit(unit=u, about=_about(u, judges, people), judge=scored[u], human=rated[u])
        for u in sorted(rated)
        if u in scored
    ]
    ids, systems = {u.id for u in judges.about}, {u.system for u in judges.about}
    lost = {
        u: _unknown(u, ids, systems) for u in rated if u not in scored and u not in missing
    }
    return Matched(
        judge=name,
        matches=matches,
        no_score=Counter(why for u, why in missing.items() if u in rated),
        unmatched=lost,
        not_annotated=sum(u not in rated for u in scored),
    )


def _unknown(unit: Unit, ids: set[str], systems: set[str]) -> str:
    if unit.id not in ids:
        return "unknown id"
    if unit.system not in systems:
        return "unknown system"
    return "other repeat or baseline" if unit.repeat or unit.baseline else "not scored"


def _about(unit: Unit, judges: RatingsByRater, people: RatingsByRater) -> About:
    """The group as people's file states it, else as the judges' side does, else by name."""
    sides = [side.about.get(unit, About()) for side in (people, judges)]
    category, kind = (
        next(filter(None, statements), "") for statements in zip(*sides, strict=True)
    )
    return About(category or category_by_id(unit.id), kind or kind_of(unit.system))
