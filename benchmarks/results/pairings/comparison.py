"""Pairings of LVLM and text-to-image model: scores, effects, differences and costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise

import numpy as np

from benchmarks.results.board import Board
from benchmarks.results.costs import MEASURES, DocumentCost, RunCosts
from benchmarks.results.pairings.matrix import PairingMatrix, matrices_of
from generators.base import Kind, OutcomeName
from scorers.base import Direction
from scorers.statistics.estimate import Estimate, Floats
from scorers.statistics.means import mean, paired
from scorers.statistics.power import detectable, queries_needed
from scorers.statistics.two_way import TwoWayModel, shared_queries, two_way


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDifference:
    """Two cells on the shared queries, and how many queries tell them apart."""

    a: str
    b: str
    estimate: Estimate
    """Mean of a - b."""
    sd: float | None
    """Standard deviation of a - b over the queries."""
    detectable: float | None
    """The smallest difference that as many queries find at power 0.8."""
    needed: int | None
    """Queries that find a difference as large as the one seen, at power 0.8."""

    def with_first(self, system: str) -> CellDifference:
        """The same with `system` as `a`: b - a where it is the second."""
        if system == self.a:
            return self
        e = self.estimate
        ends = None if e.ci95 is None else (0.0 - e.ci95[1], 0.0 - e.ci95[0])
        value = None if e.value is None else 0.0 - e.value
        return replace(
            self, a=self.b, b=self.a, estimate=replace(e, value=value, ci95=ends)
        )


@dataclass(frozen=True, kw_only=True)
class PairingScores:
    """One scorer over a matrix."""

    scorer: str
    scale: str
    direction: Direction
    model: TwoWayModel
    left_out: Mapping[str, int]
    """Queries without a score in every cell, by what happened in those without."""
    differences: Sequence[CellDifference]
    """Of every two cells."""

    def value(self, system_at: tuple[int, int]) -> float | None:
        """The mean of one cell."""
        return self.model.cells[system_at[0]][system_at[1]].value


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """What was made for a matrix, and how often it was asked for."""

    texts: int
    """Drafts made."""
    texts_requested: int
    pictures: int
    pictures_requested: int
    seeds: int
    """Pictures, by query, repeat and place, that several cells drew from a seed."""
    same_seeds: int
    """Those whose seed is the same in all cells."""
    spent: Mapping[str, float]
    """What all records cost, by the names of `MEASURES`."""
    unshared: Mapping[str, float]
    """What every document would have cost on its own, added up."""


@dataclass(frozen=True, kw_only=True)
class PairingCosts:
    """What documents of a matrix cost, on the queries that every cell has answered."""

    queries: int
    cells: Mapping[str, Mapping[str, Estimate]]
    """By system and measure, per document; measures without any value are left out."""
    sharing: Sharing

    @property
    def measures(self) -> list[str]:
        """Measures that all cells have and some cell uses, in the order of `MEASURES`."""
        return [
            m
            for m in MEASURES
            if all(m in own for own in self.cells.values())
            and any(own[m].value for own in self.cells.values())
        ]


@dataclass(frozen=True, kw_only=True)
class Pairings:
    """Everything that is shown of one matrix."""

    matrix: PairingMatrix
    queries: int
    """Queries of the run."""
    scores: Sequence[PairingScores]
    costs: PairingCosts | None
    """None where the records are not at hand."""

    def frontier(self, scores: PairingScores, measure: str) -> list[str]:
        """Systems that no other beats in both mean score and mean cost, the cheapest first.

        By the means alone, whose intervals may overlap.
        """
        points = self.points(scores, measure)
        sign = 1 if scores.direction == "higher" else -1
        best = [
            (cost, name)
            for name, (cost, value) in points.items()
            if not any(
                other != name
                and c <= cost
                and sign * v >= sign * value
                and (c, v) != (cost, value)
                for other, (c, v) in points.items()
            )
        ]
        return [name for _, name in sorted(best)]

    def points(self, scores: PairingScores, measure: str) -> dict[str, tuple[float, float]]:
        """(cost, score) by system, where both are known."""
        points = {}
        for w, row in enumerate(self.matrix.systems):
            for a, system in enumerate(row):
                value, costs = scores.value((w, a)), self.costs and self.costs.cells
                cost = (costs or {}).get(system.name, {}).get(measure)
                if value is not None and cost is not None and cost.value is not None:
                    points[system.name] = (cost.value, value)
        return points


@lru_cache(maxsize=2)
def pairings_of(board: Board) -> list[Pairings]:
    """The pairings of every matrix of a board; empty where there is none."""
    return [
        Pairings(
            matrix=matrix,
            queries=board.n,
            scores=[_scores(board, matrix, s.name) for s in board.scorers],
            costs=None if board.costs is None else _costs(board.costs, matrix),
        )
        for matrix in matrices_of(board.systems)
    ]


# ----------------------------------------------------------------------------- scores


def _scores(board: Board, matrix: PairingMatrix, name: str) -> PairingScores:
    scorer = next(s for s in board.scorers if s.name == name)
    column = {s.name: i for i, s in enumerate(board.systems)}
    columns = [column[s.name] for s in matrix.cells]
    shape = (-1, len(matrix.writers), len(matrix.artists))
    values = board.values[name][:, columns].reshape(shape)
    shared = shared_queries(values).reshape(-1, len(columns))
    names = [s.name for s in matrix.cells]
    return PairingScores(
        scorer=name,
        scale=scorer.scale,
        direction="lower" if scorer.direction == "lower" else "higher",
        model=two_way(values),
        left_out=_left_out(board, matrix, name, values),
        differences=[
            _difference(names[i], names[j], shared[:, i], shared[:, j])
            for i, j in combinations(range(len(names)), 2)
        ],
    )


def _difference(a: str, b: str, x: Floats, y: Floats) -> CellDifference:
    difference = paired(x, y)
    estimate = mean(difference)
    n = len(difference)
    sd = float(difference.std(ddof=1)) if n > 1 else None
    sd = sd if sd is not None and np.isfinite(sd) and estimate.ci95 else None
    return CellDifference(
        a=a,
        b=b,
        estimate=estimate,
        sd=sd,
        detectable=detectable(sd, n) if sd else None,
        needed=queries_needed(estimate.value or 0.0, sd) if sd else None,
    )


def _left_out(
    board: Board, matrix: PairingMatrix, scorer: str, values: Floats
) -> dict[str, int]:
    """Queries without a score in every cell, by the outcomes of the cells without one."""
    names = {s.name for s in matrix.cells}
    outcomes: dict[str, dict[str, str]] = {}
    for (query, system, _), outcome in _outcomes(board, names, scorer).items():
        own = outcomes.setdefault(query, {})
        # A query that one repeat has a score of has a value.
        own[system] = min(own.get(system, "~"), outcome)
    absent = [bool(np.isnan(row).any()) for row in values]
    reasons = Counter(
        _reason(outcomes.get(key, {}), names)
        for key, lost in zip(board.keys, absent, strict=True)
        if lost
    )
    if never := board.n - len(board.keys):
        reasons["not made"] += never
    return dict(reasons.most_common())


def _outcomes(
    board: Board, systems: Iterable[str], scorer: str
) -> dict[tuple[str, str, int], str]:
    """By answer `` for a score, else what came of the document or of its judgement."""
    own = board.column["system"].is_(*systems)
    columns = ("query", "system", "repeat", "outcome")
    outcomes = {}
    for *answer, name in board.rows(own & board.is_answer & board.is_complete, *columns):
        outcomes[*answer] = OutcomeName.MISSING if name == OutcomeName.DONE else name
    judged = own & board.is_score & board.column["scorer"].is_(scorer)
    for *answer, name in board.rows(judged, *columns):
        words = OutcomeName(name).of_scores.replace("_", " ")
        outcomes[*answer] = "" if name == OutcomeName.SCORED else words
    return outcomes


def _reason(outcomes: Mapping[str, str], names: Iterable[str]) -> str:
    """`skipped`; `failed and skipped` where different cells have different reasons."""
    reasons = {outcomes.get(name, "not made") for name in names} - {""}
    return " and ".join(sorted(reasons))


# ------------------------------------------------------------------------------ costs


def _costs(costs: RunCosts, matrix: PairingMatrix) -> PairingCosts:
    names = [s.name for s in matrix.cells]
    own = [d for d in costs.documents if d.system in set(names)]
    done: dict[str, dict[str, list[DocumentCost]]] = {name: {} for name in names}
    for document in own:
        if document.done:
            done[document.system].setdefault(document.query, []).append(document)
    shared = sorted(set.intersection(*(set(queries) for queries in done.values())))
    return PairingCosts(
        queries=len(shared),
        cells={
            name: _per_document(costs, [queries[key] for key in shared])
            for name, queries in done.items()
        },
        sharing=_sharing(costs, own),
    )


def _per_document(
    costs: RunCosts, queries: Sequence[Sequence[DocumentCost]]
) -> dict[str, Estimate]:
    """The mean over queries of each measure; repeats count as their mean.

    A document without any record of a measure costs none of it, where others have some; a
    measure that a stage of any document does not tell is left out.
    """
    amounts = [[costs.of(document) for document in repeats] for repeats in queries]
    measured = {name for repeats in amounts for one in repeats for name in one}
    stages = {costs.records[k].stage for r in queries for d in r for k in d.records}
    return {
        name: mean([float(np.mean([o.get(name, 0.0) for o in r])) for r in amounts])
        for name in MEASURES
        if name in measured - costs.unknown(stages)
    }


def _sharing(costs: RunCosts, documents: Sequence[DocumentCost]) -> Sharing:
    keys = frozenset[str]().union(*(d.records for d in documents))
    made = Counter(costs.records[key].kind for key in keys)
    asked = Counter[Kind]()
    unshared: dict[str, float] = {}
    for document in documents:
        asked.update(document.requests)
        for name, amount in costs.total(sorted(document.records)).items():
            unshared[name] = unshared.get(name, 0.0) + amount
    seeds = _seeds(documents)
    return Sharing(
        texts=made[Kind.DRAFT],
        texts_requested=asked[Kind.DRAFT],
        pictures=made[Kind.RENDER],
        pictures_requested=asked[Kind.RENDER],
        seeds=len(seeds),
        same_seeds=sum(_all_equal(one) for one in seeds),
        spent=costs.total(sorted(keys)),
        unshared=unshared,
    )


def _seeds(documents: Sequence[DocumentCost]) -> list[list[int]]:
    """The seeds of each picture that several cells drew."""
    seeds: dict[tuple[str, int, int], list[int]] = {}
    for document in documents:
        for place, seed in document.seeds.items():
            seeds.setdefault((document.query, document.repeat, place), []).append(seed)
    return [several for several in seeds.values() if len(several) > 1]


def _all_equal(values: Sequence[int]) -> bool:
    return all(a == b for a, b in pairwise(values))
