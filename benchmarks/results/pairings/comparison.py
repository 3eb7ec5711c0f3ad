"""Pairings of LVLM and text-to-image model: scores, effects, differences and costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.comparisons import (
    Comparison,
    better_pairs,
    compare_systems,
)
from plait.benchmarks.results.costs import (
    MEASURES,
    Amounts,
    DocumentCost,
    RecordCost,
    total,
)
from plait.benchmarks.results.frontier import frontier
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.pairings.matrix import PairingMatrix, matrices_of
from plait.benchmarks.results.people import Agreement, agreement_of
from plait.benchmarks.results.rankings import Rankings, Series, means_of, weights_of
from plait.generators.base import Kind, OutcomeName
from plait.scorers.base import Scorer, ends_of
from plait.scorers.statistics.estimate import Estimate, Floats
from plait.scorers.statistics.means import AMOUNT, mean, of_differences, paired_differences
from plait.scorers.statistics.multiple import Correction
from plait.scorers.statistics.power import detectable, queries_needed
from plait.scorers.statistics.two_way import TwoWayModel, complete_queries, two_way

PEOPLE = "people"
_NOT_MADE = "not made"


@dataclass(frozen=True, slots=True)
class CellDifference:
    """Two cells on the shared queries, and how many queries tell them apart."""

    a: str
    b: str
    estimate: Estimate
    """Mean of a - b."""
    sd: float | None = None
    """Standard deviation of a - b over the queries."""
    detectable: float | None = None
    """The smallest difference that as many queries find at power 0.8."""
    needed: int | None = None
    """Queries that find a difference as large as the one seen, at power 0.8."""
    p: float | None = None
    """Of this pair alone."""
    adjusted: float | None = None
    """Corrected for all pairs of cells."""


@dataclass(frozen=True, kw_only=True)
class PairingScores:
    """One scorer over a matrix."""

    scorer: Scorer
    model: TwoWayModel
    left_out: Mapping[str, int]
    """Queries without a score in every cell, by what happened in those without."""
    keys: Sequence[str]
    """The queries with a score in every cell."""
    shared: Mapping[str, Floats]
    """The scores of each system on these queries."""
    people: Sequence[Agreement] = ()
    """How often the scorer is known to prefer what people chose."""
    correction: Correction = "holm"

    @property
    def form(self) -> NumberForm:
        """How means are written."""
        return NumberForm.of(self.scorer.scale)

    @property
    def signed(self) -> NumberForm:
        """How effects and differences are written."""
        return NumberForm.of(self.scorer.scale, signed=True)

    @cached_property
    def cells(self) -> dict[str, Estimate]:
        """The mean of each system, row by row."""
        means = chain.from_iterable(self.model.cells)
        return dict(zip(self.shared, means, strict=True))

    @cached_property
    def ranked(self) -> list[str]:
        """The systems with a mean, the best first."""
        sign = -1 if self.scorer.direction == "higher" else 1
        places = {}
        for system, estimate in self.cells.items():
            if estimate.value is not None:
                places[system] = sign * estimate.value
        return sorted(places, key=places.__getitem__)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Every two cells, and whether they can be told apart."""
        values = np.stack([*self.shared.values()], axis=1)
        return compare_systems(self.scorer, [*self.shared], values, self.correction)

    @cached_property
    def differences(self) -> list[CellDifference]:
        """The differences of every two cells."""
        found = []
        for one in self.comparisons:
            difference = self._difference(one.a, one.b)
            found.append(replace(difference, p=one.p, adjusted=one.adjusted))
        return found

    @cached_property
    def not_told_apart(self) -> dict[str, list[str]]:
        """By ranked system, those that it cannot be told apart from, the best first."""
        apart = {frozenset(pair) for pair in better_pairs(self.comparisons)}
        alike: dict[str, list[str]] = {}
        for system in self.ranked:
            alike[system] = []
            for other in self.ranked:
                if other != system and frozenset((system, other)) not in apart:
                    alike[system].append(other)
        return alike

    @property
    def from_best(self) -> list[CellDifference]:
        """The differences of the best cell to every other one."""
        if not self.ranked:
            return []
        best = self.ranked[0]
        others = [system for system in self.shared if system != best]
        return [self._difference(best, other) for other in others]

    def _difference(self, a: str, b: str) -> CellDifference:
        difference = paired_differences(self.shared[a], self.shared[b])
        ends = of_differences(ends_of(self.scorer.scale))
        estimate = mean(difference, ends)
        n = len(difference)
        # Without an interval there are too few queries for a standard deviation, too.
        sd = float(difference.std(ddof=1)) if estimate.ci95 else np.inf
        if not np.isfinite(sd):
            return CellDifference(a, b, estimate)
        needed = queries_needed(estimate.value or 0.0, sd)
        return CellDifference(a, b, estimate, sd, detectable(sd, n), needed)


