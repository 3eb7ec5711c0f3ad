"""Whether a logistic regression has a finite maximum of likelihood."""

from __future__ import annotations

import numpy as np

from scorers.ratings.bootstrap import Floats

_NOTHING = 1e-7


def escape(x: Floats, score: Floats, weight: Floats) -> Floats:
    """(columns,) -1, 0 or 1: the coefficients that run off to infinity, and where to.

    The likelihood has no maximum when some direction makes no outcome less likely and
    some more (Albert & Anderson 1984): a system that wins every game. Such directions
    are found by linear programmes, each over the games the last did not separate.
    """
    from scipy.optimize import linprog

    sides = _sided(x, score, weight)
    found = np.zeros(x.shape[1])
    while len(sides):
        solved = linprog(
            -sides.sum(0), A_ub=-sides, b_ub=np.zeros(len(sides)), bounds=(-1, 1)
        )
        if not solved.success or -solved.fun < _NOTHING:
            break
        new = np.where(np.abs(solved.x) > _NOTHING, np.sign(solved.x), 0.0)
        found = np.where(found == 0, new, found)
        sides = sides[sides @ solved.x < _NOTHING]
    return found


def _sided(x: Floats, score: Floats, weight: Floats) -> Floats:
    """Rows turned so that their outcome is a win; a tie is a win of either side."""
    won = x[(score > 0) & (weight > 0)]
    lost = -x[(score < 1) & (weight > 0)]
    return np.unique(np.concatenate([won, lost]), axis=0)
