"""Agreement of a judge's scores with people's: every coefficient, with its interval.

An interval resamples the queries some thousand times, which gives every pair a whole
number as its weight: how often it was drawn. Each coefficient takes the scores (pairs,)
twice and the weights (draws, pairs), and gives, per draw, the textbook coefficient of the
pairs repeated so often; NaN where it is undefined. Weights of 1 give the plain coefficient.
scipy and scikit-learn compute the same one draw at a time, twenty times slower; the tests
compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from plait.scorers.statistics.estimate import (
    DRAWS,
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)

_FLAT = 1e-12
"""A variance below this share of the mean square is rounding, not spread."""
_BLOCK = 512
"""Rows of the comparison matrix of `kendall` held at a time."""


def cosine(x: Floats, y: Floats, w: Floats) -> Floats:
    """Cosine of the angle between the two vectors of scores, not centred.

    High wherever both are mostly positive: a constant judge reaches 0.9 on scores that
    vary little, so read it beside a correlation.
    """
    return _ratio(w @ (x * y), np.sqrt((w @ x**2) * (w @ y**2)))


def mse(x: Floats, y: Floats, w: Floats) -> Floats:
    """Mean squared difference."""
    return _ratio(w @ (x - y) ** 2, w.sum(1))


def mae(x: Floats, y: Floats, w: Floats) -> Floats:
    """Mean absolute difference."""
    return _ratio(w @ abs(x - y), w.sum(1))


def pearson(x: Floats, y: Floats, w: Floats) -> Floats:
    """Pearson's product-moment correlation: the covariance over both deviations.

    With weights of the sum W, of sums of products:

        (W sum(w x y) - sum(w x) sum(w y)) / sqrt((W sum(w x^2) - sum(w x)^2) (same of y))
    """
    # A shift changes no correlation, and sums of squares about the mean lose fewer digits.
    x = x - float(x.mean())
    y = y - float(y.mean())
    total = w.sum(1)
    sx = w @ x
    sy = w @ y
    covariance = total * (w @ (x * y)) - sx * sy
    xx = total * (w @ x**2)
    yy = total * (w @ y**2)
    spread = _unless_flat(xx - sx**2, xx) * _unless_flat(yy - sy**2, yy)
    return _ratio(covariance, np.sqrt(spread))


def _unless_flat(spread: Floats, squares: Floats) -> Floats:
    """`spread`, 0 where it is no more than the rounding of sums of squares."""
    return np.where(spread > _FLAT * squares, spread, 0.0)


def spearman(x: Floats, y: Floats, w: Floats) -> Floats:
    """Spearman's rank correlation, Pearson's of ranks; equal values share their mean rank.

    Spearman 1904, American Journal of Psychology 15:72.
    """
    a = _ranks(x, w)
    b = _ranks(y, w)
    covariance = (w * a * b).sum(1)
    return _ratio(covariance, np.sqrt((w * a**2).sum(1) * (w * b**2).sum(1)))


def _ranks(x: Floats, w: Floats) -> Floats:
    """Return (draws, pairs) mean ranks among the pairs as drawn, about their mean."""
    _, level = np.unique(x, return_inverse=True)
    counts = _sum_by_level(w, level)
    below = np.cumsum(counts, axis=1) - counts
    ranks: Floats = below + (counts + 1) / 2 - (w.sum(1, keepdims=True) + 1) / 2
    return ranks[:, level]


def _sum_by_level(w: Floats, level: npt.NDArray[np.intp]) -> Floats:
    """Return (draws, levels) weights summed over the pairs of each level."""
    order = np.argsort(level, kind="stable")
    starts = np.flatnonzero(np.diff(level[order], prepend=-1))
    return np.add.reduceat(w[:, order], starts, axis=1)


def kendall(x: Floats, y: Floats, w: Floats) -> Floats:
    """Kendall's tau-b: concordant less discordant pairs of pairs, corrected for ties.

        (concordant - discordant) / sqrt(differ in x * differ in y)

    Kendall 1945, Biometrika 33:239. Each pair of pairs is counted in both orders, above
    and below alike.
    """
    # Equal pairs are compared once, as one cell with the sum of their weights.
    cells, cell = np.unique(np.stack([x, y], axis=1), axis=0, return_inverse=True)
    cell_x, cell_y = cells.T
    counts = _sum_by_level(w, cell)
    net = np.zeros(len(w))
    for start in range(0, len(cells), _BLOCK):
        rows = slice(start, start + _BLOCK)
        order_in_x = np.sign(cell_x[rows, None] - cell_x)
        order_in_y = np.sign(cell_y[rows, None] - cell_y)
        # 1 where both have two cells in the same order, -1 where not, 0 for a tie.
        concordance = order_in_x * order_in_y
        net += ((counts @ concordance.T) * counts[:, rows]).sum(1)
    return _ratio(net, np.sqrt(_apart(x, w) * _apart(y, w)))


def _apart(x: Floats, w: Floats) -> Floats:
    """Ordered pairs of drawn pairs whose values differ."""
    _, level = np.unique(x, return_inverse=True)
    apart: Floats = w.sum(1) ** 2 - (_sum_by_level(w, level) ** 2).sum(1)
    return apart


def kappa(x: Floats, y: Floats, w: Floats) -> Floats:
    """Cohen's kappa with quadratic weights.

    Cohen 1968, Psychological Bulletin 70:213.

    One less the mean squared difference over what independent raters with the same
    distributions would have, which needs no classes: for whole numbers it is the kappa of
    the table of all levels from the lowest to the highest, for others Lin's concordance
    coefficient (1989, Biometrics 45:255) with population variances.
    """
    centre = float(np.concatenate([x, y]).mean())
    x = x - centre
    y = y - centre
    total = w.sum(1)
    squares = total * (w @ (x**2 + y**2))
    chance = _unless_flat(squares - 2 * (w @ x) * (w @ y), squares)
    return 1 - _ratio(total * (w @ (x - y) ** 2), chance)


def _ratio(above: Floats, below: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below > 0, above / below, np.nan)


Function = Callable[[Floats, Floats, Floats], Floats]


@dataclass(frozen=True, slots=True)
class Coefficient:
    """A coefficient as tables show it."""

    title: str
    function: Function
    one_scale: bool
    """Whether it compares the values themselves, so that both series must use one scale."""


COEFFICIENTS: Mapping[str, Coefficient] = {
    "cosine": Coefficient("cosine", cosine, False),
    "mse": Coefficient("MSE", mse, True),
    "mae": Coefficient("MAE", mae, True),
    "pearson": Coefficient("Pearson", pearson, False),
    "spearman": Coefficient("Spearman", spearman, False),
    "kendall": Coefficient("Kendall tau-b", kendall, False),
    "kappa": Coefficient("quadratic kappa", kappa, True),
}
"""The first four as in the MMIE paper's Tables 5, 6 and 11 (section 4.3, appendix A.4)."""
OTHER_SCALE = "judge and people use different scales"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPair:
    """One document that a judge and people have scored."""

    query: str
    """The query's id: the unit that intervals resample."""
    category: str
    kind: str
    """Kind of the model that wrote it: `interleaved`, `integrated`, ..."""
    judge: float
    human: float
    """Mean over the people who scored it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Every coefficient over one group of documents."""

    category: str | None
    """None for all categories."""
    kind: str | None
    """None for all kinds of models."""
    pairs: int
    queries: int
    coefficients: Mapping[str, Estimate]
    """By the names of `COEFFICIENTS`; `n` is the number of pairs."""

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        coefficients = {}
        for name, estimate in self.coefficients.items():
            coefficients[name] = estimate.as_json()
        return asdict(self) | {"coefficients": coefficients}


