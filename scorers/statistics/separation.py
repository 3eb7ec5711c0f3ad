"""Whether a logistic regression has a finite maximum of likelihood."""

from __future__ import annotations

import numpy as np

from scorers.statistics.bootstrap import Floats

UNBOUNDED = 12.0
"""Odds of e^12 in a game are suspect: games that separate are looked for beyond them, in
the games' own odds since each of several coefficients may run only a part of the way."""
_NOTHING = 1e-7


def escape(won: Floats, lost: Floats) -> Floats:
    """(columns,) -1, 0 or 1: the coefficients that run off to infinity, and where to.

    `won` and `lost` are the rows of (games, columns) that count so; a tie is in both. The
    likelihood has no maximum when some direction makes no outcome less likely and some
    more (Albert & Anderson 1984): a system that wins every game. Such directions are a
    cone, which is of full width in the space where the outcomes that none of them makes
    more likely stay as they are: every coefficient that varies there runs off.
    """
    from scipy.linalg import null_space

    sides = np.unique(np.concatenate([won, -lost]), axis=0)
    gains, direction = _widest(sides)
    if not gains.any():
        return np.zeros(sides.shape[1])
    kept = sides[~gains]
    free = null_space(kept) if len(kept) else np.eye(sides.shape[1])
    # A coefficient may run off either way and stand still in the direction found.
    way = np.where(np.abs(direction) > _NOTHING, np.sign(direction), 1.0)
    return np.where(np.abs(free).max(axis=1) > _NOTHING, way, 0.0)


def _widest(sides: Floats) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], Floats]:
    """Which outcomes some direction makes more likely at no other's cost, and one for all.

    Directions can be added and stretched, so one linear programme with a gain between 0
    and 1 per outcome gives 1 to each that can gain at all.
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
    return solved.x[columns:] > 0.5, solved.x[:columns]
