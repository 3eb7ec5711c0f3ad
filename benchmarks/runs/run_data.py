"""A finished or interrupted run as values, for notebooks and other programs.

    run = RunData.at(Path("runs/x"))
    run.documents("anole")["SA-1"]      # query, document or reason, scores

Records are read when they are asked for. What failed, was skipped or is not made yet
keeps its place everywhere, with its reason; none of it becomes a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from plait.benchmarks.results.board import Board, outcome_of, score_value
from plait.benchmarks.results.files.about import RunAbout
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.headline import furthest_apart, headline_table, outcomes_note
from plait.benchmarks.results.leaderboard import ranked, reasons_of
from plait.benchmarks.results.notebook import (
    NotebookDocument,
    beside,
    box,
    content_html,
    heading,
    missing_note,
    query_html,
)
from plait.benchmarks.results.reasons import reasons_table
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.run_directory import read_manifest
from plait.benchmarks.tasks.published import Answer
from plait.cluster.store import BlobReader
from plait.generators.base import (
    VALUED,
    Failure,
    Outcome,
    OutcomeName,
    Result,
    Skip,
    Unread,
)
from plait.generators.buckets import AnyPath
from plait.generators.document import Document, Malformed, Query, Score, key_of
from plait.generators.errors import UsageError
from plait.generators.names import unknown
from plait.generators.system import Prompter

_AT_ONCE = 512
"""Answers that are read together, since reading one alone takes as long."""
_MOST_WITH_NOTES = 20_000
"""Notes of stages are read where the run has at most this many answers."""


@dataclass(frozen=True, kw_only=True)
class TaskQuery:
    """One query of a run, with the wording that its systems were asked in."""

    id: str
    """The sample's id; of a malformed row also its number, since ids may repeat."""
    sample: Query | Malformed
    prompt: Prompter = field(repr=False)
    read: BlobReader = field(repr=False, compare=False)

    def _repr_html_(self) -> str:
        return box(heading(self.id), query_html(self.sample, self.read))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerVerdict:
    """What a scorer made of a document."""

    outcome: str
    """`scored`, `unscored`, `not_applicable`, `failed`, `skipped` or `missing`."""
    value: float | None = None
    """On the scorer's scale; None unless it is scored."""
    reason: str = ""
    """Why there is no value."""
    fault: str = ""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """What the value was made of; of one that cannot be read, what of it can."""

    @classmethod
    def of(cls, outcome: Outcome[Score] | None) -> "ScorerVerdict":
        """The verdict in an outcome; that of a score not yet made where it is None."""
        name, reason, fault = outcome_of(outcome)
        parts: Mapping[str, Any] = {}
        if isinstance(outcome, Result):
            name, parts = OutcomeName.SCORED, outcome.value.parts
        elif isinstance(outcome, Unread):
            parts = outcome.parts
        value = score_value(outcome)
        return cls(outcome=name, value=value, reason=reason, fault=fault, parts=parts)

    def __str__(self) -> str:
        return f"{self.value:.4g}" if self.value is not None else _why(self)


@dataclass(frozen=True, kw_only=True)
class QueryAnswer:
    """What one system made of one query."""

    system: str
    query: TaskQuery
    repeat: int
    """Counted from 1."""
    outcome: str
    """`done`, `failed`, `skipped` or `missing`."""
    document: NotebookDocument | None = None
    """None unless it is done."""
    reason: str = ""
    """Why there is no document."""
    fault: str = ""
    scores: Mapping[str, ScorerVerdict] = field(default_factory=dict)
    """By scorer; none where there is no document."""
    notes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What the stages noted (exact prompts, truncation), by the stage's name."""

    @classmethod
    def of(
        cls,
        system: str,
        query: TaskQuery,
        document: Outcome[Document] | None,
        repeat: int = 1,
        scores: Mapping[str, Outcome[Score] | None] = MappingProxyType({}),
    ) -> "QueryAnswer":
        """The answer in an outcome, and its scores; one not yet made where it is None."""
        outcome, reason, fault = outcome_of(document)
        shown = None
        if isinstance(document, Result):
            shown = NotebookDocument.showing(document.value, query.read)
        return cls(
            system=system,
            query=query,
            repeat=repeat,
            outcome=outcome,
            document=shown,
            reason=reason,
            fault=fault,
            scores={name: ScorerVerdict.of(score) for name, score in scores.items()},
            notes=getattr(document, "notes", {}),
        )

    def _repr_html_(self) -> str:
        return box(self.query._repr_html_(), self.html)

    @property
    def html(self) -> str:
        """The answer without its query."""
        repeat = f", repeat {self.repeat}" if self.repeat > 1 else ""
        name = heading(f"{self.system}{repeat}")
        if self.document is None:
            return name + missing_note(_why(self))
        content = content_html(self.document.segments, self.document.read)
        scores = (heading(f"{n}: {v}") for n, v in self.scores.items())
        return "".join([name, content, *scores])


