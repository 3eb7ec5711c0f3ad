"""How often each criterion of a rubric is met, by category and system (MMIE, Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.results.board import Board
from generators.base import Result
from generators.document import Score
from scorers.judging.judge import CriterionMean, profile


@dataclass(frozen=True, slots=True)
class Profile:
    """One judge's verdicts on one category."""

    category: str
    criteria: tuple[str, ...]
    systems: Mapping[str, Mapping[str, CriterionMean]]
    """By system, by criterion; a criterion on which none was read is left out."""


def profiles(board: Board, scorer: str) -> list[Profile]:
    """By category; none where the scorer gives no verdicts on criteria."""
    scores: dict[str, dict[str, list[Score]]] = {}
    for evaluation in board.evaluations:
        outcome = evaluation.scores.get(scorer)
        if isinstance(outcome, Result) and "criteria" in outcome.value.parts:
            systems = scores.setdefault(evaluation.sample.category, {})
            systems.setdefault(evaluation.system, []).append(outcome.value)
    found = [_profile(category, systems) for category, systems in scores.items()]
    return [p for p in found if p.criteria]


def _profile(category: str, scores: Mapping[str, list[Score]]) -> Profile:
    systems = {name: profile(given) for name, given in scores.items()}
    criteria = dict.fromkeys(c for means in systems.values() for c in means)
    # The penalty is no criterion, and stands last.
    names = sorted(criteria, key="penalty".__eq__)
    return Profile(category, tuple(names), systems)
