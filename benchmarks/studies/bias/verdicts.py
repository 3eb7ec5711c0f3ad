"""Consistency and preferences of a judge's verdicts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from benchmarks.studies.bias.observations import (
    Finding,
    JudgeIdentity,
    Measured,
    Observation,
    Preference,
    Rulings,
    both_orders,
    family,
    finding,
    rank_correlation,
    section,
    sign,
)
from benchmarks.studies.pairwise.judgements import Ruling

NO_PAIRS = "no pairwise judgements: run `plait compare` first"

Values = Mapping[tuple[str, object], float]
"""Preferences or scores, by question and by what else they are about."""


@section("position", "Position: both orders of showing")
def positions(rulings: Rulings) -> Measured:
    """Measure how often the verdict stays when the answers change places."""
    if not rulings:
        yield NO_PAIRS
    for judge, lines in rulings.items():
        pairs = list(both_orders(lines))
        if not pairs:
            yield f"{judge.label}: no pair was read in both orders"
            continue
        shifts = [(a.question, _shift(a, b), _stays(a, b)) for a, b in pairs]
        measures = {
            "same verdict either way, %": [(q, 100.0 * s) for q, _, s in shifts],
            "goes to the first shown, %": [
                (q, 100.0 * (x > 0 and not s)) for q, x, s in shifts
            ],
            "goes to the last shown, %": [
                (q, 100.0 * (x < 0 and not s)) for q, x, s in shifts
            ],
            "preference for the first shown, levels": [(q, x) for q, x, _ in shifts],
        }
        for name, observed in measures.items():
            yield finding(judge.label, name, observed)


def _shift(named: Ruling, swapped: Ruling) -> float:
    return ((named.preference or 0) + (swapped.preference or 0)) / 2


def _stays(named: Ruling, swapped: Ruling) -> bool:
    """True where both orders prefer the same answer, or neither of them any."""
    return sign(named.preference or 0) == -sign(swapped.preference or 0)


def agreement(label: str, unit: str, sets: Sequence[Values], otherwise: str) -> Measured:
    """Measure how equal two or more sets of values about the same things are.

    Keys begin with the question. Every pair of sets counts where both have a value; where
    there is none, the reason is `otherwise`.
    """
    equal: list[Observation] = []
    apart: list[Observation] = []
    for one, other in combinations(sets, 2):
        for key in sorted(one.keys() & other.keys(), key=repr):
            equal.append((key[0], 100.0 * (one[key] == other[key])))
            apart.append((key[0], abs(one[key] - other[key])))
    if not equal:
        yield otherwise
        return
    yield finding(label, "equal, %", equal)
    yield finding(label, f"mean difference, {unit}", apart)


@section("repeatability", "Repeatability: the same question, asked again")
def repeatability(rulings: Rulings, scores: Measured | None = None) -> Measured:
    """Measure how equal verdicts on a question are under other seeds; then `scores`."""
    if not rulings:
        yield NO_PAIRS
    for judge, lines in rulings.items():
        rounds = sorted({r.judging for r in lines})
        sets = [_values(r for r in lines if r.judging == i) for i in rounds]
        yield from agreement(
            judge.label,
            "levels",
            sets,
            f"{judge.label}: asked once; `plait compare --judgings 2` asks again, "
            "with other seeds",
        )
    yield from scores or ()


@section("rewording", "Wording and mode: the same pair, asked or read differently")
def rewording(rulings: Rulings, scores: Measured | None = None) -> Measured:
    """Measure how equal verdicts are under other wordings and modes; then `scores`."""
    if not rulings:
        yield NO_PAIRS
    by_model: dict[tuple[str, str, str], list[JudgeIdentity]] = defaultdict(list)
    for judge in rulings:
        by_model[judge.name, judge.stage, judge.protocol].append(judge)
    for judges in by_model.values():
        name = f"{judges[0].display_name} ({judges[0].protocol})"
        if len({j.wording for j in judges}) < 2:
            yield (
                f"{name}: asked in one wording; `plait compare --rubric official:PATH` "
                "asks in another"
            )
        for one, other in combinations(judges, 2):
            sets = [_first_values(rulings[j]) for j in (one, other)]
            label = f"{name}: {_apart(one, other)}"
            yield from agreement(
                label,
                "levels",
                sets,
                f"{label}: no reply about the same pair was read in both",
            )
    yield from scores or ()


def _apart(one: JudgeIdentity, other: JudgeIdentity) -> str:
    """Name the difference of two ways of asking one model: wording, mode, or both."""
    wordings = [judge.wording[:6] for judge in (one, other)]
    if one.wording == other.wording:
        return f"modes {one.mode} and {other.mode}, one wording {wordings[0]}"
    if one.mode == other.mode:
        return f"wordings {wordings[0]} and {wordings[1]}, both {one.mode}"
    return f"{one.mode} {wordings[0]} and {other.mode} {wordings[1]}, modes differ too"


def _first_values(lines: Sequence[Ruling]) -> Values:
    return _values(r for r in lines if r.judging == 0)


def _values(lines: Iterable[Ruling]) -> Values:
    """Preferences that could be read, by question and by what else they are about."""
    return {
        (r.question, (r.repeat, r.first.system, r.second.system, r.swapped)): float(
            r.preference
        )
        for r in lines
        if r.preference is not None
    }


PreferencesByJudge = Mapping[JudgeIdentity, Sequence[Preference]]
_ALIKE, _TWICE = 1.05, 2.0


@section("length", "Length: preference against difference in words")
def lengths(preferences: PreferencesByJudge) -> Measured:
    """Measure how far the longer answer is preferred, and the one with more images."""
    if not preferences:
        yield "no two answers to one question were judged"
    for judge, games in preferences.items():
        yield Finding(
            judge=judge.label,
            measure="rank correlation of difference in length and preference",
            estimate=rank_correlation([_difference(m) for m in games]),
            judgements=len(games),
        )
        longer = [m if m.second.words > m.first.words else m.flipped for m in games]
        uneven = [m for m in longer if m.first.words != m.second.words]
        yield _preferred(judge, "longer answer preferred, %", uneven)
        yield from _by_ratio(judge, uneven)
        pictured = [m if m.second.images > m.first.images else m.flipped for m in games]
        pictured = [m for m in pictured if m.first.images != m.second.images]
        if pictured:
            yield _preferred(judge, "answer with more pictures preferred, %", pictured)


def _difference(m: Preference) -> tuple[str, float, float]:
    size = (m.second.words - m.first.words) / (m.first.words + m.second.words + 1)
    return m.question, size, m.preference


def _by_ratio(judge: JudgeIdentity, longer: Sequence[Preference]) -> Iterator[Finding]:
    """Mean preference for the longer answer by how much longer it is."""
    kinds = {
        "preference for the longer, by up to 5%": (0.0, _ALIKE),
        "preference for the longer, up to twice": (_ALIKE, _TWICE),
        "preference for the longer, over twice": (_TWICE, math.inf),
    }
    sized = [(m, m.second.words / max(1, m.first.words)) for m in longer]
    for name, (low, high) in kinds.items():
        observed = [(m.question, m.preference) for m, ratio in sized if low < ratio <= high]
        yield finding(judge.label, name, observed)


def _preferred(judge: JudgeIdentity, measure: str, games: Sequence[Preference]) -> Finding:
    return finding(judge.label, measure, [(m.question, _share(m)) for m in games])


def _share(m: Preference) -> float:
    """100 where the second is preferred, 50 for neither."""
    return 50.0 * (1 + sign(m.preference))


@section("self_preference", "Self-preference: answers of the judge's own family")
def self_preference(preferences: PreferencesByJudge) -> Measured:
    """Measure how much more a judge prefers answers of its own family than others do."""
    if not preferences:
        yield "no two answers to one question were judged"
    for judge, games in preferences.items():
        own = family(judge.name)
        mine = {m.about: m for g in games if (m := _own_second(g, own)) is not None}
        if not mine:
            yield f"{judge.label}: no pair has exactly one answer of its own family ({own})"
            continue
        yield _preferred(judge, f"answers of {own} preferred, %", [*mine.values()])
        others = _by_others(preferences, judge, own)
        same = [(m, others[about]) for about, m in mine.items() if about in others]
        if same:
            yield from _beside_others(judge, own, same)
        else:
            yield (
                f"{judge.label}: no judge of another family has judged the same pairs, so "
                "its preference cannot be distinguished from the answers' quality"
            )


def _own_second(m: Preference, own: str) -> Preference | None:
    """The pair with the one answer of the family `own` as its second; None for others."""
    sides = [bool(own) and family(side.writer) == own for side in (m.first, m.second)]
    if sides[0] == sides[1]:
        return None
    return m if sides[1] else m.flipped


def _by_others(
    preferences: PreferencesByJudge, judge: JudgeIdentity, own: str
) -> Mapping[tuple[str, int, str, str], float]:
    """The mean verdict of judges of other families, asked in the same way."""
    shares: dict[tuple[str, int, str, str], list[float]] = defaultdict(list)
    for other, games in preferences.items():
        alike = (other.protocol, other.mode) == (judge.protocol, judge.mode)
        if not alike or family(other.name) == own:
            continue
        for game in games:
            if (m := _own_second(game, own)) is not None:
                shares[m.about].append(_share(m))
    return {about: sum(values) / len(values) for about, values in shares.items()}


def _beside_others(
    judge: JudgeIdentity, own: str, same: Sequence[tuple[Preference, float]]
) -> list[Finding]:
    theirs = [(m.question, share) for m, share in same]
    gaps = [(m.question, _share(m) - share) for m, share in same]
    return [
        finding(judge.label, f"answers of {own} preferred by other judges, %", theirs),
        finding(judge.label, "more than by other judges, points of %", gaps),
    ]