@dataclass(frozen=True, kw_only=True)
class PairingCosts:
    """What documents of a matrix cost, on the queries that every cell has answered."""

    queries: int
    cells: Mapping[str, Mapping[str, Estimate]]
    """By system and measure, per document; measures without any value are left out."""
    sharing: Mapping[str, Any]
    """What was made for all queries, and how often it was asked for."""

    @cached_property
    def measures(self) -> list[str]:
        """Measures that all cells have and some cell uses, in the order of `MEASURES`."""
        measures = []
        for measure in MEASURES:
            if not all(measure in of_cell for of_cell in self.cells.values()):
                continue
            if any(of_cell[measure].value for of_cell in self.cells.values()):
                measures.append(measure)
        return measures


@dataclass(frozen=True, kw_only=True)
class Pairings:
    """Everything that is shown of one matrix."""

    matrix: PairingMatrix
    queries: int
    """Queries of the run."""
    scores: Sequence[PairingScores]
    costs: PairingCosts | None
    """None where the records are not at hand."""
    people: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By system and query, what people gave on average; empty where none were asked."""

    def showing(
        self, metrics: Sequence[str], people: Mapping[str, Mapping[str, float]]
    ) -> Pairings:
        """Return the same by these scorers alone, in their order; with people's scores.

        By all scorers where none is named.
        """
        if not metrics:
            return replace(self, people=people)
        by_name = {scores.scorer.name: scores for scores in self.scores}
        chosen = [by_name[name] for name in metrics]
        return replace(self, scores=chosen, people=people)

    @cached_property
    def scored(self) -> Sequence[PairingScores]:
        """The scorers that have something to show; the first where none has."""
        with_queries = [scores for scores in self.scores if scores.model.n]
        return with_queries or self.scores[:1]

    @cached_property
    def measure(self) -> str | None:
        """What scores are set against: money where known, else GPU-seconds or seconds."""
        if self.costs is None:
            return None
        cells = self.costs.cells.values()
        for measure in ("cost", "gpu_seconds", "seconds"):
            if measure not in self.costs.measures:
                continue
            # Systems of endpoints have 0 GPU-seconds, by which they would look free.
            if all(own[measure].value for own in cells):
                return measure
        return None

    @cached_property
    def rankings(self) -> Rankings:
        """The systems' ranks by every scorer that has a mean of them, and by people."""
        names = self.matrix.names
        series = []
        for scores in self.scores:
            if scores.model.n:
                scorer = scores.scorer
                draws = _draws(scores.keys, scores.shared)
                series.append(Series(scorer.name, scorer.direction, scores.model.n, draws))
        if series and self.people:
            series.append(self._series_of_people(names))
        return Rankings(names if series else [], series)

    def _series_of_people(self, systems: Sequence[str]) -> Series:
        """Return what people gave to each system, NaN for queries they did not rate."""
        keys = sorted(set[str]().union(*self.people.values()))
        given = {}
        for system in systems:
            by_query = self.people.get(system, {})
            given[system] = np.array([by_query.get(key, np.nan) for key in keys])
        draws = _draws(keys, given)
        return Series(PEOPLE, "higher", len(keys), draws, is_reference=True)

    def points(self, scores: PairingScores) -> dict[str, tuple[Estimate, Estimate]]:
        """Return cost and score of each system that has a score."""
        if self.costs is None or self.measure is None:
            return {}
        points = {}
        for system, estimate in scores.cells.items():
            if estimate.value is not None:
                cost = self.costs.cells[system][self.measure]
                points[system] = cost, estimate
        return points

    def frontier(self, scores: PairingScores) -> list[str]:
        """Return the systems that no other beats in score and cost, the cheapest first.

        By the means alone, whose intervals may overlap.
        """
        costs = {}
        values = {}
        for name, (cost, score) in self.points(scores).items():
            costs[name] = cost.value or 0.0
            values[name] = score.value or 0.0
        return frontier(costs, values, scores.scorer.direction)


