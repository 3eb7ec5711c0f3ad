"""The leaderboard: one row per system, and paired differences, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.results.board import RAW, Board, Group, weights_of
from benchmarks.results.reasons import reasons
from benchmarks.results.wording import placing
from generators.base import DOCUMENT_OUTCOMES, SCORE_OUTCOMES, OutcomeName
from scorers.base import Scorer
from scorers.judging.judge import RubricJudge
from scorers.judging.released import Released, averages, percent
from scorers.statistics.estimate import Estimate, Floats
from scorers.statistics.means import Stratum, mean, paired, stratified

Means = Mapping[str, Sequence[Estimate]]
"""By category or field, an estimate for each system."""
COUNTS = ("planned", *DOCUMENT_OUTCOMES, *(name.of_scores for name in SCORE_OUTCOMES))


@lru_cache(maxsize=2)
def leaderboard(board: Board) -> list[dict[str, Any]]:
    """One row per system: counts, and for every scorer each mean with its interval.

    The best by the first scorer comes first, systems without its average last.
    Counts are of answers (queries x repeats) and judgements; the `n` of a mean is the
    number of queries that have a score, the row's `n` that of all queries. `avg_fixed`
    weights category means by the published counts, as the paper's AVG does (MMIE, Tables
    1, 3 and 4); `avg_micro` is the mean over all scored queries.
    """
    why, scores = reasons(board), {s.name: _scores(board, s) for s in board.scorers}
    rows: list[dict[str, Any]] = [
        {
            "system": system.name,
            "weights": weights_of(system),
            "n": board.n,
            "repeats": board.rounds,
            **_counts(board, system.name, board.groups, scores, board.answers),
            **board.mark,
            "scores": {name: own[i] for name, own in scores.items()},
        }
        for i, system in enumerate(board.systems)
    ]
    if board.scorers:
        rows.sort(key=placing(rows, board.scorers[0]))
    return [row | {"reasons": why[row["system"]]} for row in rows]


@lru_cache(maxsize=2)
def differences(board: Board) -> list[dict[str, Any]]:
    """Mean of `a` - `b` over the queries both have a score of, per scorer and pair."""
    names = [system.name for system in board.systems]
    return [
        {"scorer": s.name, "a": a, "b": b, **mean(paired(x, y)).as_json("mean")}
        | {"scale": s.scale, "direction": s.direction, **board.mark}
        for s in board.scorers
        for (a, x), (b, y) in combinations(
            zip(names, board.values[s.name].T, strict=True), 2
        )
    ]


def _scores(board: Board, scorer: Scorer) -> list[dict[str, Any]]:
    """What each system has reached by one scorer; queries are independent units."""
    values = board.values[scorer.name]
    silent = {c for c in board.category_names if _does_not_apply(board, scorer.name, c)}
    weighted = [c for c in board.categories if c not in silent]
    categories = _means(board, values, board.category_names, 0)
    fields = _means(board, values, board.field_names, 1)
    names = [system.name for system in board.systems]

    def cell(system: str, estimate: Estimate, groups: Sequence[Group]) -> dict[str, Any]:
        counts = _counts(board, system, groups, [scorer.name])
        return {**estimate.as_json("mean"), "scale": scorer.scale, **counts}

    def cells(i: int, system: str, means: Means, place: int) -> dict[str, Any]:
        shown = {}
        for name, estimates in means.items():
            groups, estimate = [g for g in board.groups if g[place] == name], estimates[i]
            if groups and all(category in silent for category, _ in groups):
                estimate = replace(estimate, reason="not applicable")
            shown[name] = cell(system, estimate, groups)
        return shown

    return [
        {
            "scale": scorer.scale,
            "direction": scorer.direction,
            **({"manner": scorer.manner} if scorer.manner else {}),
            **_as_released(board, scorer, name),
            "avg_fixed": cell(
                name,
                _fixed(board, column, weighted),
                [g for g in board.groups if g[0] in weighted],
            ),
            "avg_micro": cell(name, _mean(column), [*board.groups])
            | _counts(board, name, board.groups, [scorer.name], board.answers),
            "categories": cells(i, name, categories, 0),
            "fields": cells(i, name, fields, 1),
        }
        for i, (name, column) in enumerate(zip(names, values.T, strict=True))
    ]


def _does_not_apply(board: Board, scorer: str, category: str) -> bool:
    """Whether the scorer does not apply to anything it was given of a category."""
    tallies = [t for (_, c, _), t in board.tallies.items() if c == category]
    outcomes = {name for tally in tallies for of, name in tally if of == scorer}
    return outcomes == {OutcomeName.NOT_APPLICABLE}


def _means(board: Board, values: Floats, names: Iterable[str], place: int) -> Means:
    """By category (`place` 0) or field (1), the mean of every system."""
    group = {query.key: query[1 + place] for query in board.queries}
    own = np.array([group[key] for key in board.keys], dtype=np.str_)
    return {name: [_mean(column) for column in values[own == name].T] for name in names}


def _mean(values: Floats) -> Estimate:
    return mean(values) if len(values) else Estimate(None, None, 0, "no query asked")


def _fixed(board: Board, column: Floats, weighted: Sequence[str]) -> Estimate:
    """Category means under the published weights; undefined while a category is empty."""
    if not weighted:
        reason = "the task set publishes no number of queries per category"
        return Estimate(None, None, 0, reason)
    category = {query.key: query.category for query in board.queries}
    own = np.array([category[key] for key in board.keys], dtype=np.str_)
    strata = [Stratum(c, board.categories[c], column[own == c]) for c in weighted]
    empty = [s.name for s in strata if np.isnan(s.values).all()]
    estimate = stratified(strata)
    if empty:
        return replace(estimate, reason=f"no scored query in {', '.join(empty)}")
    return estimate


def _as_released(board: Board, scorer: Scorer, system: str) -> dict[str, Any]:
    """n, averages of raw scores (0 to 6, rounded as printed) and the paper's percent.

    Over all repeats, as a file with every answer would give. Empty for other judges.
    """
    if not isinstance(scorer, RubricJudge) or not isinstance(scorer.examiner, Released):
        return {}
    own = board.column["system"].is_(system) & board.column["criterion"].is_(RAW)
    raw = averages(board.rows(own & board.rulings(scorer.name), "query", "value"))
    share = None if raw.average is None else round(percent(raw.average), 2)
    about = {"n": raw.n, "average": raw.average, "percent": share}
    return {"as_released": about | dict(raw.kinds)}


def _counts(
    board: Board,
    system: str,
    groups: Iterable[Group],
    scorers: Iterable[str],
    planned: int | None = None,
) -> dict[str, int]:
    """Answers of one system in `groups` by outcome, and judgements of `scorers`."""
    tally, asked = Counter[tuple[str, str]](), 0
    for group in groups:
        tally.update(board.tallies[system, *group])
        asked += board.groups[group] * board.rounds
    planned = asked if planned is None else planned
    counts = {str(name): tally["", name] for name in DOCUMENT_OUTCOMES}
    counts["missing"] = planned - sum(counts.values())
    names = (name.of_scores for name in SCORE_OUTCOMES)
    judged = {name: sum(tally[s, name] for s in scorers) for name in names}
    return {"planned": planned} | counts | judged
