"""What an answer of each system takes, and what nothing beats in score and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plait.benchmarks.results.board import DONE, Board
from plait.benchmarks.results.frontier import frontier
from plait.benchmarks.studies.paper.columns import PaperColumn, PaperContent
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import AMOUNT, mean_by_question

MEASURES = {"cost": "money per answer", "seconds": "seconds per answer"}
"""What answers take, by the column of the table; the first that all systems have counts."""


@dataclass(frozen=True, slots=True)
class AnswerCosts:
    """What an answer takes by one measure."""

    label: str
    means: Mapping[str, Estimate]
    """By system, per answer; intervals by query."""


def answer_costs(content: PaperContent) -> AnswerCosts | None:
    """Return what an answer of each compared system takes; None where that is not known.

    Seconds are those that stages were busy: they compare systems of one machine.
    """
    for measure, label in MEASURES.items():
        means: dict[str, Estimate] = {}
        for board in content.boards:
            for system, estimate in _means(board, measure, content.models).items():
                means.setdefault(system, estimate)
        if len(means) == len(content.models) > 1:
            return AnswerCosts(label, means)
    return None


def _means(board: Board, measure: str, systems: Sequence[str]) -> dict[str, Estimate]:
    """Return the mean of each system that has it for every answer that is done."""
    values = board.table.column(measure).to_numpy()
    done = board.is_answer & board.column["outcome"].is_(DONE)
    means = {}
    for system in systems:
        rows = done & board.column["system"].is_(system)
        own = values[rows]
        if own.size and not np.isnan(own).any() and own.any():
            queries = [key for (key,) in board.rows(rows, "query")]
            means[system] = mean_by_question(queries, own.tolist(), AMOUNT)
    return means


def frontier_of(costs: AnswerCosts, column: PaperColumn) -> list[str]:
    """Return the systems that no other beats in score and cost, the cheapest first."""
    amounts = {name: cost.value or 0.0 for name, cost in costs.means.items()}
    scores = {name: cell.estimate.value or 0.0 for name, cell in column.known.items()}
    return frontier(amounts, scores, column.scorer.direction)
