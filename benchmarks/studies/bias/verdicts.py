"""How steady verdicts are: places changed, asked again, worded otherwise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from benchmarks.studies.bias.observations import (
    Finding,
    JudgeIdentity,
    Observation,
    Rulings,
    Section,
    both_orders,
    finding,
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
    """How alike two or more sets of values about the same things are.

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
    """Does the judge say the same when asked the same with another seed?"""
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
    """Does the judge say the same when worded, laid out or read otherwise?"""
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
        title="Wording and mode: the same pair, asked or read otherwise",
        findings=tuple(findings),
        absent=tuple(absent),
    )


def _apart(one: JudgeIdentity, other: JudgeIdentity) -> str:
    """In what two ways of asking one model differ: wording, mode, or both."""
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
