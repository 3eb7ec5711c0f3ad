"""What readers of other benchmarks share: rows become samples, or named failures.

Answers that a benchmark publishes beside its questions can be systems without stages, under
the name `published:NAME`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks.tasks.reading.rules import RowError, Rule, TaskError, malformed
from benchmarks.tasks.reading.sources import snapshot
from benchmarks.tasks.task_set import TaskSet
from generators.document import Document, Malformed, Sample, Turn
from generators.names import unknown
from generators.system import Prompter, System, Variant

PREFIX = "published:"
HUB = "hf:"

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ValidRow:
    """A row that keeps all rules."""

    sample: Sample
    answers: Mapping[str, Document] = field(default_factory=dict)
    """Published answers by writer."""


class RowGroup(NamedTuple):
    """Id and group as a row states them, whether or not it keeps the rules."""

    id: str | None
    category: str = "unknown"
    field: str = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRows:
    """All rows of a file."""

    samples: tuple[Sample | Malformed, ...]
    """In file order."""
    answers: Mapping[str, Mapping[str, Document]]
    """Published answers by writer and sample id."""
    broken: Mapping[str, int]
    """Malformed rows by the rule they break."""


def gathered(
    values: Iterable[V], make: Callable[[V], ValidRow], known: Callable[[V], RowGroup]
) -> TaskRows:
    """Rows made of `values`; one that breaks a rule becomes a failure, the others run.

    `make` raises RowError. Of rows with the same id the first is used.
    """
    samples: list[Sample | Malformed] = []
    answers: dict[str, dict[str, Document]] = {}
    broken, first = Counter[str](), dict[str, int]()
    for i, value in enumerate(values):
        try:
            entry = _once(make(value), first, i)
        except RowError as error:
            samples.append(_failure(i, known(value), error))
            broken[error.rule.value] += 1
            continue
        samples.append(entry.sample)
        for writer, document in entry.answers.items():
            answers.setdefault(writer, {})[entry.sample.id] = document
    return TaskRows(
        samples=tuple(samples), answers=answers, broken=dict(sorted(broken.items()))
    )


def _failure(row: int, known: RowGroup, error: RowError) -> Malformed:
    return malformed(row, known.id, error, known.category, known.field)


def _once(entry: ValidRow, first: dict[str, int], row: int) -> ValidRow:
    known = first.setdefault(entry.sample.id, row)
    if known != row:
        raise RowError(Rule.DUPLICATE, f"row {known} has {entry.sample.id!r} already")
    return entry


def as_asked(sample: Sample, variant: Variant) -> tuple[Turn, ...]:
    """The question as published, with no words added."""
    return sample.turns


def task_set(
    name: str,
    source: str,
    rows: TaskRows,
    *,
    digest: str,
    revision: str | None = None,
    prompt: Prompter = as_asked,
) -> TaskSet:
    """The task set of `rows`; its fields in the order in which they occur."""
    fields = (s.field for s in rows.samples if isinstance(s, Sample) and s.field)
    about = {
        "name": name,
        "source": source,
        "revision": revision,
        "digest": digest,
        "rows": len(rows.samples),
        "malformed": dict(rows.broken),
        "published_answers": {n: len(a) for n, a in rows.answers.items()},
    }
    return TaskSet(
        name=name,
        samples=rows.samples,
        prompt=prompt,
        categories={},
        fields=tuple(dict.fromkeys(fields)),
        about=about,
        answers=rows.answers,
    )


def is_published(name: str) -> bool:
    """Whether `name` names the published answers of some writer."""
    return name.startswith(PREFIX)


def published(name: str, task: TaskSet) -> System:
    """The system `published:WRITER`; UsageError names the valid ones."""
    valid = {f"{PREFIX}{writer}": answers for writer, answers in task.answers.items()}
    if name not in valid:
        raise unknown(f"published answers of {task.name}", name, valid)
    return System(name=name, draft=None, answers=valid[name], writer=name[len(PREFIX) :])


def located(place: str, patterns: tuple[str, ...]) -> tuple[Path, str | None]:
    """A path on this machine for a path or `hf:ORG/NAME@REV`, and the Hub's commit.

    Of a Hub data set the files that match `patterns` are fetched. Raises TaskError where
    there is no such data.
    """
    if place.startswith(HUB):
        folder = snapshot(place, patterns)
        return folder, folder.name
    path = Path(place).expanduser().absolute()
    if not path.exists():
        raise TaskError(f"no data at {place!r}")
    return path, None


def digest_of(paths: Iterable[Path]) -> str:
    """SHA-256 over the contents of files, in the order given."""
    state = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            state.update(hashlib.file_digest(file, "sha256").digest())
    return state.hexdigest()
