"""Why answers and judgements have no value: counted by reason, and listed one by one."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.results.board import Board, key_of, score_outcome
from cluster.plan import Evaluation, outcome_name
from generators.base import Failure, Outcome

FAILURES = "failures.csv"
"""The file of a run directory that names every answer and judgement without a value."""
MOST = 10
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
"""What differs between reasons of the same form: names and numbers."""


class Loss(NamedTuple):
    """An answer or a judgement without a value."""

    system: str
    query: str
    category: str
    field: str
    repeat: int
    """Counted from 1."""
    scorer: str
    """Empty where the answer itself is lost."""
    outcome: str
    fault: str
    reason: str


def losses(board: Board) -> Iterator[Loss]:
    """Everything that has no value, in the order of the evaluations.

    A scorer that does not apply to a query is not a loss.
    """
    for e in board.evaluations:
        if (name := outcome_name(e.document)) != "done":
            yield _loss(e, "", name, e.document)
        for scorer, outcome in e.scores.items():
            name = score_outcome(outcome)
            if name not in ("scored", "not_applicable"):
                yield _loss(e, scorer, name, outcome)


def _loss(e: Evaluation, scorer: str, name: str, outcome: Outcome[Any]) -> Loss:
    return Loss(
        system=e.system,
        query=key_of(e.sample),
        category=e.sample.category,
        field=e.sample.field,
        repeat=e.repeat + 1,
        scorer=scorer,
        outcome=name,
        fault=outcome.fault.value if isinstance(outcome, Failure) else "",
        reason=getattr(outcome, "reason", "") or "the score is not a finite number",
    )


def failures_csv(board: Board) -> str:
    """Every loss of a board by name: the content of `failures.csv`."""
    return losses_csv(losses(board), [system.name for system in board.systems])


def losses_csv(lost: Iterable[Loss], systems: Sequence[str]) -> str:
    """One line per loss, ordered by system."""
    place = {system: i for i, system in enumerate(systems)}
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(Loss._fields)
    for loss in sorted(lost, key=lambda loss: (place[loss.system], *loss[1:])):
        writer.writerow(loss._replace(reason=" ".join(loss.reason.split())))
    return file.getvalue()


def reasons(board: Board) -> dict[str, list[dict[str, Any]]]:
    """By system of a board, its losses counted by reason."""
    return counted_reasons(losses(board), [system.name for system in board.systems])


def counted_reasons(
    lost: Iterable[Loss], systems: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """By system, its most frequent reasons and the number of all others.

    Reasons that differ only in quoted names and numbers are counted together, under the
    first of them; `alike` is their number.
    """
    shapes: dict[str, dict[tuple[str, str, str], list[str]]]
    shapes = {system: defaultdict(list) for system in systems}
    for loss in lost:
        shape = _PARTICULARS.sub("#", loss.reason)
        shapes[loss.system][loss.outcome, loss.fault, shape].append(loss.reason)
    return {system: _ranked(alike) for system, alike in shapes.items()}


def _ranked(shapes: dict[tuple[str, str, str], list[str]]) -> list[dict[str, Any]]:
    ranked: list[dict[str, Any]] = [
        {
            "outcome": outcome,
            "fault": fault,
            "reason": min(alike),
            "count": len(alike),
            "alike": len(set(alike)),
        }
        for (outcome, fault, _), alike in shapes.items()
    ]
    ranked.sort(key=lambda r: (-r["count"], r["outcome"], r["reason"]))
    return ranked[:MOST] + _rest(ranked[MOST:])


def _rest(others: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The less frequent reasons, as one entry with their number."""
    if not others:
        return []
    count = sum(r["count"] for r in others)
    alike = sum(r["alike"] for r in others)
    named = {"outcome": "", "fault": "", "reason": "other reasons"}
    return [named | {"count": count, "alike": alike, "kinds": len(others)}]
