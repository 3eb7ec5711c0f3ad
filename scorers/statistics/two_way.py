"""Scores of every LVLM with every text-to-image model on the same queries: what each adds.

    model = two_way(scores)             # (queries, LVLMs, text-to-image models)
    model.writers[0]                    # Estimate: LVLM 0 against the average LVLM
    model.interaction[0][1]             # this pairing against the sum of its parts

A score is y[q, w, a] = mean + writer[w] + artist[a] + interaction[w, a] + what belongs
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

from dataclasses import dataclass

import numpy as np

from scorers.statistics.estimate import EQUAL, Estimate, Floats
from scorers.statistics.means import mean

NO_SHARED = "no query has a score in every cell"
ONE_LEVEL = "there is nothing to compare it with"

Row = tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VarianceShares:
    """Where the scores' variance comes from, as shares that add up to 1.

    Of a random query answered by a random pairing of the matrix. Each is the unbiased
    estimate of a component of variance over the sum of all (fixed models, random queries:
    Searle, Casella and McCulloch 1992, chapter 4): what chance adds to the squares of the
    means is taken off, so a component that is truly 0 comes out slightly below 0 as often
    as above.
    """

    writer: float
    """Which LVLM."""
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
    writers: Row
    """Main effects: mean of the LVLM less the mean of all."""
    artists: Row
    interaction: tuple[Row, ...]
    """By cell: its mean less the mean of all and both main effects."""
    shares: VarianceShares | None
    """None for fewer than two queries or fewer than two rows or columns."""


def shared_queries(scores: Floats) -> Floats:
    """Return the rows of (queries, writers, artists) without NaN."""
    return scores[~np.isnan(scores).any(axis=(1, 2))]


def two_way(scores: Floats) -> TwoWayModel:
    """The model of `scores` (queries, writers, artists), NaN where there is no score."""
    y = shared_queries(scores)
    _, writers, artists = scores.shape
    with np.errstate(over="ignore", invalid="ignore"):
        query, writer, artist, cell = _contrasts(y)
    return TwoWayModel(
        n=len(y),
        mean=_mean(query),
        cells=tuple(_row(y[:, w]) for w in range(writers)),
        writers=_effects(writer),
        artists=_effects(artist),
        interaction=tuple(
            _effects(cell[:, w], several=writers > 1 < artists) for w in range(writers)
        ),
        shares=_shares(y, query, writer, artist, cell) if writers > 1 < artists else None,
    )


def _contrasts(y: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Per query: mean (n,), effects of LVLMs (n, w), of artists (n, a), of cells (n, w, a).

    0 where an effect is the rounding of sums only.
    """
    query = y.mean(axis=(1, 2))
    writer, artist = y.mean(axis=2) - query[:, None], y.mean(axis=1) - query[:, None]
    cell = y - query[:, None, None] - writer[:, :, None] - artist[:, None, :]
    size = EQUAL * np.abs(y).max(axis=(1, 2), initial=0.0)
    writer = np.where(np.abs(writer) <= size[:, None], 0.0, writer)
    artist = np.where(np.abs(artist) <= size[:, None], 0.0, artist)
    cell = np.where(np.abs(cell) <= size[:, None, None], 0.0, cell)
    return query, writer, artist, cell


def _mean(values: Floats) -> Estimate:
    return mean(values) if len(values) else Estimate(None, None, 0, NO_SHARED)


def _row(values: Floats) -> Row:
    """Return the mean of each column of (n, k)."""
    return tuple(_mean(column) for column in values.T)


def _effects(values: Floats, *, several: bool | None = None) -> Row:
    """As `_row`, of effects, which a single level does not have."""
    if several is None:
        several = values.shape[1] > 1
    return _row(values) if several else (_none(len(values)),) * values.shape[1]


def _none(n: int) -> Estimate:
    return Estimate(None, None, n, ONE_LEVEL)


def _shares(
    y: Floats, query: Floats, writer: Floats, artist: Floats, cell: Floats
) -> VarianceShares | None:
    """Contrasts of different kinds are orthogonal, so their variances add up."""
    n = len(y)
    if n < 2:
        return None
    kinds = [effects.reshape(n, -1) for effects in (writer, artist, cell)]
    fixed = [_component(effects) for effects in kinds]
    of_query = float(query.var(ddof=1))
    rest = sum(_spread(effects) for effects in kinds)
    total = sum(fixed) + of_query + rest
    if not np.isfinite(total) or total <= 0:
        return None
    shares = [part / total for part in fixed]
    return VarianceShares(
        writer=shares[0],
        artist=shares[1],
        interaction=shares[2],
        query=of_query / total,
        residual=rest / total,
    )


def _spread(effects: Floats) -> float:
    """Return variance over the queries of (n, k) effects, on average over k."""
    return float(effects.var(axis=0, ddof=1).mean())


def _component(effects: Floats) -> float:
    """Mean square of the true effects: of those seen, less what chance adds to it."""
    seen = float((effects.mean(axis=0) ** 2).mean())
    return seen - _spread(effects) / len(effects)
