"""Ratings from judged games: online Elo, and Bradley-Terry with style and order terms.

    P(first wins) = sigmoid(b_first - b_second + order * o + style . g)

as ProBench section 2 has it (`fit_bt` of engine/utils_math.py in
Yan98/ProBench_eval@c17b7ae). A tie is half a win of either side. Without a ridge the fit is
the maximum of likelihood and depends neither on the order of the games nor on which system
is named first; online Elo depends on the order of the games.

Without a ridge the likelihood has no maximum when some direction makes no outcome less
likely and some more (Albert & Anderson 1984): a system that wins every game. Resampled
games are a subset of all games, so a direction for all of them serves every draw, and
only what it leaves open is searched again.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from scorers.statistics.estimate import (
    DRAWS,
    Estimate,
    Floats,
    bootstrap_estimate,
    bootstrap_weights,
)

Booleans = npt.NDArray[np.bool_]
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
            style=tuple(-d for d in self.style),
        )

    @property
    def upright(self) -> "Battle":
        """The game seen from the side whose name sorts first."""
        return self if self.first <= self.second else self.flipped


def expected(rating: float, other: float) -> float:
    """Return the expected score against another, 1 / (1 + 10^((other-rating)/400)).

    ProBench section 2 prints the exponent with the opposite sign, which would favour the
    lower rating; its program and MLLM-Bench's have it as here.
    """
    return float(1 / (1 + 10 ** ((other - rating) / SCALE)))


def online_elo(
    battles: Iterable[Battle], k: float, initial: float = INITIAL
) -> dict[str, float]:
    """Return ratings after updating through `battles` in the order given.

    A battle of weight w moves both ratings by k * w * (score - expected) at once, as
    MLLM-Bench's scripts/cal_clo.py@403f82c9 does with its counts of votes.
    """
    ratings: dict[str, float] = {}
    for b in battles:
        first = ratings.setdefault(b.first, initial)
        second = ratings.setdefault(b.second, initial)
        step = k * b.weight
        ratings[b.first] = first + step * (b.score - expected(first, second))
        ratings[b.second] = second + step * (1 - b.score - expected(second, first))
    return ratings


ORDER = "order"


@dataclass(frozen=True, eq=False)
class BattleMatrix:
    """Columns: one per system but the anchor, the order of showing, style differences."""

    systems: tuple[str, ...]
    """Those with a column: connected to the anchor by battles."""
    anchor: str
    unconnected: tuple[str, ...]
    """No chain of battles leads from the anchor to these, so nothing compares them."""
    effects: tuple[str, ...]
    """Names of the columns after the systems'."""
    dropped: tuple[str, ...]
    """Columns that vary with nothing, or only together with columns before them."""
    x: Floats
    """(battles, columns)"""
    score: Floats
    weight: Floats
    question: npt.NDArray[np.int64]
    """Index into `questions`, per battle."""
    questions: tuple[str, ...]


def battle_matrix(
    battles: Sequence[Battle],
    anchor: str,
    style_names: Sequence[str] = (),
    *,
    order: bool = True,
    keep_anchor: bool = False,
) -> BattleMatrix:
    """Build the regression's matrix; battles out of reach of the anchor are left out.

    Style differences are divided by their root mean square and not centred: a centred
    column is an intercept in disguise, whose sign depends on which system of a pair is
    written first. Battles are sorted, so that sums do not depend on their order.
    """
    upright = sorted((b.upright for b in battles if b.first != b.second), key=_sorting)
    reached = _reached(upright, anchor)
    connected = [b for b in upright if b.first in reached]
    systems = tuple(sorted(s for s in reached if keep_anchor or s != anchor))
    questions = tuple(sorted({b.question for b in connected}))
    place = {q: i for i, q in enumerate(questions)}
    strengths = _strengths(connected, systems)
    names, columns = _effect_columns(connected, style_names, order)
    x, effects = _independent(strengths, names, columns, shift=keep_anchor)
    everyone = {s for b in battles for s in (b.first, b.second)}
    return BattleMatrix(
        systems=systems,
        anchor=anchor,
        unconnected=tuple(sorted(everyone - reached)),
        effects=effects,
        dropped=tuple(n for n in names if n not in effects),
        x=x,
        score=np.array([b.score for b in connected]),
        weight=np.array([b.weight for b in connected]),
        question=np.array([place[b.question] for b in connected], dtype=np.int64),
        questions=questions,
    )


def _sorting(battle: Battle) -> tuple[object, ...]:
    b = battle
    return (b.question, b.first, b.second, b.order, b.score, b.weight, b.style)


def _reached(battles: Sequence[Battle], anchor: str) -> set[str]:
    """Return the anchor and everyone a chain of battles leads to."""
    names = sorted({anchor} | {s for b in battles for s in (b.first, b.second)})
    place = {name: i for i, name in enumerate(names)}
    linked = np.zeros((len(names), len(names)), dtype=bool)
    for b in battles:
        linked[place[b.first], place[b.second]] = True
    joined = _reachable(linked, place[anchor])
    return {name for name, is_joined in zip(names, joined, strict=True) if is_joined}


