"""What judges prefer in answers: their length, their pictures, their own family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from benchmarks.studies.bias.observations import (
    Finding,
    JudgeIdentity,
    Preference,
    Section,
    family,
    finding,
    rank_correlation,
    sign,
)

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
                "its liking cannot be told from the answers' quality"
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
    """What judges of other families, asked in the same way, say on average."""
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
