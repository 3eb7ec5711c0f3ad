"""ProBench's released numbers: `get_battles_from_judgment` of show_result.py@c17b7ae.

Each system is fitted alone with the baseline, every game twice and `>>` three times, with
z-scores of style and scikit-learn's default penalty; single games are drawn again; ratings
and interval ends are cut to whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from scorers.features import PUBLISHED, difference
from scorers.pairwise.counts import counted
from scorers.pairwise.likert import battles_of
from scorers.pairwise.protocol import Game
from scorers.pairwise.table import Part, Row
from scorers.statistics.battles import Battle
from scorers.statistics.bootstrap import Floats
from scorers.statistics.elo import INITIAL, SCALE, expected, online_elo
from scorers.statistics.estimate import Estimate

BASELINE_RATING = 1114
"""Given to the baseline (`fit_bt`)."""
ROUNDS = 100
SEED = 42
K = 32
"""Of the online update in section 2 of the paper; the program has none."""


def official_row(
    pair: tuple[str, str], part: Part, group: str, games: Sequence[Game], strong: int
) -> Row:
    """The numbers of the pair's second system, with its first as the baseline.

    Intervals depend on the order of the games. Where a style feature does not vary or all
    games go one way the program ends in an error; here the rating has no value.
    """
    battles = [b for g in games for b in _told(g, strong)]
    values = _ratings(battles) | _tokens(games)
    values["elo_online"] = _online(pair, games)
    return Row(
        system=pair[1],
        opponent=pair[0],
        part=part,
        group=group,
        values=values,
        counts=counted(games) | {"battles": len(battles)},
    )


def _told(game: Game, strong: int) -> list[Battle]:
    """The game's battles with published features, each as often as it counts."""
    styles = game.judgement.styles if game.judgement is not None else None
    gaps = difference(*styles, PUBLISHED) if styles else ()
    told = battles_of(game, strong)
    return [
        Battle(
            question=b.question, first=b.first, second=b.second, score=b.score, style=gaps
        )
        for b in told
        for _ in range(int(b.weight))
    ]


def _ratings(battles: Sequence[Battle]) -> dict[str, Estimate]:
    n = len(battles)
    if n == 0:
        return _missing(("rating", "win_rate"), "no game read")
    x, y = matrices(battles)
    if not np.isfinite(x).all():
        flat = [f for f, c in zip(PUBLISHED, x[:, 2:].T, strict=True) if np.isnan(c).any()]
        return _missing(("rating", "win_rate"), f"no spread in style: {', '.join(flat)}")
    if len(set(y)) < 2:
        return _missing(("rating", "win_rate"), "all games go one way")
    coefficients = _fitted(x, y)
    rating = int(_rating(coefficients))
    drawn = _redrawn(x, y, np.array([b.score == 0.5 for b in battles]))
    reason = "" if drawn is not None else "a resampling's games all go one way"
    ends = None
    if drawn is not None:
        low, high = np.percentile(drawn, [2.5, 97.5])
        ends = (float(int(low)), float(int(high)))
    values = {
        "rating": Estimate(float(rating), ends, n, reason),
        "win_rate": Estimate(round(100 * expected(rating, BASELINE_RATING), 2), None, n),
    }
    effects = zip(PUBLISHED, coefficients[2:], strict=True)
    return values | {
        f"style.{f}": Estimate(round(float(c), 3), None, n) for f, c in effects
    }


def _missing(names: Sequence[str], reason: str) -> dict[str, Estimate]:
    return dict.fromkeys(names, Estimate(None, None, 0, reason))


def matrices(battles: Sequence[Battle]) -> tuple[Floats, npt.NDArray[np.int64]]:
    """(2n, 2 + features) and (2n,): `construct_style_matrices` for two systems.

    NaN where a feature does not vary. A tie is a win in the first copy of the games and a
    loss in the second.
    """
    sides = np.tile([math.log(10), -math.log(10)], (len(battles), 1))
    # One feature a row, as there, so that sums round alike.
    gaps = np.tile(np.array([b.style for b in battles]).T, 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = ((gaps.T - gaps.mean(1)) / gaps.std(1)).astype(np.float64)
    score = np.array([b.score for b in battles])
    y = np.concatenate([score > 0, score == 1]).astype(np.int64)
    return np.column_stack([np.concatenate([sides, sides]), z]), y


def _fitted(x: Floats, y: npt.NDArray[np.int64]) -> Floats:
    from sklearn.linear_model import LogisticRegression

    return np.asarray(LogisticRegression(fit_intercept=False).fit(x, y).coef_[0])


def _rating(coefficients: Floats) -> float:
    """The second system's, in the program's own steps of rounding."""
    base, own = (SCALE * c + INITIAL for c in coefficients[:2])
    return float(own + (BASELINE_RATING - base))


def _redrawn(
    x: Floats, y: npt.NDArray[np.int64], tied: npt.NDArray[np.bool_]
) -> list[float] | None:
    """Ratings of 100 resamplings of the games; None where one cannot be fitted."""
    random, n = np.random.RandomState(SEED), len(tied)
    ratings = []
    for _ in range(ROUNDS):
        chosen = random.choice(n, size=n, replace=True)
        decided, ties = chosen[~tied[chosen]], chosen[tied[chosen]]
        rows = np.concatenate([decided, decided, ties, ties + n])
        if len(set(y[rows])) < 2:
            return None
        ratings.append(_rating(_fitted(x[rows], y[rows])))
    return ratings


def _tokens(games: Sequence[Game]) -> dict[str, Estimate]:
    """Mean tokens of both systems' answers."""
    styles = [j.styles for g in games if (j := g.judgement) is not None and j.styles]
    if not styles:
        return {}
    own = sum(second.tokens for _, second in styles) / len(styles)
    other = sum(first.tokens for first, _ in styles) / len(styles)
    return {
        "tokens": Estimate(own, None, len(styles)),
        "tokens_of_opponent": Estimate(other, None, len(styles)),
    }


def _online(pair: tuple[str, str], games: Sequence[Game]) -> Estimate:
    """The second system's rating after the paper's online updates, both from 1000."""
    played = [b for g in games for b in battles_of(g, strong=1)]
    if not played:
        return Estimate(None, None, 0, "no game read")
    return Estimate(online_elo(played, K)[pair[1]], None, len(played))
