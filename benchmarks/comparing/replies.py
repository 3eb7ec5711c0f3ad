"""What a judge was asked by one command, and why pairs and replies have no verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.comparing.duels import Duel
from benchmarks.results.board import Board
from benchmarks.results.reasons import reasons
from cluster.plan import Evaluation
from cluster.records import Row
from generators.base import Fault, NotApplicable, Outcome, Result
from generators.system import System
from scorers.pairwise.protocol import Judgement

Judged = Sequence[tuple[Duel, Outcome[Judgement]]]
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
    names = dict.fromkeys(_pair(duel) for duel, _ in judged)
    board = Board(
        systems=[System(name=name, draft=None) for name in names],
        scorers=(),
        evaluations=[e for duel, outcome in judged for e in _lacking(duel, outcome)],
        categories={},
        fields=(),
        weights="",
    )
    return {pair: why for pair, why in reasons(board).items() if why}


def _pair(duel: Duel) -> str:
    return f"{duel.second} against {duel.first}"


def _lacking(duel: Duel, outcome: Outcome[Judgement]) -> Iterator[Evaluation]:
    """What has no value, each as a document that there is not."""
    for lost in _lost(outcome):
        if not isinstance(lost, Result | NotApplicable):
            yield Evaluation(_pair(duel), duel.sample, duel.repeat, lost, {})


def _lost(outcome: Outcome[Judgement]) -> Iterable[Outcome[Any]]:
    if not isinstance(outcome, Result):
        return [outcome]
    return [reading.outcome for reading in outcome.value.readings]
