"""A task set: what readers make of a file's rows, and its published answers as systems.

Answers that a benchmark publishes beside its questions are systems without stages, under
the name `published:NAME`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from plait.benchmarks.tasks.reading.rules import (
    Row,
    RowError,
    Rule,
    brief,
    id_text,
    is_id,
    of_type,
)
from plait.benchmarks.tasks.reading.sources import Located, digest_of
from plait.benchmarks.tasks.row_tables import IdTable
from plait.benchmarks.wording import quantity
from plait.generators.base import Failure, Fault, Skip
from plait.generators.document import (
    Content,
    Document,
    Malformed,
    Query,
    Text,
    Turn,
    parts_of,
    replace_parts,
)
from plait.generators.former import former_names
from plait.generators.given import GivenAnswers
from plait.generators.names import unknown
from plait.generators.spool import Spool
from plait.generators.system import Prompter, Variant
from plait.generators.unicode import trouble

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
            query = Query(id="cat", category="SA", field="Animals", turns=turns)
            return TaskSet(name="mine", samples=(query,), prompt=as_asked,
                           categories={}, fields=("Animals",), about={})

    where `as_asked` of this module puts no words around the question.
    """

    name: str
    samples: Sequence[Query | Malformed]
    """In file order. Of many, each is read where it is asked for: go through them once, and
    keep none."""
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


class RowPlace(str):
    """Stands in place of the id of an answer whose row has none, and says which row."""


class RowGroup(NamedTuple):
    """Id and group as a row states them, whether or not it keeps the rules."""

    id: str | None
    category: str = UNKNOWN
    field: str = UNKNOWN
    place: str = ""
    """Where the row stands, such as `data.jsonl, line 4`; empty for its number alone."""

    @classmethod
    def of(
        cls, row: Any, id: str, category: str = "", field: str = "", numbers: bool = False
    ) -> RowGroup:
        """Return what a row has under these keys; with `numbers`, ids may be numbers."""
        own = id_text(row.get(id), numbers) if isinstance(row, Mapping) else None
        groups = (text_of(row, key) for key in (category, field))
        return cls(own if is_id(own) else None, *groups)


def text_of(row: Any, key: str) -> str:
    """Return a string of a row that may break any rule; UNKNOWN where it has none."""
    text = row.get(key) if isinstance(row, Mapping) else None
    return text if isinstance(text, str) and text else UNKNOWN


