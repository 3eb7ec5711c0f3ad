"""A finished or interrupted run as values, for notebooks and other programs.

    run = RunData.at(Path("runs/x"))
    run.answer("SA-1", "anole")         # query, document or reason, scores
    run.answers(outcome="done")         # as many as there are, read in blocks

What failed, was skipped or is not made yet keeps its place everywhere, with its reason;
none of it becomes a number. `RunData` is what `plait.open_run` and `plait.run` return; its
methods return `Answers` and the values of `plait.benchmarks.runs.answers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from plait.benchmarks.results.board import Board
from plait.benchmarks.results.contact_sheet import QUERIES, draw_sheet, sheet_of_systems
from plait.benchmarks.results.files.about import RunAbout
from plait.benchmarks.results.files.reading import RunResults
from plait.benchmarks.results.frame import Frame
from plait.benchmarks.results.headline import furthest_apart, headline_table, outcomes_note
from plait.benchmarks.results.leaderboard import rank, reasons_of
from plait.benchmarks.results.notebook import heading, missing_note
from plait.benchmarks.results.paired import SystemComparison
from plait.benchmarks.results.reasons import reasons_table
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.answers import QueryAnswer, QueryView, TaskQuery
from plait.benchmarks.runs.experiment import MOST_WITH_NOTES
from plait.benchmarks.runs.opening import open_results
from plait.benchmarks.runs.run_directory import read_manifest
from plait.benchmarks.tasks.published import Answer
from plait.benchmarks.wording import quantity
from plait.cluster.run import RunResult
from plait.cluster.store import BlobReader
from plait.generators.base import (
    DOCUMENT_OUTCOMES,
    VALUED,
    Failure,
    OutcomeName,
    Result,
    Skip,
)
from plait.generators.buckets import AnyPath
from plait.generators.document import key_of
from plait.generators.errors import UsageError
from plait.generators.names import unknown
from plait.scorers.base import Scorer

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

    from plait.benchmarks.studies.correction import Correction

Name = str | Iterable[str] | None
"""One name, several, or all."""
_AT_ONCE = 512
"""Answers that are read together, since reading one alone takes as long."""


@dataclass(frozen=True, eq=False, repr=False)
class Answers(Sequence[QueryAnswer]):
    """Answers of a run by system, repeat and query, read when they are asked for.

    They are read some hundred at a time, which stay at hand until others are asked for.

    Examples:
        >>> run = plait.open_run("runs/quickstart")
        >>> answers = run.answers(system=["anole", "gt"], category="PBL")
        >>> answers
        Answers(8: 8 done)
        >>> [answer.query.id for answer in answers[:2]]
        ['PBL-0002', 'PBL-0005']
    """

    run: "RunData"
    rows: npt.NDArray[np.int64]
    """Where they stand in the table of the run."""
    _near: dict[int, QueryAnswer] = field(default_factory=dict, init=False)

    @overload
    def __getitem__(self, at: int) -> QueryAnswer: ...

    @overload
    def __getitem__(self, at: slice) -> "Answers": ...

    def __getitem__(self, at: int | slice) -> "QueryAnswer | Answers":
        if isinstance(at, slice):
            return Answers(self.run, self.rows[at])
        # The range brings what a list has: numbers from the end, and IndexError.
        place = range(len(self))[at]
        if place not in self._near:
            # Answers are mostly asked for one after the other: a file is opened once for
            # all that stand near each other.
            start = place // _AT_ONCE * _AT_ONCE
            rows = self.rows[start : start + _AT_ONCE]
            self._near.clear()
            for near, answer in enumerate(self.run._read_answers(rows), start):
                self._near[near] = answer
        return self._near[place]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        if not len(self):
            return "Answers(0)"
        counts = Counter(self.run._column("outcome", self.rows))
        outcomes = ", ".join(f"{n:,} {name}" for name, n in counts.items())
        return f"Answers({len(self):,}: {outcomes})"


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
                own[made.query.id] = document.value
            elif isinstance(document, Skip | Failure):
                own[made.query.id] = document
    return answers


@dataclass(frozen=True, eq=False, repr=False)
class RunData:
    """A run, opened for reading: its results, from files that are read when needed.

    Examples:
        >>> run = plait.open_run("runs/quickstart")
        >>> run.systems
        ('anole', 'qwen2-vl-7b+openjourney@outline', 'gt')
        >>> run.scorers
        ('clipscore', 'truth:match')
        >>> print(run.leaderboard)
        12 queries
                                               clipscore   truth:match
         system                             (0-2.5), n=8  (0-100), n=8
         qwen2-vl-7b+openjourney@outline           1.929        100.00
                                          [1.878, 1.978]
        ...
    """

    root: AnyPath
    results: RunResults
    read: BlobReader = field(default_factory=BlobReader)
    """Reads images, and remembers which parts it found damaged."""
    call: RunResult | None = None
    """What the call of `plait.run` or `plait.score` did that returned this."""
    log: str = ""
    """What the command would have printed, of a quiet call."""

    @classmethod
    def at(cls, root: AnyPath) -> "RunData":
        """Return the run in `root`; UsageError where there is none."""
        root = root.expanduser().resolve()
        return cls(root, open_results(root, strict=False))

    @property
    def outcome(self) -> RunResult:
        """Counts, failures, records made, seconds, whether it was interrupted.

        Of the call that returned this; of a run that was opened, the counts that its last
        command has left, with nothing made.

        Examples:
            >>> outcome = plait.open_run("runs/quickstart").outcome
            >>> outcome.counts["done"], outcome.failed, outcome.made
            (36, 0, 0)
        """
        if self.call is not None:
            return self.call
        counts: dict[str, int] = self.manifest.get("counts", {})
        failed = counts.get("failed", 0) + counts.get("failed_scores", 0)
        return RunResult(counts, failed=failed, made=0, seconds=0.0)

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
        queries = {}
        for id, sample in self.results.queries.items():
            queries[id] = TaskQuery(id=id, sample=sample, prompt=prompt, read=self.read)
        return queries

    def answers(
        self,
        *,
        system: Name = None,
        query: Name = None,
        category: Name = None,
        outcome: Name = None,
        repeat: int | None = None,
    ) -> Answers:
        """Return the answers by system, repeat and query.

        Args:
            system: Only these systems.
            query: Only these queries, by id.
            category: Only queries of these categories.
            outcome: Only `done`, `failed`, `skipped` or `missing` answers.
            repeat: Only this repeat, counted from 1.

        Raises:
            UsageError: For names that the run does not have.

        Examples:
            >>> run = plait.open_run("runs/quickstart")
            >>> run.answers(system="anole", category="SA")
            Answers(4: 4 done)
            >>> for answer in run.answers(system="anole", outcome="done")[:2]:
            ...     print(answer.query.id, len(answer.images), answer.scores["clipscore"])
            SA-0001 1 1.863
            PBL-0002 2 2.037
        """
        repeats = self.about.repeats
        if repeat is not None and not 1 <= repeat <= repeats:
            raise UsageError(f"repeat {repeat} is not from 1 to {repeats}")
        board = self.board
        asked = {
            "system": _valid_names("system", system, self.systems),
            "query": _valid_names("query", query, self.queries),
            "category": _valid_names("category", category, board.category_names),
            "outcome": _valid_names("outcome", outcome, DOCUMENT_OUTCOMES),
        }
        # By row of the board's table: whether it is an answer that was asked for.
        wanted = board.is_answer
        # Not `&=`, which would change the mask that the board keeps.
        for column, names in asked.items():
            if names is not None:
                wanted = wanted & board.column[column].is_(*names)
        repeat_numbers = board.table.column("repeat").to_numpy()
        if repeat is not None:
            wanted = wanted & (repeat_numbers == repeat)
        rows = np.flatnonzero(wanted)
        by_system = board.column["system"].recode(self.systems)[rows]
        by_repeat = repeat_numbers[rows]
        by_query = board.column["query"].recode([*self.queries])[rows]
        # The last key of `lexsort` is the first to be sorted by.
        order = np.lexsort((by_query, by_repeat, by_system))
        return Answers(self, rows[order])

    def answer(self, query: str, system: str, repeat: int = 1) -> QueryAnswer:
        """Return what `system` made of a query; `repeat` counts from 1. UsageError.

        Examples:
            >>> answer = plait.open_run("runs/quickstart").answer("SA-0001", "gt")
            >>> answer.scores["truth:match"].value
            100.0
        """
        return self.answers(system=system, query=query, repeat=repeat)[0]

    def show(self, query: str, systems: Name = None) -> QueryView:
        """Return a query with the first answers of these systems, or of all, to be shown.

        UsageError for names that the run does not have.

        Examples:
            >>> run = plait.open_run("runs/quickstart")
            >>> print(run.show("MSR-0003", systems=["anole"]))
            MSR-0003
            user: <image>
            How many squares are there?
            <BLANKLINE>
            anole
            There are two squares.
            clipscore: not applicable: the query asks for no images
            truth:match: not applicable: the query asks for no images
        """
        names = self._names_or_ranked(systems)
        answers = self.answers(system=names, query=query, repeat=1)
        by_system = {answer.system: answer for answer in answers}
        return QueryView(self.queries[query], [by_system[name] for name in names])

    def compare(self, first: str, second: str, *, scorer: Name = None) -> SystemComparison:
        """Return how two systems differ by these scorers, or by all, query by query.

        UsageError for names that the run does not have, and for scorers of sets of images.

        Examples:
            >>> run = plait.open_run("runs/quickstart")
            >>> by = run.compare("gt", "anole", scorer="clipscore")["clipscore"]
            >>> by.difference.n
            8
            >>> by.higher, by.equal, by.lower       # queries
            (5, 0, 3)
        """
        scorers: list[str] | None = None
        if isinstance(scorer, str):
            scorers = [scorer]
        elif scorer:
            scorers = [*scorer]
        return SystemComparison.of(self.board, first, second, scorers)

    def correct(
        self,
        ratings: str | PathLike[str] | None = None,
        *,
        scorer: str | None = None,
        drawn: Literal["random"] | None = None,
        strata: Literal["category", "field"] | None = None,
        scale: str | None = None,
    ) -> "Correction":
        """Return the scores of a judge, corrected by people's ratings of some answers.

        Args:
            ratings: File of scores or votes; by default that of `plait annotate --collect`.
            scorer: Whose scores are corrected, where the run has several scorers.
            drawn: `random` states that the rated answers were chosen at random; those of
                `plait annotate` were, and say so.
            strata: They were chosen at random within each `category` or `field`.
            scale: Of people's scores; by default 0-6.

        Raises:
            UsageError: Where the ratings correct nothing, with the reason.

        Examples:
            >>> run = plait.open_run("runs/quickstart")
            >>> lines = [f"{id},anole,{n % 3 + 3}" for n, id in enumerate(run.queries)]
            >>> with open("people.csv", "w") as file:
            ...     print("id,system,score", *lines, sep=chr(10), file=file)
            >>> found = run.correct("people.csv", scorer="truth:match", drawn="random")
            >>> one = found.systems["anole"]
            >>> one.rated, round(one.judge.value, 2), round(one.ratings.value, 2)
            (8, 5.77, 3.5)
        """
        from plait.benchmarks.studies.correct import CorrectSettings, correct

        path = None if ratings is None else Path(ratings)
        settings = CorrectSettings(
            scorer=scorer, drawn=drawn, strata=strata, scale=scale or ""
        )
        return correct(self.board, self.root, path, settings)

    def sheet(
        self,
        queries: int | Sequence[str] = QUERIES,
        *,
        systems: Name = None,
        scorer: str | None = None,
    ) -> "PILImage":
        """Return a contact sheet: the images of a few queries by system, side by side.

        Args:
            queries: Their ids, or how many: as many of each category as there are, those
                first that the scorer sets the systems furthest apart on.
            systems: Its columns; by default all, the best first.
            scorer: Whose scores stand below the images, means over repeats; by default the
                first one that has scores of single queries.

        Raises:
            UsageError: For names that the run does not have, or no query.
            ImageError: Where an image cannot be read.

        Examples:
            >>> sheet = plait.open_run("runs/quickstart").sheet(2, systems=["anole", "gt"])
            >>> sheet.size
            (664, 460)
            >>> sheet.save("sheet.png")
        """
        columns = self._names_or_ranked(systems)
        by = self._scorer_of_queries(scorer)
        chosen = queries
        if not isinstance(queries, int):
            chosen = _valid_names("query", queries, self.queries) or []
        if not chosen or (isinstance(chosen, int) and chosen < 1):
            raise UsageError(f"{queries!r} names no query: give ids, or a number from 1")
        sheet = sheet_of_systems(self.board, columns, chosen, by)
        if not sheet.queries:
            raise UsageError(f"no answer of {', '.join(columns)} holds an image")
        return draw_sheet(sheet, self.read)

    def _scorer_of_queries(self, name: str | None) -> Scorer | None:
        """Return the scorer with this name, or the first; None where a run has none.

        Scorers of sets are left out: they have no score of a single query.
        """
        scorers: dict[str, Scorer] = {}
        for scorer in self.board.scorers:
            if not scorer.of_sets:
                scorers[scorer.name] = scorer
        names = _valid_names("scorer", name, scorers) or [*scorers]
        return scorers[names[0]] if names else None

    def _names_or_ranked(self, systems: Name) -> list[str]:
        """Return the systems that are named; where none is, all, the best first."""
        names = _valid_names("system", systems, self.systems)
        return names or [row["system"] for row in rank(self.board)]

    @property
    def table(self) -> Frame:
        """The one table of the run: a row for every answer, score and criterion.

        Its columns are those of `plait.benchmarks.results.board.SCHEMA`.
        """
        return Frame(self.board.table)

    @property
    def scores(self) -> Frame:
        """The rows of `table` that are judgements, whatever came of them.

        `value` is null unless `outcome` is `scored`; where there is no document the
        outcome is `no_document` and the reason is the document's.
        """
        judged = ~self.board.is_answer & (self.board.column["criterion"].codes < 0)
        return Frame(self.board.table.filter(pa.array(judged)))

    @property
    def failures(self) -> Frame:
        """The rows of `table` for answers and judgements without a value, with reasons.

        Those that are not made yet are among them; that a scorer does not apply is no
        failure.
        """
        valued = self.board.column["outcome"].is_(*VALUED, OutcomeName.NO_DOCUMENT)
        return Frame(self.board.table.filter(pa.array(~valued)))

    @cached_property
    def board(self) -> Board:
        """Everything tables are made of."""
        return self.results.board

    @cached_property
    def leaderboard(self) -> ResultTable:
        """One row per system: an average of each scorer with its interval, and counts."""
        board = self.board
        table = headline_table(board)
        notes = [f"Warning: {board.warning}."] if board.warning else []
        notes.append(outcomes_note(board))
        notes += table.notes
        notes += board.about_replies
        notes += board.about_scorers
        return replace(table, notes=tuple(notes))

    @property
    def reasons(self) -> ResultTable:
        """The most frequent reasons why answers and judgements have no value."""
        return reasons_table("system", reasons_of(self.board))

    @property
    def damage(self) -> tuple[str, ...]:
        """What was found damaged while reading; such records count as missing."""
        of_images = [str(damage) for damage in self.read.damage.values()]
        return (*self.results.store.notices, *of_images)

    def __repr__(self) -> str:
        queries = quantity(len(self.queries), "query")
        systems = quantity(len(self.systems), "system")
        scorers = quantity(len(self.scorers), "scorer")
        return f"RunData({str(self.root)!r}: {queries}, {systems}, {scorers})"

    def _repr_html_(self) -> str:
        table = self.leaderboard.html
        answers = self._answers_html()
        notes = "".join(missing_note(text) for text in self.damage)
        return heading(str(self.root)) + table + answers + notes

    def _answers_html(self) -> str:
        """Return one query, where systems differ most, with their answers side by side."""
        apart = furthest_apart(self.board, self.queries)
        id = apart.query if apart else next(iter(self.queries), None)
        if id is None:
            return ""
        return self.show(id)._repr_html_()

    def _column(self, name: str, rows: npt.NDArray[np.int64]) -> list[Any]:
        """Return a column of some rows of the table."""
        values: list[Any] = self.board.table.column(name).take(pa.array(rows)).to_pylist()
        return values

    def _read_answers(self, rows: npt.NDArray[np.int64]) -> Iterator[QueryAnswer]:
        """Yield the answers at some rows of the table, which are read together."""
        systems = self._column("system", rows)
        keys = self._column("query", rows)
        repeats = self._column("repeat", rows)
        evaluations = self.results.evaluations(
            {*keys},
            systems={*systems},
            repeat=repeats[0] if len({*repeats}) == 1 else None,
            notes=self.results.answers <= MOST_WITH_NOTES,
        )
        # They come in the order of the results, and more than those that are wanted:
        # all combinations of these systems and queries.
        found = {}
        for made in evaluations:
            found[made.system, key_of(made.query), made.repeat + 1] = made
        for system, key, repeat in zip(systems, keys, repeats, strict=True):
            made = found[system, key, repeat]
            query = self.queries[key]
            yield QueryAnswer.of(system, query, made.document, repeat, made.scores)


def _valid_names(what: str, names: Name, valid: Collection[str]) -> list[str] | None:
    """Return the names as a list, None for all; UsageError for one that is not valid."""
    if names is None:
        return None
    asked = [names] if isinstance(names, str) else [*names]
    for name in asked:
        if name not in valid:
            raise unknown(what, name, valid)
    return asked
