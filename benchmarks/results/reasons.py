"""Why answers and judgements have no value: counted by reason, and listed one by one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from plait.benchmarks.results.board import NOT_MADE, Board
from plait.benchmarks.results.table import ResultTable, csv_text
from plait.generators.base import VALUED, OutcomeName
from plait.scorers.base import MEMBER

FAILURES = "failures.csv"
"""The file of a run directory that names every answer and judgement without a value."""
OF_SETS = "of_sets"
"""On the page, the outcome of an answer that adds to a figure of a set."""
MOST = 10
_IN_TERMINAL = 5
Reasons = Sequence[Mapping[str, Any]]
"""Of one system, as `count_reasons` returns them."""
_PARTICULARS = re.compile(r"(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+", re.DOTALL)
"""What differs between reasons of the same form: names, replies and numbers. An apostrophe
inside a word begins none."""


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
    return missing_values_csv(missing_values(board), board.system_names, board.mark)


def missing_values_csv(
    missing: Iterable[MissingValue], systems: Sequence[str], mark: Mapping[str, int]
) -> str:
    """Return one line per missing value, ordered by system, each with the same `mark`."""
    place = {system: i for i, system in enumerate(systems)}

    def position(value: MissingValue) -> tuple[Any, ...]:
        _, *others = value
        return place[value.system], *others

    rows = []
    for value in sorted(missing, key=position):
        on_one_line = " ".join(value.reason.split())
        rows.append([*value._replace(reason=on_one_line), *mark.values()])
    return csv_text((*MissingValue._fields, *mark), rows)


class OutcomeGroup(NamedTuple):
    """What has no value for one reason: answers, or judgements of one scorer."""

    scorer: str
    """Empty for answers."""
    outcome: str
    reason: str
    """With its fault; the first of those of the same form."""
    counts: Counter[str]
    """By system."""


class Shape(NamedTuple):
    """What reasons of the same form have in common."""

    scorer: str
    """Empty for answers."""
    outcome: str
    fault: str
    form: str
    """The reason without quoted names and numbers."""


def shape_of(scorer: str, outcome: str, fault: str, reason: str) -> Shape:
    """Return what reasons that differ only in quoted names and numbers have in common."""
    return Shape(scorer, outcome, fault, _PARTICULARS.sub("#", reason))


def outcome_groups(board: Board) -> dict[Shape, OutcomeGroup]:
    """Return all that has no value, also what is not made or not applicable."""
    groups: dict[Shape, OutcomeGroup] = {}
    sets = {scorer.name for scorer in board.scorers if scorer.of_sets}
    about = ["system", "scorer", "outcome", "fault", "reason"]
    # What is not applicable has no value either, though nothing is missing there.
    lost = board.is_counted & ~board.column["outcome"].is_(*VALUED[:2])
    for system, scorer, name, fault, reason, n in board.group(lost, about):
        outcome = OutcomeName(name).of_scores if scorer else name
        shape = shape_of(scorer or "", outcome, fault, reason)
        if scorer in sets and reason.endswith(MEMBER):
            outcome = OF_SETS
        text = f"{fault}: {reason}" if fault else reason
        group = OutcomeGroup(scorer or "", outcome, text, Counter())
        groups.setdefault(shape, group).counts[system] += n
    missing = OutcomeGroup("", OutcomeName.MISSING, NOT_MADE, Counter())
    for system, n in board.group(board.is_answer & ~board.is_complete, ["system"]):
        missing.counts[system] = n
    return groups | {shape_of("", OutcomeName.MISSING, "", NOT_MADE): missing}


def count_reasons(
    missing: Iterable[MissingValue], systems: Sequence[str]
) -> dict[str, list[dict[str, Any]]]:
    """Return by system its most frequent reasons and the number of all others.

    Reasons that differ only in quoted names and numbers are counted together, under the
    first of them; `alike` is their number.
    """
    reasons: dict[str, dict[Shape, list[str]]] = {}
    for system in systems:
        reasons[system] = defaultdict(list)
    for value in missing:
        # Under no scorer: the same reason of several scorers is one.
        shape = shape_of("", value.outcome, value.fault, value.reason)
        reasons[value.system][shape].append(value.reason)
    return {system: _rank(by_shape) for system, by_shape in reasons.items()}


def _rank(shapes: Mapping[Shape, Sequence[str]]) -> list[dict[str, Any]]:
    """Return the most frequent shapes of reasons, and all others as one."""
    ranked: list[dict[str, Any]] = []
    for shape, reasons in shapes.items():
        # The first in sorted order stands for all, whatever was read first.
        kind = {"outcome": shape.outcome, "fault": shape.fault, "reason": min(reasons)}
        ranked.append(kind | {"count": len(reasons), "alike": len(set(reasons))})
    ranked.sort(key=lambda kind: (-kind["count"], kind["outcome"], kind["reason"]))
    others = ranked[MOST:]
    if not others:
        return ranked
    count = 0
    alike = 0
    for other in others:
        count += other["count"]
        alike += other["alike"]
    rest = {"outcome": "", "fault": "", "reason": "other reasons"}
    counts = {"count": count, "alike": alike, "kinds": len(others)}
    return [*ranked[:MOST], rest | counts]


def reasons_table(
    who: str, reasons: Iterable[tuple[str, Reasons]], notes: Sequence[str] = ()
) -> ResultTable:
    """Return a line per reason, in order; `who` heads the column of names."""
    lines = []
    for name, own in reasons:
        for reason in own:
            lines.append([name, *_texts(reason)])
    return ResultTable.of("Reasons", [who, "count", "outcome", "reason"], lines, notes)


def most_frequent(
    who: str, reasons: Iterable[tuple[str, Reasons]], file: str
) -> ResultTable:
    """Return the reasons that a terminal shows; `file` names every missing value."""
    ranked: list[tuple[str, Mapping[str, Any]]] = []
    for name, of_system in reasons:
        for reason in of_system:
            ranked.append((name, reason))
    # What stands for several kinds comes last, however frequent all of them are.
    ranked.sort(key=lambda pair: ("kinds" in pair[1], -pair[1]["count"], pair[0]))
    kinds = 0
    for _, reason in ranked[_IN_TERMINAL:]:
        kinds += reason.get("kinds", 1)
    more = ""
    if kinds:
        more = f"and {kinds:,} more {'kind' if kinds == 1 else 'kinds'}; "
    shown = [(name, [reason]) for name, reason in ranked[:_IN_TERMINAL]]
    return reasons_table(who, shown, [f"{more}each one is listed in {file}"])


def _texts(reason: Mapping[str, Any]) -> tuple[str, str, str]:
    count = f"{reason['count']:,}"
    text = str(reason["reason"])
    if not reason["outcome"]:
        return count, "", f"{text} of {reason['kinds']:,} kinds"
    kind = str(reason["outcome"]).replace("_", " ")
    kind = f"{kind}: {reason['fault']}" if reason["fault"] else kind
    more = reason["alike"] - 1
    return count, kind, f"{text} (and {more:,} alike)" if more else text