def _draws(keys: Sequence[str], values: Mapping[str, Floats]) -> Floats:
    """Return the means of all systems in each draw of a bootstrap of the queries."""
    return means_of(weights_of(keys), np.stack([*values.values()], axis=1))


@lru_cache(maxsize=2)
def pairings_of(board: Board) -> list[Pairings]:
    """Return the pairings of every matrix of a board; empty where there is none."""
    # Of sets of images there is no score of a query that pairings could share.
    scorers = [scorer for scorer in board.scorers if not scorer.of_sets]
    pairings = []
    for matrix in matrices_of(board.systems):
        scores = [_scores(board, matrix, scorer) for scorer in scorers]
        costs = None if board.costs is None else _costs(board.costs, matrix)
        one = Pairings(matrix=matrix, queries=board.n, scores=scores, costs=costs)
        pairings.append(one)
    return pairings


def _scores(board: Board, matrix: PairingMatrix, scorer: Scorer) -> PairingScores:
    """Return one scorer over a matrix, on the queries that it scored in every cell."""
    names = matrix.names
    columns = [board.place_of_system[name] for name in names]
    # The cells of a matrix come row by row: all text-to-image models of the first LVLM.
    shape = (-1, len(matrix.lvlms), len(matrix.t2is))
    values = board.values[scorer.name][:, columns].reshape(shape)
    shared = complete_queries(values).reshape(-1, len(names))
    is_lost = np.isnan(values).any(axis=(1, 2))
    keys = np.array(board.keys, dtype=object)
    lost = keys[is_lost].tolist()
    kept = keys[~is_lost].tolist()
    return PairingScores(
        scorer=scorer,
        model=two_way(values, ends_of(scorer.scale)),
        left_out=_count_left_out(board, names, scorer, lost),
        keys=kept,
        shared=dict(zip(names, shared.T, strict=True)),
        people=tuple(agreement_of(scorer, board.agreement)),
        correction=board.correction,
    )


def _count_left_out(
    board: Board, names: Sequence[str], scorer: Scorer, lost: Sequence[str]
) -> dict[str, int]:
    """Return `lost` queries by what happened in the cells without a score.

    `skipped`; `failed and skipped` where cells have different reasons.
    """
    outcomes = _outcomes_of(board, names, scorer, lost)
    reasons = Counter[str]()
    for query in lost:
        words = {outcomes.get((query, name), _NOT_MADE) for name in names}
        # Cells that have a score are no reason to leave a query out.
        words.discard("")
        reasons[" and ".join(sorted(words))] += 1
    if never := board.n - len(board.keys):
        reasons[_NOT_MADE] += never
    return dict(reasons.most_common())


def _outcomes_of(
    board: Board, names: Sequence[str], scorer: Scorer, queries: Sequence[str]
) -> dict[tuple[str, str], str]:
    """Return by query and system why there is no score, in words; empty where there is one.

    Nothing of those that are not made.
    """
    judged = board.column["scorer"].is_(scorer.name)
    rows = board.is_counted & board.column["system"].is_(*names)
    rows &= board.column["query"].is_(*queries) & (judged | board.is_answer)
    columns = ("query", "system", "scorer", "outcome")
    outcomes: dict[tuple[str, str], str] = {}
    for query, system, judge, name in board.rows(rows, *columns):
        word = OutcomeName(name).of_scores.replace("_", " ") if judge else name
        if word == OutcomeName.DONE:
            continue  # Its score has a row of its own.
        if name == OutcomeName.SCORED:
            # A query that one repeat has a score of has a value: of several repeats the
            # first word in sorted order counts, and the empty one is before all.
            word = ""
        outcomes[query, system] = min(word, outcomes.get((query, system), word))
    return outcomes


