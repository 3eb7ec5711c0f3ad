"""Weighted logistic regression without intercept, fitted many times on the same games."""

from __future__ import annotations

import warnings

import numpy as np

from scorers.statistics.bootstrap import Floats
from scorers.statistics.design import Design
from scorers.statistics.separation import UNBOUNDED, escape


class Fitter:
    """Fits a design's coefficients under any weights of its battles."""

    def __init__(self, table: Design, ridge: float) -> None:
        self.table, self.ridge = table, ridge
        self.rows, self.row = np.unique(table.x, axis=0, return_inverse=True)
        self.row = self.row.reshape(-1)  # numpy 2.0 gave it two dimensions.
        sides = self.rows[:, : len(table.systems)]
        self.pairs, self.pair = np.unique(sides, axis=0, return_inverse=True)
        self.pair = self.pair.reshape(-1)

    def fit(self, weight: Floats, start: Floats | None = None) -> Floats:
        """(columns,) coefficients; NaN for those that no weighted game speaks of.

        Without a ridge, infinite where the weighted games set no bound.
        """
        if not self.table.x.shape[1]:
            return np.zeros(0)
        wins, losses = self._summed(weight)
        found = self._maximum(wins, losses, start)
        if not self.ridge:
            found = self._unbounded(found, wins, losses)
        found[: len(self.table.systems)][~self._placed(wins + losses)] = np.nan
        spoken = ((wins + losses) @ np.abs(self.rows)) > 0
        return np.where(spoken, found, np.nan)

    def _summed(self, weight: Floats) -> tuple[Floats, Floats]:
        """Weights of wins and losses per distinct row."""
        n, score = len(self.rows), self.table.score
        wins = np.bincount(self.row, weight * score, n).astype(np.float64)
        return wins, np.bincount(self.row, weight * (1 - score), n).astype(np.float64)

    def _maximum(self, wins: Floats, losses: Floats, start: Floats | None) -> Floats:
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
            warm_start=start is not None,
        )
        if start is not None:
            model.coef_, model.intercept_ = start[None, :].copy(), np.zeros(1)
        with warnings.catch_warnings():
            # Games that separate end in warnings here; `_unbounded` looks for them.
            warnings.simplefilter("ignore")
            model.fit(x, y, weight)
        return np.array(model.coef_[0], dtype=np.float64)

    def _unbounded(self, found: Floats, wins: Floats, losses: Floats) -> Floats:
        """The coefficients, infinite where the likelihood grows without end."""
        won, lost = self.rows[wins > 0], self.rows[losses > 0]
        odds = np.concatenate([won, lost]) @ found
        if np.abs(odds).max(initial=0.0) <= UNBOUNDED:
            return found
        runs = escape(won, lost)
        return np.where(runs != 0, np.copysign(np.inf, runs), found)

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