def agreement(
    pairs: Sequence[ScoredPair], *, one_scale: bool = True, draws: int = DRAWS
) -> list[Agreement]:
    """Return the agreement over all pairs, per kind, per category, and per both.

    Intervals resample queries, with all systems' answers to them. Coefficients that compare
    values themselves are left out unless both use `one_scale`.
    """
    # In one order, since sums of floats and the draws of a set must not depend on it.
    ordered = sorted(pairs, key=attrgetter("query", "kind", "judge", "human"))
    queries, query = np.unique([pair.query for pair in ordered], return_inverse=True)
    resampled = bootstrap_weights(queries.tolist(), draws)[:, query]
    results = []
    for category, kind in _groups(ordered):
        rows = []
        members = []
        for row, pair in enumerate(ordered):
            if category in (None, pair.category) and kind in (None, pair.kind):
                rows.append(row)
                members.append(pair)
        results.append(
            Agreement(
                category=category,
                kind=kind,
                pairs=len(members),
                queries=len({pair.query for pair in members}),
                coefficients=_coefficients(members, resampled[:, rows], one_scale),
            )
        )
    return results


def _coefficients(
    pairs: Sequence[ScoredPair], resampled: Floats, one_scale: bool
) -> dict[str, Estimate]:
    """Return every coefficient; `resampled` are (draws, pairs) weights."""
    n = len(pairs)
    queries = len({pair.query for pair in pairs})
    judge = np.array([pair.judge for pair in pairs])
    human = np.array([pair.human for pair in pairs])
    estimates = dict.fromkeys(COEFFICIENTS, Estimate(None, None, n, OTHER_SCALE))
    for name, own in COEFFICIENTS.items():
        if one_scale or not own.one_scale:
            value = estimate_with_interval(own.function, judge, human, resampled, queries)
            # Its own n is that of the queries, the unit of the interval.
            estimates[name] = replace(value, n=n)
    return estimates


def _groups(pairs: Sequence[ScoredPair]) -> Iterator[tuple[str | None, str | None]]:
    """Everything, then each kind, then each category and its kinds.

    Kinds are groups only where there are several.
    """
    kinds: set[str] = set()
    by_category: dict[str, set[str]] = {}
    for pair in pairs:
        kinds.add(pair.kind)
        by_category.setdefault(pair.category, set()).add(pair.kind)
    several = sorted(kinds) if len(kinds) > 1 else []
    if pairs:
        yield None, None
    for kind in several:
        yield None, kind
    for category, present in sorted(by_category.items()):
        yield category, None
        for kind in several:
            if kind in present:
                yield category, kind


def estimate_with_interval(
    function: Function, judge: Floats, human: Floats, resampled: Floats, queries: int
) -> Estimate:
    """Return a coefficient of the pairs as they are, with the interval of its draws."""
    plain = float(function(judge, human, np.ones((1, len(judge))))[0])
    if np.isnan(plain):
        series = {"judge": judge, "people": human}
        flat = [name for name, values in series.items() if np.unique(values).size < 2]
        # Spread that is only rounding undefines a coefficient too, and names neither.
        raters = " and ".join(flat) or "judge or people"
        reason = f"undefined: {raters} gave one score to all"
        return Estimate(None, None, queries, reason)
    return bootstrap_estimate(plain, function(judge, human, resampled), queries)
