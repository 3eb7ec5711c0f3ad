"""What a judge was asked by one command, and why pairs and replies have no verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.results.reasons import counted_reasons
from cluster.records import Row
from generators.base import Fault, NotApplicable, Outcome, Result
from scorers.pairwise.games import Judgement
from scorers.pairwise.matchup import Matchup

Judged = Sequence[tuple[Matchup, Outcome[Judgement]]]
"""Every pair of documents with what became of its judgement."""

_UNASKED = {Fault.BAD_INPUT, Fault.ENDPOINT, Fault.BUDGET, Fault.NOT_LOADED}
"""Faults of requests that no judge has judged."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions that one command put to a judge."""

    judged: int
    """With a reply, a refusal, or a judge that broke down over them."""
    unasked: int
    """That did not come to a judge."""

    @classmethod
    def between(cls, before: Mapping[str, Row], after: Mapping[str, Row]) -> "Asked":
        """By the judge's records before and after the command."""
        new = [r for key, r in after.items() if key not in before or before[key].at != r.at]
        unasked = sum(row.fault in _UNASKED for row in new)
        return cls(len(new) - unasked, unasked)

    def __str__(self) -> str:
        lost = f", {self.unasked:,} could not be asked" if self.unasked else ""
        return f"{self.judged:,} judgements asked{lost}"


def anything_read(judged: Judged) -> bool:
    """Whether any reply says something."""
    return any(
        isinstance(reading.outcome, Result)
        for _, outcome in judged
        if isinstance(outcome, Result)
        for reading in outcome.value.readings
    )


def reasons_of(judged: Judged) -> dict[str, list[dict[str, Any]]]:
    """By pair, why there was nothing to ask, and why replies failed or cannot be read.

    That a protocol does not ask something of a question is no loss.
    """
    lost: dict[str, list[Outcome[Any]]] = defaultdict(list)
    for matchup, outcome in judged:
        lost[f"{matchup.second} against {matchup.first}"] += _without_value(outcome)
    return {pair: counted_reasons(outcomes) for pair, outcomes in lost.items() if outcomes}


def _without_value(outcome: Outcome[Judgement]) -> list[Outcome[Any]]:
    """The judgement, or those of its readings, from which nothing was learned."""
    outcomes: list[Outcome[Any]] = [outcome]
    if isinstance(outcome, Result):
        outcomes = [reading.outcome for reading in outcome.value.readings]
    return [o for o in outcomes if not isinstance(o, Result | NotApplicable)]
