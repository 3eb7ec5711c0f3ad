"""What a judge by a rubric of the user's own is asked, and what its replies say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plait.generators.content import join_texts
from plait.generators.document import Content, Document, Image, Query, Text, Turn
from plait.generators.replies import find_objects, plain_key, statements_of
from plait.scorers.judging.judge import Question
from plait.scorers.judging.pages import UNKNOWN, Pages
from plait.scorers.judging.replies import Unreadable, object_schema
from plait.scorers.judging.rubrics import WORDING
from plait.scorers.judging.statements import find_values
from plait.scorers.judging.user_rubric import (
    CategoryRubric,
    Criterion,
    ReadRubric,
    Shown,
    ShownExample,
    criteria_of_query,
)
from plait.scorers.judging.voice import own_texts, plain_marks

_WORDS: Mapping[str, str] = WORDING["users"]
_LISTED = "verdicts"
_NAMED = "criterion"
_REASON = "reason"
_SCORE = "score"
"""Keys of a reply in JSON."""


@dataclass(frozen=True)
class Verdicts:
    """What one reply says of the criteria that it was asked about."""

    values: Mapping[str, float]
    reasons: Mapping[str, str]


@dataclass(frozen=True)
class AskedCriteria:
    """The criteria that are shown the same, in one request."""

    show: tuple[Shown, ...]
    criteria: tuple[Criterion, ...]


@dataclass(frozen=True)
class UserExaminer:
    """Asks about documents by a user's own rubric, and reads the replies."""

    rubric: ReadRubric
    max_images: int | None = None

    def group_criteria(self, own: CategoryRubric, query: Query) -> list[AskedCriteria]:
        """Return what each request asks; ValueError for wrong criteria of the query."""
        single = []
        groups: dict[tuple[Shown, ...], list[Criterion]] = {}
        for criterion in self.criteria_of(own, query):
            show = own.parts_to_show(criterion)
            single.append(AskedCriteria(show, (criterion,)))
            groups.setdefault(show, []).append(criterion)
        if not self.rubric.together:
            return single
        return [AskedCriteria(show, tuple(group)) for show, group in groups.items()]

    def criteria_of(self, own: CategoryRubric, query: Query) -> tuple[Criterion, ...]:
        """Return the rubric's criteria, then the query's; ValueError for wrong ones."""
        if (usual := self.rubric.query_criteria) is None:
            return own.criteria
        criteria = (*own.criteria, *criteria_of_query(query, usual))
        seen: set[str] = set()
        for criterion in criteria:
            if (key := plain_key(criterion.name)) in seen:
                raise ValueError(f"two criteria have the name {criterion.name!r}")
            seen.add(key)
        return criteria

    def ask(
        self,
        own: CategoryRubric,
        asked: AskedCriteria,
        query: Query,
        document: Document,
        pages: Pages,
    ) -> Question:
        """Return one request; what is the same for all answers to a query comes first."""
        head = self._head(own, asked.criteria)
        turns: list[Turn] = []
        for example in own.examples:
            shown = _case(asked.show, Pages(None), example)
            turns.append(Turn("user", join_texts([Text(head), *shown])))
            reply = self._reply(asked.criteria, example)
            turns.append(Turn("assistant", (Text(reply),)))
            # The task stands before the first case alone.
            head = ""
        case = ShownExample(query.question, document, query.reference, {}, {})
        shown = _case(asked.show, pages, case)
        turns.append(Turn("user", join_texts([Text(head), *shown])))
        about = f"{self.rubric.digest} {query.id} {' '.join(asked.show)}"
        return Question(about, tuple(turns), asked.criteria)

    def _head(self, own: CategoryRubric, criteria: Sequence[Criterion]) -> str:
        """Return the task, the criteria, and how a reply must look."""
        lines = []
        for criterion in criteria:
            lines.append(f"- {criterion.name} ({criterion.form}): {criterion.question}")
        asked = "\n".join(lines)
        reply = _WORDS["text" if self.rubric.reply == "text" else "json"]
        rules = f"{_WORDS['rules']}{_WORDS['criteria']}{asked}{reply}"
        return f"{own.task}\n\n{rules}{self._form(criteria)}\n\n"

    def _form(self, criteria: Sequence[Criterion]) -> str:
        """Return how a reply must look, with the valid values in place of some."""
        if self.rubric.reply == "text":
            lines = [f"{criterion.name}: <{_in_text(criterion)}>" for criterion in criteria]
            return "\n".join(lines)
        rows = []
        for criterion in criteria:
            rows.append(
                f'{{"{_NAMED}": {_quote(criterion.name)}, '
                f'"{_REASON}": "{_WORDS["reason"]}", "{_SCORE}": {_in_json(criterion)}}}'
            )
        return f'{{"{_LISTED}": [{", ".join(rows)}]}}'

    def _reply(self, criteria: Sequence[Criterion], example: ShownExample) -> str:
        """Return the reply that an example holds."""
        names = [criterion.name for criterion in criteria]
        if self.rubric.reply == "text":
            return "\n".join(f"{name}: {example.scores[name]:g}" for name in names)
        rows = []
        for criterion in criteria:
            name = criterion.name
            row = {
                _NAMED: name,
                _REASON: example.reasons.get(name, ""),
                _SCORE: criterion.in_reply(example.scores[name]),
            }
            rows.append(row)
        return json.dumps({_LISTED: rows}, ensure_ascii=False)

    def ask_for_form(self, question: Question) -> str:
        """Return the sentence of a follow-up question that says how to reply."""
        kind = "line for each criterion" if self.rubric.reply == "text" else "JSON object"
        form = self._form(question.criteria)
        return f"Reply with one {kind} and nothing else, in this form:\n{form}"

    def read(self, question: Question, reply: str) -> Verdicts | Unreadable:
        """Return what a reply says of the criteria that were asked about."""
        criteria: tuple[Criterion, ...] = question.criteria
        said = dict(_read_list(reply))
        by_lines = self.rubric.reply == "text" and not said
        lines = _read_lines(reply, criteria) if by_lines else {}
        values: dict[str, float] = {}
        reasons: dict[str, str] = {}
        wrong: list[str] = []
        for criterion in criteria:
            name = criterion.name
            # The form that was asked for goes before a key of the criterion's name.
            found = (
                said.get(plain_key(name)) or lines.get(name) or statements_of(reply, name)
            )
            readings = {criterion.value_of(_score_in(value)) for value in found}
            value = readings.pop() if len(readings) == 1 else None
            if value is None:
                wrong.append(_problem(criterion, found))
                continue
            values[name] = value
            reasons[name] = _reason_in(found)
        return Unreadable("; ".join(wrong)) if wrong else Verdicts(values, reasons)


