"""Bradley-Terry strengths with style covariates and an order term.

    P(first wins) = sigmoid(b_first - b_second + order * o + style . g)

as ProBench section 2 has it (`fit_bt` of engine/utils_math.py in
Yan98/ProBench_eval@c17b7ae). A tie is half a win of either side. Without a ridge the fit is
the maximum of likelihood and depends neither on the order of the games nor on which system
is named first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scorers.statistics.battles import (
    INITIAL,
    POINTS,
    Battle,
    BattleMatrix,
    battle_matrix,
    expected,
)
from scorers.statistics.estimate import (
    DRAWS,
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)
from scorers.statistics.logistic import Fitter

ALWAYS = "the games that would bound it all go one way: no finite value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Estimates of each system and of each effect."""

    systems: Mapping[str, Estimate]
    """On the Elo scale; the anchor's own rating is given and has no interval."""
    win_rates: Mapping[str, Estimate]
    """Expected score against the anchor in percent, order and style being equal."""
    effects: Mapping[str, Estimate]
    """`order` and style coefficients in natural-log units; positive helps the answer
    shown first, or the one with more of the feature. Features are in units of the root
    mean square of their differences."""


def bradley_terry(
    battles: Sequence[Battle],
    anchor: str,
    style_names: Sequence[str] = (),
    *,
    order: bool = True,
    ridge: float = 0.0,
    initial: float = INITIAL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Ratings:
    """Ratings with `anchor` at `initial`, and intervals by resampling questions.

    `ridge` is the factor of half the sum of squared coefficients, in natural-log units,
    that is taken from the log likelihood; 0 for none.
    """
    table = battle_matrix(battles, anchor, style_names, order=order, keep_anchor=ridge > 0)
    fitter = Fitter(table, ridge)
    point = fitter.fit_all()
    samples = _resampled(fitter, draws, seed)
    return _ratings(table, point, samples, initial)


def _resampled(fitter: Fitter, draws: int, seed: int) -> Floats:
    """(draws, columns) refitted coefficients.

    NaN where a draw leaves one undefined, infinite where it leaves one without bound.
    """
    table = fitter.table
    rounds = bootstrap_weights(table.questions, draws, seed)
    samples = [fitter.fit(table.weight * w[table.question]) for w in rounds]
    return np.array(samples).reshape(draws, table.x.shape[1])


def _ratings(
    table: BattleMatrix, point: Floats, samples: Floats, initial: float
) -> Ratings:
    n = len(table.questions)
    base, base_samples = _column(table, table.anchor, point, samples)
    systems = {table.anchor: Estimate(initial, None, n, "the anchor of the scale")}
    win_rates = {}
    for name in table.systems:
        if name == table.anchor:
            continue
        own, own_samples = _column(table, name, point, samples)
        gap, gaps = POINTS * (own - base), POINTS * (own_samples - base_samples)
        systems[name] = _estimate(gap, gaps, n, lambda g: initial + g)
        win_rates[name] = _estimate(gap, gaps, n, _percent)
    for name in table.unconnected:
        reason = f"no game leads from {table.anchor!r} to it"
        systems[name] = win_rates[name] = Estimate(None, None, 0, reason)
    return Ratings(
        systems=systems, win_rates=win_rates, effects=_effects(table, point, samples)
    )


def _column(
    table: BattleMatrix, system: str, point: Floats, samples: Floats
) -> tuple[float, Floats]:
    if system not in table.systems:
        return 0.0, np.zeros(len(samples))
    i = table.systems.index(system)
    return float(point[i]), samples[:, i]


def _estimate(
    gap: float, gaps: Floats, n: int, scale: Callable[[float], float]
) -> Estimate:
    """The gap and its interval on another, monotone scale."""
    if not np.isfinite(gap):
        return Estimate(None, None, n, ALWAYS)
    estimate = bootstrap_estimate(gap, gaps, n)
    ends = estimate.ci95 and (scale(estimate.ci95[0]), scale(estimate.ci95[1]))
    return replace(estimate, value=scale(gap), ci95=ends)


def _percent(gap: float) -> float:
    return 100 * expected(gap, 0.0)


def _effects(table: BattleMatrix, point: Floats, samples: Floats) -> dict[str, Estimate]:
    n, start = len(table.questions), len(table.systems)
    effects = {
        name: _estimate(float(point[start + i]), samples[:, start + i], n, lambda g: g)
        for i, name in enumerate(table.effects)
    }
    missing = Estimate(None, None, n, "does not vary by itself in these games")
    return effects | dict.fromkeys(table.dropped, missing)
