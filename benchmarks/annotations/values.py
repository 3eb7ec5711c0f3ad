"""What one row says: a score, a preference or a vote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from benchmarks.annotations.rows import Row
from benchmarks.tables import bounds
from generators.names import UsageError
from scorers.agreement.preferences import Vote

Form = Literal["score", "preference", "vote"]
FORMS: tuple[Form, ...] = get_args(Form)
Value = float | Vote
CRITERIA = "criteria"
PENALTY = "penalty"


def value_of(row: Row, form: Form, scale: str) -> Value | None:
    """What the row says; None where the rater left it blank. UsageError for bad values."""
    if form == "score" and row.is_blank("score") and not row.is_blank(CRITERIA):
        return _sum_of_criteria(row, scale)
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


def _sum_of_criteria(row: Row, scale: str) -> float:
    """Criteria met, less the penalty, at least 0."""
    given = row.values[CRITERIA]
    if isinstance(given, str):
        given = given.replace(",", " ").replace(";", " ").split()
    if isinstance(given, Mapping):
        given = list(given.values())
    marks = {"0": 0, "1": 1, "false": 0, "true": 1}
    penalty = row.values.get(PENALTY)
    said = [str(v).strip().lower() for v in given] if isinstance(given, list) else [""]
    fine = "0" if row.is_blank(PENALTY) else str(penalty).strip().lower()
    if not all(v in marks for v in said):
        raise row.wrong(CRITERIA, "each criterion must be 0 or 1, as in 1;0;1;1;0;1")
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