def _why(answer: ScorerVerdict | QueryAnswer) -> str:
    """`failed (worker died): the reason`."""
    fault = f" ({answer.fault})" if answer.fault else ""
    return f"{answer.outcome.replace('_', ' ')}{fault}: {answer.reason}"


@dataclass(frozen=True, eq=False, repr=False)
class SystemAnswers(Mapping[str, QueryAnswer]):
    """One system's answers by query id, in the run's order, read when they are asked for.

    They are read some hundred at a time, which stay at hand until others are asked for.
    """

    run: "RunData"
    system: str
    repeat: int = 1
    _near: dict[str, QueryAnswer] = field(default_factory=dict, init=False)

    def __getitem__(self, id: str) -> QueryAnswer:
        if id not in self.run.queries:
            raise KeyError(str(unknown("query", id, self.run.queries)))
        if id not in self._near:
            self._near.clear()
            self._near.update(self.run._answers_near(id, self.system, self.repeat))
        return self._near[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.run.queries)

    def __len__(self) -> int:
        return len(self.run.queries)

    def __repr__(self) -> str:
        among = {"system": [self.system]}
        rows = self.run.results.rows("answers", ["repeat", "outcome"], among)
        counted = Counter(r["outcome"] for r in rows if r["repeat"] == self.repeat)
        outcomes = ", ".join(f"{n:,} {name}" for name, n in counted.items())
        return f"{self.system}: {len(self):,} answers ({outcomes})"


def read_answers(
    manifests: Collection[AnyPath], cache: Path
) -> dict[str, dict[str, Answer]]:
    """Return what the systems of the runs with these manifests answered, by query id.

    Every repeat is a system of its own, and what is not made yet is left out.
    """
    answers: dict[str, dict[str, Answer]] = {}
    for manifest in manifests:
        for made in open_results(manifest.parent).evaluations():
            which = f" (repeat {made.repeat + 1})" if made.repeat else ""
            own = answers.setdefault(f"{made.system}{which}", {})
            document = made.document
            if isinstance(document, Result):
                own[made.sample.id] = document.value
            elif isinstance(document, Skip | Failure):
                own[made.sample.id] = document
    return answers


