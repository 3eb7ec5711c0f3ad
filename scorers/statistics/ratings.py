"""Ratings from judged games: online Elo, and Bradley-Terry with style and order terms.

    P(first wins) = sigmoid(b_first - b_second + order * o + style . g)

as ProBench section 2 has it (`fit_bt` of engine/utils_math.py in
Yan98/ProBench_eval@c17b7ae; without order and style Bradley and Terry 1952, Biometrika
39:324). A tie is half a win of either side. The fit is the maximum of
likelihood and depends neither on the order of the games nor on which system is named first;
online Elo depends on the order of the games.

The likelihood has no maximum when some direction makes no outcome less likely and some more
(Albert and Anderson 1984, Biometrika 71:1): a system that wins every game. Resampled games
are a subset of all games, so a direction for all of them serves every draw, and only what
it leaves open is searched again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from plait.scorers.statistics.estimate import (
    DRAWS,
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)

Booleans = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]
SCALE = 400.0
INITIAL = 1000.0
POINTS = SCALE / math.log(10)
"""Elo points of one natural-log unit of Bradley-Terry strength."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battle:
    """A game on one question; everything is seen from the side of `first`."""

    question: str
    first: str
    second: str
    score: float
    """Of `first`: 1 for a win, 0 for a loss, 0.5 for a tie."""
    weight: float = 1.0
    order: int = 0
    """1 where `first` was shown first to the judge, -1 where second, 0 unknown."""
    style: tuple[float, ...] = ()
    """Style differences, `first` minus `second`."""

    @property
    def flipped(self) -> "Battle":
        """The same game seen from the other side."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            score=1.0 - self.score,
            order=-self.order,
            style=tuple(-difference for difference in self.style),
        )

    @property
    def upright(self) -> "Battle":
        """The game seen from the side whose name sorts first."""
        return self if self.first <= self.second else self.flipped


def expected_score(rating: float, other: float) -> float:
    """Return the expected score against another, 1 / (1 + 10^((other-rating)/400)).

    ProBench section 2 prints the exponent with the opposite sign, which would favour the
    lower rating; its program and MLLM-Bench's have it as here.
    """
    return float(1 / (1 + 10 ** ((other - rating) / SCALE)))


def online_elo(battles: Iterable[Battle], k: float) -> dict[str, float]:
    """Return ratings from 1000 on after updating through `battles` in the order given.

    A battle of weight w moves both ratings by k * w * (score - expected) at once, as
    MLLM-Bench's scripts/cal_clo.py@403f82c9 does with its counts of votes.
    """
    ratings: dict[str, float] = {}
    for battle in battles:
        first = ratings.setdefault(battle.first, INITIAL)
        second = ratings.setdefault(battle.second, INITIAL)
        step = k * battle.weight
        of_first = battle.score
        of_second = 1 - battle.score
        # Both by the ratings before the battle.
        ratings[battle.first] = first + step * (of_first - expected_score(first, second))
        ratings[battle.second] = second + step * (of_second - expected_score(second, first))
    return ratings


ORDER = "order"
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
    draws: int = DRAWS,
) -> Ratings:
    """Fit ratings with `anchor` at 1000, and intervals by resampling questions."""
    model = PairedModel(battles, anchor, style_names, order=order)
    n = len(model.questions)
    point = model.fit(model.weight)
    # A draw weighs questions, so that both orders of a pair count alike.
    rounds = bootstrap_weights(model.questions, draws)
    fits = [model.fit(model.weight * weights[model.question]) for weights in rounds]
    samples = np.array(fits).reshape(draws, len(point))

    def estimate(column: int, scale: Callable[[float], float]) -> Estimate:
        """Return a coefficient and its interval on another, monotone scale."""
        value = float(point[column])
        if not np.isfinite(value):
            return Estimate(None, None, n, ALWAYS)
        found = bootstrap_estimate(value, samples[:, column], n)
        ends = found.ci95 and (scale(found.ci95[0]), scale(found.ci95[1]))
        return replace(found, value=scale(value), ci95=ends)

    systems = {anchor: Estimate(INITIAL, None, n, "the anchor of the scale")}
    win_rates = {}
    effects = {}
    # The columns of a fit are the systems', then those of the effects.
    for column, name in enumerate(model.systems):
        systems[name] = estimate(column, _rating_of)
        win_rates[name] = estimate(column, _win_rate_of)
    for column, name in enumerate(model.effects, len(model.systems)):
        effects[name] = estimate(column, float)
    unconnected = Estimate(None, None, 0, f"no game leads from {anchor!r} to it")
    for name in sorted(_names(battles) - systems.keys()):
        systems[name] = unconnected
        win_rates[name] = unconnected
    dependent = Estimate(None, None, n, "does not vary by itself in these games")
    asked = [ORDER, *style_names] if order else style_names
    for name in asked:
        effects.setdefault(name, dependent)
    return Ratings(systems=systems, win_rates=win_rates, effects=effects)


def _rating_of(strength: float) -> float:
    """Return the rating of a strength above the anchor's, in natural-log units."""
    return INITIAL + POINTS * strength


