"""Judges' ratings matched with people's, and all measures of agreement, in plain form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from benchmarks.studies.agreement.ratings import (
    About,
    RatingsByRater,
    Unit,
    category_by_id,
    kind_of,
)
from benchmarks.studies.agreement.rows import Value, ends_of
from generators.errors import UsageError
from scorers.base import bounds
from scorers.statistics.agreement import ScoredPair, agreement
from scorers.statistics.estimate import DRAWS
from scorers.statistics.preferences import (
    Measures,
    Preferred,
    Vote,
    Voted,
    creation_agreement,
    creation_people,
    each_and_the_others,
    mllm_agreement,
    mllm_people,
)

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
    """One judge's ratings matched with people's."""

    judge: str
    matches: list[RatedUnit]
    no_score: Counter[str]
    """Rated by people, known to the judge's side, and without a score: by reason."""
    unmatched: Mapping[Unit, str]
    """Rated by people but not among the judge's documents, by what is unknown."""
    not_annotated: int
    """Scored by the judge, rated by nobody."""

    def counts(self) -> dict[str, Any]:
        """Every unit of either side, by outcome."""
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
    """People's ratings matched with each judge's, in the order of the judges' names."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementSettings:
    """How agreement is computed."""

    human_scale: str = "0-6"
    """Of people's scores; MMIE's is 0 to 6."""
    rescale: bool = True
    """Whether judges' scores are first mapped linearly from their scale to people's. The
    paper compares CLIPScore as it is (its MAE of 2.25 fits values below 1)."""
    draws: int = DRAWS
    seed: int = 0


def compared(
    judges: RatingsByRater, people: RatingsByRater, settings: AgreementSettings
) -> dict[str, Any]:
    """All measures as plain data; UsageError where nothing matches."""
    if judges.form != people.form:
        raise UsageError(
            f"people gave each a {people.form} and judges a {judges.form}; both files need "
            "the same one of the columns score, preference and vote"
        )
    sides = matched(judges, people)
    if not any(side.matches or side.no_score for side in sides):
        raise UsageError(_nothing_in_common(judges, people))
    rated = by_unit(people)
    return {
        "form": people.form,
        "human_scale": settings.human_scale if people.form == "score" else None,
        "annotators": sorted(people.values),
        "annotated": len(rated),
        "ratings": sum(len(values) for values in rated.values()),
        "blank": sum(len(units) for units in people.missing.values()),
        "judges": [_judge(side, judges, people.form, settings) for side in sides],
        "people": _people(people, rated, settings),
    }


def _nothing_in_common(judges: RatingsByRater, people: RatingsByRater) -> str:
    rated, scored = sorted(by_unit(people)), sorted(judges.about)
    shown = (" of ".join(unit[:2]) for unit in (*rated[:1], *scored[:1]))
    return (
        f"of {len(rated):,} annotated documents none is among the {len(scored):,} "
        f"to be scored; the first of each: {' / '.join(shown) or 'none'}"
    )


def _judge(
    side: Matched, judges: RatingsByRater, form: str, settings: AgreementSettings
) -> dict[str, Any]:
    about: dict[str, Any] = {"judge": side.judge, "counts": side.counts()}
    if form == "preference":
        measures = creation_agreement([_preferred(m) for m in side.matches])
        return about | {"agreement": _plain(measures)}
    if form == "vote":
        measured = mllm_agreement([_voted(m) for m in side.matches])
        return about | {"agreement": _all_plain(measured)}
    return about | _scored(side, judges.scales.get(side.judge, ""), settings)


def _scored(side: Matched, scale: str, settings: AgreementSettings) -> dict[str, Any]:
    human_ends, ends = ends_of(settings.human_scale), bounds(scale)
    mapped = settings.rescale and ends is not None and ends != human_ends
    pairs = [_pair(m) for m in side.matches]
    if mapped and ends is not None:
        pairs = [_mapped(pair, ends, human_ends) for pair in pairs]
    one_scale = not settings.rescale or ends is not None
    groups = agreement(pairs, one_scale=one_scale, draws=settings.draws, seed=settings.seed)
    return {
        "scale": scale,
        "rescaled": mapped,
        "groups": [group.as_json() for group in groups],
    }


def _pair(match: RatedUnit) -> ScoredPair:
    return ScoredPair(
        query=match.unit.id,
        category=match.about.category,
        kind=match.about.kind,
        judge=float(match.judge),
        human=_mean(match.human),
    )


def _mapped(
    pair: ScoredPair, ends: tuple[float, float], onto: tuple[float, float]
) -> ScoredPair:
    share = (pair.judge - ends[0]) / (ends[1] - ends[0])
    return replace(pair, judge=onto[0] + share * (onto[1] - onto[0]))


def _mean(values: Mapping[str, Value]) -> float:
    return float(np.mean([float(v) for v in values.values()]))


def _preferred(match: RatedUnit) -> Preferred:
    human = {name: float(v) for name, v in match.human.items()}
    return Preferred(query=match.unit.id, judge=float(match.judge), human=human)


def _voted(match: RatedUnit) -> Voted:
    human = cast(Mapping[str, Vote], match.human)
    return Voted(query=match.unit.id, judge=cast(Vote, match.judge), human=human)


def _people(
    people: RatingsByRater,
    rated: Mapping[Unit, Mapping[str, Value]],
    settings: AgreementSettings,
) -> dict[str, Any]:
    """How well people agree with one another: the best a judge can reach."""
    if people.form == "vote":
        votes = [(u.id, cast(Mapping[str, Vote], v)) for u, v in rated.items()]
        return _all_plain(mllm_people(votes))
    numbers = [(u.id, {n: float(v) for n, v in r.items()}) for u, r in rated.items()]
    if people.form == "preference":
        return _all_plain(creation_people(numbers))
    return _scored_people(numbers, settings)


def _scored_people(
    ratings: Sequence[tuple[str, Mapping[str, float]]], settings: AgreementSettings
) -> dict[str, Any]:
    """Each annotator compared with the mean of the others."""
    pairs: dict[str, list[ScoredPair]] = {}
    for query, rated in ratings:
        for name, own, others in each_and_the_others(rated):
            pair = ScoredPair(query=query, category="", kind="", judge=own, human=others)
            pairs.setdefault(name, []).append(pair)
    coefficients = {}
    for name in sorted(pairs):
        whole = agreement(pairs[name], draws=settings.draws, seed=settings.seed)[0]
        coefficients[name] = whole.as_json()["coefficients"]
    return coefficients


def _plain(measures: Measures) -> dict[str, Any]:
    return {name: estimate.as_json() for name, estimate in measures.items()}


def _all_plain(by_rater: Mapping[str, Measures]) -> dict[str, Any]:
    return {who: _plain(measures) for who, measures in by_rater.items()}
