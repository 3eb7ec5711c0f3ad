"""Ratings of documents: people's annotations, judges' scores from a run or a file.

Errors name the place, the value and the rule.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from plait.benchmarks.results.board import Board
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.tasks.controls import TRUTH, is_control
from plait.benchmarks.tasks.mmie.categories import category_of
from plait.benchmarks.tasks.reading.rules import RowError, TaskError, brief
from plait.benchmarks.tasks.reading.sources import read_text
from plait.benchmarks.tasks.reading.tables import SUFFIXES, table_of
from plait.generators.base import OutcomeName
from plait.generators.buckets import AnyPath
from plait.generators.errors import UsageError
from plait.generators.names import unknown
from plait.generators.numerals import number_of
from plait.generators.unicode import trouble
from plait.scorers.base import bounds
from plait.scorers.judging.rubrics import OWN
from plait.scorers.statistics.means import paired_differences
from plait.scorers.statistics.preferences import Vote

BLANK = "left blank"
KINDS = ("interleaved", "integrated", "ground truth")
DOCUMENT = "document"
"""Replaces `id` and `system` in files of the MMIE authors' annotation tool."""
CRITERIA = "criteria"
CRITERION = "criterion"
"""Names what a row's score is of, where it is not the whole answer."""
PENALTY = "penalty"
ANNOTATOR = "annotator"
"""Names who rated, where several people did."""
Form = Literal["score", "preference", "vote"]
FORMS: tuple[Form, ...] = get_args(Form)
Value = float | Vote
_COLUMNS = frozenset(
    (
        *("id", "system", "repeat", "baseline", "category", "kind", "scale", "scorer"),
        *(ANNOTATOR, DOCUMENT, CRITERIA, CRITERION, PENALTY, *FORMS),
    )
)
_OTHER_NAMES = {"query": "id", "rater": ANNOTATOR}
"""What people call columns, too."""


class Unit(NamedTuple):
    """A document that is rated, alone or against a baseline's."""

    id: str
    system: str
    repeat: int = 0
    baseline: str = ""

    @property
    def sides(self) -> tuple["Unit", "Unit"]:
        """The two documents of a pair."""
        return self._replace(baseline=""), Unit(self.id, self.baseline, self.repeat)


class About(NamedTuple):
    """The group of a unit, as far as a file states it."""

    category: str = ""
    kind: str = ""