def _win_rate_of(strength: float) -> float:
    """Return the expected score against the anchor of such a strength, in percent."""
    return 100 * expected_score(POINTS * strength, 0.0)


def _names(battles: Iterable[Battle]) -> set[str]:
    names = set()
    for battle in battles:
        names |= {battle.first, battle.second}
    return names


def _sides(battles: Sequence[Battle], names: Sequence[str]) -> Indices:
    """Return (battles, 2) the positions of both sides in `names`."""
    place = {name: i for i, name in enumerate(names)}
    sides = []
    for battle in battles:
        sides.append((place[battle.first], place[battle.second]))
    return np.array(sides, dtype=np.int64).reshape(-1, 2)


def _reachable(n: int, pairs: Indices, start: int) -> Booleans:
    """Return (n,) which of n nodes a chain of `pairs` connects with `start`."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    _, label = connected_components(graph, directed=False)
    return np.asarray(label == label[start])


UNBOUNDED = 12.0
"""Odds of e^12 in a game are suspect: games that separate are looked for beyond them, in
the games' own odds since each of several coefficients may run only a part of the way."""
_NOTHING = 1e-7


class PairedModel:
    """The likelihood of battles, to be fitted under any weights of them.

    Columns are the systems that a chain of battles connects to the anchor, the order of
    showing and style differences; battles out of reach are left out.
    """

    def __init__(
        self,
        battles: Sequence[Battle],
        anchor: str,
        style_names: Sequence[str] = (),
        *,
        order: bool = True,
    ) -> None:
        # Sorted, so that sums do not depend on the order of the battles.
        upright = [battle.upright for battle in battles if battle.first != battle.second]
        upright.sort(
            key=attrgetter(
                "question", "first", "second", "order", "score", "weight", "style"
            ),
        )
        names = sorted({anchor} | _names(upright))
        reached = _reachable(len(names), _sides(upright, names), names.index(anchor))
        connected = [*compress(names, reached)]
        # Where one side is connected, the other is, too.
        played = [battle for battle in upright if battle.first in connected]
        self.systems = [name for name in connected if name != anchor]
        questions = [battle.question for battle in played]
        self.questions = sorted({*questions})
        self.question = np.searchsorted(self.questions, questions)
        """(battles,) index into `questions`."""
        self.sides = _sides(played, [*self.systems, anchor])
        self.score = np.array([battle.score for battle in played])
        self.weight = np.array([battle.weight for battle in played])
        self.x, self.effects = self._columns(played, style_names, order)
        """(battles, columns), and the names of the columns after the systems'."""
        self.rows, row = np.unique(self.x, axis=0, return_inverse=True)
        self.row = row.reshape(-1)  # numpy 2.0 gave it two dimensions.
        self.start: Floats | None = None
        """(columns,) where a fit starts: at the maximum over all games."""
        self.escape = np.zeros(self.x.shape[1])
        """(columns,) a direction in which the likelihood of all games never falls."""
        if self.x.shape[1]:
            wins, losses = self._sum(self.weight)
            self.start = self._maximum(wins, losses)
            self.escape = _escape(self._outcomes(wins, losses), self.start, self.escape)

    def fit(self, weight: Floats) -> Floats:
        """Fit (columns,) coefficients; NaN for those that no weighted game informs.

        Infinite where the weighted games set no bound.
        """
        systems = len(self.systems)
        if not self.x.shape[1]:
            return np.zeros(0)
        wins, losses = self._sum(weight)
        coefficients = self._maximum(wins, losses)
        outcomes = self._outcomes(wins, losses)
        escaping = _runs(outcomes, _escape(outcomes, coefficients, self.escape))
        runs = escaping != 0
        coefficients[runs] = np.copysign(np.inf, escaping[runs])
        # A draw may leave out every game that connects a system to the anchor.
        placed = _reachable(systems + 1, self.sides[weight > 0], systems)
        coefficients[:systems][~placed[:systems]] = np.nan
        informed = ((wins + losses) @ np.abs(self.rows)) > 0
        return np.where(informed, coefficients, np.nan)

    def _columns(
        self, battles: Sequence[Battle], style_names: Sequence[str], order: bool
    ) -> tuple[Floats, list[str]]:
        """Return the matrix, and the names of the effects in it.

        Those are independent of the columns before them. Style differences are divided by
        their root mean square and not centred: a centred column is an intercept in
        disguise, whose sign depends on which system of a pair is written first.
        """
        rows = np.arange(len(battles))
        systems = len(self.systems)
        strengths = np.zeros((len(battles), systems + 1))
        strengths[rows, self.sides[:, 0]] = 1.0
        strengths[rows, self.sides[:, 1]] = -1.0
        x = strengths[:, :systems]
        effects = list[str]()
        columns: dict[str, Floats] = {}
        if order:
            columns[ORDER] = np.array([float(battle.order) for battle in battles])
        for i, name in enumerate(style_names):
            column = np.array([battle.style[i] for battle in battles])
            size = float(np.sqrt(np.mean(column**2))) if len(column) else 0.0
            columns[name] = column / size if size > 0 else column
        for name, column in columns.items():
            wider = np.column_stack([x, column])
            if len(column) and np.linalg.matrix_rank(wider) == wider.shape[1]:
                x = wider
                effects.append(name)
        return x, effects

    def _sum(self, weight: Floats) -> tuple[Floats, Floats]:
        """Return (rows,) weights of games won and lost; a tie is half of either."""
        n = len(self.rows)
        score = self.score
        wins = np.bincount(self.row, weight * score, n).astype(np.float64)
        return wins, np.bincount(self.row, weight * (1 - score), n).astype(np.float64)

    def _outcomes(self, wins: Floats, losses: Floats) -> Floats:
        """(outcomes, columns) what makes each outcome more likely; a tie is two."""
        return np.unique(
            np.concatenate([self.rows[wins > 0], -self.rows[losses > 0]]), axis=0
        )

    def _maximum(self, wins: Floats, losses: Floats) -> Floats:
        from sklearn.linear_model import LogisticRegression

        won = wins > 0
        lost = losses > 0
        # A row of zeros is a coin's toss under any coefficients; one of each class keeps
        # games that all went one way fittable, and changes no maximum.
        toss = np.zeros((2, self.rows.shape[1]))
        x = np.concatenate([self.rows[won], self.rows[lost], toss])
        y = np.repeat([1, 0, 1, 0], [won.sum(), lost.sum(), 1, 1])
        weight = np.concatenate([wins[won], losses[lost], [1.0, 1.0]])
        model = LogisticRegression(
            C=np.inf,
            fit_intercept=False,
            solver="newton-cholesky",
            tol=1e-9,
            max_iter=200,
            warm_start=self.start is not None,
        )
        if self.start is not None:
            model.coef_ = self.start[None, :].copy()
            model.intercept_ = np.zeros(1)
        with warnings.catch_warnings():
            # Games that separate end in warnings here; `_escape` looks for them.
            warnings.simplefilter("ignore")
            model.fit(x, y, weight)
        return np.array(model.coef_[0], dtype=np.float64)


