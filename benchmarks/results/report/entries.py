"""What the page shows of each query, as plain JSON data.

The index holds what filters and sorting need of every entry; the text is in chunks, which
the page loads as they come into view.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from plait.benchmarks.results.board import Board, outcome_of, score_value, weights_of
from plait.benchmarks.results.leaderboard import rank
from plait.benchmarks.results.numbers import NumberForm
from plait.benchmarks.results.reasons import Shape, outcome_groups, shape_of
from plait.benchmarks.tasks.controls import is_reference
from plait.cluster.plan import Evaluation
from plait.generators.base import Outcome, Result
from plait.generators.document import Content, Image, Malformed, Query, Score, key_of

_LARGEST = 2**53 - 1
"""JavaScript's Number.MAX_SAFE_INTEGER."""


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """One query with the answers of each system, in the board's order."""

    anchor: str
    query: Query | Malformed
    answers: tuple[tuple[Evaluation | None, ...], ...]
    """By system one for each repeat; None where it is not made yet."""

    def images(self) -> Iterator[Image]:
        """Yield every image that is shown with the query, in the order of the page."""
        if isinstance(self.query, Query):
            yield from self.query.images
        for answer in chain.from_iterable(self.answers):
            if answer is not None and isinstance(answer.document, Result):
                yield from answer.document.value.images


def keys_shown(keys: Collection[str], limit: int | None) -> list[str]:
    """Return at most `limit` of the keys of queries.

    They are chosen by the keys alone, so that pages of several runs over the same data
    show the same queries.
    """
    return sorted(keys, key=lambda k: hashlib.sha256(k.encode()).hexdigest())[:limit]


def entries_of(board: Board, keys: Collection[str]) -> list[ReportEntry]:
    """Return the entries of some queries in the order of their first answer."""
    column = {s.name: i for i, s in enumerate(board.systems)}
    found: dict[str, dict[tuple[int, int], Evaluation]] = {}
    queries: dict[str, Query | Malformed] = {}
    repeats: dict[str, int] = {}
    for e in board.reading(keys):
        key = key_of(e.sample)
        repeats[key] = max(repeats.get(key, 0), e.repeat + 1)
        if e.complete:
            queries.setdefault(key, e.sample)
            found.setdefault(key, {})[column[e.system], e.repeat] = e
    entries = []
    for key, made in found.items():
        answers = []
        for i in range(len(column)):
            answers.append(tuple(made.get((i, repeat)) for repeat in range(repeats[key])))
        entries.append(ReportEntry(key, queries[key], tuple(answers)))
    return entries


def index_of(board: Board, entries: Sequence[ReportEntry]) -> dict[str, Any]:
    """Return what the page needs before it can show anything."""
    categories = board.category_names
    fields = board.field_names
    names = [system.name for system in board.systems]
    groups = outcome_groups(board)
    scorers = [scorer.name for scorer in board.scorers]
    places = {shape: str(i) for i, shape in enumerate(groups)}
    rows = []
    for entry in entries:
        category = categories.index(entry.query.category)
        field = fields.index(entry.query.field)
        cells = []
        for of_system in entry.answers:
            cells.append([_cell(board, answer, places) for answer in of_system])
        rows.append([entry.anchor, category, field, cells])
    return {
        "systems": [
            {"name": s.name, "weights": weights_of(s), "reference": is_reference(s.name)}
            for s in board.systems
        ],
        "order": [names.index(row["system"]) for row in rank(board)],
        "scorers": [
            {
                "name": s.name,
                "scale": s.scale,
                "decimals": NumberForm.of(s.scale).digits,
                "lower": s.direction == "lower",
            }
            for s in board.scorers
        ],
        "categories": categories,
        "fields": fields,
        "outcomes": [
            [g.outcome, scorers.index(g.scorer) if g.scorer else None, g.reason]
            for g in groups.values()
        ],
        "entries": rows,
    }


def _cell(
    board: Board, answer: Evaluation | None, places: Mapping[Shape, str]
) -> str | list[float | str]:
    """Return each scorer's value; in place of one, and of a document, what came of it.

    That is a position among the outcomes.
    """

    def place(outcome: Outcome[Any] | None, scorer: str = "") -> str:
        name, reason, fault = outcome_of(outcome)
        of = "" if outcome is None else scorer
        return places[shape_of(of, name.of_scores if of else name, fault, reason)]

    def score(outcome: Outcome[Score] | None, scorer: str) -> float | str:
        value = score_value(outcome)
        if value is None:
            return place(outcome, scorer)
        return round(value, 6) + 0.0  # JSON would keep the minus of -0.0.

    document = None if answer is None else answer.document
    if answer is None or not isinstance(document, Result):
        return place(document)
    return [score(answer.scores.get(s.name), s.name) for s in board.scorers]


def row_of(board: Board, entry: ReportEntry, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Return the text of an entry, images as their numbers, which `numbers` has."""
    query = entry.query
    answers = []
    for of_system in entry.answers:
        answers.append([_answer(board, answer, numbers) for answer in of_system])
    full: dict[str, Any] = {"answers": answers}
    if isinstance(query, Malformed):
        return full | {"turns": [], "malformed": query.reason}
    full["turns"] = [[t.role, segments_of(t.content, numbers)] for t in query.turns]
    if query.reference is not None:
        full["truth"] = segments_of(query.reference.segments, numbers)
    if query.criteria:
        full["criteria"] = query.criteria
    return full


def segments_of(content: Content, numbers: Mapping[str, int]) -> list[str | int]:
    """Return texts, and images as their numbers."""
    return [numbers[s.digest] if isinstance(s, Image) else s.text for s in content]


def _answer(
    board: Board, answer: Evaluation | None, numbers: Mapping[str, int]
) -> dict[str, Any] | None:
    if answer is None:
        return None
    document = answer.document
    shown = dict[str, Any]()
    if isinstance(document, Result):
        shown["segments"] = segments_of(document.value.segments, numbers)
        if document.value.ends:
            shown["ends"] = list(document.value.ends)
        shown["scores"] = [_score(answer.scores.get(s.name)) for s in board.scorers]
    else:
        shown |= _reason(document)
    if notes := getattr(document, "notes", None):
        shown["notes"] = plain(notes)
    return shown


def _score(outcome: Outcome[Score] | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    if not isinstance(outcome, Result):
        return _reason(outcome)
    shown = {"parts": plain(outcome.value.parts), "notes": plain(outcome.notes)}
    return {k: v for k, v in shown.items() if v}


def _reason(outcome: Outcome[Any] | None) -> dict[str, str]:
    _, reason, fault = outcome_of(outcome)
    return {"reason": reason, "fault": fault} if fault else {"reason": reason}


def plain(value: Any) -> Any:
    """Return `value` as JSON data; what JSON or JavaScript lacks becomes its text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    # Of larger whole numbers, such as seeds, a page would show the nearest double.
    if isinstance(value, int) and abs(value) > _LARGEST:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
