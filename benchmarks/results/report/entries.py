"""What the page shows of each query, as plain JSON data.

The index holds what filters and sorting need of every entry; the text is in chunks, which
the page loads as they come into view.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.results.board import Board, key_of, score_outcome, score_value, weights_of
from benchmarks.results.report.gallery import Shown
from benchmarks.results.wording import decimals
from cluster.plan import Evaluation, outcome_name
from generators.base import Failure, Outcome, Result
from generators.document import Content, Document, Image, Malformed, Sample, Score
from scorers.base import bounds

CHUNK = 20
"""Entries in one data file."""
MISSING = "m"
_DOCUMENT_CODES = {"failed": "f", "skipped": "s"}
_SCORE_CODES = {
    "unscored": "u",
    "not_applicable": "n",
    "failed_scores": "f",
    "skipped_scores": "s",
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
    rows: dict[tuple[str, int], list[Evaluation | None]] = {}
    samples: dict[str, Sample | Malformed] = {}
    for e in board.evaluations:
        key = key_of(e.sample)
        samples.setdefault(key, e.sample)
        rows.setdefault((key, e.repeat), [None] * len(column))[column[e.system]] = e
    shown = set(samples if limit is None else sorted(samples, key=_digest)[:limit])
    return [
        ReportEntry(
            f"{key}~{repeat + 1}" if repeat else key, samples[key], repeat, tuple(answers)
        )
        for (key, repeat), answers in rows.items()
        if key in shown
    ]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def index_of(board: Board, entries: Sequence[ReportEntry]) -> dict[str, Any]:
    """What the page needs before it can show anything."""
    categories, fields = board.category_names, board.field_names
    names = [s.name for s in board.scorers]
    return {
        "chunk": CHUNK,
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
    return about | {"decimals": decimals(scale)}


def _cell(answer: Evaluation | None, scorers: Sequence[str]) -> str | list[float | str]:
    """The document's outcome where it is not done, else each scorer's value or outcome."""
    if answer is None:
        return MISSING
    if not isinstance(answer.document, Result):
        return _DOCUMENT_CODES.get(outcome_name(answer.document), "f")
    return [_score_code(answer.scores.get(name)) for name in scorers]


def _score_code(outcome: Outcome[Score] | None) -> float | str:
    if outcome is None:
        return MISSING
    value = score_value(outcome)
    return _SCORE_CODES[score_outcome(outcome)] if value is None else round(value, 6)


def chunk_of(
    board: Board, entries: Sequence[ReportEntry], pictures: Mapping[str, Shown]
) -> list[dict[str, Any]]:
    """The text of some entries, and the paths of their pictures."""
    return [_full(board, entry, pictures) for entry in entries]


def _full(
    board: Board, entry: ReportEntry, pictures: Mapping[str, Shown]
) -> dict[str, Any]:
    sample = entry.sample
    names = [s.name for s in board.scorers]
    answers = [_answer(a, names, pictures) for a in entry.answers]
    full: dict[str, Any] = {"repeat": entry.repeat, "answers": answers}
    if isinstance(sample, Malformed):
        return full | {"turns": [], "malformed": sample.reason}
    full["turns"] = [[t.role, _segments(t.content, pictures)] for t in sample.turns]
    if sample.reference is not None:
        full["truth"] = _segments(sample.reference.segments, pictures)
    if sample.criteria:
        full["criteria"] = sample.criteria
    return full


def _segments(content: Content, pictures: Mapping[str, Shown]) -> list[Any]:
    """Text as strings, pictures as `_picture` gives them."""
    return [
        _picture(pictures[s.digest]) if isinstance(s, Image) else s.text for s in content
    ]


def _picture(shown: Shown) -> list[Any]:
    """[thumbnail, width, height, full size], or [None, why there is none]."""
    if shown.thumb is None:
        return [None, shown.problem]
    return [shown.thumb, shown.width, shown.height, shown.full]


def _answer(
    answer: Evaluation | None, scorers: Sequence[str], pictures: Mapping[str, Shown]
) -> dict[str, Any] | None:
    if answer is None:
        return None
    document: Outcome[Document] = answer.document
    shown: dict[str, Any] = {}
    if isinstance(document, Result):
        shown["segments"] = _segments(document.value.segments, pictures)
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


def as_script(call: str, *arguments: Any) -> str:
    """A script that hands `arguments` to `call`.

    Pages opened from disk may load scripts but may not fetch. Everything outside ASCII is
    escaped, and so is `<`: no text can end the script or be read as markup.
    """
    texts = (json.dumps(a, separators=(",", ":"), allow_nan=False) for a in arguments)
    return f"{call}({','.join(texts)});\n".replace("<", "\\u003c")
