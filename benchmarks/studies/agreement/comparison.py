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
from benchmarks.studies.agreement.rows import Form, Value, ends_of
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
Rated = Mapping[Unit, Mapping[str, Value]]
"""By unit, the value that each annotator gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementSettings:
    """The settings of `plait agreement`."""

    human_scale: str = "0-6"
    """Of people's scores; MMIE's is 0 to 6."""
    rescale: bool = True
    """Map judges' scores first, linearly from their scale to people's. The paper compares
    CLIPScore as it is (its MAE of 2.25 fits values below 1)."""
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
    rated = _by_unit(people)
    sides = (*judges.values.values(), *judges.missing.values())
    if all(rated.keys().isdisjoint(units) for units in sides):
        raise UsageError(_nothing_in_common(rated, judges))
    names = sorted(judges.raters)
    return {
        "form": people.form,
        "human_scale": settings.human_scale if people.form == "score" else None,
        "annotators": sorted(people.values),
        "annotated": len(rated),
        "ratings": sum(len(values) for values in rated.values()),
        "blank": sum(len(units) for units in people.missing.values()),
        "judges": [_judge(name, judges, people, rated, settings) for name in names],
        "people": _people(people.form, rated, settings),
    }


def _by_unit(people: RatingsByRater) -> Rated:
    units: dict[Unit, dict[str, Value]] = {}
    for annotator, values in sorted(people.values.items()):
        for unit, value in values.items():
            units.setdefault(unit, {})[annotator] = value
    return units


def _nothing_in_common(rated: Rated, judges: RatingsByRater) -> str:
    annotated, scored = sorted(rated), sorted(judges.about)
    shown = (" of ".join(unit[:2]) for unit in (*annotated[:1], *scored[:1]))
    return (
        f"of {len(annotated):,} annotated documents none is among the {len(scored):,} "
        f"to be scored; the first of each: {' / '.join(shown) or 'none'}"
    )


def _judge(
    name: str,
    judges: RatingsByRater,
    people: RatingsByRater,
    rated: Rated,
    settings: AgreementSettings,
) -> dict[str, Any]:
    """One judge's ratings matched with people's."""
    scored, missing = judges.values.get(name, {}), judges.missing.get(name, {})
    matched = [
        (unit, scored[unit], rated[unit]) for unit in sorted(rated) if unit in scored
    ]
    counts = _counts(rated, scored, missing, judges.about)
    about = {"judge": name, "counts": counts}
    if people.form == "preference":
        preferred = [
            Preferred(query=unit.id, judge=float(own), human=_numbers(human))
            for unit, own, human in matched
        ]
        return about | {"agreement": _plain(creation_agreement(preferred))}
    if people.form == "vote":
        voted = [
            Voted(
                query=unit.id, judge=cast(Vote, own), human=cast(Mapping[str, Vote], human)
            )
            for unit, own, human in matched
        ]
        return about | {"agreement": _all_plain(mllm_agreement(voted))}
    pairs = [
        _pair(unit, float(own), human, _about(unit, judges, people))
        for unit, own, human in matched
    ]
    return about | _scored(pairs, judges.scales.get(name, ""), settings)


def _counts(
    rated: Rated,
    scored: Mapping[Unit, Value],
    missing: Mapping[Unit, str],
    known: Mapping[Unit, About],
) -> dict[str, Any]:
    """Every unit of either side, by outcome."""
    no_score = Counter(why for unit, why in missing.items() if unit in rated)
    ids, systems = {unit.id for unit in known}, {unit.system for unit in known}
    unmatched = {
        unit: _unknown(unit, ids, systems)
        for unit in rated
        if unit not in scored and unit not in missing
    }
    return {
        "annotated": len(rated),
        "matched": sum(unit in scored for unit in rated),
        "no_score": dict(sorted(no_score.items())),
        "unmatched": dict(sorted(Counter(unmatched.values()).items())),
        "unmatched_examples": [list(unit) for unit in sorted(unmatched)[:EXAMPLES]],
        "not_annotated": sum(unit not in rated for unit in scored),
    }


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


def _pair(unit: Unit, own: float, human: Mapping[str, Value], about: About) -> ScoredPair:
    mean = float(np.mean([*_numbers(human).values()]))
    return ScoredPair(
        query=unit.id, category=about.category, kind=about.kind, judge=own, human=mean
    )


def _scored(
    pairs: Sequence[ScoredPair], scale: str, settings: AgreementSettings
) -> dict[str, Any]:
    human_ends, ends = ends_of(settings.human_scale), bounds(scale)
    mapped = settings.rescale and ends is not None and ends != human_ends
    if mapped and ends is not None:
        pairs = [_mapped(pair, ends, human_ends) for pair in pairs]
    one_scale = not settings.rescale or ends is not None
    groups = agreement(pairs, one_scale=one_scale, draws=settings.draws, seed=settings.seed)
    return {
        "scale": scale,
        "rescaled": mapped,
        "groups": [group.as_json() for group in groups],
    }


def _mapped(
    pair: ScoredPair, ends: tuple[float, float], onto: tuple[float, float]
) -> ScoredPair:
    share = (pair.judge - ends[0]) / (ends[1] - ends[0])
    return replace(pair, judge=onto[0] + share * (onto[1] - onto[0]))


def _people(form: Form, rated: Rated, settings: AgreementSettings) -> dict[str, Any]:
    """Agreement of people with one another: the best a judge can reach."""
    if form == "vote":
        votes = [(u.id, cast(Mapping[str, Vote], v)) for u, v in rated.items()]
        return _all_plain(mllm_people(votes))
    numbers = [(unit.id, _numbers(values)) for unit, values in rated.items()]
    if form == "preference":
        return _all_plain(creation_people(numbers))
    pairs: dict[str, list[ScoredPair]] = {}
    for query, values in numbers:
        for name, own, others in each_and_the_others(values):
            pair = ScoredPair(query=query, category="", kind="", judge=own, human=others)
            pairs.setdefault(name, []).append(pair)
    groups = {
        name: agreement(own, draws=settings.draws, seed=settings.seed)[0]
        for name, own in sorted(pairs.items())
    }
    return {name: group.as_json()["coefficients"] for name, group in groups.items()}


def _numbers(values: Mapping[str, Value]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def _plain(measures: Measures) -> dict[str, Any]:
    return {name: estimate.as_json() for name, estimate in measures.items()}


def _all_plain(by_rater: Mapping[str, Measures]) -> dict[str, Any]:
    return {who: _plain(measures) for who, measures in by_rater.items()}
