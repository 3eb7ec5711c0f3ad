"""ProBench's ratings: one fit of all systems that play, or the released program's numbers.

Official mode follows `get_battles_from_judgment` of show_result.py@c17b7ae: each system is
fitted alone with the baseline, every game twice and `>>` three times, with z-scores of
style and scikit-learn's default penalty; single games are resampled; ratings and interval
ends are cut to whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from generators.base import Result, Unscored
from scorers.features import NAMES, PUBLISHED, Style, difference
from scorers.pairwise.games import (
    Game,
    Judgement,
    PairStanding,
    TablePart,
    counted,
    in_both_orders,
)
from scorers.statistics.battles import INITIAL, SCALE, Battle, expected, online_elo
from scorers.statistics.bradley_terry import Ratings, bradley_terry
from scorers.statistics.estimate import Estimate, Floats
from scorers.statistics.means import mean_by_question


def corrected_rows(
    games: Sequence[Game],
    baseline: str | None,
    part: TablePart,
    group: str,
    *,
    strong: float,
    draws: int,
) -> list[PairStanding]:
    """A row per system, best first, and one with the effects of order and style.

    `rating` has the baseline at 1000; `win_rate` is the rating's expected score against
    it in percent, order and style being equal; `preferred` is the observed one, over
    questions read in both orders; `plain_rating` is the rating without style.
    """
    names = sorted({name for g in games for name in (g.first, g.second)})
    if not names:
        return []
    anchor = baseline if baseline in names else names[0]
    battles = [b for g in games for b in battles_of(g, strong)]
    styled = bradley_terry(battles, anchor, NAMES, draws=draws)
    plain = bradley_terry(battles, anchor, draws=draws)
    rows = []
    for name in names:
        values = _values(name, styled, plain, _against(name, anchor, games))
        own = [g for g in games if name in (g.first, g.second)]
        rows.append(
            PairStanding(
                system=name,
                opponent="" if name == anchor else anchor,
                part=part,
                group=group,
                values=values,
                counts=counted(own),
            )
        )
    rows.sort(key=lambda row: (-_rated(row), row.system))
    return [*rows, PairStanding(system="", part=part, group=group, values=styled.effects)]


def battles_of(game: Game, strong: float) -> list[Battle]:
    """One battle per order that was read; a tie is half a win of either side."""
    battles: list[Battle] = []
    if game.judgement is None:
        return battles
    for swapped, sign in ((False, 1), (True, -1)):
        verdict = game.judgement.verdict(swapped)
        if verdict is None:
            continue
        preference = sign * verdict.preference
        battles.append(
            Battle(
                question=game.question,
                first=game.first,
                second=game.second,
                score=0.5 if preference == 0 else float(preference > 0),
                weight=strong if abs(preference) == 2 else 1,
                order=sign,
                style=_differences(game.judgement.styles),
            )
        )
    return battles


def _differences(styles: tuple[Style, Style] | None) -> tuple[float, ...]:
    return difference(*styles) if styles else (0.0,) * len(NAMES)


def _values(
    name: str, styled: Ratings, plain: Ratings, versus: Sequence[Game]
) -> dict[str, Estimate]:
    unread = Estimate(None, None, 0, "no game read")
    values = {
        "rating": styled.systems.get(name, unread),
        "plain_rating": plain.systems.get(name, unread),
    }
    if name in styled.win_rates:
        values["win_rate"] = styled.win_rates[name]
    if versus:
        values["preferred"] = _preferred(versus)
    return values


def _against(name: str, anchor: str, games: Sequence[Game]) -> list[Game]:
    """The games of `name` against the anchor, the anchor being the first."""
    games_against = (
        g.versus(anchor) for g in games if {g.first, g.second} == {name, anchor}
    )
    return list(games_against) if name != anchor else []


def _preferred(games: Sequence[Game]) -> Estimate:
    both = in_both_orders(games)
    shares = [100 * sum((v > 0) + (v == 0) / 2 for v in values) / 2 for _, values in both]
    return mean_by_question([question for question, _ in both], shares)


def _rated(row: PairStanding) -> float:
    value = row.values["rating"].value
    return float("-inf") if value is None else value


BASELINE_RATING = 1114
"""The baseline's rating (`fit_bt`)."""
ROUNDS = 100
SEED = 42
K = 32
"""Of the online update in section 2 of the paper; the program has none."""


