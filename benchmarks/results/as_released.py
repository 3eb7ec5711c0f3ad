"""The numbers that the released MMIE scorer prints, for judges in official mode."""

from __future__ import annotations

from typing import Any

from benchmarks.results.board import Board
from generators.base import Result
from scorers.base import Scorer
from scorers.judging.judge import RubricJudge
from scorers.judging.released import Released, averages, percent


def as_released(board: Board, scorer: Scorer, system: str) -> dict[str, Any] | None:
    """n, averages of raw scores (0 to 6, rounded as printed) and the paper's percent.

    Over all repeats, as a file with every answer would give. None for other judges.
    """
    if not isinstance(scorer, RubricJudge) or not isinstance(scorer.examiner, Released):
        return None
    scores = [
        (evaluation.sample.id, outcome.value.parts["raw"])
        for evaluation in board.evaluations
        if evaluation.system == system
        and isinstance(outcome := evaluation.scores.get(scorer.name), Result)
    ]
    found = averages(scores)
    shown = None if found.average is None else round(percent(found.average), 2)
    about = {"n": found.n, "average": found.average, "percent": shown}
    return about | dict(found.kinds)