@dataclass(frozen=True, eq=False, repr=False)
class RunData:
    """A run, opened for reading: its results, from files that are read when needed."""

    root: AnyPath
    results: RunResults
    read: BlobReader = field(default_factory=BlobReader)
    """Reads images, and remembers which parts it found damaged."""

    @classmethod
    def at(cls, root: AnyPath) -> "RunData":
        """Return the run in `root`; UsageError where there is none."""
        root = root.expanduser().resolve()
        return cls(root, open_results(root, strict=False))

    @property
    def manifest(self) -> dict[str, Any]:
        """Resolved config, versions, revisions, counts, usage."""
        return read_manifest(self.root)

    @property
    def about(self) -> RunAbout:
        """The task set, seed, repeats, weights; systems and scorers as plain facts."""
        return self.results.about

    @cached_property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems."""
        return tuple(system.name for system in self.results.systems)

    @cached_property
    def scorers(self) -> tuple[str, ...]:
        """Names of the scorers."""
        return tuple(scorer.name for scorer in self.results.scorers)

    @cached_property
    def queries(self) -> Mapping[str, TaskQuery]:
        """The queries by id, in the order of the task set."""
        prompt = self.results.prompt
        return {
            id: TaskQuery(id=id, sample=sample, prompt=prompt, read=self.read)
            for id, sample in self.results.queries.items()
        }

    def documents(self, system: str, repeat: int = 1) -> SystemAnswers:
        """Return what `system` made of every query; `repeat` counts from 1. UsageError."""
        if system not in self.systems:
            raise unknown("system", system, self.systems)
        if not 1 <= repeat <= self.about.repeats:
            raise UsageError(f"repeat {repeat} is not from 1 to {self.about.repeats}")
        return SystemAnswers(self, system, repeat)

    @property
    def answers(self) -> Iterator[QueryAnswer]:
        """Every answer of every system and repeat."""
        for system in self.systems:
            for repeat in range(1, self.about.repeats + 1):
                yield from self.documents(system, repeat).values()

    @property
    def table(self) -> pa.Table:
        """The one table of the run: a row for every answer, score and criterion.

        Its columns are those of `plait.benchmarks.results.board.SCHEMA`; `.to_pandas()`
        makes a data frame of it where pandas is installed.
        """
        return self.board.table

    @property
    def scores(self) -> pa.Table:
        """The rows of `table` that are judgements, whatever came of them.

        `value` is null unless `outcome` is `scored`; where there is no document the
        outcome is `no_document` and the reason is the document's.
        """
        judged = ~self.board.is_answer & (self.board.column["criterion"].codes < 0)
        return self.table.filter(pa.array(judged))

    @property
    def failures(self) -> pa.Table:
        """The rows of `table` for answers and judgements without a value, with reasons.

        Those that are not made yet are among them; that a scorer does not apply is no
        failure.
        """
        valued = self.board.column["outcome"].is_(*VALUED, OutcomeName.NO_DOCUMENT)
        return self.table.filter(pa.array(~valued))

    @cached_property
    def board(self) -> Board:
        """Everything tables are made of."""
        return self.results.board

    @cached_property
    def leaderboard(self) -> ResultTable:
        """One row per system: an average of each scorer with its interval, and counts."""
        board = self.board
        table = headline_table(board)
        warning = [f"Warning: {board.warning}."] if board.warning else []
        about = (*board.about_replies, *board.about_scorers)
        notes = (*warning, outcomes_note(board), *table.notes, *about)
        return replace(table, notes=notes)

    @property
    def reasons(self) -> ResultTable:
        """The most frequent reasons why answers and judgements have no value."""
        return reasons_table("system", reasons_of(self.board))

    @property
    def damage(self) -> tuple[str, ...]:
        """What was found damaged while reading; such records count as missing."""
        return (*self.results.store.notices, *(str(d) for d in self.read.damage.values()))

    def __repr__(self) -> str:
        asked = f"{len(self.queries):,} queries, {len(self.systems)} systems"
        return f"RunData({str(self.root)!r}: {asked}, {len(self.scorers)} scorers)"

    def _repr_html_(self) -> str:
        table, answers = self.leaderboard.html, self._answers_html()
        notes = "".join(missing_note(text) for text in self.damage)
        return heading(str(self.root)) + table + answers + notes

    def _answers_html(self) -> str:
        """Return one query, where systems differ most, with their answers side by side."""
        apart = furthest_apart(self.board, self.queries)
        id = apart.query if apart else next(iter(self.queries), None)
        if id is None:
            return ""
        names = (row["system"] for row in ranked(self.board))
        answers = (self.documents(name)[id].html for name in names)
        return self.queries[id]._repr_html_() + beside(*answers)

    def _answers_near(
        self, id: str, system: str, repeat: int
    ) -> Iterator[tuple[str, QueryAnswer]]:
        """Yield the answers to the query `id` and to those that are read with it."""
        ids = [*self.queries]
        start = ids.index(id) // _AT_ONCE * _AT_ONCE
        found = self.results.evaluations(
            ids[start : start + _AT_ONCE],
            systems=[system],
            repeat=repeat,
            notes=self.results.answers <= _MOST_WITH_NOTES,
        )
        for e in found:
            key = key_of(e.sample)
            query = self.queries[key]
            yield key, QueryAnswer.of(system, query, e.document, repeat, e.scores)