def _strengths(battles: Sequence[Battle], systems: tuple[str, ...]) -> Floats:
    column = {s: i for i, s in enumerate(systems)}
    x = np.zeros((len(battles), len(systems)))
    for row, battle in zip(x, battles, strict=True):
        for system, sign in ((battle.first, 1.0), (battle.second, -1.0)):
            if system in column:
                row[column[system]] += sign
    return x


def _effect_columns(
    battles: Sequence[Battle], style_names: Sequence[str], order: bool
) -> tuple[list[str], list[Floats]]:
    names = [ORDER] if order else []
    columns = [np.array([float(b.order) for b in battles])] if order else []
    for i, name in enumerate(style_names):
        column = np.array([b.style[i] for b in battles])
        size = float(np.sqrt(np.mean(column**2))) if len(column) else 0.0
        names.append(name)
        columns.append(column / size if size > 0 else column)
    return names, columns


def _independent(
    x: Floats, names: Sequence[str], columns: Sequence[Floats], shift: bool
) -> tuple[Floats, tuple[str, ...]]:
    """`x` with those further columns that are independent of the ones before."""
    independent: list[str] = []
    rank = x.shape[1] - int(shift)  # With the anchor's column, all may move together.
    for name, column in zip(names, columns, strict=True):
        wider = np.column_stack([x, column])
        if len(column) and np.linalg.matrix_rank(wider) == rank + len(independent) + 1:
            x = wider
            independent.append(name)
    return x, tuple(independent)


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
    """Fit ratings with `anchor` at `initial`, and intervals by resampling questions.

    `ridge` is the factor of half the sum of squared coefficients, in natural-log units,
    that is taken from the log likelihood; 0 for none.
    """
    table = battle_matrix(battles, anchor, style_names, order=order, keep_anchor=ridge > 0)
    fitter = Fitter(table, ridge)
    point = fitter.fit_all()
    samples = _resampled(fitter, draws, seed)
    return _ratings(table, point, samples, initial)


def _resampled(fitter: Fitter, draws: int, seed: int) -> Floats:
    """Return (draws, columns) refitted coefficients.

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
    """Return the gap and its interval on another, monotone scale."""
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


UNBOUNDED = 12.0
"""Odds of e^12 in a game are suspect: games that separate are looked for beyond them, in
the games' own odds since each of several coefficients may run only a part of the way."""
_NOTHING = 1e-7


class Fitter:
    """Fits the coefficients of a matrix under any weights of its battles."""

    def __init__(self, table: BattleMatrix, ridge: float) -> None:
        self.table, self.ridge = table, ridge
        self.escape = np.zeros(table.x.shape[1])
        """(columns,) a direction in which the likelihood of all games never falls."""
        self.start: Floats | None = None
        """(columns,) where a fit starts: at the maximum over all games."""
        self.rows, self.row = np.unique(table.x, axis=0, return_inverse=True)
        self.row = self.row.reshape(-1)  # numpy 2.0 gave it two dimensions.
        sides = self.rows[:, : len(table.systems)]
        self.pairs, self.pair = np.unique(sides, axis=0, return_inverse=True)
        self.pair = self.pair.reshape(-1)

    def fit_all(self) -> Floats:
        """Fit (columns,) coefficients of all games; fits of resamplings start from them."""
        if self.table.x.shape[1]:
            wins, losses = self._summed(self.table.weight)
            self.start = self._maximum(wins, losses)
            if not self.ridge:
                sides = _sides(self.rows[wins > 0], self.rows[losses > 0])
                self.escape = _escape(sides, self.start, self.escape)
        return self.fit(self.table.weight)

    def fit(self, weight: Floats) -> Floats:
        """Fit (columns,) coefficients; NaN for those that no weighted game informs.

        Without a ridge, infinite where the weighted games set no bound.
        """
        if not self.table.x.shape[1]:
            return np.zeros(0)
        wins, losses = self._summed(weight)
        coefficients = self._maximum(wins, losses)
        if not self.ridge:
            sides = _sides(self.rows[wins > 0], self.rows[losses > 0])
            escaping = _runs(sides, _escape(sides, coefficients, self.escape))
            coefficients = np.where(
                escaping != 0, np.copysign(np.inf, escaping), coefficients
            )
        coefficients[: len(self.table.systems)][~self._placed(wins + losses)] = np.nan
        informed = ((wins + losses) @ np.abs(self.rows)) > 0
        return np.where(informed, coefficients, np.nan)

    def _summed(self, weight: Floats) -> tuple[Floats, Floats]:
        """Return weights of wins and losses per distinct row."""
        n, score = len(self.rows), self.table.score
        wins = np.bincount(self.row, weight * score, n).astype(np.float64)
        return wins, np.bincount(self.row, weight * (1 - score), n).astype(np.float64)

    def _maximum(self, wins: Floats, losses: Floats) -> Floats:
        from sklearn.linear_model import LogisticRegression

        won, lost = wins > 0, losses > 0
        # A row of zeros is a coin's toss under any coefficients; one of each class keeps
        # games that all went one way fittable, and changes no maximum.
        toss = np.zeros((2, self.rows.shape[1]))
        x = np.concatenate([self.rows[won], self.rows[lost], toss])
        y = np.repeat([1, 0, 1, 0], [won.sum(), lost.sum(), 1, 1])
        weight = np.concatenate([wins[won], losses[lost], [1.0, 1.0]])
        model = LogisticRegression(
            C=1 / self.ridge if self.ridge else np.inf,
            fit_intercept=False,
            solver="newton-cholesky",
            tol=1e-9,
            max_iter=200,
            warm_start=self.start is not None,
        )
        if self.start is not None:
            model.coef_, model.intercept_ = self.start[None, :].copy(), np.zeros(1)
        with warnings.catch_warnings():
            # Games that separate end in warnings here; `_escape` looks for them.
            warnings.simplefilter("ignore")
            model.fit(x, y, weight)
        return np.array(model.coef_[0], dtype=np.float64)

    def _placed(self, weight: Floats) -> Booleans:
        """Return (systems,) which systems a chain of weighted games ties to the anchor."""
        n = len(self.table.systems)
        played = np.bincount(self.pair, weight, len(self.pairs)) > 0
        if played.all():
            return np.ones(n, dtype=bool)
        linked = np.zeros((n + 1, n + 1), dtype=bool)
        for row in self.pairs[played]:
            sides = np.flatnonzero(row)
            a, b = sides if len(sides) == 2 else (*sides, n)
            linked[a, b] = linked[b, a] = True
        systems, anchor = self.table.systems, self.table.anchor
        return _reachable(linked, systems.index(anchor) if anchor in systems else n)[:n]


