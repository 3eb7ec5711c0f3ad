"""Weighted logistic regression without intercept, fitted many times on the same games.

Without a ridge the likelihood has no maximum when some direction makes no outcome less
likely and some more (Albert & Anderson 1984): a system that wins every game. Resampled
games are a subset of all games, so a direction for all of them serves every draw, and
only what it leaves open is searched again.
"""

from __future__ import annotations

import warnings

import numpy as np

from scorers.statistics.battles import BattleMatrix
from scorers.statistics.estimate import Floats

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
        """(columns,) coefficients of all games; fits of resamplings start from them."""
        if self.table.x.shape[1]:
            wins, losses = self._summed(self.table.weight)
            self.start = self._maximum(wins, losses)
            if not self.ridge:
                sides = _sides(self.rows[wins > 0], self.rows[losses > 0])
                self.escape = _escape(sides, self.start, self.escape)
        return self.fit(self.table.weight)

    def fit(self, weight: Floats) -> Floats:
        """(columns,) coefficients; NaN for those that no weighted game informs.

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
        """Weights of wins and losses per distinct row."""
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

    def _placed(self, weight: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(systems,) which systems a chain of weighted games ties to the anchor."""
        n = len(self.table.systems)
        played = np.bincount(self.pair, weight, len(self.pairs)) > 0
        if played.all():
            return np.ones(n, dtype=bool)
        linked = np.zeros((n + 1, n + 1), dtype=bool)
        for row in self.pairs[played]:
            sides = np.flatnonzero(row)
            a, b = sides if len(sides) == 2 else (*sides, n)
            linked[a, b] = linked[b, a] = True
        return _reachable(linked, self._anchor_at())[:n]

    def _anchor_at(self) -> int:
        """Node of the anchor: its column, or the last node where it has none."""
        systems = self.table.systems
        return (
            systems.index(self.table.anchor)
            if self.table.anchor in systems
            else len(systems)
        )


def _reachable(
    linked: np.ndarray[tuple[int, int], np.dtype[np.bool_]], start: int
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(linked, directed=False)
    return np.asarray(label == label[start])


def _sides(won: Floats, lost: Floats) -> Floats:
    """(outcomes, columns) what makes each outcome more likely; a tie is two outcomes."""
    return np.unique(np.concatenate([won, -lost]), axis=0)


def _escape(sides: Floats, coefficients: Floats, known: Floats) -> Floats:
    """(columns,) a direction that makes every outcome more likely that any such can.

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
    """(columns,) a direction that gains at least 1 for every outcome that can gain.

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
