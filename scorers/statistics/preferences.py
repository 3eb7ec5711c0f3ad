"""Agreement on pairs of answers: five levels (Creation-MMBench) and votes (MLLM-Bench)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from scorers.statistics.estimate import Estimate
from scorers.statistics.means import pooled_mean

Vote = Literal["system", "baseline", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferred:
    """What a judge and people prefer of one system's answer and the baseline's."""

    query: str
    """The sample's id: the independent unit of intervals."""
    judge: float
    """From -2 to 2, positive for the system: the mean of the orders it was asked in."""
    human: Mapping[str, float]
    """The same by annotator."""

    @property
    def reference(self) -> float:
        """The mean of the people."""
        return float(np.mean(list(self.human.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Voted:
    """Which of two answers a judge and people vote for."""

    query: str
    judge: Vote
    human: Mapping[str, Vote]
    """By annotator."""


class Both(NamedTuple):
    """Two votes on one pair of answers."""

    query: str
    first: Vote
    second: Vote


Measures = dict[str, Estimate]


def creation_agreement(
    pairs: Sequence[Preferred],
) -> Measures:
    """MAE and Consistency of a judge with the mean of the people.

    Creation-MMBench, appendix F.2, equations 1 and 2: the mean of |J - P|, and the
    percentage of pairs with |J - P| <= 1.
    """
    gaps = [(p.query, abs(p.judge - p.reference)) for p in pairs]
    return _distances(gaps)


def creation_people(
    ratings: Sequence[tuple[str, Mapping[str, float]]],
) -> dict[str, Measures]:
    """Return the same of each annotator with the mean of the others, by annotator (F.3).

    `ratings` are (query, preference by annotator). What an annotator judged alone is left
    out, since it cannot agree with anything; `n` counts the rest.
    """
    gaps: dict[str, list[tuple[str, float]]] = {}
    for query, rated in ratings:
        for name, own, others in each_and_the_others(rated):
            gaps.setdefault(name, []).append((query, abs(own - others)))
    return {name: _distances(own) for name, own in sorted(gaps.items())}


def each_and_the_others(
    rated: Mapping[str, float],
) -> Iterator[tuple[str, float, float]]:
    """Yield (annotator, own value, mean of the others), where there are others."""
    for name, own in rated.items():
        others = [value for other, value in rated.items() if other != name]
        if others:
            yield name, own, float(np.mean(others))


def _distances(gaps: Sequence[tuple[str, float]]) -> Measures:
    within = [(query, 100.0 * (gap <= 1)) for query, gap in gaps]
    return {
        "mae": _mean(gaps),
        "consistency": _mean(within),
    }


def majority(votes: Sequence[Vote]) -> Vote:
    """Return the people's vote (MLLM-Bench, section 6.1).

    Undecided where system and baseline have equally many votes, and where more are
    undecided than voted for either.
    """
    count = Counter(votes)
    system, baseline = count["system"], count["baseline"]
    if system == baseline or count["undecided"] > max(system, baseline):
        return "undecided"
    return "system" if system > baseline else "baseline"


def mllm_agreement(
    pairs: Sequence[Voted],
) -> dict[str, Measures]:
    """Percentages of equal votes: judge with the majority, with each annotator, with all.

    `decided` is over the pairs on which both took a side, as the falling counts of the
    paper's Tables 14 and 15 suggest; `all` counts undecided as a choice of its own.
    """
    votes = {"majority": [Both(p.query, p.judge, majority(_votes(p))) for p in pairs]}
    single = [(n, Both(p.query, p.judge, v)) for p in pairs for n, v in p.human.items()]
    for name in sorted({name for name, _ in single}):
        votes[f"annotator {name}"] = [both for n, both in single if n == name]
    votes["annotators"] = [both for _, both in single]
    return {who: _equal(both) for who, both in votes.items()}


def _votes(pair: Voted) -> list[Vote]:
    return list(pair.human.values())


def mllm_people(
    votes: Sequence[tuple[str, Mapping[str, Vote]]],
) -> dict[str, Measures]:
    """Return percentages of equal votes of every two annotators (Table 15), by `A and B`.

    `votes` are (query, vote by annotator).
    """
    names = sorted({name for _, voted in votes for name in voted})
    measures = {}
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            shared = [(q, v) for q, v in votes if first in v and second in v]
            both = [Both(q, v[first], v[second]) for q, v in shared]
            measures[f"{first} and {second}"] = _equal(both)
    return measures


def _equal(votes: Sequence[Both]) -> Measures:
    decided = [b for b in votes if "undecided" not in (b.first, b.second)]
    sets = {"decided": decided, "all": votes}
    return {
        name: _mean([(b.query, 100.0 * (b.first == b.second)) for b in chosen])
        for name, chosen in sets.items()
    }


def _mean(values: Sequence[tuple[str, float]]) -> Estimate:
    """Return mean over pairs; its interval is by query. `n` is the number of pairs."""
    if not values:
        return Estimate(None, None, 0, "no pair of answers judged by both")
    queries, numbers = zip(*values, strict=True)
    return replace(pooled_mean(queries, numbers), n=len(values))