def _reachable(linked: Booleans, start: int) -> Booleans:
    """Return (nodes,) which nodes of a (nodes, nodes) graph are connected with `start`."""
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(linked, directed=False)
    return np.asarray(label == label[start])


def _sides(won: Floats, lost: Floats) -> Floats:
    """(outcomes, columns) what makes each outcome more likely; a tie is two outcomes."""
    return np.unique(np.concatenate([won, -lost]), axis=0)


def _escape(sides: Floats, coefficients: Floats, known: Floats) -> Floats:
    """Return (columns,) a direction that makes every outcome more likely that any such can.

    `known` is such a direction for a superset of these games. It does not move the
    outcomes that it leaves open, and outruns any further direction elsewhere.
    """
    open_sides = sides[sides @ known <= 0.5]
    if np.abs(open_sides @ coefficients).max(initial=0.0) <= UNBOUNDED:
        return known
    further = _widest(open_sides)
    # So much of `known` that no outcome it gains is lost to the further direction.
    size = 1.0 + np.abs(sides @ further).max()
    return further + 2 * size * known if known.any() else further


def _runs(sides: Floats, direction: Floats) -> Floats:
    """(columns,) -1, 0 or 1: the coefficients that run off to infinity, and where to.

    The directions that lose no outcome are a cone, which is of full width in the space
    where the outcomes that none of them makes more likely stay as they are: every
    coefficient that varies there runs off.
    """
    from scipy.linalg import null_space

    columns = sides.shape[1]
    gains = sides @ direction > 0.5
    if not gains.any():
        return np.zeros(columns)
    unmoved = sides[~gains]
    # The triangle has the null space of the rows, and far fewer of them.
    free = null_space(np.linalg.qr(unmoved, mode="r")) if len(unmoved) else np.eye(columns)
    # A coefficient may run off either way and be still in `direction`.
    way = np.where(np.abs(direction) > _NOTHING, np.sign(direction), 1.0)
    return np.where(np.abs(free).max(axis=1, initial=0.0) > _NOTHING, way, 0.0)


def _widest(sides: Floats) -> Floats:
    """Return (columns,) a direction that gains at least 1 for every outcome that can gain.

    Directions can be added and stretched, so one linear programme with a gain between 0
    and 1 per outcome gives 1 to each that can gain at all; zeros where none can.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    n, columns = sides.shape
    solved = linprog(
        np.repeat([0.0, -1.0], [columns, n]),
        A_ub=sparse.hstack([sparse.csr_array(-sides), sparse.eye_array(n)]),
        b_ub=np.zeros(n),
        bounds=[(None, None)] * columns + [(0, 1)] * n,
    )
    if not solved.success:
        raise ArithmeticError(f"separation of {n} games: {solved.message}")
    if not (solved.x[columns:] > 0.5).any():
        return np.zeros(columns)
    return np.asarray(solved.x[:columns])
