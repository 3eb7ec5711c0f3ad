"""What readers of other benchmarks share, and their published answers as systems.

Answers that a benchmark publishes beside its questions are systems without stages, under
the name `published:NAME`.
"""

from __future__ import annotations

from benchmarks.tasks.reading.rules import RowGroup, TaskRows, ValidRow, gathered
from benchmarks.tasks.task_set import TaskSet
from generators.document import Sample, Turn
from generators.names import unknown
from generators.system import Prompter, System, Variant

__all__ = [
    "PREFIX",
    "RowGroup",
    "ValidRow",
    "as_asked",
    "gathered",
    "is_published",
    "published",
    "task_set",
]
PREFIX = "published:"


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
) -> TaskSet:
    """Return the task set of `rows`; its fields in the order in which they occur."""
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
    """Return whether `name` names the published answers of some writer."""
    return name.startswith(PREFIX)


def published(name: str, task: TaskSet) -> System:
    """Return the system `published:WRITER`; UsageError names the valid ones."""
    valid = {f"{PREFIX}{writer}": answers for writer, answers in task.answers.items()}
    if name not in valid:
        raise unknown(f"published answers of {task.name}", name, valid)
    return System(name=name, draft=None, answers=valid[name], writer=name[len(PREFIX) :])
