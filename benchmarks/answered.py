"""Answers that another tool made, in the official MMIE scorer's format, as a task set."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.mmie.categories import CATEGORIES, FIELDS
from benchmarks.mmie.official import Output, read_outputs
from benchmarks.mmie.prompts import prompts
from benchmarks.tasks import TaskSet
from generators.document import Document, Malformed, Sample
from generators.system import System


def answered(folder: Path) -> tuple[TaskSet, tuple[System, ...]]:
    """The queries in `folder` and one system per model that answered them.

    Raises TaskError when there is no readable `data.json`; a row that breaks a rule is a
    failure of every model, since it may have been any's.
    """
    samples: dict[str, Sample | Malformed] = {}
    answers: dict[str, dict[str, Document]] = defaultdict(dict)
    for row in read_outputs(folder):
        if isinstance(row, Output):
            samples.setdefault(row.sample.id, row.sample)
            answers[row.model][row.sample.id] = row.document
        else:
            samples[row.id] = row
    rows = (r for r in samples.values() if isinstance(r, Malformed))
    broken = Counter(row.reason.split(": ")[1] for row in rows)
    about = {
        "name": folder.name,
        "source": str(folder),
        "malformed": dict(sorted(broken.items())),
    }
    task = TaskSet(
        name=folder.name,
        samples=tuple(samples.values()),
        prompt=prompts(None),
        categories=CATEGORIES,
        fields=FIELDS,
        about=about,
    )
    systems = (System(name=m, draft=None, answers=a) for m, a in answers.items())
    return task, tuple(systems)
