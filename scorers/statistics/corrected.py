"""A judge's means, corrected by ratings that people gave to some of the answers.

correct_mean([RatedAnswers(queries, judged, rated)], (0.0, 6.0))
correct_difference([of_one_system], [of_another], (0.0, 6.0))

Of all answers there is a judge's score, of a random sample of them a rating. The mean
rating of all answers is estimated by

    mean(rated) + lambda * (mean(judged, others) - mean(judged, those rated))

which is right on average whatever the judge's faults, since both means of the judge have
them (prediction-powered inference: Angelopoulos, Duchi and Zrnic 2023, PPI++,
arXiv:2311.01453). Lambda is tuned to the narrowest interval: 0 is the mean of the ratings
alone, which a useless judge leaves as it is, and 1 trusts the differences that the judge
sees. Tuned and clipped to [0, 1] it is that of the authors' program
(github.com/aangelopoulos/ppi_py, `ppi_mean_ci`).

The query is the independent unit. What is known of one query, its ratings and scores over
repeats and systems, is added up to its influence on the estimate, and the variance is the
sum of the squared influences. Its degrees of freedom are Welch and Satterthwaite's, over
the kinds of queries: those that have ratings in the same strata and of the same systems.
One more is taken off where lambda was tuned. Where ratings were drawn at other shares in
some strata, each stratum has its own means, and its weight is its share of all answers
(Fisch et al. 2024, arXiv:2406.04291, here with one lambda for all strata).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from plait.scorers.statistics.estimate import LEAST, Estimate, Floats
from plait.scorers.statistics.means import (
    UNBOUNDED,
    Ends,
    mean_by_question,
    of_differences,
    score_interval,
)
from plait.scorers.statistics.power import POWER, paired_power

METHOD = "prediction-powered"
RATINGS_ALONE = "ratings alone"
JUDGE_ALONE = "judge alone"
NO_ANSWER = "no scored answer"


@dataclass(frozen=True, slots=True)
class RatedAnswers:
    """Answers that a judge has scored, of which a random sample was rated by people."""

    queries: Sequence[str]
    """(n,) whose answer it is: answers to one query are not independent."""
    judged: Floats
    """(n,) the judge's scores."""
    rated: Floats
    """(n,) the ratings; NaN where there is none."""
    stratum: str = ""
    """For the reason why there is no interval; empty for the only one."""

    @property
    def is_rated(self) -> npt.NDArray[np.bool_]:
        """(n,) whether an answer was rated."""
        return ~np.isnan(self.rated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A mean or a difference: by the judge, by ratings alone, and by both."""

    judge: Estimate
    """Of all answers. Its interval says nothing of how wrong the judge is."""
    ratings: Estimate
    corrected: Estimate
    lam: float
    """Lambda: how far the judge is trusted, from 0 to 1."""
    rated: int
    """Answers with a rating."""
    answers: int
    effective: float | None = None
    """How many ratings alone would have as narrow an interval."""
    variance: float = 0.0
    """Of the corrected estimate."""
    floor: float = 0.0
    """What its variance would be if all answers were rated."""

    def ratings_needed(self, null: float = 0.0, power: float = POWER) -> int | None:
        """Return how many ratings in all would show that it is not `null`.

        The fewest, not below those there are, of which the interval excludes `null` with
        that power if the estimate is the truth; those there are where it does already.
        None where even ratings of all answers would not, or nothing is to be shown.
        """
        if self.corrected.value is None or self.corrected.ci95 is None:
            return None
        low, high = self.corrected.ci95
        if not low <= null <= high:
            return self.rated
        difference = self.corrected.value - null
        numbers = range(max(self.rated, LEAST), self.answers + 1)
        if not difference:
            return None

        def power_of(n: int) -> float:
            return paired_power(difference, math.sqrt(n * self.variance_at(n)), n)

        place = bisect_left(numbers, power, key=power_of)
        return numbers[place] if place < len(numbers) else None

    def variance_at(self, n: int) -> float:
        """Return the variance that `n` ratings would give, drawn as these were.

        What the judge leaves unexplained is averaged over the ratings, of which there are
        so many of all answers; the rest, how queries differ, stays.
        """
        if self.rated >= self.answers:
            return self.variance
        share = (1 / n - 1 / self.answers) / (1 / self.rated - 1 / self.answers)
        return self.floor + (self.variance - self.floor) * share


@dataclass(frozen=True, slots=True)
class _Cell:
    """Answers of one system in one stratum, with their factor in the estimate."""

    factor: float
    answers: RatedAnswers
    places: npt.NDArray[np.intp]
    """(n,) the row of each answer's query."""

    @property
    def queries_rated(self) -> int:
        return len(np.unique(self.places[self.answers.is_rated]))


class _Influences(NamedTuple):
    """(queries,) what each query adds to the deviation of an estimate from its mean."""

    rated: Floats
    """By its ratings."""
    judged: Floats
    """By the judge's scores of the answers that were rated."""
    others: Floats
    """By the judge's scores of the others."""


def correct_mean(strata: Sequence[RatedAnswers], ends: Ends = UNBOUNDED) -> Corrected:
    """Return the mean rating of all answers, on a scale between `ends`.

    Each stratum weighs as many answers as it has. Nothing has an interval where ratings
    alone have none (`means`), or where the estimate is not within the scale.
    """
    return _estimate(_with_factors(strata, 1.0), ends, ends)


def correct_difference(
    first: Sequence[RatedAnswers], second: Sequence[RatedAnswers], ends: Ends = UNBOUNDED
) -> Corrected:
    """Return the mean rating of one system less that of another, each by its strata.

    The ratings of both need not be of the same queries; where they are, the difference is
    a paired one.
    """
    both = [*_with_factors(first, 1.0), *_with_factors(second, -1.0)]
    return _estimate(both, ends, of_differences(ends))


def _with_factors(
    strata: Sequence[RatedAnswers], sign: float
) -> list[tuple[float, RatedAnswers]]:
    """Return each stratum with its share of all answers, times the sign."""
    total = sum(len(stratum.rated) for stratum in strata)
    filled = [stratum for stratum in strata if len(stratum.rated)]
    return [(sign * len(stratum.rated) / total, stratum) for stratum in filled]


def _estimate(
    parts: Sequence[tuple[float, RatedAnswers]], scale: Ends, ends: Ends
) -> Corrected:
    cells = _cells(parts)
    answers = 0
    rated = 0
    rated_queries = set[int]()
    for cell in cells:
        answers += len(cell.places)
        rated += int(cell.answers.is_rated.sum())
        rated_queries.update(_places_of_ratings(cell).tolist())
    n = len(rated_queries)
    judge = _judge_alone(cells, ends)
    if problem := _problem(cells, scale):
        value = None
        if cells and all(cell.queries_rated for cell in cells):
            value = _value(cells, 0.0)
        none = Estimate(value, None, n, problem)
        missing = replace(none, value=None)
        return Corrected(
            judge=judge,
            ratings=none,
            corrected=missing,
            lam=0.0,
            rated=rated,
            answers=answers,
        )
    lam = _tune(cells)
    alone = _variance(cells, 0.0)
    together = _variance(cells, lam)
    corrected = _interval(_value(cells, lam), together, ends, n, METHOD)
    return Corrected(
        judge=judge,
        ratings=_interval(_value(cells, 0.0), alone, ends, n, RATINGS_ALONE),
        corrected=corrected,
        lam=lam,
        rated=rated,
        answers=answers,
        effective=rated * alone.value / together.value,
        variance=together.value,
        floor=max(0.0, together.value - _sampling_variance(cells, lam)),
    )


def _cells(parts: Sequence[tuple[float, RatedAnswers]]) -> list[_Cell]:
    """Return the parts with rows for their queries, numbered through all of them."""
    names = sorted({*chain.from_iterable(answers.queries for _, answers in parts)})
    rows = {name: row for row, name in enumerate(names)}
    cells = []
    for factor, answers in parts:
        places = np.array([rows[query] for query in answers.queries], dtype=np.intp)
        cells.append(_Cell(factor, answers, places))
    return cells


def _places_of_ratings(cell: _Cell) -> npt.NDArray[np.intp]:
    return cell.places[cell.answers.is_rated]


def _problem(cells: Sequence[_Cell], scale: Ends) -> str:
    """Return why ratings of one of the cells support no interval; empty if all do."""
    if not cells:
        return NO_ANSWER
    for cell in cells:
        answers = cell.answers
        where = f" in {answers.stratum}" if answers.stratum else ""
        rated = answers.is_rated
        if not rated.any():
            return f"no rating{where}"
        queries = [answers.queries[row] for row in np.flatnonzero(rated).tolist()]
        alone = mean_by_question(queries, answers.rated[rated].tolist(), scale)
        if alone.ci95 is None:
            return f"ratings{where}: {alone.reason}"
    return ""


def _value(cells: Sequence[_Cell], lam: float) -> float:
    """Return the estimate: ratings, moved by lambda times what the judge sees elsewhere."""
    total = 0.0
    for cell in cells:
        rated = cell.answers.is_rated
        mean = float(cell.answers.rated[rated].mean())
        if not rated.all():
            others = float(cell.answers.judged[~rated].mean())
            mean += lam * (others - float(cell.answers.judged[rated].mean()))
        total += cell.factor * mean
    return total


def _influences(cells: Sequence[_Cell], *, unbiased: bool) -> _Influences:
    """Return the influence of each query.

    `unbiased` ones are larger by what the squares of n deviations from their own mean lack:
    n / (n - 1) for the n queries of a cell.
    """
    size = 1 + max(int(cell.places.max()) for cell in cells)
    found = _Influences(np.zeros(size), np.zeros(size), np.zeros(size))
    for cell in cells:
        rated = cell.answers.is_rated
        judged = cell.answers.judged
        _add(found.rated, cell, rated, cell.answers.rated, unbiased=unbiased)
        if not rated.all():  # else there are no others to compare with
            _add(found.judged, cell, rated, judged, unbiased=unbiased)
            _add(found.others, cell, ~rated, judged, unbiased=unbiased)
    return found


def _add(
    influences: Floats,
    cell: _Cell,
    chosen: npt.NDArray[np.bool_],
    values: Floats,
    *,
    unbiased: bool,
) -> None:
    """Add the influence of some answers on the mean of their values."""
    own = values[chosen]
    places = cell.places[chosen]
    factor = cell.factor / len(own)
    queries = len(np.unique(places))
    if unbiased and queries > 1:
        factor *= math.sqrt(queries / (queries - 1))
    np.add.at(influences, places, factor * (own - own.mean()))


def _tune(cells: Sequence[_Cell]) -> float:
    """Return lambda: the one of the smallest variance, from 0 to 1.

    Of independent answers it is cov(rated, judged) / ((1 + n/N) var(judged)), the variance
    being that of all n + N answers (PPI++, section 6; `_calc_lam_glm` of its program).
    Where answers to one query are not independent, both terms are those of its influence.
    """
    influences = _influences(cells, unbiased=False)
    contrast = influences.judged - influences.others
    spread = float(contrast @ contrast)
    apart = 0.0
    pooled = 0.0
    for cell in cells:
        judged = cell.answers.judged
        rated = cell.answers.is_rated
        if rated.all():
            continue
        n = int(rated.sum())
        others = len(judged) - n
        squared = cell.factor**2
        apart += squared * float(judged[rated].var() / n + judged[~rated].var() / others)
        pooled += squared * float(judged.var(ddof=1)) * (1 / n + 1 / others)
    # A judge whose scores do not vary tells nothing of the ratings.
    if not (spread > 0 and apart > 0 and pooled > 0):
        return 0.0
    lam = float(influences.rated @ contrast) / (pooled * spread / apart)
    return min(1.0, max(0.0, lam))


class _Variance(NamedTuple):
    value: float
    freedom: float


def _variance(cells: Sequence[_Cell], lam: float) -> _Variance:
    influences = _influences(cells, unbiased=True)
    of_rated = influences.rated - lam * influences.judged
    of_others = lam * influences.others
    kinds: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for query, kind in enumerate(_kinds(cells, len(of_rated))):
        if kind:
            kinds[kind].append(query)
    queries = sum(map(len, kinds.values()))
    tuned = 0 < lam < 1
    # A slope that was fitted to the ratings makes what is left of them look smaller.
    larger = (queries - 1) / (queries - 2) if tuned else 1.0
    whole = of_rated * math.sqrt(larger) + of_others
    value = float(whole @ whole)
    rated_parts = 0.0
    uncertainty = 0.0
    for rows in kinds.values():
        own = of_rated[rows]
        part = larger * float(own @ own)
        rated_parts += part
        uncertainty += part**2 / max(1, len(rows) - 1)
    others_part = float(of_others @ of_others)
    uncertainty += others_part**2 / max(1, len(of_others) - 1)
    freedom = math.inf
    if uncertainty > 0:
        freedom = (rated_parts + others_part) ** 2 / uncertainty
    return _Variance(value, max(1.0, freedom - tuned))


def _kinds(cells: Sequence[_Cell], size: int) -> list[tuple[int, ...]]:
    """Return by query the cells in which it has ratings."""
    kinds: list[tuple[int, ...]] = [()] * size
    for number, cell in enumerate(cells):
        for query in np.unique(_places_of_ratings(cell)):
            kinds[query] = (*kinds[query], number)
    return kinds


def _sampling_variance(cells: Sequence[_Cell], lam: float) -> float:
    """Return the part of the variance that is there since not all answers were rated.

    That of a mean of n of N values drawn without replacement (Cochran 1977, section 2.6),
    the values being what a regression on the judge's scores leaves of the ratings: with the
    slope b, lambda is b times the share of answers that were not rated.
    """
    size = 1 + max(int(cell.places.max()) for cell in cells)
    total = np.zeros(size)
    for cell in cells:
        rated = cell.answers.is_rated
        share = 1 - float(rated.mean())
        if share > 0:
            left = cell.answers.rated - lam / share * cell.answers.judged
            part = replace(cell, factor=cell.factor * math.sqrt(share))
            _add(total, part, rated, left, unbiased=True)
    return float(total @ total)


def _interval(
    value: float, variance: _Variance, ends: Ends, n: int, method: str
) -> Estimate:
    if not variance.value > 0:
        return Estimate(value, None, n, "nothing varies: no interval")
    if not ends[0] < value < ends[1]:
        return Estimate(value, None, n, "the estimate is not within the scale: no interval")
    low_high = score_interval(value, variance.value, variance.freedom, ends)
    return Estimate(value, low_high, n, "", method)


def _judge_alone(cells: Sequence[_Cell], ends: Ends) -> Estimate:
    """Return the same of the judge's scores of all answers, as if they were ratings."""
    if not cells:
        return Estimate(None, None, 0, NO_ANSWER)
    all_rated = []
    for cell in cells:
        answers = replace(cell.answers, rated=cell.answers.judged)
        all_rated.append(replace(cell, answers=answers))
    n = len(np.unique(np.concatenate([cell.places for cell in cells])))
    value = _value(all_rated, 0.0)
    if n < LEAST:
        return Estimate(value, None, n, f"too few queries (n={n}, fewer than {LEAST})")
    return _interval(value, _variance(all_rated, 0.0), ends, n, JUDGE_ALONE)
