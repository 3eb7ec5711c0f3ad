"""What a judge was asked by one command, and why pairs and replies have no verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.results.board import key_of
from benchmarks.results.reasons import Loss, counted_reasons, losses_csv
from cluster.plan import outcome_name
from cluster.records import Row
from generators.base import Failure, Fault, NotApplicable, Outcome, Result
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
    pairs = list(dict.fromkeys(_pair(matchup) for matchup, _ in judged))
    counted = counted_reasons(_losses(judged), pairs)
    return {pair: why for pair, why in counted.items() if why}


def failures_of(judged: Judged) -> str:
    """The same one by one, as CSV; the column `system` holds the pair."""
    pairs = list(dict.fromkeys(_pair(matchup) for matchup, _ in judged))
    return losses_csv(_losses(judged), pairs)


def _pair(matchup: Matchup) -> str:
    return f"{matchup.second} against {matchup.first}"


def _losses(judged: Judged) -> Iterator[Loss]:
    """The judgements, or those of their readings, from which nothing was learned."""
    for matchup, judgement in judged:
        for outcome in _readings(judgement):
            if not isinstance(outcome, Result | NotApplicable):
                yield Loss(
                    system=_pair(matchup),
                    query=key_of(matchup.sample),
                    category=matchup.sample.category,
                    field=matchup.sample.field,
                    repeat=matchup.repeat + 1,
                    scorer="",
                    outcome=outcome_name(outcome),
                    fault=outcome.fault.value if isinstance(outcome, Failure) else "",
                    reason=outcome.reason,
                )


def _readings(judgement: Outcome[Judgement]) -> Iterable[Outcome[Any]]:
    if not isinstance(judgement, Result):
        return [judgement]
    return [reading.outcome for reading in judgement.value.readings]