def schema_of(rubric: ReadRubric) -> Mapping[str, Any]:
    """Return the JSON schema of all replies by a rubric, whatever they are asked about."""
    number = {"type": "number"}
    words = {"type": "string", "enum": ["yes", "no"]}
    kinds = {criterion.is_yes_no for criterion in rubric.criteria}
    score: Mapping[str, Any] = {"anyOf": [number, words]}
    if rubric.query_criteria is None and len(kinds) == 1:
        score = words if kinds == {True} else number
    text = {"type": "string"}
    row = object_schema(**{_NAMED: text, _REASON: text, _SCORE: score})
    return object_schema(**{_LISTED: {"type": "array", "items": row}})


def _case(
    show: Sequence[Shown], pages: Pages, case: ShownExample
) -> Iterator[Text | Image]:
    """Yield a question and an answer as the judge is shown them."""
    asked = _kinds(case.question, "question" in show, "question-images" in show)
    given = _kinds(case.answer.segments, "answer-text" in show, "answer-images" in show)
    if {"question", "question-images"} & {*show}:
        yield Text(_WORDS["question"])
        yield from pages.write(asked)
    if "reference" in show:
        yield Text(_WORDS["reference"])
        known = case.reference.segments if case.reference else (Text(UNKNOWN),)
        yield from pages.write(known)
    if {"answer-text", "answer-images"} & {*show}:
        yield Text(_WORDS["answer"])
        yield from pages.write(given)


def _kinds(content: Content, texts: bool, images: bool) -> Content:
    """Return the texts of a content, its images, or both."""
    kept = []
    for segment in content:
        is_shown = texts if isinstance(segment, Text) else images
        if is_shown:
            kept.append(segment)
    return tuple(kept)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _in_json(criterion: Criterion) -> str:
    return f'"<{criterion.form}>"' if criterion.is_yes_no else f"<{criterion.form}>"


def _in_text(criterion: Criterion) -> str:
    return "1 or 0" if criterion.is_yes_no else criterion.form


def _read_list(reply: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield what a reply says under `verdicts`: by plain name, all that has this name.

    The list may be all of the reply, or its one verdict.
    """
    lists = statements_of(reply, _LISTED)
    rows = lists[0] if len(lists) == 1 and isinstance(lists[0], list) else []
    if not lists:
        objects, broken = find_objects(reply)
        rows = [] if broken else [one.content for one in objects if one.told]
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        if isinstance(row, Mapping) and row.keys() >= {_NAMED, _SCORE}:
            by_name.setdefault(plain_key(str(row[_NAMED])), []).append(row)
    yield from by_name.items()


def _read_lines(reply: str, criteria: Sequence[Criterion]) -> Mapping[str, list[str]]:
    names = [criterion.name for criterion in criteria]
    lines: Mapping[str, list[str]] = {}
    for text in own_texts(plain_marks(reply)):
        lines = find_values(text, names, None)
        if any(lines[name] for name in names):
            break
    return lines


def _score_in(value: Any) -> Any:
    return value.get(_SCORE, value) if isinstance(value, Mapping) else value


def _reason_in(found: Sequence[Any]) -> str:
    """Return the first reason that is a text; empty where there is none."""
    for row in found:
        reason = row.get(_REASON) if isinstance(row, Mapping) else None
        if isinstance(reason, str):
            return reason
    return ""


def _problem(criterion: Criterion, found: Sequence[Any]) -> str:
    if not found:
        return f"there is no verdict on {criterion.name!r}"
    said = " and as ".join(repr(_score_in(value)) for value in found)
    return f"{criterion.name!r} is stated as {said}, not {criterion.form}"
