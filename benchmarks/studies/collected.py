"""`plait annotate --collect`: raters' answers as the CSV file that `plait agreement` reads.

    rows, table = collected(folder, files)

Gold and second answers to repeated items are not among the rows; they measure the raters.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.table import ResultTable, TableCell, TableColumn, csv_text
from plait.benchmarks.studies.annotate import ANSWERS, VOTES, read_key
from plait.benchmarks.studies.annotations import CRITERIA, PENALTY
from plait.generators.errors import UsageError
from plait.scorers.statistics.estimate import Estimate
from plait.scorers.statistics.means import PERCENT, pooled_mean

CSV = "annotations.csv"
_ABOUT = ("id", "system", "repeat", "baseline", "category", "annotator")
_MORE = ("position", "shown_left", "seconds")


class _Share(NamedTuple):
    """What counts toward a share in percent."""

    query: str
    value: float
    """100 or 0."""


@dataclass(frozen=True, slots=True)
class RatedItem:
    """What a rater said of one item."""

    position: int
    """In the rater's own order, from 1."""
    token: str
    item: Mapping[str, Any]
    left: str
    """The system shown on the left side, of a pair."""
    given: Mapping[str, Any] | None
    """By question; None for "cannot say"."""
    seconds: float

    def equal(self, right: Mapping[str, Any]) -> Iterator[_Share]:
        """Yield 100 for every answer that is as in `right`, 0 for any other."""
        for name, value in (self.given or {}).items():
            if name in right:
                yield _Share(self.item["id"], 100.0 * (value == right[name]))


def collect_ratings(
    folder: Path, files: Sequence[Path]
) -> tuple[list[dict[str, Any]], ResultTable]:
    """Return a row for each rated item, and what is known of each rater.

    From `files`, or from those that the server wrote. UsageError for other files.
    """
    key = read_key(folder)
    paths = list(files) or sorted((folder / ANSWERS).glob("*.json"))
    if not paths:
        raise UsageError(f"no rater's file is named, and {folder / ANSWERS} contains none")
    places: dict[str, Path] = {}
    rows: list[dict[str, Any]] = []
    raters = []
    for path in paths:
        rater, rated = _read(path, key)
        if rater in places:
            raise UsageError(
                f"{path} and {places[rater]} both hold answers of "
                f"{rater!r}; name one of them"
            )
        places[rater] = path
        raters.append(_rater(rater, rated, key))
        for one in rated:
            if not one.item.get("gold") and not one.item.get("again"):
                rows.append(_row(rater, one))
    pairs = key["settings"]["pairs"]
    head = ["rater", "answered", "cannot say", "gold %", "repeated %"]
    if pairs:
        head.append("left %")
    head.append("median s")
    notes = [
        "Gold: share of answers that match the gold file. Repeated: share of second "
        "answers that match the first. With 95% intervals by query; n counts queries."
    ]
    columns = [TableColumn(name, numeric=i > 0) for i, name in enumerate(head)]
    return rows, ResultTable.of("Raters", columns, raters, notes)


def annotations_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as text; columns that are empty throughout are left out."""
    columns = [*_ABOUT, "vote", "score", CRITERIA, PENALTY, *_MORE]
    used = [column for column in columns if _is_used(column, rows)]
    lines = []
    for row in rows:
        lines.append([row.get(column, "") for column in used])
    return csv_text(used, lines)


def _is_used(column: str, rows: Iterable[Mapping[str, Any]]) -> bool:
    return any(row.get(column, "") != "" for row in rows)


def _read(path: Path, key: Mapping[str, Any]) -> tuple[str, list[RatedItem]]:
    try:
        state = json.loads(path.read_text("utf-8"))
        if state["study"] != key["study"]:
            raise UsageError(f"{path} holds answers given on another page")
        return str(state["rater"]), [*_iter_rated(state, key)]
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise UsageError(f"{path} is not a rater's file of this page: {error!r}") from None


def _iter_rated(state: Mapping[str, Any], key: Mapping[str, Any]) -> Iterator[RatedItem]:
    """Yield the items of which every question is answered, in the rater's order."""
    given, seconds = _replay(state["log"])
    for position in sorted(given):
        token, swapped = state["order"][position]
        item = key["items"][token]
        answers = given[position]
        questions = key["forms"][item["form"]]["questions"]
        # The page may turn an item that the key has turned, which turns it back.
        left = "baseline" if item["flipped"] != bool(swapped) else "system"
        values: dict[str, Any] | None = None
        if answers is not None:
            if len(answers) < len(questions):
                continue
            values = {}
            for i, question in enumerate(questions):
                values[question["name"]] = _value(question, answers[i], left)
        yield RatedItem(
            position=position + 1,
            token=token,
            item=item,
            left=item[left] if item["baseline"] else "",
            given=values,
            seconds=round(seconds[position], 1),
        )


