"""Scores of every LVLM with every text-to-image model on the same queries: what each adds.

    model = two_way(scores)             # (queries, LVLMs, text-to-image models)
    model.lvlms[0]                      # Estimate: LVLM 0 against the average LVLM
    model.interaction[0][1]             # this pairing against the sum of its parts

A score is y[q, w, a] = mean + lvlm[w] + t2i[a] + interaction[w, a] + what belongs
to the query and to chance. The effects of each kind add up to 0, as in an analysis of
variance with repeated measures (Maxwell, Delaney and Kelley 2018, chapters 11 and 12).
Every effect is a linear contrast of the scores of one query, so each query gives one value
of it, and its interval is that of a mean of independent values (`means.mean`): no equal
variances and no equal correlations of the cells are assumed. A query counts once, whatever
its category.

Only queries with a score in every cell are used: a cell that lacks the hard queries would
look better than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plait.scorers.statistics.estimate import EQUAL, Estimate, Floats
from plait.scorers.statistics.means import UNBOUNDED, Ends, mean, of_differences

NO_SHARED = "no query has a score in every cell"
ONE_LEVEL = "there is nothing to compare it with"

Row = tuple[Estimate, ...]


@dataclass(frozen=True, slots=True)
class VarianceShares:
    """Where the scores' variance comes from, as shares that add up to 1.

    Of a random query answered by a random pairing of the matrix. Each is the unbiased
    estimate of a component of variance over the sum of all (fixed models, random queries:
    Searle, Casella and McCulloch 1992, chapter 4): what chance adds to the squares of the
    means is taken off, so a component that is truly 0 comes out slightly below 0 as often
    as above.
    """

    writer: float
    """Which LVLM; `pairings.json` names it so, and the next."""
    artist: float
    """Which text-to-image model."""
    interaction: float
    """Which pairing, beyond both."""
    query: float
    """Which query, whoever answers it."""
    residual: float
    """Which pairing does well on which query, and chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoWayModel:
    """Means and effects over the shared queries, each with its interval."""

    n: int
    """Queries with a score in every cell."""
    mean: Estimate
    cells: tuple[Row, ...]
    """By LVLM and text-to-image model."""
    lvlms: Row
    """Main effects: mean of the LVLM less the mean of all."""
    t2is: Row
    interaction: tuple[Row, ...]
    """By cell: its mean less the mean of all and both main effects."""
    shares: VarianceShares | None
    """None for fewer than two queries or fewer than two rows or columns."""


def complete_queries(scores: Floats) -> Floats:
    """Return the rows of (queries, LVLMs, T2I models) without NaN."""
    return scores[~np.isnan(scores).any(axis=(1, 2))]


def two_way(scores: Floats, ends: Ends = UNBOUNDED) -> TwoWayModel:
    """Return the model of `scores` (queries, LVLMs, T2I models), NaN for no score."""
    y = complete_queries(scores)
    with np.errstate(over="ignore", invalid="ignore"):
        query, lvlm, t2i, cell = _contrasts(y)
    effect = of_differences(ends)
    lvlms, t2is = (size > 1 for size in scores.shape[1:])
    shares = _shares(query, (lvlm, t2i, cell)) if lvlms and t2is else None
    return TwoWayModel(
        n=len(y),
        mean=_mean(query[:, 0, 0], ends),
        cells=_means(y, ends),
        lvlms=tuple(row[0] for row in _means(lvlm, effect, lvlms)),
        t2is=_means(t2i, effect, t2is)[0],
        interaction=_means(cell, effect, lvlms and t2is),
        shares=shares,
    )


def _contrasts(y: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Per query: mean (n, 1, 1), effects of LVLMs (n, w, 1), T2I models (n, 1, a), cells.

    0 where an effect is the rounding of sums only.
    """
    query = y.mean(axis=(1, 2), keepdims=True)
    lvlm = y.mean(axis=2, keepdims=True) - query
    t2i = y.mean(axis=1, keepdims=True) - query
    cell = y - query - lvlm - t2i
    size = EQUAL * np.abs(y).max(axis=(1, 2), initial=0.0, keepdims=True)

    def without_rounding(effects: Floats) -> Floats:
        return np.where(np.abs(effects) <= size, 0.0, effects)

    return query, without_rounding(lvlm), without_rounding(t2i), without_rounding(cell)


def _mean(values: Floats, ends: Ends) -> Estimate:
    return mean(values, ends) if len(values) else Estimate(None, None, 0, NO_SHARED)


def _means(values: Floats, ends: Ends, several: bool = True) -> tuple[Row, ...]:
    """Return the means over n of (n, w, a), by w and a; a single level has no effects."""
    none = Estimate(None, None, len(values), ONE_LEVEL)

    def estimate(level: Floats) -> Estimate:
        return _mean(level, ends) if several else none

    return tuple(tuple(map(estimate, row)) for row in np.moveaxis(values, 0, 2))


def _shares(query: Floats, kinds: Sequence[Floats]) -> VarianceShares | None:
    """Contrasts of different kinds are orthogonal, so their variances add up."""
    n = len(query)
    if n < 2:
        return None
    parts = []
    chance = []
    for effects in kinds:
        flat = effects.reshape(n, -1)
        # On average over the effects of a kind: variance over the queries, and mean square
        # of the true effects, which is that of those seen less what chance adds to it.
        spread = float(flat.var(axis=0, ddof=1).mean())
        seen = float((flat.mean(axis=0) ** 2).mean())
        parts.append(seen - spread / n)
        chance.append(spread)
    parts += [float(query[:, 0, 0].var(ddof=1)), sum(chance)]
    total = sum(parts)
    if not np.isfinite(total) or total <= 0:
        return None
    return VarianceShares(*(part / total for part in parts))
