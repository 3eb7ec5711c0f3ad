"""Answers made by another tool, in the official MMIE scorer's format, as a task set."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from benchmarks.tasks.mmie.categories import FIELDS, weights_of
from benchmarks.tasks.mmie.official import Broken, Output, read_outputs
from benchmarks.tasks.mmie.prompts import prompts
from benchmarks.tasks.published import TaskSet
from generators.base import Failure, Fault
from generators.document import Document, Malformed, Sample
from generators.system import System

_ANOTHER = Failure(
    "the row's question is not that of the first row with its id", Fault.BAD_INPUT
)


def answered(folder: Path) -> tuple[TaskSet, tuple[System, ...]]:
    """Return the queries in `folder` and one system per model that answered them.

    Raises TaskError when there is no readable `data.json`. A row that breaks a rule is a
    failure of the model it names where another row has the query; otherwise of every model,
    since it may have been any model's row.
    """
    rows = read_outputs(folder)
    known: dict[str, Sample] = {}
    answers: dict[str, dict[str, Document | Failure]] = defaultdict(dict)
    for output in (row for row in rows if isinstance(row, Output)):
        query = output.query
        same = known.setdefault(query.id, query).turns == query.turns
        answers[output.model][query.id] = output.document if same else _ANOTHER
    faults = [row for row in rows if isinstance(row, Broken)]
    queries: dict[str, Sample | Malformed] = dict(known)
    for row, model in faults:
        if model is not None and row.id in known:
            fault = Failure(row.reason, Fault.BAD_INPUT)
            answers[model].setdefault(row.id, fault)
        else:
            id = f"row-{row.row}" if row.id in queries else row.id
            queries[id] = replace(row, id=id)
    broken = Counter(fault.row.reason.split(": ")[1] for fault in faults)
    about = {
        "name": folder.name,
        "source": str(folder),
        "malformed": dict(sorted(broken.items())),
    }
    task = TaskSet(
        name=folder.name,
        samples=tuple(queries.values()),
        prompt=prompts(None),
        categories=weights_of(r.benchmark for r in rows if isinstance(r, Output)),
        fields=FIELDS,
        about=about,
    )
    systems = (System(name=m, draft=None, answers=a) for m, a in answers.items())
    return task, tuple(systems)
