"""`plait check`: what is understood of users' own files, before anything runs.

check_data(load_config(None, {"data": "mine.jsonl"})).show(console)
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from plait.benchmarks.check_rubric import check_rubric
from plait.benchmarks.plain_console import text_console
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.config import RunConfig, load_config
from plait.benchmarks.runs.queries import read_task
from plait.benchmarks.tasks import answers, own_data
from plait.benchmarks.tasks.own_answers import find_answers
from plait.benchmarks.tasks.own_data import FoundRows, find_rows
from plait.benchmarks.tasks.published import (
    PREFIX,
    RowPlace,
    TaskSet,
    groups_by_member,
)
from plait.benchmarks.tasks.reading.columns import QUERIES
from plait.benchmarks.tasks.reading.images import Progress
from plait.benchmarks.tasks.reading.rules import brief
from plait.benchmarks.tasks.row_tables import IdTable
from plait.benchmarks.tasks.task_set import is_read_by_columns, place_of
from plait.benchmarks.terminal import progress
from plait.benchmarks.wording import quantity
from plait.generators.base import Failure
from plait.generators.buckets import any_path
from plait.generators.document import Content, Document, Image, Malformed, Query
from plait.generators.images import decode
from plait.scorers.answers import KNOWN
from plait.scorers.judging.criteria import criteria_of

_SHOWN = 10
"""Rows that are shown."""
_MOST_REFUSED = 20
"""Refusals that the command prints; from Python all are there."""
_WIDTH = 60


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was understood of a file or folder; printed, all of it.

    Examples:
        >>> check = plait.check("miniature:12")
        >>> check.ok, check.refused
        (True, [])
    """

    place: str
    facts: Sequence[str]
    """Sentences: format, counts, images."""
    columns: Mapping[str, str]
    """The columns that were taken, by what they mean; empty for a format of its own."""
    tables: Sequence[ResultTable]
    """Columns with an example, and the first ten rows."""
    refused: Sequence[str]
    """Each row that cannot be used, where it stands, and why."""

    @property
    def ok(self) -> bool:
        """Whether nothing is refused."""
        return not self.refused

    def show(self, console: Console) -> None:
        """Print all of it."""
        for table in self.tables:
            console.print(table.rich)
        for fact in self.facts:
            console.print(fact, markup=False, highlight=False)
        for reason in self.refused[:_MOST_REFUSED]:
            console.print(f"refused: {reason}", markup=False, highlight=False)
        more = len(self.refused) - _MOST_REFUSED
        if more > 0:
            console.print(f"refused: {more:,} more")

    def __str__(self) -> str:
        file = io.StringIO()
        self.show(text_console(file))
        return file.getvalue()


def run_check(
    place: str, data: str | None, settings: Sequence[str], console: Console
) -> int:
    """Print what is understood of `place`; 1 where something is refused, else 0.

    With `data` the place holds answers to its queries, or a rubric for them.
    """
    if place.lower().endswith(".toml"):
        named = {} if data is None else {"data": data}
        config = load_config(None, named, settings)
        return check_rubric(any_path(place), config if named else None, console)
    with progress(console, "checking images") as show:
        flags = {"data": place if data is None else data}
        config = load_config(None, flags, settings)
        if data is None:
            checked = check_data(config, show)
        else:
            checked = check_answers(place, config, show)
    checked.show(console)
    return 0 if checked.ok else 1


# --------------------------------------------------------------------------------- data


def check_data(config: RunConfig, on_progress: Progress | None = None) -> Check:
    """Return what is understood of the queries that `config` names.

    Raises TaskError where they cannot be read at all.
    """
    task, _ = read_task(config, on_progress)
    seen = _SeenQueries()
    refused = list[str]()
    for query in task.samples:
        if isinstance(query, Malformed):
            refused.append(query.reason)
        else:
            seen.add(query)
    tables: list[ResultTable] = []
    columns: dict[str, str] = {}
    if is_read_by_columns(config.data):
        rows = find_rows(place_of(config.data), QUERIES, "question", config.reading)
        columns = rows.columns.told
        tables.append(_columns_table(rows))
    tables.append(seen.table)
    return Check(
        place=config.data,
        facts=[*_facts(task, seen, len(refused))],
        columns=columns,
        tables=tables,
        refused=refused,
    )


@dataclass
class _SeenQueries:
    """What is told of queries that pass by."""

    first: list[Query] = field(default_factory=list)
    number: int = 0
    images: int = 0
    files: IdTable = field(default_factory=IdTable)
    """Digests of the images."""
    truths: int = 0
    letters: int = 0
    """Of these, how many are letters of choices."""
    judged: int = 0
    """How many have criteria."""
    drawn: int = 0
    """How many ask for images."""

    def add(self, query: Query) -> None:
        """Count a query."""
        if self.number < _SHOWN:
            self.first.append(query)
        self.number += 1
        for image in query.images:
            self.images += 1
            self.files.add(image.digest)
        self.truths += query.reference is not None
        self.letters += KNOWN in query.metadata
        self.judged += bool(criteria_of(query))
        self.drawn += query.wants_images

    @property
    def table(self) -> ResultTable:
        """The first of them."""
        lines = []
        for query in self.first:
            truth = _line_of(query.reference.segments) if query.reference else ""
            lines.append([query.id, query.category, _line_of(query.question), truth])
        head = ["id", "category", "is asked", "true answer"]
        title = f"The first {len(lines):,} of {self.number:,} queries"
        return ResultTable.of(title, head, lines, numeric=False)