def official_row(
    pair: tuple[str, str], part: TablePart, group: str, games: Sequence[Game], strong: int
) -> PairStanding:
    """The numbers of the pair's second system, with its first as the baseline.

    Intervals depend on the order of the games. Where a style feature does not vary or all
    games go one way the program ends in an error; here the rating has no value.
    """
    battles = [b for g in games for b in _official_battles(g, strong)]
    values = _ratings(battles) | _tokens(games)
    values["elo_online"] = _online(pair, games)
    return PairStanding(
        system=pair[1],
        opponent=pair[0],
        part=part,
        group=group,
        values=values,
        counts=counted(games) | {"battles": len(battles)},
    )


def _official_battles(game: Game, strong: int) -> list[Battle]:
    """The game's battles with published features, each as often as it counts."""
    styles = game.judgement.styles if game.judgement is not None else None
    gaps = difference(*styles, PUBLISHED) if styles else ()
    battles = battles_of(game, strong)
    return [
        Battle(
            question=b.question, first=b.first, second=b.second, score=b.score, style=gaps
        )
        for b in battles
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
    samples = _resampled(x, y, np.array([b.score == 0.5 for b in battles]))
    reason = "" if samples is not None else "a resampling's games all go one way"
    ends = None
    if samples is not None:
        low, high = np.percentile(samples, [2.5, 97.5])
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


def _resampled(
    x: Floats, y: npt.NDArray[np.int64], tied: npt.NDArray[np.bool_]
) -> list[float] | None:
    """Ratings of 100 resamplings of the games; None where one cannot be fitted."""
    random, n = np.random.RandomState(SEED), len(tied)
    ratings = []
    for _ in range(ROUNDS):
        games = random.choice(n, size=n, replace=True)
        decided, ties = games[~tied[games]], games[tied[games]]
        rows = np.concatenate([decided, decided, ties, ties + n])
        if len(set(y[rows])) < 2:
            return None
        ratings.append(_rating(_fitted(x[rows], y[rows])))
    return ratings


def _tokens(games: Sequence[Game]) -> dict[str, Estimate]:
    """Mean tokens of the system's judged answers, and of all of the baseline's.

    `get_files` of show_result.py: a file of judgements counts, readable or not, while the
    baseline's answers count on every item of the data.
    """
    own = [j.styles[1].tokens for g in games if (j := _with_reply(g)) and j.styles]
    other = [n for g in games if (n := _baseline_tokens(g)) is not None]
    means = {"tokens": own, "tokens_of_opponent": other}
    return {
        name: Estimate(sum(counts) / len(counts), None, len(counts))
        for name, counts in means.items()
        if counts
    }


def _with_reply(game: Game) -> Judgement | None:
    """The judgement, where there is any reply."""
    judgement = game.judgement
    has_reply = judgement and any(
        isinstance(r.outcome, Result | Unscored) for r in judgement.readings
    )
    return judgement if has_reply else None


def _baseline_tokens(game: Game) -> int | None:
    styles = game.judgement.styles if game.judgement is not None else None
    return styles[0].tokens if game.tokens[0] is None and styles else game.tokens[0]


def _online(pair: tuple[str, str], games: Sequence[Game]) -> Estimate:
    """The second system's rating after the paper's online updates, both from 1000."""
    battles = [b for g in games for b in battles_of(g, strong=1)]
    if not battles:
        return Estimate(None, None, 0, "no game read")
    return Estimate(online_elo(battles, K)[pair[1]], None, len(battles))
