"""Results of one scorer: means, differences, criteria and released averages by system."""

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

Indices = npt.NDArray[np.intp]
"""Rows of a board's values, by position."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The estimates of one scorer; lists are in the order of the board's systems."""

    scorer: str
    weighted: tuple[str, ...]
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
    skipped = {c for c in board.category_names if _does_not_apply(board, scorer, c)}
    weighted = tuple(c for c in board.categories if c not in skipped)
    skipped_fields = {f for f in fields if _covered(board, f, skipped)}
    return Standing(
        scorer=scorer,
        weighted=weighted,
        fixed=_fixed(board, values, categories, weighted),
        micro=[_mean(column) for column in values.T],
        categories=_means(values, board.category_names, categories, skipped),
        fields=_means(values, board.field_names, fields, skipped_fields),
        differences=_differences(board, values),
    )


def _rows(board: Board, group: Callable[[Query], str]) -> dict[str, Indices]:
    """The rows of the queries of each group."""
    name = {query.key: group(query) for query in board.queries}
    rows: dict[str, list[int]] = {}
    for i, key in enumerate(board.keys):
        rows.setdefault(name[key], []).append(i)
    return {group: np.array(indices) for group, indices in rows.items()}


def _mean(values: Floats) -> Estimate:
    return mean(values) if len(values) else Estimate(None, None, 0, "no query asked")


def _means(
    values: Floats, names: Iterable[str], rows: Mapping[str, Indices], skipped: set[str]
) -> dict[str, list[Estimate]]:
    """By group, the mean of every system."""
    nothing = np.zeros(0, dtype=np.intp)
    means = {n: [_mean(c) for c in values[rows.get(n, nothing)].T] for n in names}
    for name in skipped:
        means[name] = [replace(e, reason="not applicable") for e in means[name]]
    return means


def _covered(board: Board, field: str, skipped: set[str]) -> bool:
    """Whether the field's queries all belong to categories that the scorer skips."""
    return {category for category, f in board.groups if f == field} <= skipped


def _does_not_apply(board: Board, scorer: str, category: str) -> bool:
    """Whether the scorer does not apply to anything it was given of a category."""
    tallies = [t for (_, c, _), t in board.tallies.items() if c == category]
    outcomes = {name for tally in tallies for of, name in tally if of == scorer}
    return outcomes == {"not_applicable"}


def _fixed(
    board: Board, values: Floats, rows: Mapping[str, Indices], weighted: tuple[str, ...]
) -> list[Estimate]:
    """Category means under the published weights; undefined while a category is empty."""
    if not weighted:
        reason = "the task set publishes no number of queries per category"
        return [Estimate(None, None, 0, reason)] * len(board.systems)
    return [_weighted(board, column, rows, weighted) for column in values.T]


def _weighted(
    board: Board, column: Floats, rows: Mapping[str, Indices], weighted: tuple[str, ...]
) -> Estimate:
    nothing = np.zeros(0, dtype=np.intp)
    own = {c: column[rows.get(c, nothing)] for c in weighted}
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
    """By system, by criterion; a criterion without any verdict read is left out."""


def profiles(board: Board, scorer: str) -> list[Profile]:
    """By category; empty where the scorer gives no verdicts on criteria."""
    scores: dict[str, dict[str, list[Score]]] = {}
    for evaluation in board.evaluations:
        outcome = evaluation.scores.get(scorer)
        if isinstance(outcome, Result) and "criteria" in outcome.value.parts:
            systems = scores.setdefault(evaluation.sample.category, {})
            systems.setdefault(evaluation.system, []).append(outcome.value)
    by_category = (_profile(category, systems) for category, systems in scores.items())
    return [p for p in by_category if p.criteria]


def _profile(category: str, scores: Mapping[str, list[Score]]) -> Profile:
    systems = {name: profile(given) for name, given in scores.items()}
    criteria = dict.fromkeys(c for means in systems.values() for c in means)
    # The penalty is not a criterion and comes last.
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
    raw = averages(scores)
    share = None if raw.average is None else round(percent(raw.average), 2)
    about = {"n": raw.n, "average": raw.average, "percent": share}
    return about | dict(raw.kinds)
