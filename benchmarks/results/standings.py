"""What one scorer says of all systems: every mean and every difference, with intervals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.results.board import Board, Group
from benchmarks.results.statistics import (
    Draws,
    Estimate,
    combined,
    estimates,
    resample,
    stratified,
)


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
    """Every estimate of one scorer, from one pass of drawing."""
    sets, paired = _drawn(board, scorer)
    silent = {c for c in board.category_names if _is_silent(board, scorer, c)}
    weighed = tuple(c for c in board.categories if c not in silent)
    categories = {
        c: _of(board, (d for g, d in sets.items() if g[0] == c), c in silent)
        for c in board.category_names
    }
    fields = {
        f: _of(board, (d for g, d in sets.items() if g[1] == f), _covered(sets, f, silent))
        for f in board.field_names
    }
    return Standing(
        scorer=scorer,
        weighed=weighed,
        fixed=_fixed(board, sets, weighed),
        micro=_of(board, sets.values()),
        categories=categories,
        fields=fields,
        differences=_differences(board, paired),
    )


def _drawn(board: Board, scorer: str) -> tuple[dict[Group, Draws], Draws]:
    """Draws of the systems' scores per group, and of the pairs' differences over all."""
    values = board.values[scorer]
    left, right = np.triu_indices(len(board.systems), 1)
    columns = np.hstack([values, values[:, left] - values[:, right]])
    systems, pairs = slice(len(board.systems)), slice(len(board.systems), None)
    rows: dict[Group, list[int]] = {}
    group_of = {q.key: (q.category, q.field) for q in board.queries}
    for i, key in enumerate(board.keys):
        rows.setdefault(group_of[key], []).append(i)
    sets: dict[Group, Draws] = {}
    paired = resample([], columns[:0, pairs])
    for group, indices in sorted(rows.items()):
        drawn = resample([board.keys[i] for i in indices], columns[indices])
        sets[group] = drawn.pick(systems)
        paired += drawn.pick(pairs)
    return sets, paired


def _of(board: Board, sets: Iterable[Draws], silent: bool = False) -> list[Estimate]:
    found = list(sets)
    if not found:
        return [Estimate(None, None, 0, "no query asked")] * len(board.systems)
    means = estimates(combined(found))
    if silent:
        return [replace(e, reason="not applicable") for e in means]
    return means


def _covered(sets: dict[Group, Draws], field: str, silent: set[str]) -> bool:
    """Whether the field's queries all belong to categories the scorer is silent about."""
    categories = {c for c, f in sets if f == field}
    return bool(categories) and categories <= silent


def _is_silent(board: Board, scorer: str, category: str) -> bool:
    """Whether the scorer called all it saw of a category not applicable."""
    tallies = [t for (_, c, _), t in board.tallies.items() if c == category]
    said = {name for t in tallies for of, name in t if of == scorer}
    return said == {"not_applicable"}


def _fixed(
    board: Board, sets: dict[Group, Draws], weighed: tuple[str, ...]
) -> list[Estimate]:
    """Category means under the published weights; undefined while a category is empty."""
    if not weighed:
        reason = "the task set publishes no number of queries per category"
        return [Estimate(None, None, 0, reason)] * len(board.systems)
    nothing = resample([], np.empty((0, len(board.systems))))
    strata = [
        (
            board.categories[c],
            combined([nothing, *(d for g, d in sets.items() if g[0] == c)]),
        )
        for c in weighed
    ]
    found = stratified(strata)
    for i, estimate in enumerate(found):
        empty = [c for c, (_, d) in zip(weighed, strata, strict=True) if not d.n[i]]
        if empty:
            found[i] = replace(estimate, reason=f"no scored query in {', '.join(empty)}")
    return found


def _differences(board: Board, paired: Draws) -> list[tuple[str, str, Estimate]]:
    names = [s.name for s in board.systems]
    pairs = zip(*np.triu_indices(len(names), 1), strict=True)
    means = estimates(paired)
    return [(names[a], names[b], e) for (a, b), e in zip(pairs, means, strict=True)]
