"""Whether data have changed since a run was made with them, query by query.

A query is known by its id. What is compared is all that it asks and all that scorers read
of it; neither the places of files nor the order of rows count. A row without a usable id is
known by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain

from plait.benchmarks.tasks.published import TaskSet
from plait.benchmarks.tasks.row_tables import IdTable, RowDigests
from plait.generators.document import Malformed, Query
from plait.generators.errors import UsageError
from plait.generators.keys import digest, digest_of_items
from plait.generators.names import unknown
from plait.generators.spool import keep

_MOST_NAMED = 3
KEPT = "kept"
"""The entry of a task set's `about` that names queries which are as a run stored them."""


@dataclass(frozen=True, slots=True)
class StoredQueries:
    """What a run keeps of the data that it was made with."""

    rows: RowDigests
    """By id, the digest of every row of the data, whether the run asked it or not."""
    ids: Sequence[str]
    """Those of the queries that the run asked, in its order."""
    read: Callable[[], Iterable[Query | Malformed]]
    """Yields these queries."""


def query_digest(query: Query | Malformed) -> str:
    """Return the digest of what a query asks and of what scorers read of it.

    That is everything but its id. Images count by their content. Of a malformed row it is
    what its failure is filed under, and the query that a released program makes of it: why
    it is malformed names places, and decides nothing.
    """
    if isinstance(query, Malformed):
        released = query.released and query_digest(query.released)
        return digest("malformed", query.category, query.field, released)
    content = {}
    for name in _COMPARED:
        value = getattr(query, name)
        # A field that is added later changes no digest while it is empty.
        if value or not (value is None or isinstance(value, tuple | Mapping)):
            content[name] = value
    return digest("query", content)


_COMPARED = [field.name for field in fields(Query) if field.name != "id"]


def data_rows(task: TaskSet) -> RowDigests:
    """Return the `query_digest` of every row of a task set by id, in its order."""
    return RowDigests((query.id, query_digest(query)) for query in task.samples)


def queries_digest(ids: Iterable[str], rows: Mapping[str, str]) -> str:
    """Return the digest of the queries `ids`, in whatever order, by their own in `rows`."""
    return digest_of_items((id, rows[id]) for id in sorted({*ids}))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChoices:
    """What is to be done where data have changed. Without any, changes are refused."""

    remake: bool = False
    """Queries that have changed are answered and scored anew; those that are gone leave the
    tables."""
    keep: bool = False
    """The run goes on with its queries as they were."""
    add: bool = False
    """Rows that the data did not have are taken into the run."""

    @classmethod
    def of(cls, names: Iterable[str]) -> DataChoices:
        """Return the choices with these names; UsageError for others, and for both of two.

        A query cannot be made anew and kept.
        """
        chosen = {names} if isinstance(names, str) else {*names}
        valid = [choice.name for choice in fields(cls)]
        for name in sorted(chosen.difference(valid)):
            raise unknown("choice of --changed-data", name, valid)
        if chosen >= {"remake", "keep"}:
            raise UsageError(
                "--changed-data is remake or keep, not both: changed queries are made "
                "anew, or the run goes on with them as they were"
            )
        return cls(**dict.fromkeys(chosen, True))


NO_CHOICES = DataChoices()


@dataclass(frozen=True, slots=True)
class QueryChanges:
    """How the queries of a run differ from the data as they are now, by id."""

    queries: int
    """How many the run has."""
    changed: Sequence[str]
    gone: Sequence[str]

    @classmethod
    def of(cls, stored: StoredQueries, now: Mapping[str, str]) -> QueryChanges:
        """Compare the queries that a run stored with the rows `now`, by id."""
        changed: list[str] = []
        gone: list[str] = []
        # Where all rows are equal, no id needs to be looked up.
        if now != stored.rows:
            for id in stored.ids:
                if id not in now:
                    gone.append(id)
                elif now[id] != stored.rows.get(id):
                    changed.append(id)
        return cls(queries=len(stored.ids), changed=changed, gone=gone)

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone)

    def __str__(self) -> str:
        parts = []
        if self.changed:
            parts.append(ids_text(self.changed, "has changed", "have changed"))
        if self.gone:
            parts.append(ids_text(self.gone, "is gone", "are gone"))
        return f"of the run's {self.queries:,} queries, {' and '.join(parts)}"


def new_rows(
    ids: Sequence[str], stored: StoredQueries, now: Mapping[str, str]
) -> list[str]:
    """Return which of `ids` are not the run's, and were not in the data as they are now."""
    if ids == stored.ids:
        return []
    asked = IdTable(stored.ids)
    return [id for id in ids if id not in asked and stored.rows.get(id) != now[id]]


def with_stored(task: TaskSet, stored: StoredQueries, ids: Iterable[str]) -> TaskSet:
    """Return the task set whose queries `ids` are as a run stored them, gone ones last."""
    wanted = {*ids}
    there = IdTable(query.id for query in task.samples)
    kept = {}
    gone = []
    # As a set that keeps the order: the fields of the task set first.
    fields_of_all = dict.fromkeys(task.fields)
    for query in stored.read():
        if query.id not in wanted:
            continue
        kept[query.id] = query
        if query.id not in there:
            gone.append(query)
        if isinstance(query, Query) and query.field:
            fields_of_all[query.field] = None
    # Neither list nor tuple: a task set may be larger than memory.
    samples = (kept.get(query.id, query) for query in task.samples)
    return replace(
        task,
        samples=keep(chain(samples, gone), "queries"),
        fields=tuple(fields_of_all),
        about={**task.about, KEPT: sorted(kept)},
    )


def ids_text(ids: Sequence[str], one: str, more: str) -> str:
    """Return how many `ids` there are, what is said of one or more, and a few of them."""
    few = ", ".join(ids[:_MOST_NAMED])
    rest = ", ..." if len(ids) > _MOST_NAMED else ""
    return f"{len(ids):,} {one if len(ids) == 1 else more} ({few}{rest})"
