"""Agreement on pairs of answers: five levels (Creation-MMBench) and votes (MLLM-Bench).

A judge and people on one pair are (query, the judge's value, people's by annotator). The
query is the independent unit of intervals; the n of an estimate is the number of pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Literal, NamedTuple

import numpy as np

from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import PERCENT, pooled_mean

Vote = Literal["system", "baseline", "undecided"]
Preferred = tuple[str, float, Mapping[str, float]]
"""Preferences from -2 to 2, positive for the system; the judge's is the mean of the orders
it was asked in."""
Voted = tuple[str, Vote, Mapping[str, Vote]]


class BothVotes(NamedTuple):
    """The votes of two on one pair of answers."""

    query: str
    one: Vote
    other: Vote

    @property
    def are_decided(self) -> bool:
        """Whether both took a side."""
        return "undecided" not in (self.one, self.other)


class Measured(NamedTuple):
    """What is measured of one pair of answers to a query."""

    query: str
    value: float


Measures = dict[str, Estimate]


def creation_agreement(pairs: Sequence[Preferred]) -> Measures:
    """Return MAE and Consistency of a judge with the mean of the people.

    Creation-MMBench, appendix F.2, equations 1 and 2: the mean of |J - P|, and the
    percentage of pairs with |J - P| <= 1.
    """
    gaps = []
    for query, own, human in pairs:
        gaps.append(Measured(query, float(own - np.mean([*human.values()]))))
    return _distances(gaps)


def creation_people(
    ratings: Sequence[tuple[str, Mapping[str, float]]],
) -> dict[str, Measures]:
    """Return the same of each annotator with the mean of the others, by annotator (F.3).

    `ratings` are (query, preference by annotator). What an annotator judged alone is left
    out, since it cannot agree with anything.
    """
    gaps: dict[str, list[Measured]] = {}
    for query, rated in ratings:
        for name, own, others in each_and_the_others(rated):
            gaps.setdefault(name, []).append(Measured(query, own - others))
    return {name: _distances(own) for name, own in sorted(gaps.items())}


def each_and_the_others(rated: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """Yield (annotator, own value, mean of the others), where there are others."""
    for name, own in rated.items():
        others = [value for other, value in rated.items() if other != name]
        if others:
            yield name, own, float(np.mean(others))


def _distances(gaps: Sequence[Measured]) -> Measures:
    """Return mean absolute error and Consistency of differences from -4 to 4."""
    sizes = []
    consistent = []
    for query, gap in gaps:
        sizes.append(Measured(query, abs(gap)))
        consistent.append(Measured(query, 100.0 * (abs(gap) <= 1)))
    return {"mae": _mean(sizes, (0.0, 4.0)), "consistency": _mean(consistent)}


def majority(votes: Sequence[Vote]) -> Vote:
    """Return the people's vote (MLLM-Bench, section 6.1).

    Undecided where system and baseline have equally many votes, and where more are
    undecided than voted for either.
    """
    count = Counter(votes)
    system = count["system"]
    baseline = count["baseline"]
    if system == baseline or count["undecided"] > max(system, baseline):
        return "undecided"
    return "system" if system > baseline else "baseline"


def mllm_agreement(pairs: Sequence[Voted]) -> dict[str, Measures]:
    """Percentages of equal votes: judge with the majority, with each annotator, with all.

    `decided` is over the pairs on which both took a side, as the falling counts of the
    paper's Tables 14 and 15 suggest; `all` counts undecided as a choice of its own.
    """
    with_majority: list[BothVotes] = []
    with_each: dict[str, list[BothVotes]] = {}
    with_all: list[BothVotes] = []
    for query, own, human in pairs:
        with_majority.append(BothVotes(query, own, majority([*human.values()])))
        for name, vote in human.items():
            both = BothVotes(query, own, vote)
            with_each.setdefault(name, []).append(both)
            with_all.append(both)
    measures = {"majority": _equal(with_majority)}
    for name in sorted(with_each):
        measures[f"annotator {name}"] = _equal(with_each[name])
    measures["annotators"] = _equal(with_all)
    return measures


def mllm_people(votes: Sequence[tuple[str, Mapping[str, Vote]]]) -> dict[str, Measures]:
    """Return percentages of equal votes of every two annotators (Table 15), by `A and B`.

    `votes` are (query, vote by annotator).
    """
    names = sorted(set(chain.from_iterable(by_name for _, by_name in votes)))
    measures = {}
    for one, other in combinations(names, 2):
        of_both = []
        for query, by_name in votes:
            if one in by_name and other in by_name:
                of_both.append(BothVotes(query, by_name[one], by_name[other]))
        measures[f"{one} and {other}"] = _equal(of_both)
    return measures


def _equal(votes: Sequence[BothVotes]) -> Measures:
    """Return percentages of equal votes, of those on which both took a side and of all."""
    decided = []
    every = []
    for both in votes:
        equal = Measured(both.query, 100.0 * (both.one == both.other))
        every.append(equal)
        if both.are_decided:
            decided.append(equal)
    return {"decided": _mean(decided), "all": _mean(every)}


def _mean(values: Sequence[Measured], ends: tuple[float, float] = PERCENT) -> Estimate:
    """Return the mean with its interval by query; its n is the number of pairs."""
    if not values:
        return Estimate(None, None, 0, "no pair of answers judged by both")
    queries, numbers = zip(*values, strict=True)
    return replace(pooled_mean(queries, numbers, ends), n=len(values))
