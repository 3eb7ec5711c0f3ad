"""What verdicts show about a judge: how consistent they are, and what they prefer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

from benchmarks.studies.bias.observations import (
    Finding,
    JudgeIdentity,
    Observation,
    Preference,
    Rulings,
    Section,
    both_orders,
    family,
    finding,
    rank_correlation,
    sign,
)
from benchmarks.studies.pairwise.judgements import Ruling

NO_PAIRS = "no pairwise judgements: run `plait compare` first"

Values = Mapping[tuple[str, object], float]
"""Preferences or scores, by question and by what else they are about."""


def positions(rulings: Rulings) -> Section:
    """Does the verdict stay when the answers change places?"""
    findings: list[Finding] = []
    absent = [] if rulings else [NO_PAIRS]
    for judge, lines in rulings.items():
        pairs = list(both_orders(lines))
        if not pairs:
            absent.append(f"{judge.label}: no pair was read in both orders")
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
        findings += [finding(judge.label, name, o) for name, o in measures.items()]
    return Section(
        name="position",
        title="Position: both orders of showing",
        findings=tuple(findings),
        absent=tuple(absent),
    )


def _shift(named: Ruling, swapped: Ruling) -> float:
    return ((named.preference or 0) + (swapped.preference or 0)) / 2


def _stays(named: Ruling, swapped: Ruling) -> bool:
    """Whether both orders prefer the same answer, or neither of them any."""
    return sign(named.preference or 0) == -sign(swapped.preference or 0)


def agreement(label: str, unit: str, sets: Sequence[Values]) -> list[Finding]:
    """How similar two or more sets of values about the same things are.

    Keys begin with the question. Every pair of sets counts where both have a value.
    """
    equal: list[Observation] = []
    apart: list[Observation] = []
    for one, other in combinations(sets, 2):
        for key in sorted(one.keys() & other.keys(), key=repr):
            equal.append((key[0], 100.0 * (one[key] == other[key])))
            apart.append((key[0], abs(one[key] - other[key])))
    if not equal:
        return []
    return [
        finding(label, "equal, %", equal),
        finding(label, f"mean difference, {unit}", apart),
    ]


def repeatability(rulings: Rulings) -> Section:
    """Is the verdict the same when the same is asked with another seed?"""
    findings: list[Finding] = []
    absent = [] if rulings else [NO_PAIRS]
    for judge, lines in rulings.items():
        rounds = sorted({r.judging for r in lines})
        sets = [_values(r for r in lines if r.judging == i) for i in rounds]
        if measures := agreement(judge.label, "levels", sets):
            findings += measures
        else:
            absent.append(
                f"{judge.label}: asked once; `plait compare --judgings 2` asks again, "
                "with other seeds"
            )
    return Section(
        name="repeatability",
        title="Repeatability: the same question, asked again",
        findings=tuple(findings),
        absent=tuple(absent),
    )


def rewording(rulings: Rulings) -> Section:
    """Is the verdict the same with another wording, layout or reading?"""
    findings: list[Finding] = []
    absent = [] if rulings else [NO_PAIRS]
    by_model: dict[tuple[str, str, str], list[JudgeIdentity]] = defaultdict(list)
    for judge in rulings:
        by_model[judge.name, judge.stage, judge.protocol].append(judge)
    for judges in by_model.values():
        name = f"{judges[0].display_name} ({judges[0].protocol})"
        if len({j.wording for j in judges}) < 2:
            absent.append(
                f"{name}: asked in one wording; `plait compare --rubric official:PATH` "
                "asks in another"
            )
        for one, other in combinations(judges, 2):
            sets = [_first_values(rulings[j]) for j in (one, other)]
            label = f"{name}: {_apart(one, other)}"
            if measures := agreement(label, "levels", sets):
                findings += measures
            else:
                absent.append(f"{label}: no reply about the same pair was read in both")
    return Section(
        name="rewording",
        title="Wording and mode: the same pair, asked or read differently",
        findings=tuple(findings),
        absent=tuple(absent),
    )


def _apart(one: JudgeIdentity, other: JudgeIdentity) -> str:
    """How two ways of asking one model differ: in wording, mode, or both."""
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


def lengths(preferences: PreferencesByJudge) -> Section:
    """Is the longer answer preferred, and the one with more pictures?"""
    findings: list[Finding] = []
    for judge, games in preferences.items():
        longer = [m if m.second.words > m.first.words else m.flipped for m in games]
        uneven = [m for m in longer if m.first.words != m.second.words]
        findings += [
            Finding(
                judge=judge.label,
                measure="rank correlation of difference in length and preference",
                estimate=rank_correlation([_difference(m) for m in games]),
                judgements=len(games),
            ),
            _preferred(judge, "longer answer preferred, %", uneven),
            *_by_ratio(judge, uneven),
        ]
        pictured = [m if m.second.images > m.first.images else m.flipped for m in games]
        pictured = [m for m in pictured if m.first.images != m.second.images]
        if pictured:
            measure = "answer with more pictures preferred, %"
            findings.append(_preferred(judge, measure, pictured))
    return Section(
        name="length",
        title="Length: preference against difference in words",
        findings=tuple(findings),
        absent=() if preferences else ("no two answers to one question were judged",),
    )


def _difference(m: Preference) -> tuple[str, float, float]:
    size = (m.second.words - m.first.words) / (m.first.words + m.second.words + 1)
    return m.question, size, m.preference


def _by_ratio(judge: JudgeIdentity, longer: Sequence[Preference]) -> list[Finding]:
    """Mean preference for the longer answer by how much longer it is."""
    kinds: dict[str, Callable[[float], bool]] = {
        "preference for the longer, by up to 5%": lambda r: r <= _ALIKE,
        "preference for the longer, up to twice": lambda r: _ALIKE < r <= _TWICE,
        "preference for the longer, over twice": lambda r: r > _TWICE,
    }
    sized = [(m, m.second.words / max(1, m.first.words)) for m in longer]
    return [
        finding(
            judge.label,
            name,
            [(m.question, m.preference) for m, ratio in sized if fits(ratio)],
        )
        for name, fits in kinds.items()
    ]


def _preferred(judge: JudgeIdentity, measure: str, games: Sequence[Preference]) -> Finding:
    return finding(judge.label, measure, [(m.question, _share(m)) for m in games])


def _share(m: Preference) -> float:
    """100 where the second is preferred, 50 for neither."""
    return 50.0 * (1 + sign(m.preference))


def self_preference(preferences: PreferencesByJudge) -> Section:
    """Does a judge prefer answers of its own family more than other judges do?"""
    findings: list[Finding] = []
    absent = [] if preferences else ["no two answers to one question were judged"]
    for judge, games in preferences.items():
        own = family(judge.name)
        mine = {m.about: m for g in games if (m := _own_second(g, own)) is not None}
        if not mine:
            absent.append(
                f"{judge.label}: no pair has exactly one answer of its own family ({own})"
            )
            continue
        findings.append(
            _preferred(judge, f"answers of {own} preferred, %", [*mine.values()])
        )
        others = _by_others(preferences, judge, own)
        same = [(m, others[about]) for about, m in mine.items() if about in others]
        if not same:
            absent.append(
                f"{judge.label}: no judge of another family has judged the same pairs, so "
                "its preference cannot be distinguished from the answers' quality"
            )
            continue
        findings += _beside_others(judge, own, same)
    return Section(
        name="self_preference",
        title="Self-preference: answers of the judge's own family",
        findings=tuple(findings),
        absent=tuple(absent),
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
