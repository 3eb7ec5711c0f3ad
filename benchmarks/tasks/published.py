"""A task set: what readers make of a file's rows, and its published answers as systems.

Answers that a benchmark publishes beside its questions are systems without stages, under
the name `published:NAME`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from benchmarks.tasks.reading.rules import RowError, Rule, of_type, shown
from generators.base import Failure, Fault, Skip
from generators.document import Document, Malformed, Sample, Turn, changed
from generators.names import unknown
from generators.system import Prompter, System, Variant
from generators.unicode import trouble

V = TypeVar("V")
Answer = Document | Skip | Failure
"""A given answer, or why there is none."""
PREFIX = "published:"
UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    """Queries, and what a run needs to know about them.

    Your own task set is a function that returns one, named as `module:function`; its
    module is in the current folder or installed:

        def queries() -> TaskSet:
            turns = (Turn("user", (Text("Draw a cat."),)),)
            query = Sample(id="cat", category="SA", field="Animals", turns=turns)
            return TaskSet(name="mine", samples=(query,), prompt=as_asked,
                           categories={}, fields=("Animals",), about={})

    where `as_asked` of this module puts no words around the question.
    """

    name: str
    samples: tuple[Sample | Malformed, ...]
    """In file order."""
    prompt: Prompter
    categories: Mapping[str, int]
    """Queries per category in the published set, the weights of `avg_fixed`; empty for
    a task set without fixed weights."""
    fields: tuple[str, ...]
    """In the order of the paper's table."""
    about: Mapping[str, Any]
    """For the manifest: source, revision, digests, row counts."""
    answers: Mapping[str, Mapping[str, Answer]] = field(default_factory=dict)
    """Answers published with the queries, by model and query."""


class RowGroup(NamedTuple):
    """Id and group as a row states them, whether or not it keeps the rules."""

    id: str | None
    category: str = UNKNOWN
    field: str = UNKNOWN


@dataclass(frozen=True, slots=True)
class ValidRow:
    """A row that keeps all rules."""

    query: Sample
    answers: Mapping[str, Answer] = field(default_factory=dict)
    """Published answers by model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRows:
    """All rows of a file."""

    samples: tuple[Sample | Malformed, ...]
    """In file order."""
    answers: Mapping[str, Mapping[str, Answer]] = field(default_factory=dict)
    """Published answers by model and query."""
    broken: Mapping[str, int] = field(default_factory=dict)
    """Malformed rows by the rule they break."""

    @property
    def published(self) -> dict[str, int]:
        """Return how many answers each model has published."""
        return {writer: len(answers) for writer, answers in self.answers.items()}


def gathered(
    values: Iterable[V], make: Callable[[V], ValidRow], known: Callable[[V], RowGroup]
) -> TaskRows:
    """Make rows of `values`; one that breaks a rule becomes a failure, the others run.

    `make` raises RowError. Of rows with the same id only the first is used.
    """
    queries: list[Sample | Malformed] = []
    answers: dict[str, dict[str, Answer]] = {}
    broken, first = Counter[str](), dict[str, int]()
    for i, value in enumerate(values):
        group = known(value)
        try:
            _claim(first, group.id, i)
            entry = make(value)
            _claim(first, entry.query.id, i)
        except RowError as error:
            queries.append(malformed(i, group, error))
            broken[error.rule.value] += 1
            continue
        queries.append(entry.query)
        for writer, document in entry.answers.items():
            answers.setdefault(writer, {})[entry.query.id] = document
    return TaskRows(
        samples=tuple(queries), answers=answers, broken=dict(sorted(broken.items()))
    )


def answers_by_query(
    rows: Iterable[Any],
    source: str,
    id_of: Callable[[Mapping[str, Any]], str],
    answer: Callable[[Mapping[str, Any]], Document],
) -> dict[str, Answer]:
    """Return the answers in the file `source` by query; a broken rule is a failure."""
    answers = dict[str, Answer]()
    for i, value in enumerate(rows):
        id = f"row-{i}"
        try:
            row = of_type(value, dict, "the answer")
            id = id_of(row)
            if id in answers:
                raise RowError(Rule.DUPLICATE, "an earlier answer has the id already")
            answers[id] = answer(row)
        except RowError as error:
            answers[id] = Failure(f"{source}, answer {i}: {error}", Fault.BAD_INPUT)
    return answers


def _claim(first: dict[str, int], id: str | None, row: int) -> None:
    if id is not None and (known := first.setdefault(id, row)) != row:
        raise RowError(Rule.DUPLICATE, f"row {known} has {id!r} already")


def malformed(row: int, group: RowGroup, error: RowError) -> Malformed:
    """Return the failure in place of row `row` (from 0): it names row, rule and value."""
    name = f"row {row} ({group.id})" if group.id else f"row {row}"
    return Malformed(
        # A second row with an id must not be mistaken for the first.
        id=group.id if group.id and error.rule is not Rule.DUPLICATE else f"row-{row}",
        row=row,
        reason=f"{name}: {error.rule.value}: {error.detail}",
        category=group.category,
        field=group.field,
    )


def unicode_only(query: Sample | Malformed, row: int) -> Sample | Malformed:
    """Return the query at `row`, or a failure where a text of it is not Unicode."""

    def check(text: str) -> str:
        if wrong := trouble(text):
            raise RowError(Rule.NOT_UNICODE, f"{shown(text)} has {wrong}")
        return text

    try:
        changed(query, str, check)
    except RowError as error:
        id, *known = (
            text if text.isprintable() else None
            for text in (query.id, query.category, query.field)
        )
        return malformed(row, RowGroup(id, *(text or UNKNOWN for text in known)), error)
    return query


def as_asked(sample: Sample, variant: Variant) -> tuple[Turn, ...]:
    """Return the question as published, with no words added."""
    return sample.turns


def task_set(
    name: str,
    source: str,
    rows: TaskRows,
    *,
    digest: str,
    revision: str | None = None,
    prompt: Prompter = as_asked,
    categories: Mapping[str, int] | None = None,
    fields: tuple[str, ...] | None = None,
    **about: Any,
) -> TaskSet:
    """Return the task set of `rows`; `about` is what else the manifest says of it.

    Without `fields`, they stand in the order in which they occur.
    """
    found = (s.field for s in rows.samples if isinstance(s, Sample) and s.field)
    common = {
        "name": name,
        "source": source,
        "revision": revision,
        "digest": digest,
        "rows": len(rows.samples),
        "malformed": dict(rows.broken),
    }
    return TaskSet(
        name=name,
        samples=rows.samples,
        prompt=prompt,
        categories=categories or {},
        fields=tuple(dict.fromkeys(found)) if fields is None else fields,
        about=common | about,
        answers=rows.answers,
    )


def is_published(name: str) -> bool:
    """Return whether `name` names the published answers of some model."""
    return name.startswith(PREFIX)


def published(name: str, task: TaskSet) -> System:
    """Return the system `published:WRITER`; UsageError names the valid ones."""
    valid = {f"{PREFIX}{writer}": answers for writer, answers in task.answers.items()}
    if name not in valid:
        raise unknown(f"published answers of {task.name}", name, valid)
    return System(name=name, draft=None, answers=valid[name], lvlm=name[len(PREFIX) :])