def _facts(task: TaskSet, seen: _SeenQueries, refused: int) -> Iterator[str]:
    yield from islice(own_data.remarks(task.about), 1)
    rows = quantity(seen.number + refused, "row")
    yield f"{rows}: {quantity(seen.number, 'query')}, {refused:,} refused"
    files = len(seen.files)
    yield f"images: {seen.images:,} opened and decoded, {files:,} different ones"
    compared = f", {seen.letters:,} of them for the scorer known-answer"
    yield f"answers: {seen.truths:,} known{compared if seen.letters else ''}"
    if seen.judged:
        own = quantity(seen.judged, "query")
        yield f"criteria: {own} with criteria of their own, for the judge criteria:LVLM"
    yield f"images are expected in answers to {quantity(seen.drawn, 'query')}"
    for writer, answers_of_it in task.answers.items():
        failed = [a for a in answers_of_it.values() if isinstance(a, Failure)]
        done = len(answers_of_it) - len(failed)
        first = f", such as {failed[0].reason}" if failed else ""
        yield f"{PREFIX}{writer}: {quantity(done, 'answer')}, {len(failed):,} failed{first}"


def _columns_table(rows: FoundRows) -> ResultTable:
    """Return each column with its meaning and the first value that is there."""
    examples: dict[str, Any] = {}
    for row in islice(rows.rows, _SHOWN):
        # A row that is no object is refused elsewhere, with its place.
        if isinstance(row.value, dict):
            for name, value in row.value.items():
                if value not in (None, ""):
                    examples.setdefault(name, value)
    meanings = groups_by_member(rows.columns.by_meaning)
    lines = []
    for name in (*meanings, *rows.columns.others):
        example = _example(examples.get(name, ""))
        lines.append([name, meanings.get(name, "metadata"), example])
    head = ["column", "taken as", "for example"]
    return ResultTable.of("Columns", head, lines, numeric=False)


def _line_of(content: Content) -> str:
    """Return texts and images in one line; the images have been opened."""
    parts = []
    for part in content:
        if isinstance(part, Image):
            parts.append(f"[image {_size(part)}]")
        else:
            parts += part.text.split()
    text = " ".join(parts)
    return text if len(text) <= 2 * _WIDTH else f"{text[: 2 * _WIDTH - 3]}..."


def _size(image: Image) -> str:
    data = Path(str(image.place)).read_bytes() if image.data is None else image.data
    width, height = decode(data).size
    return f"{width}x{height}"


def _example(value: Any) -> str:
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        return f"image of {len(value['bytes']):,} bytes"
    return value[:_WIDTH] if isinstance(value, str) else brief(value, _WIDTH)


# ------------------------------------------------------------------------------ answers


def check_answers(
    place: str, config: RunConfig, on_progress: Progress | None = None
) -> Check:
    """Return what is understood of the answers at `place`, `[NAME=][FORMAT:]PLACE`.

    They are those to the queries that `config` names. What has no query is refused.
    """
    task, _ = read_task(config, on_progress)
    named = {name: str(at) for name, at in answers.places_by_name([place]).items()}
    with_about, systems = answers.systems_of_answers(task, named, reading=config.reading)
    queries = IdTable(query.id for query in task.samples)
    refused: list[str] = []
    lines: list[list[str]] = []
    for system in systems:
        for id, answer in system.answers.items():
            if isinstance(answer, Failure) and (id in queries or isinstance(id, RowPlace)):
                refused.append(f"{system.name}: {id}: {answer.reason}")
            elif id not in queries:
                refused.append(f"{system.name}: {id!r} is the id of no query of the data")
            elif isinstance(answer, Document) and len(lines) < _SHOWN:
                lines.append([system.name, id, _line_of(answer.segments)])
    told = with_about.about["answers"]
    # One place is checked at a time.
    ((name, at),) = named.items()
    columns: Mapping[str, str] = {}
    if told[name]["format"] == own_data.NAME:
        path = str(answers.AnswerPlace.of(at).path)
        columns = find_answers(path, config.reading).columns.told
    title = f"The first {len(lines):,} answers"
    table = ResultTable.of(title, ["system", "id", "answer"], lines, numeric=False)
    return Check(
        place=place,
        facts=[*answers.remarks({"answers": told})],
        columns=columns,
        tables=[table],
        refused=refused,
    )