def _costs(documents: Sequence[DocumentCost], matrix: PairingMatrix) -> PairingCosts:
    """Return what documents of a matrix cost, from those of all systems."""
    names = matrix.names
    own = [document for document in documents if document.system in names]
    done = defaultdict[tuple[str, str], list[DocumentCost]](list)
    answered: dict[str, set[str]] = {name: set() for name in names}
    for document in own:
        if document.done:
            done[document.system, document.query].append(document)
            answered[document.system].add(document.query)
    # Queries differ in what they cost: cells are compared on those that all answered.
    shared = sorted(set.intersection(*answered.values()))
    untold = _silent_stages(documents)
    cells = {}
    for name in names:
        answers = [done[name, query] for query in shared]
        cells[name] = _per_document(answers, untold)
    return PairingCosts(queries=len(shared), cells=cells, sharing=_sharing(own))


def _silent_stages(documents: Iterable[DocumentCost]) -> Mapping[str, Collection[str]]:
    """Return by measure the stages that should tell it of every record and do not."""
    stages = defaultdict[str, set[str]](set)
    for document in documents:
        for record in document.records.values():
            for measure in record.untold:
                stages[measure].add(record.stage)
    return stages


def _per_document(
    queries: Sequence[Sequence[DocumentCost]], untold: Mapping[str, Collection[str]]
) -> dict[str, Estimate]:
    """Return the mean over queries of each measure; repeats count as their mean.

    A document without any record of a measure costs none of it, where others have some; a
    measure that a stage of any document does not tell is left out.
    """
    amounts: list[list[Amounts]] = []
    measured = set[str]()
    stages = set[str]()
    for repeats in queries:
        own = [document.amounts for document in repeats]
        amounts.append(own)
        measured.update(*own)
        for document in repeats:
            stages.update(record.stage for record in document.records.values())
    means = {}
    for measure in MEASURES:
        if measure in measured and stages.isdisjoint(untold.get(measure, ())):
            values = [_mean_amount(own, measure) for own in amounts]
            means[measure] = mean(values, AMOUNT)
    return means


def _mean_amount(repeats: Sequence[Amounts], measure: str) -> float:
    return float(np.mean([amounts.get(measure, 0.0) for amounts in repeats]))


def _sharing(documents: Sequence[DocumentCost]) -> dict[str, Any]:
    """Return what was made of what was asked for, and what sharing records has saved."""
    records: dict[str, RecordCost] = {}
    asked = Counter[Kind]()
    seeds: dict[tuple[str, int, int], list[int]] = {}
    for document in documents:
        records.update(document.records)
        asked.update(document.requests)
        for position, seed in document.seeds.items():
            seeds.setdefault((document.query, document.repeat, position), []).append(seed)
    made = Counter(record.kind for record in records.values())
    several_drew = 0
    from_one_seed = 0
    # Of one place in the answers to a query, the seeds of all cells that drew there.
    for of_cells in seeds.values():
        if len(of_cells) > 1:
            several_drew += 1
            from_one_seed += len(set(of_cells)) == 1
    # In the order of keys, so that sums of fractions do not depend on that of the records.
    spent = [records[key].amounts for key in sorted(records)]
    # What every document would have cost on its own.
    alone = [document.amounts for document in documents]
    return {
        "texts": made[Kind.DRAFT],
        "texts_requested": asked[Kind.DRAFT],
        "pictures": made[Kind.RENDER],
        "pictures_requested": asked[Kind.RENDER],
        "seeds": several_drew,
        "same_seeds": from_one_seed,
        "spent": total(spent),
        "unshared": total(alone),
    }