def _replay(
    log: Iterable[tuple[int, int, str, int]],
) -> tuple[dict[int, dict[int, str] | None], dict[int, float]]:
    """Return the keys pressed last by question, and the seconds spent, by position.

    None in place of keys for "cannot say", which is logged as question -1.
    """
    given: dict[int, dict[int, str] | None] = {}
    seconds: dict[int, float] = {}
    before = None
    for position, question, pressed, time_ms in log:
        answered = given.get(position) or {}
        given[position] = None if question < 0 else answered | {question: pressed}
        # At least 0, since the clock of a rater's machine may be set back.
        passed = 0.0 if before is None else max(0, time_ms - before) / 1000
        seconds[position] = seconds.get(position, 0.0) + passed
        before = time_ms
    return given, seconds


def _value(question: Mapping[str, Any], pressed: str, left: str) -> Any:
    """Return the value of a key; that of a vote by the system that was on that side."""
    if pressed not in dict(question["keys"]):
        raise ValueError(f"{pressed!r} answers no question")
    if question["name"] != "vote":
        return int(pressed)
    right = "system" if left == "baseline" else "baseline"
    return {"left": left, "right": right}.get(VOTES[pressed], VOTES[pressed])


def _row(rater: str, rated: RatedItem) -> dict[str, Any]:
    """Return a row of the CSV; criteria are in one cell, in the order of the rubric."""
    row = {name: rated.item.get(name, "") for name in _ABOUT}
    row |= {"annotator": rater, "position": rated.position, "seconds": rated.seconds}
    given = dict(rated.given or {})
    for name in ("vote", "score", PENALTY):
        row[name] = given.pop(name, "")
    row[CRITERIA] = ";".join(map(str, given.values()))
    row["shown_left"] = rated.left
    return row


def _rater(
    name: str, rated: Sequence[RatedItem], key: Mapping[str, Any]
) -> list[str | TableCell]:
    """Return the row of a rater: how much was answered, and how consistently."""
    items = key["items"]
    pairs = key["settings"]["pairs"]
    by_token = {one.token: one for one in rated}
    answered = 0
    gold: list[_Share] = []
    again: list[_Share] = []
    left: list[_Share] = []
    for one in rated:
        answered += one.given is not None
        gold += one.equal(one.item["gold"] or {})
        former = by_token.get(one.item["again"] or "")
        if former is not None:
            again += one.equal(former.given or {})
        if pairs and one.given and one.given["vote"] != "undecided":
            is_left = one.item[one.given["vote"]] == one.left
            left.append(_Share(one.item["id"], 100.0 * is_left))
    row: list[str | TableCell] = [name, f"{answered} of {len(items)}"]
    row += [str(len(rated) - answered), _share_cell(gold), _share_cell(again)]
    if pairs:
        row.append(_share_cell(left))
    # When a rater began with the first item is not known.
    spent = [one.seconds for one in rated[1:]]
    row.append(f"{statistics.median(spent):.1f}" if spent else "-")
    return row


def _share_cell(shares: Sequence[_Share]) -> TableCell:
    """Return their mean, with an interval by query."""
    if not shares:
        return TableCell.of(Estimate(None), NumberForm(0))
    queries, values = zip(*shares, strict=True)
    return TableCell.of(pooled_mean(queries, values, PERCENT), NumberForm(0), counted=True)
