"""What the page shows of each query, as plain JSON data.

The index holds what filters and sorting need of every entry; the text is in chunks, which
the page loads as they come into view.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.results.board import Board, score_value, weights_of
from benchmarks.results.numbers import NumberForm
from cluster.plan import Evaluation
from generators.base import Failure, Outcome, OutcomeName, Result, outcome_name
from generators.document import Content, Image, Malformed, Sample, Score, key_of
from scorers.base import bounds

MISSING = "m"
_CODES = {
    OutcomeName.FAILED: "f",
    OutcomeName.SKIPPED: "s",
    OutcomeName.UNSCORED: "u",
    OutcomeName.NOT_APPLICABLE: "n",
}


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """One query (and repeat) with the answer of each system, in the board's order."""

    anchor: str
    sample: Sample | Malformed
    repeat: int
    answers: tuple[Evaluation | None, ...]

    def pictures(self) -> Iterator[Image]:
        """Every picture that is shown with the query, in the order of the page."""
        if isinstance(self.sample, Sample):
            for turn in self.sample.turns:
                yield from (s for s in turn.content if isinstance(s, Image))
            if self.sample.reference is not None:
                yield from self.sample.reference.images
        for answer in self.answers:
            if answer is not None and isinstance(answer.document, Result):
                yield from answer.document.value.images


def entries_of(board: Board, limit: int | None = None) -> list[ReportEntry]:
    """Entries in the order of their first answer; of all queries, or of at most `limit`.

    The selection depends on the queries' keys alone, so that pages of several runs over
    the same data show the same queries.
    """
    column = {s.name: i for i, s in enumerate(board.systems)}
    shown = set(board.keys if limit is None else sorted(board.keys, key=_digest)[:limit])
    rows: dict[tuple[str, int], list[Evaluation | None]] = {}
    samples: dict[str, Sample | Malformed] = {}
    for e in board.reading(shown):
        if e.complete:
            key = key_of(e.sample)
            samples.setdefault(key, e.sample)
            rows.setdefault((key, e.repeat), [None] * len(column))[column[e.system]] = e
    return [
        ReportEntry(
            f"{key}~{repeat + 1}" if repeat else key, samples[key], repeat, tuple(answers)
        )
        for (key, repeat), answers in rows.items()
    ]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def index_of(board: Board, entries: Sequence[ReportEntry]) -> dict[str, Any]:
    """What the page needs before it can show anything."""
    categories, fields = board.category_names, board.field_names
    names = [s.name for s in board.scorers]
    return {
        "repeats": board.rounds,
        "systems": [{"name": s.name, "weights": weights_of(s)} for s in board.systems],
        "scorers": [_scorer(s.name, s.scale) for s in board.scorers],
        "categories": categories,
        "fields": fields,
        "entries": [
            [
                entry.anchor,
                categories.index(entry.sample.category),
                fields.index(entry.sample.field),
                [_cell(answer, names) for answer in entry.answers],
            ]
            for entry in entries
        ],
    }


def _scorer(name: str, scale: str) -> dict[str, Any]:
    low, high = bounds(scale) or (None, None)
    about = {"name": name, "scale": scale, "low": low, "high": high}
    return about | {"decimals": NumberForm.of(scale).digits}


def _cell(answer: Evaluation | None, scorers: Sequence[str]) -> str | list[float | str]:
    """The document's outcome where it is not done, else each scorer's value or outcome."""
    if answer is None or answer.document is None:
        return MISSING
    if not isinstance(answer.document, Result):
        return _CODES.get(outcome_name(answer.document), "f")
    return [_score_code(answer.scores.get(name)) for name in scorers]


def _score_code(outcome: Outcome[Score] | None) -> float | str:
    if outcome is None:
        return MISSING
    value = score_value(outcome)
    if value is not None:
        return round(value, 6) + 0.0
    return _CODES.get(outcome_name(outcome), "u")


def row_of(board: Board, entry: ReportEntry, numbers: Mapping[str, int]) -> dict[str, Any]:
    """The text of an entry; each picture as its number, which `numbers` gives by digest."""
    sample = entry.sample
    names = [s.name for s in board.scorers]
    answers = [_answer(a, names, numbers) for a in entry.answers]
    full: dict[str, Any] = {"repeat": entry.repeat, "answers": answers}
    if isinstance(sample, Malformed):
        return full | {"turns": [], "malformed": sample.reason}
    full["turns"] = [[t.role, _segments(t.content, numbers)] for t in sample.turns]
    if sample.reference is not None:
        full["truth"] = _segments(sample.reference.segments, numbers)
    if sample.criteria:
        full["criteria"] = sample.criteria
    return full


def _segments(content: Content, numbers: Mapping[str, int]) -> list[str | int]:
    return [numbers[s.digest] if isinstance(s, Image) else s.text for s in content]


def _answer(
    answer: Evaluation | None, scorers: Sequence[str], numbers: Mapping[str, int]
) -> dict[str, Any] | None:
    if answer is None:
        return None
    document = answer.document
    shown: dict[str, Any] = {}
    if isinstance(document, Result):
        shown["segments"] = _segments(document.value.segments, numbers)
        if document.value.ends:
            shown["ends"] = list(document.value.ends)
        shown["scores"] = [_score(answer.scores.get(name)) for name in scorers]
    else:
        shown |= _reason(document)
    if notes := getattr(document, "notes", None):
        shown["notes"] = plain(notes)
        if order := _order(notes):
            shown["order"] = order
    return shown


def _order(notes: Mapping[str, Any]) -> str | None:
    """What a stage noted about the order of text and pictures, if it is not known."""
    for records in notes.values():
        for record in records if isinstance(records, list) else ():
            if isinstance(record, Mapping) and record.get("order"):
                return str(record["order"])
    return None


def _score(outcome: Outcome[Score] | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    if not isinstance(outcome, Result):
        return _reason(outcome)
    shown = {"parts": plain(outcome.value.parts), "notes": plain(outcome.notes)}
    if score_value(outcome) is None:
        shown["reason"] = f"the score {outcome.value.value} is not a finite number"
    return {k: v for k, v in shown.items() if v}


def _reason(outcome: Any) -> dict[str, Any]:
    about = {"reason": outcome.reason}
    if isinstance(outcome, Failure):
        about["fault"] = outcome.fault.value
    return about


def plain(value: Any) -> Any:
    """`value` as JSON data; numbers JSON lacks and foreign objects become their text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)
