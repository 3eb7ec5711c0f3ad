"""Why answers and judgements have no value: counted by reason, and listed one by one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.results.board import Board
from benchmarks.results.table import csv_text
from generators.base import VALUED, OutcomeName

FAILURES = "failures.csv"
"""The file of a run directory that names every answer and judgement without a value."""
MOST = 10
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
"""What differs between reasons of the same form: names and numbers."""


class MissingValue(NamedTuple):
    """An answer or a judgement without a value."""

    system: str
    query: str
    category: str
    field: str
    repeat: int
    """Counted from 1."""
    scorer: str
    """Empty where the answer itself is missing."""
    outcome: str
    fault: str
    reason: str


def missing_values(board: Board) -> Iterator[MissingValue]:
    """Yield everything that has no value, in the order of the evaluations.

    A scorer that does not apply to a query has no missing value there.
    """
    lost = board.is_counted & ~board.column["outcome"].is_(*VALUED)
    for row in board.rows(lost, *MissingValue._fields):
        value = MissingValue(*row)
        outcome = OutcomeName(value.outcome).of_scores if value.scorer else value.outcome
        yield value._replace(scorer=value.scorer or "", outcome=outcome)


def failures_csv(board: Board) -> str:
    """Return every missing value of a board: the content of `failures.csv`."""
    systems = [system.name for system in board.systems]
    return missing_values_csv(missing_values(board), systems, board.mark)


def missing_values_csv(
    missing: Iterable[MissingValue], systems: Sequence[str], mark: Mapping[str, int]
) -> str:
    """Return one line per missing value, ordered by system, each with the same `mark`."""
    place = {system: i for i, system in enumerate(systems)}
    ordered = sorted(missing, key=lambda value: (place[value.system], *value[1:]))
    rows = (v._replace(reason=" ".join(v.reason.split())) for v in ordered)
    marked = ((*row, *mark.values()) for row in rows)
    return csv_text((*MissingValue._fields, *mark), marked)


def counted_reasons(
    missing: Iterable[MissingValue], systems: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return by system its most frequent reasons and the number of all others.

    Reasons that differ only in quoted names and numbers are counted together, under the
    first of them; `alike` is their number.
    """
    shapes: dict[str, dict[tuple[str, str, str], list[str]]]
    shapes = {system: defaultdict(list) for system in systems}
    for value in missing:
        shape = _PARTICULARS.sub("#", value.reason)
        shapes[value.system][value.outcome, value.fault, shape].append(value.reason)
    return {system: _ranked(alike) for system, alike in shapes.items()}


def _ranked(shapes: dict[tuple[str, str, str], list[str]]) -> list[dict[str, Any]]:
    ranked: list[dict[str, Any]] = [
        {"outcome": outcome, "fault": fault, "reason": min(alike)}
        | {"count": len(alike), "alike": len(set(alike))}
        for (outcome, fault, _), alike in shapes.items()
    ]
    ranked.sort(key=lambda r: (-r["count"], r["outcome"], r["reason"]))
    others = ranked[MOST:]
    if not others:
        return ranked
    count, alike = (sum(r[name] for r in others) for name in ("count", "alike"))
    rest = {"outcome": "", "fault": "", "reason": "other reasons", "count": count}
    return [*ranked[:MOST], rest | {"alike": alike, "kinds": len(others)}]


def kind_text(reason: Mapping[str, Any]) -> str:
    """Return `failed: out of memory`."""
    parts = (str(reason["outcome"]).replace("_", " "), reason["fault"])
    return ": ".join(p for p in parts if p)


def reason_text(reason: Mapping[str, Any]) -> str:
    """Return the reason, and how many others of its shape were counted with it."""
    if not reason["outcome"]:
        return f"{reason['reason']} of {reason['kinds']:,} kinds"
    more = reason["alike"] - 1
    return f"{reason['reason']} (and {more:,} alike)" if more else str(reason["reason"])