def _escape(outcomes: Floats, coefficients: Floats, known: Floats) -> Floats:
    """Return (columns,) a direction that makes every outcome more likely that any such can.

    `known` is such a direction for a superset of these games. It does not move the
    outcomes that it leaves open, and outruns any further direction elsewhere.
    """
    open_outcomes = outcomes[outcomes @ known <= 0.5]
    if np.abs(open_outcomes @ coefficients).max(initial=0.0) <= UNBOUNDED:
        return known
    further = _widest(open_outcomes)
    # So much of `known` that no outcome it gains is lost to the further direction.
    size = 1.0 + np.abs(outcomes @ further).max()
    return further + 2 * size * known if known.any() else further


def _runs(outcomes: Floats, direction: Floats) -> Floats:
    """(columns,) -1, 0 or 1: the coefficients that run off to infinity, and where to.

    The directions that lose no outcome are a cone, which is of full width in the space
    where the outcomes that none of them makes more likely stay as they are: every
    coefficient that varies there runs off.
    """
    from scipy.linalg import null_space

    columns = outcomes.shape[1]
    gains = outcomes @ direction > 0.5
    if not gains.any():
        return np.zeros(columns)
    unmoved = outcomes[~gains]
    # The triangle has the null space of the rows, and far fewer of them.
    free = null_space(np.linalg.qr(unmoved, mode="r")) if len(unmoved) else np.eye(columns)
    # A coefficient may run off either way and be still in `direction`.
    way = np.where(np.abs(direction) > _NOTHING, np.sign(direction), 1.0)
    return np.where(np.abs(free).max(axis=1, initial=0.0) > _NOTHING, way, 0.0)


def _widest(outcomes: Floats) -> Floats:
    """Return (columns,) a direction that gains at least 1 for every outcome that can gain.

    Directions can be added and stretched, so one linear programme with a gain between 0
    and 1 per outcome gives 1 to each that can gain at all; zeros where none can.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    n, columns = outcomes.shape
    gains = sparse.hstack([sparse.csr_array(-outcomes), sparse.eye_array(n)])
    # The simplex method, the default, loses its way on a few sets of separated games.
    for method in ("highs", "highs-ipm"):
        solved = linprog(
            np.repeat([0.0, -1.0], [columns, n]),
            A_ub=gains,
            b_ub=np.zeros(n),
            bounds=[(None, None)] * columns + [(0, 1)] * n,
            method=method,
        )
        if solved.success:
            break
    else:
        raise ArithmeticError(f"separation of {n} games: {solved.message}")
    if not (solved.x[columns:] > 0.5).any():
        return np.zeros(columns)
    return np.asarray(solved.x[:columns])
