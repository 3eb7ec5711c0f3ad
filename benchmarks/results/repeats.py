"""How much a system's mean changes from one repeat to the next: the spread over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from plait.benchmarks.results.board import Board
from plait.scorers.base import Scorer
from plait.scorers.statistics.estimate import Floats

LEAST = 2
"""Repeats below which there is no spread."""


@dataclass(frozen=True, slots=True)
class RepeatSpread:
    """The means of one system by one scorer, one for each repeat."""

    means: tuple[float, ...]
    """Over the queries that have a score in every repeat."""
    n: int
    """How many queries these are."""

    @property
    def sd(self) -> float | None:
        """Standard deviation of the means, of which each repeat is one draw."""
        if len(self.means) < LEAST or not self.n:
            return None
        return float(np.std(self.means, ddof=1))


@lru_cache(maxsize=8)
def values_by_repeat(board: Board, scorer: str) -> Floats:
    """Return (repeats, queries, systems) scores, NaN where there is none."""
    row = board.column["query"].recode(board.keys)
    column = board.column["system"].recode(board.system_names)
    repeat = board.table.column("repeat").to_numpy() - 1
    value = board.table.column("value").to_numpy()
    scored = board.is_score & ~np.isnan(value) & board.column["scorer"].is_(scorer)
    rows: npt.NDArray[np.int64] = np.flatnonzero(scored)
    values = np.full((board.rounds, len(board.keys), len(board.systems)), np.nan)
    values[repeat[rows], row[rows], column[rows]] = value[rows]
    return values


def spread_over_repeats(board: Board, scorer: Scorer) -> Mapping[str, RepeatSpread]:
    """Return the spread of each system; empty for a run without repeats.

    Every query counts once, whatever its category. A scorer of sets of images has none.
    """
    if board.rounds < LEAST or scorer.of_sets:
        return {}
    values = values_by_repeat(board, scorer.name)
    spreads = {}
    for system, own in zip(board.systems, np.moveaxis(values, 2, 0), strict=True):
        shared = own[:, ~np.isnan(own).any(axis=0)]
        means = shared.mean(axis=1).tolist() if shared.size else ()
        spreads[system.name] = RepeatSpread(tuple(means), shared.shape[1])
    return spreads