@dataclass(frozen=True)
class RatedDocuments:
    """Ratings by rater: an annotator, or a judge."""

    form: Form
    values: dict[str, dict[Unit, Value]] = field(default_factory=lambda: defaultdict(dict))
    missing: dict[str, dict[Unit, str]] = field(default_factory=lambda: defaultdict(dict))
    """By rater, what has no value, and why."""
    about: dict[Unit, About] = field(default_factory=dict)
    """By every known unit, with a value or without."""
    scales: dict[str, str] = field(default_factory=dict)
    """By rater, the scale of scores."""
    rulings: dict[str, dict[Unit, Mapping[str, int]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """By rater, 0 or 1 by criterion and for the penalty, where scores were made of them."""
    reversed: frozenset[str] = frozenset()
    """Raters whose lower scores are better."""

    @property
    def raters(self) -> set[str]:
        """All who have rated anything, or left it blank."""
        return {*self.values, *self.missing}

    def by(self, raters: Collection[str]) -> "RatedDocuments":
        """Return the ratings of these raters alone; all if none is named. UsageError."""
        for name in raters:
            if name not in self.raters:
                raise unknown("scorer", name, sorted(self.raters))
        if not raters:
            return self
        values = {name: self.values[name] for name in self.values if name in raters}
        missing = {name: self.missing[name] for name in self.missing if name in raters}
        return replace(self, values=values, missing=missing)

    def votes(self, pairs: Collection[Unit]) -> "RatedDocuments":
        """Return scores as votes on `pairs`, for the answer that has the better one."""
        known = {}
        for pair in pairs:
            # Of a pair of which one side was never to be scored nothing is missing.
            if all(side in self.about for side in pair.sides):
                known[pair] = About()
        voted = RatedDocuments("vote", about=known)
        for rater in self.raters:
            scores = self.values.get(rater, {})
            missing = self.missing.get(rater, {})
            for pair in known:
                one, other = pair.sides
                if one in missing:
                    voted.missing[rater][pair] = missing[one]
                elif other in missing:
                    voted.missing[rater][pair] = missing[other]
                elif one in scores and other in scores:
                    better = _difference(float(scores[one]), float(scores[other]))
                    if rater in self.reversed:
                        better = -better
                    voted.values[rater][pair] = _vote(better)
        return voted


def _difference(one: float, other: float) -> float:
    return float(paired_differences(np.array([one]), np.array([other]))[0])


def _vote(better: float) -> Vote:
    """Return the vote by how much better the system's answer is than the baseline's."""
    if better == 0:
        return "undecided"
    return "system" if better > 0 else "baseline"


def read_scores(
    path: AnyPath, *, scale: str, scorers: Collection[str] = (), criterion: str = ""
) -> RatedDocuments:
    """Return the scores of a run directory, or of a file (`read_ratings`, rater `scorer`).

    Of all scorers, or of those named; UsageError for unknown names. With `criterion`, what
    they say of it alone.
    """
    if not isinstance(path, Path) or path.is_dir():
        board = open_results(path).board
        rated = of_criterion(board, criterion) if criterion else of_board(board)
        return rated.by(scorers)
    ratings = read_ratings(
        path, rater="scorer", unnamed=path.stem, scale=scale, criterion=criterion
    )
    return ratings.by(scorers)


def of_criterion(board: Board, criterion: str) -> RatedDocuments:
    """Return what the scorers of a run say of one criterion; UsageError for no criterion.

    A document of which a scorer says nothing is missing for the reason that its score is.
    """
    names = board.column["criterion"].names
    if not names:
        raise UsageError(
            f"no scorer of the run judges by criteria, so that none says anything of "
            f"{criterion!r} alone; leave --criterion out"
        )
    if criterion not in names:
        raise unknown("criterion", criterion, names)
    whole = of_board(board)
    values: dict[str, dict[Unit, Value]] = defaultdict(dict)
    rows = board.is_complete & board.column["criterion"].is_(criterion)
    for id, system, repeat, value, scorer in board.rows(
        rows, "query", "system", "repeat", "value", "scorer"
    ):
        values[scorer][Unit(id, system, repeat - 1)] = value
    missing: dict[str, dict[Unit, str]] = {}
    scales = {}
    for name, own in values.items():
        lost = dict.fromkeys(whole.values[name].keys() - own.keys(), "criterion not asked")
        missing[name] = lost | whole.missing[name]
        scales[name] = board.criterion_scales.get((name, criterion), "0-1")
    return RatedDocuments(
        "score", values=values, missing=missing, about=whole.about, scales=scales
    )


def of_board(board: Board) -> RatedDocuments:
    """Return the scores of a run; what has none is missing, with its outcome as reason."""
    reversed_scorers = set()
    for scorer in board.scorers:
        if scorer.direction == "lower":
            reversed_scorers.add(scorer.name)
    ratings = RatedDocuments("score", reversed=frozenset(reversed_scorers))
    for scorer in board.scorers:
        # A scorer is a rater also where it has scored nothing.
        ratings.values[scorer.name] = {}
        ratings.missing[scorer.name] = {}
        ratings.scales[scorer.name] = scorer.scale
    columns = ("query", "system", "repeat", "category", "outcome", "value", "scorer")
    rows = board.is_complete & (board.column["criterion"].codes < 0)
    for id, system, repeat, category, outcome, value, rater in board.rows(rows, *columns):
        # Tables count repeats from 1, units from 0.
        unit = Unit(id, system, repeat - 1)
        name = OutcomeName(outcome)
        if rater is None:
            # The row of the answer itself.
            ratings.about[unit] = About(category)
            if name != OutcomeName.DONE:
                for missing in ratings.missing.values():
                    missing[unit] = f"answer {name}"
        elif value is not None:
            ratings.values[rater][unit] = value
        elif name != OutcomeName.NO_DOCUMENT:
            # That there is no answer is told by the answer's own row.
            ratings.missing[rater][unit] = name.of_scores.replace("_", " ")
    return ratings


def read_ratings(
    path: Path,
    *,
    rater: str,
    unnamed: str,
    scale: str,
    known: Collection[Unit] = (),
    criterion: str = "",
) -> RatedDocuments:
    """Return the ratings in a file, one a row.

    Columns: `id` and `system`; one of `score` (on `scale`, or on that of the row's own
    column `scale`), `criteria` (0 or 1 each, as many in every row, for their sum less
    `penalty`; MMIE paper, appendix A.9), `preference` (-2 to 2, positive for the system)
    and `vote`; and where they apply the column named by `rater` (else all rows are
    `unnamed`'s), `repeat`, `baseline`, `category` and `kind`. Other columns are
    ignored. Names of columns may be in any case; `query` stands for `id`, and `rater` for
    `annotator`. `known` units separate the id from the system where a file gives both as
    one.
    With `criterion`, only rows that have it in their column `criterion`, where there is
    one. UsageError names the row, the value and the rule it breaks.
    """
    rows = read_rows(path)
    if criterion:
        rows = _of_criterion(path, rows, criterion)
    ratings = RatedDocuments(_form(path, rows))
    units = {f"{unit.id}_{unit.system}": unit for unit in known}
    places: dict[tuple[str, Unit], str] = {}
    first_ruled: tuple[int, str] | None = None
    for row in rows:
        unit = _unit(row, units)
        name = row.text(rater, unnamed)
        if (name, unit) in places:
            hint = f"where several rate, name each in the column {rater!r}"
            if not criterion and not row.is_blank(CRITERION):
                hint = "--criterion NAME takes the rows about one criterion"
            raise UsageError(
                f"{row.place}: {unit.id} of {unit.system} is rated by {name!r} already "
                f"in {places[name, unit]}; {hint}"
            )
        places[name, unit] = row.place
        own_scale = row.text("scale", scale)
        about = _about(row)
        _add_group(ratings, row, name, own_scale, unit, about)
        verdicts = _verdicts(row) if ratings.form == "score" else []
        if verdicts:
            if first_ruled is None:
                first_ruled = len(verdicts), row.place
            _check_number(row, verdicts, *first_ruled)
            category = mmies_category(unit.id, [about.category])
            score, rulings = _rule(row, verdicts, category, own_scale)
            ratings.values[name][unit] = score
            ratings.rulings[name][unit] = rulings
        elif row.is_blank(ratings.form):
            ratings.missing[name][unit] = BLANK
        else:
            ratings.values[name][unit] = _value(row, ratings.form, own_scale)
    return ratings


def _add_group(
    ratings: RatedDocuments,
    row: RatingRow,
    rater: str,
    scale: str,
    unit: Unit,
    about: About,
) -> None:
    """Add the scale of a rater and the group of a unit; UsageError for another before."""
    first = ratings.scales.setdefault(rater, scale)
    if first != scale:
        raise row.wrong("scale", f"all scores of {rater!r} are on one scale, {first}")
    if ratings.about.setdefault(unit, about) != about:
        raise row.wrong("category", "an earlier row puts it into another group")


def _of_criterion(path: Path, rows: list[RatingRow], criterion: str) -> list[RatingRow]:
    """Return the rows about a criterion; all where no row says what it is about."""
    named = {row.text(CRITERION, "") for row in rows} - {""}
    if not named:
        return rows
    if criterion not in named:
        raise unknown(f"criterion in {path.name}", criterion, named)
    return [row for row in rows if row.text(CRITERION, "") == criterion]


@dataclass(frozen=True, slots=True)
class RatingRow:
    """One row of a file."""

    place: str
    """`human.csv line 7`, `human.json entry 3`."""
    values: Mapping[str, Any]

    def wrong(self, column: str, rule: str) -> UsageError:
        """Return the error for a value that breaks a rule."""
        value = brief(self.values.get(column))
        return UsageError(f"{self.place}: {column} is {value}; {rule}")

    def is_blank(self, column: str) -> bool:
        """Return whether the row has no value in the column."""
        value = self.values.get(column)
        return value is None or (isinstance(value, str) and not value.strip())

    def text(self, column: str, default: str | None = None) -> str:
        """Return text, or a number as it is written; UsageError if there is none."""
        if self.is_blank(column):
            if default is not None:
                return default
            raise self.wrong(column, "every row must name it")
        value = self.values[column]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.wrong(column, "it must be text")
        return str(value).strip()

    def number(self, column: str, low: float, high: float) -> float:
        """Return a finite number from `low` to `high`."""
        value = self.values[column]
        number = None
        if isinstance(value, str):
            number = number_of(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            number = value
        if number is None or not low <= number <= high:
            raise self.wrong(column, f"it must be a number from {low:g} to {high:g}")
        return float(number)

    def whole(self, column: str, default: int) -> int:
        """Return a whole number from 0."""
        if self.is_blank(column):
            return default
        number = self.number(column, 0, 2**31)
        if number != int(number):
            raise self.wrong(column, "it must be a whole number from 0")
        return int(number)


def read_rows(path: Path) -> list[RatingRow]:
    """Return the rows of a .csv, .tsv, .json, .jsonl or .ndjson file, in UTF-8.

    A table has a header (`reading.tables`). A JSON file holds a list of objects, or one
    object by document, as the MMIE authors' annotation tool writes it
    (github.com/Lillianwei-h/Viewer, viewer.py: "<id>_<model>"). Raises UsageError for
    other files and for rows without the form of a row.
    """
    readers = dict.fromkeys(SUFFIXES, _table) | {".json": _json}
    readers |= dict.fromkeys((".jsonl", ".ndjson"), _json_lines)
    kind = path.suffix.lower()
    if kind not in readers:
        raise unknown("kind of file", path.name, readers)
    rows = []
    for place, value in readers[kind](path, _text(path)):
        if not isinstance(value, dict):
            raise UsageError(f"{place} is {brief(value)}; it must be an object")
        rows.append(RatingRow(place, _with_usual_names(value)))
    if not rows:
        raise UsageError(f"{path} holds no row")
    return rows


def _with_usual_names(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row whose columns are named as they are here: not `Score`, nor `rater`.

    A column of the usual name goes before others; those of no use keep their names.
    """
    usual: dict[str, Any] = {}
    for name, value in row.items():
        plain = name.strip().lower()
        plain = _OTHER_NAMES.get(plain, plain)
        taken = plain in row or plain in usual
        usual[plain if plain in _COLUMNS and not taken else name] = value
    return usual


def _text(path: Path) -> str:
    try:
        text = read_text(path)
    except TaskError as error:
        raise UsageError(str(error)) from None
    for number, line in enumerate(text.split("\n"), 1):
        if wrong := trouble(line):
            raise UsageError(f"{path.name} line {number} has {wrong}; save it as UTF-8")
    return text


def _table(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        table = table_of(path)
    except TaskError as error:
        raise UsageError(str(error)) from None
    names = table.names
    if len(set(names)) < len(names) or "" in names:
        raise UsageError(f"{path}: a column is named twice or not at all: {names}")
    for row in table.rows:
        place = f"{path.name} line {row.line}"
        if fault := table.fault(row):
            raise UsageError(f"{place} {fault}")
        yield place, dict(zip(names, row.cells, strict=True))


def _json(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    entries = _parse(str(path), text)
    if isinstance(entries, dict):
        entries = [_with_name(name, value) for name, value in entries.items()]
    if isinstance(entries, list):
        for number, value in enumerate(entries, 1):
            yield f"{path.name} entry {number}", value


def _with_name(name: str, value: Any) -> Any:
    """Return the row of a document by its name; what is no row as it is."""
    return {**value, DOCUMENT: name} if isinstance(value, dict) else value


def _json_lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{path.name} line {number}"
            yield place, _parse(place, line)


def _parse(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not valid JSON: {error}") from None


def _form(path: Path, rows: Sequence[RatingRow]) -> Form:
    """Return what the columns of the rows give; UsageError unless that is one form."""
    columns: set[str] = set()
    for row in rows:
        columns.update(row.values)
    forms = [form for form in FORMS if form in columns]
    if not forms and CRITERIA in columns:
        forms = ["score"]
    lacking = []
    if DOCUMENT not in columns:
        lacking = [name for name in ("id", "system") if name not in columns]
    if len(forms) == 1 and not lacking:
        return forms[0]
    named = f"lacks {' and '.join(lacking)}; it " if lacking else ""
    rule = "exactly one of score (or criteria), preference and vote"
    has = ", ".join(sorted(columns)) or "none"
    raise UsageError(f"{path} {named}needs the columns id, system and {rule}; it has {has}")


def _unit(row: RatingRow, known: Mapping[str, Unit]) -> Unit:
    """Return what a row rates; `known` are units by their names as one, `ID_SYSTEM`."""
    if not row.is_blank("id") or DOCUMENT not in row.values:
        id = row.text("id")
        system = row.text("system")
        return Unit(id, system, row.whole("repeat", 0), row.text("baseline", ""))
    name = row.text(DOCUMENT)
    # Ids and systems may hold a `_` themselves, so what is known goes first.
    id, _, system = name.partition("_")
    return known.get(name) or Unit(id, system)


def _about(row: RatingRow) -> About:
    category = row.text("category", "")
    kind = row.text("kind", "")
    if kind and kind not in KINDS:
        raise row.wrong("kind", f"valid: {', '.join(KINDS)}")
    return About(mmies_category("", [category]) or category, kind)


def mmies_category(id: str, stated: Sequence[str] = ()) -> str:
    """Return MMIE's category as stated or by the id's prefix; empty for others."""
    try:
        return category_of(id, stated)
    except RowError:
        return ""


def kind_of(system: str) -> str:
    """Return the kind of model by a system's name: composed of two, or not."""
    if system == TRUTH or is_control(system):
        return "ground truth"
    return "integrated" if "+" in system else "interleaved"


def ends_of(scale: str) -> tuple[float, float]:
    """Return lowest and highest value of a scale; UsageError where it is not LOW-HIGH."""
    ends = bounds(scale)
    if ends is None or ends[0] >= ends[1]:
        raise UsageError(f"scale {scale!r} is not of the form LOW-HIGH, such as 0-6")
    return ends


def _check_number(row: RatingRow, verdicts: Sequence[str], number: int, place: str) -> None:
    """Raise UsageError where a row has not as many verdicts as the first, at `place`."""
    if len(verdicts) != number:
        rule = f"all rows need one number of criteria; {place} has {number}"
        raise row.wrong(CRITERIA, f"these are {len(verdicts)}, and {rule}")


_VERDICTS = "each criterion must be 0 or 1, as in 1;0;1;1;0;1"
_POINTS = {"0": 0, "1": 1, "false": 0, "true": 1}


def _verdicts(row: RatingRow) -> list[str]:
    """Return the row's verdicts by criterion where they stand for a score, if any."""
    if not row.is_blank("score"):
        return []
    criteria = row.values.get(CRITERIA)
    if isinstance(criteria, str):
        criteria = criteria.replace(",", " ").replace(";", " ").split()
    if isinstance(criteria, Mapping):
        criteria = list(criteria.values())
    if criteria is not None and not isinstance(criteria, list):
        raise row.wrong(CRITERIA, _VERDICTS)
    return [str(verdict).strip().lower() for verdict in criteria or []]


def _rule(
    row: RatingRow, verdicts: Sequence[str], category: str, scale: str
) -> tuple[float, dict[str, int]]:
    """Return criteria met less the penalty, at least 0, and the ruling on each.

    Criteria have the names that the row gives them, else those of the category's rubric
    where it has as many, else numbers.
    """
    fine = "0" if row.is_blank(PENALTY) else str(row.values[PENALTY])
    fine = fine.strip().lower().removeprefix("-")
    if not _POINTS.keys() >= {*verdicts}:
        raise row.wrong(CRITERIA, _VERDICTS)
    if fine not in _POINTS:
        raise row.wrong(PENALTY, "it must be 0 or 1")
    names: Collection[str] = [f"criterion {i}" for i in range(1, len(verdicts) + 1)]
    stated = row.values[CRITERIA]
    if isinstance(stated, Mapping):
        names = [str(name) for name in stated]
    elif category in OWN and len(OWN[category].criteria) == len(verdicts):
        names = OWN[category].criteria
    points = [_POINTS[verdict] for verdict in verdicts]
    rulings = dict(zip(names, points, strict=True))
    total = max(0, sum(rulings.values()) - _POINTS[fine])
    low, high = ends_of(scale)
    if not low <= total <= high:
        raise row.wrong(CRITERIA, f"they sum to {total}, which is not on the scale {scale}")
    if not row.is_blank(PENALTY):
        rulings[PENALTY] = _POINTS[fine]
    return float(total), rulings


def _value(row: RatingRow, form: Form, scale: str) -> Value:
    """Return a score, a preference from -2 to 2, or a vote by side or by system's name."""
    if form == "score":
        return row.number(form, *ends_of(scale))
    if form == "preference":
        return row.number(form, -2, 2)
    vote = row.text("vote").casefold()
    choices: dict[str, Vote] = {"undecided": "undecided", "tie": "undecided"}
    sides: tuple[Vote, Vote] = ("system", "baseline")
    for side in sides:
        choices[row.text(side, side).casefold()] = side
        choices.setdefault(side, side)
    if vote.startswith("unable to decide"):
        return "undecided"
    if vote not in choices:
        raise row.wrong("vote", f"valid: {', '.join(choices)}, unable to decide")
    return choices[vote]
