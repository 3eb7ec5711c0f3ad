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
from plait.generators.system import DescribedSystem
from plait.scorers.base import Scorer

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
    by_digest = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).hexdigest())
    return by_digest[:limit]


def entries_of(board: Board, keys: Collection[str]) -> list[ReportEntry]:
    """Return the entries of some queries in the order of their first answer."""
    found: dict[str, dict[tuple[str, int], Evaluation]] = {}
    queries: dict[str, Query | Malformed] = {}
    repeats: dict[str, int] = {}
    for evaluation in board.reading(keys):
        key = key_of(evaluation.query)
        repeats[key] = max(repeats.get(key, 0), evaluation.repeat + 1)
        if evaluation.complete:
            queries.setdefault(key, evaluation.query)
            made = found.setdefault(key, {})
            made[evaluation.system, evaluation.repeat] = evaluation
    entries = []
    for key, made in found.items():
        answers = []
        for system in board.system_names:
            of_system = [made.get((system, repeat)) for repeat in range(repeats[key])]
            answers.append(tuple(of_system))
        entries.append(ReportEntry(key, queries[key], tuple(answers)))
    return entries


def index_of(board: Board, entries: Sequence[ReportEntry]) -> dict[str, Any]:
    """Return what the page needs before it can show anything."""
    groups = outcome_groups(board)
    # Texts, as a number in the place of a value is a score.
    places = {shape: str(place) for place, shape in enumerate(groups)}
    scorers = board.scorer_names
    outcomes = []
    for group in groups.values():
        scorer = scorers.index(group.scorer) if group.scorer else None
        outcomes.append([group.outcome, scorer, group.reason])
    categories = board.category_names
    fields = board.field_names
    rows = []
    for entry in entries:
        category = categories.index(entry.query.category)
        field = fields.index(entry.query.field)
        cells = []
        for of_system in entry.answers:
            cells.append([_cell(board, answer, places) for answer in of_system])
        rows.append([entry.anchor, category, field, cells])
    return {
        "systems": [*map(_facts_of_system, board.systems)],
        "order": [board.place_of_system[row["system"]] for row in rank(board)],
        "scorers": [*map(_facts_of_scorer, board.scorers)],
        "categories": categories,
        "fields": fields,
        "outcomes": outcomes,
        "entries": rows,
    }


def _facts_of_system(system: DescribedSystem) -> dict[str, Any]:
    reference = is_reference(system.name)
    return {"name": system.name, "weights": weights_of(system), "reference": reference}


def _facts_of_scorer(scorer: Scorer) -> dict[str, Any]:
    return {
        "name": scorer.name,
        "scale": scorer.scale,
        "decimals": NumberForm.of(scorer.scale).digits,
        "lower": scorer.direction == "lower",
    }


def _cell(
    board: Board, answer: Evaluation | None, places: Mapping[Shape, str]
) -> str | list[float | str]:
    """Return each scorer's value; in place of one, and of a document, what came of it.

    That is a position among the outcomes.
    """

    def place(outcome: Outcome[Any] | None, scorer: str = "") -> str:
        name, reason, fault = outcome_of(outcome)
        # What a scorer has not been asked yet counts as not made, like an answer.
        if outcome is None or not scorer:
            return places[shape_of("", name, fault, reason)]
        return places[shape_of(scorer, name.of_scores, fault, reason)]

    def score(outcome: Outcome[Score] | None, scorer: str) -> float | str:
        value = score_value(outcome)
        if value is None:
            return place(outcome, scorer)
        return round(value, 6) + 0.0  # JSON would keep the minus of -0.0.

    document = None if answer is None else answer.document
    if answer is None or not isinstance(document, Result):
        return place(document)
    return [score(answer.scores.get(name), name) for name in board.scorer_names]


def row_of(board: Board, entry: ReportEntry, numbers: Mapping[str, int]) -> dict[str, Any]:
    """Return the text of an entry, images as their numbers, which `numbers` has."""
    query = entry.query
    answers = []
    for of_system in entry.answers:
        answers.append([_answer(board, answer, numbers) for answer in of_system])
    full: dict[str, Any] = {"answers": answers}
    if isinstance(query, Malformed):
        return full | {"turns": [], "malformed": query.reason}
    full["turns"] = []
    for turn in query.turns:
        full["turns"].append([turn.role, segments_of(turn.content, numbers)])
    if query.reference is not None:
        full["truth"] = segments_of(query.reference.segments, numbers)
    if query.criteria:
        full["criteria"] = query.criteria
    return full


def segments_of(content: Content, numbers: Mapping[str, int]) -> list[str | int]:
    """Return texts, and images as their numbers."""
    shown: list[str | int] = []
    for segment in content:
        if isinstance(segment, Image):
            shown.append(numbers[segment.digest])
        else:
            shown.append(segment.text)
    return shown


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
        scores = [answer.scores.get(name) for name in board.scorer_names]
        shown["scores"] = [*map(_score, scores)]
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
    shown = {}
    if outcome.value.parts:
        shown["parts"] = plain(outcome.value.parts)
    if outcome.notes:
        shown["notes"] = plain(outcome.notes)
    return shown


def _reason(outcome: Outcome[Any] | None) -> dict[str, str]:
    words = outcome_of(outcome)
    if not words.fault:
        return {"reason": words.reason}
    return {"reason": words.reason, "fault": words.fault}


def plain(value: Any) -> Any:
    """Return `value` as JSON data; what JSON or JavaScript lacks becomes its text."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [*map(plain, value)]
    # Of larger whole numbers, such as seeds, a page would show the nearest double.
    if isinstance(value, int) and abs(value) > _LARGEST:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
