"""What one row says: a score, a preference or a vote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from benchmarks.annotations.rows import Row
from benchmarks.results.tables import bounds
from generators.names import UsageError
from scorers.agreement.preferences import Vote

Form = Literal["score", "preference", "vote"]
FORMS: tuple[Form, ...] = get_args(Form)
Value = float | Vote
CRITERIA = "criteria"
PENALTY = "penalty"
_MARKS = "each criterion must be 0 or 1, as in 1;0;1;1;0;1"


def value_of(row: Row, form: Form, scale: str) -> Value | None:
    """What the row says; None where the rater left it blank. UsageError for bad values."""
    if form == "score" and (said := criteria_of(row)):
        return _sum_of_criteria(row, said, scale)
    if row.is_blank(form):
        return None
    if form == "vote":
        return _vote(row)
    low, high = (-2.0, 2.0) if form == "preference" else ends_of(scale)
    return row.number(form, low, high)


def ends_of(scale: str) -> tuple[float, float]:
    """Lowest and highest value of a scale; UsageError where it is not LOW-HIGH."""
    ends = bounds(scale)
    if ends is None or ends[0] >= ends[1]:
        raise UsageError(f"scale {scale!r} is not of the form LOW-HIGH, such as 0-6")
    return ends


def criteria_of(row: Row) -> list[str]:
    """The row's marks by criterion where they stand for a score; none if left blank."""
    if not row.is_blank("score"):
        return []
    given = row.values.get(CRITERIA)
    if isinstance(given, str):
        given = given.replace(",", " ").replace(";", " ").split()
    if isinstance(given, Mapping):
        given = list(given.values())
    if given is not None and not isinstance(given, list):
        raise row.wrong(CRITERIA, _MARKS)
    return [str(v).strip().lower() for v in given or []]


def _sum_of_criteria(row: Row, said: Sequence[str], scale: str) -> float:
    """Criteria met, less the penalty, at least 0."""
    marks = {"0": 0, "1": 1, "false": 0, "true": 1}
    penalty = row.values.get(PENALTY)
    fine = "0" if row.is_blank(PENALTY) else str(penalty).strip().lower()
    if not all(v in marks for v in said):
        raise row.wrong(CRITERIA, _MARKS)
    if fine.removeprefix("-") not in marks:
        raise row.wrong(PENALTY, "it must be 0 or 1")
    total = max(0, sum(marks[v] for v in said) - marks[fine.removeprefix("-")])
    if not ends_of(scale)[0] <= total <= ends_of(scale)[1]:
        raise row.wrong(CRITERIA, f"they sum to {total}, which is not on the scale {scale}")
    return float(total)


def _vote(row: Row) -> Vote:
    said = row.text("vote").casefold()
    choices: dict[str, Vote] = {"undecided": "undecided", "tie": "undecided"}
    sides: tuple[Vote, Vote] = ("system", "baseline")
    for side in sides:
        choices[row.text(side, side).casefold()] = side
        choices.setdefault(side, side)
    if said.startswith("unable to decide"):
        return "undecided"
    if said not in choices:
        raise row.wrong("vote", f"valid: {', '.join(choices)}, unable to decide")
    return choices[said]
