"""What the template shows of one scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.results import tables
from benchmarks.results.board import Board
from benchmarks.results.criteria import profiles
from benchmarks.results.leaderboard import differences
from benchmarks.results.leaderboard_tables import scorer_table
from benchmarks.results.report.plots import axis_of, disagreements_of, distributions_of
from scorers.base import Scorer


def panel_of(
    board: Board, rows: Sequence[Mapping[str, Any]], scorer: Scorer, shown: Sequence[str]
) -> dict[str, Any]:
    """One scorer's tables and plots; `shown` are the keys of the queries on the page."""
    name = scorer.name
    scores = [(row["system"], row["scores"][name]) for row in rows]
    average = tables.headline(rows, name)
    pairs = {(d["a"], d["b"]): d for d in differences(board) if d["scorer"] == name}
    return {
        "name": name,
        "scale": scorer.scale,
        "direction": tables.direction_of(scorer),
        "digits": tables.decimals(scorer.scale),
        "scores": scores,
        "average": average,
        "best": scorer_table(board, rows, scorer).best,
        "axis": axis_of([s[average] for _, s in scores]),
        "counted": tables.counts_shown([s["avg_micro"] for _, s in scores]),
        "absent": _absent_intervals(scores),
        "matrix": tables.matrix(board, rows, name),
        "profiles": profiles(board, name),
        "difference": partial(_difference, pairs),
        "distributions": distributions_of(board, name, scorer.scale),
        "disagreements": disagreements_of(board, name, shown),
    }


def _absent_intervals(scores: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Why some means have no interval, each reason once."""
    cells = [cell for _, s in scores for cell in tables.cells_of(s)]
    return sorted(
        {
            c["reason"]
            for c in cells
            if c["mean"] is not None and c["ci95"] is None and "reason" in c
        }
        - {"not applicable"}
    )


def _difference(
    pairs: Mapping[tuple[str, str], Mapping[str, Any]], a: str, b: str
) -> dict[str, Any] | None:
    """Mean of `a` - `b`, whichever way round it was taken; None for a system by itself."""
    if (a, b) in pairs:
        return dict(pairs[a, b])
    pair = pairs.get((b, a))
    if pair is None or pair["mean"] is None:
        return dict(pair) if pair else None
    ends = pair["ci95"] and [-end for end in reversed(pair["ci95"])]
    return dict(pair) | {"mean": -pair["mean"], "ci95": ends}
