"""Why answers and judgements came to nothing, counted."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.results.board import Board, score_outcome
from cluster.plan import outcome_name
from generators.base import Failure, Outcome

MOST = 10
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
"""What differs between reasons of one shape: names, numbers."""


def reasons(board: Board) -> dict[str, list[dict[str, Any]]]:
    """By system, its most frequent reasons and the number of all others.

    Reasons that differ only in quoted names and numbers are counted together, under the
    first of them; `alike` is how many there are.
    """
    shapes: dict[str, dict[tuple[str, str, str], list[str]]]
    shapes = {s.name: defaultdict(list) for s in board.systems}
    for system, outcome, said in _said(board):
        fault = said.fault.value if isinstance(said, Failure) else ""
        reason = getattr(said, "reason", "") or "the score is no finite number"
        shapes[system][outcome, fault, _PARTICULARS.sub("#", reason)].append(reason)
    return {system: _ranked(found) for system, found in shapes.items()}


def _ranked(shapes: dict[tuple[str, str, str], list[str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "outcome": outcome,
            "fault": fault,
            "reason": min(alike),
            "count": len(alike),
            "alike": len(set(alike)),
        }
        for (outcome, fault, _), alike in shapes.items()
    ]
    found.sort(key=lambda r: (-r["count"], r["outcome"], r["reason"]))
    return found[:MOST] + _rest(found[MOST:])


def _rest(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not found:
        return []
    count = sum(r["count"] for r in found)
    said = {"outcome": "", "fault": "", "reason": "other reasons"}
    return [said | {"count": count, "alike": sum(r["alike"] for r in found)}]


def _said(board: Board) -> Iterator[tuple[str, str, Any]]:
    """(system, outcome's name, outcome) of all that has no value.

    That a scorer does not apply is no loss.
    """
    for e in board.evaluations:
        if (name := outcome_name(e.document)) != "done":
            yield e.system, name, e.document
        for outcome in e.scores.values():
            name = score_outcome(outcome)
            if name not in ("scored", "not_applicable"):
                yield e.system, name, outcome


def counted_reasons(outcomes: Iterable[Outcome[Any]]) -> list[dict[str, Any]]:
    """The most frequent reasons of outcomes without a value, as `reasons` counts them."""
    shapes: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for outcome in outcomes:
        fault = outcome.fault.value if isinstance(outcome, Failure) else ""
        reason = getattr(outcome, "reason", "")
        shapes[outcome_name(outcome), fault, _PARTICULARS.sub("#", reason)].append(reason)
    return _ranked(shapes)
