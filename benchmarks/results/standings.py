"""What one scorer says of all systems: means, differences, criteria, released averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.results.board import Board, Query
from generators.base import Result
from generators.document import Score
from scorers.base import Scorer
from scorers.judging.judge import CriterionMean, RubricJudge, profile
from scorers.judging.released import Released, averages, percent
from scorers.statistics.estimate import Estimate, Floats
from scorers.statistics.means import Stratum, mean, paired, stratified

Rows = npt.NDArray[np.intp]
"""Rows of a board's values."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The estimates of one scorer; lists are in the order of the board's systems."""

    scorer: str
    weighed: tuple[str, ...]
    """The categories that `fixed` is made of."""
    fixed: list[Estimate]
    micro: list[Estimate]
    categories: dict[str, list[Estimate]]
    fields: dict[str, list[Estimate]]
    differences: list[tuple[str, str, Estimate]]
    """(a, b, mean of a - b over the queries that have a score of both)."""


def standing(board: Board, scorer: str) -> Standing:
    """Every estimate of one scorer; the query is the independent unit of all of them."""
    values = board.values[scorer]
    categories = _rows(board, lambda query: query.category)
    fields = _rows(board, lambda query: query.field)
    silent = {c for c in board.category_names if _is_silent(board, scorer, c)}
    weighed = tuple(c for c in board.categories if c not in silent)
    quiet_fields = {f for f in fields if _covered(board, f, silent)}
    return Standing(
        scorer=scorer,
        weighed=weighed,
        fixed=_fixed(board, values, categories, weighed),
        micro=[_mean(column) for column in values.T],
        categories=_means(values, board.category_names, categories, silent),
        fields=_means(values, board.field_names, fields, quiet_fields),
        differences=_differences(board, values),
    )


def _rows(board: Board, group: Callable[[Query], str]) -> dict[str, Rows]:
    """The rows of the queries of each group."""
    name = {query.key: group(query) for query in board.queries}
    rows: dict[str, list[int]] = {}
    for i, key in enumerate(board.keys):
        rows.setdefault(name[key], []).append(i)
    return {group: np.array(indices) for group, indices in rows.items()}


def _mean(values: Floats) -> Estimate:
    return mean(values) if len(values) else Estimate(None, None, 0, "no query asked")


def _means(
    values: Floats, names: Iterable[str], rows: Mapping[str, Rows], silent: set[str]
) -> dict[str, list[Estimate]]:
    """By group, the mean of every system."""
    nothing = np.zeros(0, dtype=np.intp)
    means = {n: [_mean(c) for c in values[rows.get(n, nothing)].T] for n in names}
    for name in silent:
        means[name] = [replace(e, reason="not applicable") for e in means[name]]
    return means


def _covered(board: Board, field: str, silent: set[str]) -> bool:
    """Whether the field's queries all belong to categories the scorer is silent about."""
    return {category for category, f in board.groups if f == field} <= silent


def _is_silent(board: Board, scorer: str, category: str) -> bool:
    """Whether the scorer called all it saw of a category not applicable."""
    tallies = [t for (_, c, _), t in board.tallies.items() if c == category]
    outcomes = {name for tally in tallies for of, name in tally if of == scorer}
    return outcomes == {"not_applicable"}


def _fixed(
    board: Board, values: Floats, rows: Mapping[str, Rows], weighed: tuple[str, ...]
) -> list[Estimate]:
    """Category means under the published weights; undefined while a category is empty."""
    if not weighed:
        reason = "the task set publishes no number of queries per category"
        return [Estimate(None, None, 0, reason)] * len(board.systems)
    return [_weighted(board, column, rows, weighed) for column in values.T]


def _weighted(
    board: Board, column: Floats, rows: Mapping[str, Rows], weighed: tuple[str, ...]
) -> Estimate:
    nothing = np.zeros(0, dtype=np.intp)
    own = {c: column[rows.get(c, nothing)] for c in weighed}
    estimate = stratified([Stratum(c, board.categories[c], v) for c, v in own.items()])
    if empty := [c for c, v in own.items() if np.isnan(v).all()]:
        return replace(estimate, reason=f"no scored query in {', '.join(empty)}")
    return estimate


def _differences(board: Board, values: Floats) -> list[tuple[str, str, Estimate]]:
    columns = list(zip((s.name for s in board.systems), values.T, strict=True))
    return [(a, b, mean(paired(x, y))) for (a, x), (b, y) in combinations(columns, 2)]


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
