"""Telling whether a query has changed."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.tasks.published import TaskSet
from generators.document import Malformed, Sample
from generators.keys import digest


def query_digest(query: Sample | Malformed) -> str:
    """Return the digest of all that a query asks and is judged by; of no places."""
    if isinstance(query, Malformed):
        released = query.released and query_digest(query.released)
        return digest(query.id, query.category, query.field, query.reason, released)
    return digest(
        query.id,
        query.category,
        query.field,
        query.turns,
        query.reference,
        query.criteria,
        query.wants_images,
        query.metadata,
    )


def data_rows(task: TaskSet) -> Sequence[tuple[str, str]]:
    """Return id and digest of every row of a task set."""
    return [(query.id, query_digest(query)) for query in task.samples]
