"""Ratings of documents: people's annotations, judges' scores from a run or a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.results.board import Board
from benchmarks.runs.experiment import reopen
from benchmarks.studies.agreement.rows import (
    CRITERIA,
    DOCUMENT,
    FORMS,
    Form,
    RatingRow,
    Value,
    criteria_of,
    read_rows,
    value_of,
)
from benchmarks.tasks.mmie.categories import category_of
from benchmarks.tasks.reading.rules import RowError
from cluster.store import Store
from generators.base import OutcomeName
from generators.errors import UsageError
from generators.names import unknown

BLANK = "left blank"
KINDS = ("interleaved", "integrated", "ground truth")


class Unit(NamedTuple):
    """A document that is rated, alone or against a baseline's."""

    id: str
    system: str
    repeat: int = 0
    baseline: str = ""


class About(NamedTuple):
    """The group of a unit, as far as a file states it."""

    category: str = ""
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class RatingsByRater:
    """Ratings by rater: an annotator, or a judge."""

    form: Form
    values: Mapping[str, Mapping[Unit, Value]]
    missing: Mapping[str, Mapping[Unit, str]]
    """By rater, what has no value, and why."""
    about: Mapping[Unit, About] = field(default_factory=dict)
    """By every known unit, with a value or without."""
    scales: Mapping[str, str] = field(default_factory=dict)
    """By rater, the scale of scores."""

    @property
    def raters(self) -> set[str]:
        """All who have rated anything, or left it blank."""
        return {*self.values, *self.missing}

    def by(self, raters: Collection[str]) -> "RatingsByRater":
        """The ratings of these raters alone; all if none is named. UsageError."""
        for name in raters:
            if name not in self.raters:
                raise unknown("scorer", name, sorted(self.raters))
        chosen = set(raters) or self.raters
        return replace(
            self,
            values={name: rated for name, rated in self.values.items() if name in chosen},
            missing={name: why for name, why in self.missing.items() if name in chosen},
        )


def read_ratings(
    path: Path,
    *,
    rater: str,
    unnamed: str,
    scale: str,
    known: Collection[Unit] = (),
) -> RatingsByRater:
    """The ratings in a file, one a row.

    Columns: `id` and `system`; one of `score` (on `scale`, or on that of the row's own
    column `scale`), `criteria` (0 or 1 each, as many in every row, for their sum less
    `penalty`; MMIE paper, appendix A.9), `preference` (-2 to 2, positive for the system)
    and `vote`; and where they apply the column named by `rater` (else all rows are
    `unnamed`'s), `repeat`, `baseline`, `category` and `kind`. Other columns are
    ignored. `known` units separate the id from the system where a file gives both as one.
    UsageError names the row, the value and the rule it breaks.
    """
    rows = read_rows(path)
    form = _form(path, rows)
    read = _RatingsReader(
        form, rater, unnamed, scale, {f"{u.id}_{u.system}": u for u in known}
    )
    for row in rows:
        read.add(row)
    return RatingsByRater(
        form=form,
        values=read.values,
        missing=read.missing,
        about=read.about,
        scales=read.scales,
    )


def _form(path: Path, rows: Sequence[RatingRow]) -> Form:
    columns = {name for row in rows for name in row.values}
    forms = [form for form in FORMS if form in columns]
    if not forms and CRITERIA in columns:
        forms = ["score"]
    needed = {"id", "system"} if DOCUMENT not in columns else set()
    lacking = sorted(needed - columns)
    if len(forms) == 1 and not lacking:
        return forms[0]
    rule = "exactly one of score (or criteria), preference and vote"
    raise UsageError(
        f"{path} needs the columns id, system and {rule}; it has "
        f"{', '.join(sorted(columns)) or 'none'}"
    )