def groups_by_member(groups: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the group of each member."""
    group_of = {}
    for group, members in groups.items():
        for member in members:
            group_of[member] = group
    return group_of


Answers = Mapping[str, Mapping[str, Answer]]
"""By model and query."""


class ValidRow(NamedTuple):
    """A row that keeps all rules."""

    query: Query
    answers: Mapping[str, Answer] = MappingProxyType({})
    """Published answers by model."""


class TaskRows(NamedTuple):
    """All rows of a file."""

    samples: Sequence[Query | Malformed]
    """In file order."""
    fields: Sequence[str]
    """Those of queries, in the order in which they occur."""
    answers: Answers
    """Published ones."""
    broken: Mapping[str, int]
    """Malformed rows by the rule they break."""


@dataclass(frozen=True, slots=True)
class RowReader(Generic[V]):
    """The values that stand for rows, and how queries are made of them."""

    values: Iterable[V]
    make: Callable[[V], Query | ValidRow]
    """Raises RowError for a value that breaks a rule."""
    group_of: Callable[[V], RowGroup]
    """What can be told of any value, also of one that breaks a rule."""
    answers: Answers = field(default_factory=dict)
    """From other files than the rows, by model and query id."""


def gather(
    values: Iterable[V],
    make: Callable[[V], Query | ValidRow],
    known: Callable[[V], RowGroup],
    answers: Answers = MappingProxyType({}),
) -> TaskRows:
    """Make queries of all values; one that breaks a rule becomes a failure, others run.

    `make` raises RowError for such a value, of which `known` still gives what can be told.
    Of values with the same id only the first is used, and of answers those to the queries.
    """
    return gather_rows(RowReader(values, make, known, answers))


def gather_rows(reader: RowReader[V]) -> TaskRows:
    """Do what `gather` does, as a reader says how."""
    queries = Spool[Query | Malformed]("queries")
    places = Spool[str]("places of rows")
    claims = _Claims(places)
    published = _PublishedAnswers(reader.answers)
    broken = Counter[str]()
    refused = 0
    fields = dict[str, None]()
    for number, value in enumerate(reader.values):
        group = reader.group_of(value)
        places.append(group.place or f"row {number}")
        row: Query | Malformed
        try:
            made = _make_row(reader, value, group, claims)
        except RowError as error:
            row = malformed_row(number, group, error)
            broken[error.rule.value] += 1
            # Of some malformed rows a benchmark has released answers all the same.
            if error.released is not None:
                published.add(error.released.id, {})
        else:
            row = made.query
            if row.field:
                fields[row.field] = None
            published.add(row.id, made.answers)
        # One look at all texts together, since almost no row has trouble in any.
        valid = unicode_only(row, number) if trouble("".join(_texts_of(row))) else row
        refused += valid is not row
        queries.append(valid)
    rules = Counter(dict(sorted(broken.items())))
    rules[Rule.NOT_UNICODE.value] += refused
    # The plus leaves out rules that no row breaks.
    return TaskRows(queries.values, [*fields], published.answers, dict(+rules))


def _make_row(reader: RowReader[V], value: V, group: RowGroup, claims: _Claims) -> ValidRow:
    """Return the query of a value; RowError where it breaks a rule or its id is taken."""
    claims.add(group.id)
    made = reader.make(value)
    row = made if isinstance(made, ValidRow) else ValidRow(made)
    # Some readers make the id only with the query.
    if row.query.id != group.id:
        claims.add(row.query.id)
    return row


class _PublishedAnswers:
    """The answers to the queries that there are, by writer and query id."""

    def __init__(self, given: Answers) -> None:
        """`given` are those of other files than the rows."""
        self.answers: dict[str, dict[str, Answer]] = {}
        self._given = given
        self._lost: dict[str, Failure | None] = {}
        for writer, by_id in given.items():
            self._lost[writer] = failure_of_lost_answers(by_id, writer)

    def add(self, id: str, own: Mapping[str, Answer]) -> None:
        """Add all answers to a query; those of its `own` row go before others."""
        answers: dict[str, Answer | None] = {}
        for writer, by_id in self._given.items():
            answers[writer] = by_id.get(id, self._lost[writer])
        answers.update(own)
        for writer, answer in answers.items():
            if answer is not None:
                self.answers.setdefault(writer, {})[id] = answer


def answers_by_query(
    rows: Iterable[Any],
    source: str,
    answer: Callable[[Row], Document],
    *,
    numbers: bool = False,
) -> dict[str, Answer]:
    """Return the answers in the file `source` by query; a broken rule is a failure.

    Where the row has no id, it stands under a `RowPlace`.
    """
    answers = dict[str, Answer]()
    again = RowError(Rule.DUPLICATE, "an earlier answer has the id already")
    for i, value in enumerate(rows):
        id: str = RowPlace(f"row-{i}")
        where = f"{source}, answer {i}"
        try:
            row = Row(of_type(value, dict, "the answer"))
            id = row.id(numbers=numbers)
            given: Answer = answer(row)
        except RowError as error:
            given = Failure(f"{where}: {error}", Fault.BAD_INPUT)
        add_answer(answers, id, given, f"{where}: {again}")
    return answers


def add_answer(answers: dict[str, Answer], id: str, given: Answer, again: str) -> None:
    """Add an answer; where the query has another one, both become the failure `again`.

    The same answer again counts once.
    """
    if answers.setdefault(id, given) != given:
        answers[id] = Failure(again, Fault.BAD_INPUT)


def failure_of_lost_answers(answers: Mapping[str, Answer], source: str) -> Failure | None:
    """Return what queries without an answer have, where a row without an id may hold it.

    `source` names what the answers were read from.
    """
    broken = broken_rows(answers)
    if not broken:
        return None
    more = f" (and {quantity(len(broken) - 1, 'row')} more)" if broken[1:] else ""
    reason = f"no answer is given, but {source} has a broken row: {broken[0]}{more}"
    return Failure(reason, Fault.BAD_INPUT)


def broken_rows(answers: Mapping[str, Answer]) -> list[str]:
    """Return what is wrong with each row that has no id."""
    reasons = []
    for id, answer in answers.items():
        if isinstance(id, RowPlace) and isinstance(answer, Failure):
            reasons.append(answer.reason)
    return reasons


class _Claims:
    """Which row has an id first."""

    def __init__(self, places: Sequence[str]) -> None:
        """`places` name the rows so far, the last of which claims ids."""
        self._places = places
        self._ids = IdTable()
        self._rows = array("I")

    def add(self, id: str | None) -> None:
        """Raise RowError where an earlier row has the id."""
        if id is None:
            return
        row = len(self._places) - 1
        place = self._ids.add(id)
        if place == len(self._rows):
            self._rows.append(row)
            return
        first = self._rows[place]
        if first != row:
            raise RowError(Rule.DUPLICATE, f"{self._places[first]} has {id!r} already")


def malformed_row(row: int, group: RowGroup, error: RowError) -> Malformed:
    """Return the failure in place of row `row` (from 0): it names place, rule and value."""
    place = group.place or f"row {row}"
    name = f"{place} ({group.id})" if group.id else place
    return Malformed(
        # A second row with an id must not be mistaken for the first.
        id=group.id if group.id and error.rule is not Rule.DUPLICATE else f"row-{row}",
        row=row,
        reason=f"{name}: {error.rule.value}: {error.detail}",
        category=group.category,
        field=group.field,
        released=error.released,
    )


def unicode_only(query: Query | Malformed, row: int) -> Query | Malformed:
    """Return the query at `row`, or a failure where a text of it is not Unicode."""

    def check(text: str) -> str:
        if wrong := trouble(text):
            raise RowError(Rule.NOT_UNICODE, f"{brief(text)} has {wrong}")
        return text

    if not any(map(trouble, parts_of(query, str))):
        return query
    try:
        replace_parts(query, str, check)
    except RowError as error:
        group = RowGroup(
            query.id if query.id.isprintable() else None,
            _printable(query.category),
            _printable(query.field),
        )
        return malformed_row(row, group, error)
    return query


def _printable(text: str) -> str:
    return text if text and text.isprintable() else UNKNOWN


def _texts_of(query: Query | Malformed) -> Iterator[str]:
    """Yield every text of a query."""
    yield from (query.id, query.category, query.field)
    if isinstance(query, Malformed):
        yield query.reason
        if query.released is not None:
            yield from _texts_of(query.released)
        return
    for turn in query.turns:
        yield turn.role
        yield from _texts_in(turn.content)
    if query.reference is not None:
        yield from _texts_in(query.reference.segments)
    if query.criteria is not None:
        yield query.criteria
    for name, value in query.metadata.items():
        yield name
        yield value


def _texts_in(content: Content) -> Iterator[str]:
    return (segment.text for segment in content if isinstance(segment, Text))


def as_asked(sample: Query, variant: Variant) -> tuple[Turn, ...]:
    """Return the question as published, with no words added."""
    return sample.turns


class TaskData(NamedTuple):
    """Where the data of a task set are."""

    place: str
    """As the user names it."""
    found: Located
    files: Iterable[Path]
    """All that are read: the manifest has a digest of them."""


def task_set(
    name: str,
    data: TaskData,
    reader: RowReader[V],
    *,
    prompt: Prompter = as_asked,
    categories: Mapping[str, int] = MappingProxyType({}),
    fields: Sequence[str] | None = None,
    **about: Any,
) -> TaskSet:
    """Return the task set of the queries that `gather` makes of some data.

    `about` is what else the manifest says. Without `fields`, they are those that occur, in
    their order.
    """
    rows = gather_rows(reader)
    stated: dict[str, Any] = {
        "name": name,
        "source": data.place,
        "revision": data.found.revision,
        "digest": digest_of(data.files),
        "rows": len(rows.samples),
        "malformed": dict(rows.broken),
    }
    if rows.answers:
        counts = {writer: len(by_id) for writer, by_id in rows.answers.items()}
        stated["published_answers"] = counts
    return TaskSet(
        name=name,
        samples=rows.samples,
        prompt=prompt,
        categories=categories,
        fields=tuple(rows.fields if fields is None else fields),
        about=stated | about,
        answers=rows.answers,
    )


def is_published(name: str) -> bool:
    """Return whether `name` names the published answers of some model."""
    return name.startswith(PREFIX)


def system_of_writer(name: str, task: TaskSet) -> GivenAnswers:
    """Return the system `published:WRITER`; UsageError names the valid ones."""
    valid = {f"{PREFIX}{writer}": answers for writer, answers in task.answers.items()}
    if name not in valid:
        raise unknown(f"published answers of {task.name}", name, valid)
    return GivenAnswers(name=name, answers=valid[name], lvlm=name[len(PREFIX) :])


__getattr__ = former_names(__name__, {"gathered": "gather"})