class _RatingsReader:
    """Collects ratings row by row."""

    def __init__(
        self, form: Form, rater: str, unnamed: str, scale: str, known: Mapping[str, Unit]
    ) -> None:
        self.values: dict[str, dict[Unit, Value]] = {}
        self.missing: dict[str, dict[Unit, str]] = {}
        self.about: dict[Unit, About] = {}
        self.scales: dict[str, str] = {}
        self._form = form
        self._rater = rater
        self._unnamed = unnamed
        self._scale = scale
        self._known = known
        self._places: dict[tuple[str, Unit], str] = {}
        self._criteria: tuple[int, str] | None = None

    def add(self, row: RatingRow) -> None:
        unit, rater = self._unit(row), row.text(self._rater, self._unnamed)
        if former := self._places.get((rater, unit)):
            raise UsageError(
                f"{row.place}: {unit.id} of {unit.system} is rated by {rater!r} already "
                f"in {former}; where several rate, name each in the column {self._rater!r}"
            )
        self._places[rater, unit] = row.place
        scale = self._scale_of(row, rater)
        self._note_group(row, unit)
        self._note_criteria(row)
        value = value_of(row, self._form, scale)
        if value is None:
            self.missing.setdefault(rater, {})[unit] = BLANK
        else:
            self.values.setdefault(rater, {})[unit] = value

    def _unit(self, row: RatingRow) -> Unit:
        if not row.is_blank("id") or DOCUMENT not in row.values:
            id, system = row.text("id"), row.text("system")
            return Unit(id, system, row.whole("repeat", 0), row.text("baseline", ""))
        name = row.text(DOCUMENT)
        id, _, system = name.partition("_")
        return self._known.get(name) or Unit(id, system)

    def _scale_of(self, row: RatingRow, rater: str) -> str:
        scale = row.text("scale", self._scale)
        if self.scales.setdefault(rater, scale) != scale:
            rule = f"all scores of {rater!r} are on one scale, {self.scales[rater]}"
            raise row.wrong("scale", rule)
        return scale

    def _note_group(self, row: RatingRow, unit: Unit) -> None:
        kind = row.text("kind", "")
        if kind and kind not in KINDS:
            raise row.wrong("kind", f"valid: {', '.join(KINDS)}")
        about = About(in_mmies_words(row.text("category", "")), kind)
        if self.about.setdefault(unit, about) != about:
            raise row.wrong("category", "an earlier row puts it into another group")

    def _note_criteria(self, row: RatingRow) -> None:
        """Refuses sums of fewer or more criteria than the file's other rows have."""
        if self._form != "score" or not (verdicts := criteria_of(row)):
            return
        many, place = self._criteria = self._criteria or (len(verdicts), row.place)
        if len(verdicts) != many:
            rule = f"all rows need one number of criteria; {place} has {many}"
            raise row.wrong(CRITERIA, f"these are {len(verdicts)}, and {rule}")


def in_mmies_words(category: str) -> str:
    """`category` as MMIE abbreviates it, where it is one of MMIE's."""
    try:
        return category_of("", [category])
    except RowError:
        return category


def category_by_id(id: str) -> str:
    """The category that MMIE's ids name by their prefix, else `unknown`."""
    try:
        return category_of(id, [])
    except RowError:
        return "unknown"


def kind_of(system: str) -> str:
    """The kind of model according to a system's name: composed of two, or not."""
    if system == "gt" or system.startswith("gt:"):
        return "ground truth"
    return "integrated" if "+" in system else "interleaved"


def read_scores(path: Path, *, scale: str, scorers: Collection[str] = ()) -> RatingsByRater:
    """The scores of a run directory, or of a file (`read_ratings`, rater `scorer`).

    Of all scorers, or of those named; UsageError for unknown names.
    """
    if path.is_dir():
        return of_board(reopen(path).board(Store(path, strict=True)), scorers)
    ratings = read_ratings(path, rater="scorer", unnamed=path.stem, scale=scale)
    return ratings.by(scorers)


def of_board(board: Board, scorers: Collection[str] = ()) -> RatingsByRater:
    """The scores of a run; what has none is missing, with its outcome as the reason."""
    scales = {s.name: s.scale for s in board.scorers}
    values: dict[str, dict[Unit, Value]] = {name: {} for name in scales}
    missing: dict[str, dict[Unit, str]] = {name: {} for name in scales}
    about: dict[Unit, About] = {}
    columns = ("query", "system", "repeat", "category", "outcome", "value", "scorer")
    for id, system, repeat, category, outcome, value, scorer in board.rows(
        board.is_complete & (board.column["criterion"].codes < 0), *columns
    ):
        unit, name = Unit(id, system, repeat - 1), OutcomeName(outcome)
        if scorer is None:
            about[unit] = About(category)
            if name != OutcomeName.DONE:
                for lost in missing.values():
                    lost[unit] = f"answer {name}"
        elif name != OutcomeName.NO_DOCUMENT:
            if value is None:
                missing[scorer][unit] = name.of_scores.replace("_", " ")
            else:
                values[scorer][unit] = value
    ratings = RatingsByRater(
        form="score", values=values, missing=missing, about=about, scales=scales
    )
    return ratings.by(scorers)
