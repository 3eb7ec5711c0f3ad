"""The table of a run, one row for every answer and every score, and the view of it.

It is made of the results of a run (`files/boards.py`), in the order of the plan. An answer
is a row without scorer, whose outcome is `done`, `failed`, `skipped` or `missing`. A row
for each scorer follows; without a document its outcome is `no_document`. Where a judge
rules on criteria, a row for each of them follows the judge's. `value` is null wherever
there is no score, and `reason` says why. All tables and plots are made of a `Board`, which
holds the table and what its names stand for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.benchmarks.protocols.differences import PinnedRunFacts
from plait.benchmarks.results.costs import Amounts, DocumentCost
from plait.benchmarks.results.people import MeasuredAgreement, agreement_of
from plait.cluster.plan import Evaluation
from plait.generators.base import (
    RANDOM,
    Failure,
    Outcome,
    OutcomeName,
    Result,
    outcome_name,
)
from plait.generators.document import Score
from plait.generators.mini.table import ABOUT, ABOUT_JUDGE
from plait.generators.system import DescribedSystem
from plait.scorers.base import Scorer
from plait.scorers.parts import PartKind
from plait.scorers.statistics.estimate import Estimate, Floats
from plait.scorers.statistics.judge_error import JudgeErrors
from plait.scorers.statistics.multiple import Correction

NAME = pa.dictionary(pa.int32(), pa.string())
"""A column of names, each stored once: a run has millions of rows and few names."""
SCHEMA = pa.schema(
    [
        ("system", NAME),
        ("lvlm", NAME),
        ("t2i", NAME),
        ("protocol", NAME),
        ("query", NAME),
        ("category", NAME),
        ("field", NAME),
        pa.field("repeat", pa.int32(), metadata={"about": "counted from 1"}),
        pa.field("scorer", NAME, metadata={"about": "null in the row of an answer"}),
        pa.field("criterion", NAME, metadata={"about": "null but in rows of criteria"}),
        ("outcome", NAME),
        ("value", pa.float64()),
        ("reason", NAME),
        ("fault", NAME),
        pa.field("seconds", pa.float64(), metadata={"about": "that stages were busy"}),
        pa.field("tokens", pa.float64(), metadata={"about": "in and out"}),
        pa.field("cost", pa.float64(), metadata={"about": "by the prices of the config"}),
        pa.field("images", pa.float64(), metadata={"about": "in the document"}),
        pa.field("discarded", pa.float64(), metadata={"about": "images no critic kept"}),
    ]
)
MINI = "mini"
"""The kind of weights whose output says nothing about published models."""
NOT_MADE = "not made yet: run the same command again"
RAW: PartKind = "raw"
"""The criterion under which a judge's score on its rubric's own scale stands."""
PENALTY: PartKind = "penalty"
"""The criterion under which what is taken off a judge's score stands."""
DONE = OutcomeName.DONE
SCORED = OutcomeName.SCORED
MISSING = OutcomeName.MISSING
NO_DOCUMENT = OutcomeName.NO_DOCUMENT


class OutcomeWords(NamedTuple):
    """What the tables say of an outcome."""

    name: OutcomeName
    reason: str
    """Why there is no value; empty where there is one."""
    fault: str
    """Of which kind a failure is; empty of all else."""


def outcome_of(outcome: Outcome[Any] | None) -> OutcomeWords:
    """Return what is said of an outcome; None is that of what is not made yet."""
    if outcome is None:
        return OutcomeWords(MISSING, NOT_MADE, "")
    fault = outcome.fault.value if isinstance(outcome, Failure) else ""
    reason = getattr(outcome, "reason", "")
    return OutcomeWords(outcome_name(outcome), reason, fault)


def score_value(outcome: Outcome[Score] | None) -> float | None:
    """Return the score, where there is one; it is a finite number (`admit`)."""
    return float(outcome.value.value) if isinstance(outcome, Result) else None


class QueryRow(NamedTuple):
    """A planned query as the tables see it."""

    key: str
    category: str
    field: str


class Group(NamedTuple):
    """The smallest set of queries that means are computed over."""

    category: str
    field: str


Mask = npt.NDArray[np.bool_]
"""By row of a table, whether it is meant."""
Codes = npt.NDArray[np.int32]
"""By row of a table, which of a column's names it has; -1 for none."""
Rows = npt.NDArray[np.int64]
"""Numbers of rows."""


def in_one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array.

    Of a column of names every chunk would go on to hold all of them, and whatever joins the
    chunks later would go through all names again for each.
    """
    if not pa.types.is_dictionary(column.type) or column.num_chunks == 0:
        return column.combine_chunks()
    chunks = column.unify_dictionaries().chunks
    indices = pa.concat_arrays([chunk.indices for chunk in chunks])
    return pa.DictionaryArray.from_arrays(indices, chunks[0].dictionary)


class Names(NamedTuple):
    """A column of names: the different ones, and by row the position of its own."""

    names: list[str]
    codes: Codes

    @classmethod
    def of(cls, table: pa.Table, column: str) -> Names:
        """Return the column of a table that was made here, or read from a file."""
        found = in_one_chunk(table.column(column))
        codes = found.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return cls(found.dictionary.to_pylist(), codes)

    def is_(self, *names: str) -> Mask:
        """Return which rows have one of `names`."""
        wanted = set(names)
        codes = [i for i, name in enumerate(self.names) if name in wanted]
        return np.isin(self.codes, codes)

    def at(self, rows: Rows) -> list[str]:
        """Return the names of rows, each of which has one."""
        return [self.names[code] for code in self.codes[rows].tolist()]

    def names_of(self, where: Mask) -> set[str]:
        """Return the names that some rows have."""
        return {self.names[code] for code in np.unique(self.codes[where]) if code >= 0}

    def recode(self, names: Sequence[str]) -> Codes:
        """Return by row the position of its name in `names`; -1 for others and for none."""
        wanted = pa.array(names, pa.string())
        found = pc.index_in(pa.array(self.names, pa.string()), wanted)
        # The code of a row without a name is -1, and picks this last one.
        places = np.full(len(self.names) + 1, -1, np.int32)
        places[:-1] = found.fill_null(-1).to_numpy()
        return places[self.codes]


Reading = Callable[[Collection[str]], Iterable[Evaluation]]
"""Brings back the evaluations of some queries, named by their keys, in the plan's order."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Board:
    """The table of a run and what its names stand for; no models, no store."""

    table: pa.Table
    """With the columns of `SCHEMA`."""
    systems: Sequence[DescribedSystem]
    scorers: Sequence[Scorer]
    categories: Mapping[str, int]
    """Published queries per category, the weights of `avg_fixed`; may be empty."""
    fields: Sequence[str]
    """The task set's fields, in the order of the tables."""
    weights: str
    """`pretrained`, `mini`, `dummy`, `tiny` or `mixed`."""
    selection: str = ""
    """Which part of the task set was selected, for every heading."""
    repeats: int = 1
    """Answers per query; at least as many as the table shows."""
    costs: Sequence[DocumentCost] | None = None
    """Of the documents of composed systems; None where no records are at hand."""
    spent: Mapping[str, Amounts] = field(default_factory=dict)
    """By the names of systems and scorers, and of all as "", what their records took."""
    cut: Mapping[str, int] = field(default_factory=dict)
    """By system its answers, by scorer its judgements, with a reply that was cut."""
    figures: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)
    """By the name of a scorer of sets, the figure of each of `systems`."""
    thoughts: Mapping[str, int] = field(default_factory=dict)
    """By system, its answers that begin with a thought, where there are any."""
    damaged: int = 0
    """Damaged parts of the run, whose records count as missing."""
    criterion_scales: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By scorer and criterion, of scorers whose criteria are on scales of their own."""
    correction: Correction = "holm"
    """Of the p-values of all pairs of systems."""
    pinned: PinnedRunFacts | None = None
    """What of the run its pinned protocol is compared with; None where it has none."""
    judge_errors: Mapping[str, JudgeErrors] = field(default_factory=dict)
    """By scorer, what its judge's own error adds to means, where that was measured."""
    agreement: Sequence[MeasuredAgreement] = ()
    """How often judges were measured to agree with people, beside published figures."""
    reading: Reading = lambda keys: ()
    """The answers themselves, for the page."""

    @cached_property
    def about_scorers(self) -> list[str]:
        """How judges are asked, and how often scorers agree with people; a line each."""
        lines = []
        for scorer in self.scorers:
            texts = []
            if scorer.superseded:
                texts.append(f"made by {scorer.superseded}")
            if scorer.manner:
                texts.append(scorer.manner)
            texts += map(str, agreement_of(scorer, self.agreement))
            lines += [f"{scorer.name}: {text}." for text in texts]
        return lines

    @cached_property
    def about_replies(self) -> list[str]:
        """How many answers and judgements hold a reply that was cut; a line at most."""
        counts = []
        parts: list[DescribedSystem | Scorer] = [*self.systems, *self.scorers]
        for part in parts:
            if self.cut.get(part.name):
                counts.append(f"{part.name} {self.cut[part.name]:,}")
        return [f"Cut at the maximum length: {', '.join(counts)}."] if counts else []

    @cached_property
    def system_names(self) -> list[str]:
        """The names of the systems: the columns of `values`."""
        return [system.name for system in self.systems]

    @cached_property
    def place_of_system(self) -> Mapping[str, int]:
        """By name the position of each system, by which links of the page name it."""
        return {name: place for place, name in enumerate(self.system_names)}

    @property
    def scorer_names(self) -> list[str]:
        """The names of the scorers, in the order of the config."""
        return [scorer.name for scorer in self.scorers]

    @cached_property
    def scorers_of_answers(self) -> Mapping[str, Scorer]:
        """By name, the scorers that score single answers, not sets of images."""
        return {scorer.name: scorer for scorer in self.scorers if not scorer.of_sets}

    @cached_property
    def column(self) -> Mapping[str, Names]:
        """The columns of names."""
        columns = {}
        for column in self.table.schema:
            if pa.types.is_dictionary(column.type):
                columns[column.name] = Names.of(self.table, column.name)
        return columns

    @cached_property
    def is_answer(self) -> Mask:
        """The rows of answers."""
        # A code below 0 is that of no name, and answers have no scorer.
        return self.column["scorer"].codes < 0

    @cached_property
    def is_complete(self) -> Mask:
        """The rows of answers of which nothing is missing, and of their scores.

        An answer whose scores are not all there yet counts nowhere: else the means of
        scorers would be over different queries while a run is under way.
        """
        # The rows of an answer's scores follow its own: all have the number of that answer.
        answer = np.cumsum(self.is_answer) - 1
        # One more than there are answers, for a table without any.
        is_lost = np.zeros(self.is_answer.sum() + 1, dtype=np.bool_)
        is_lost[answer[self.column["outcome"].is_(MISSING)]] = True
        complete: Mask = ~is_lost[answer]
        return complete

    @cached_property
    def is_score(self) -> Mask:
        """The rows of judgements, of complete answers that have a document."""
        has_document = ~self.column["outcome"].is_(NO_DOCUMENT)
        # The rows of criteria are parts of a judgement, which has a row of its own.
        is_judgement = ~self.is_answer & (self.column["criterion"].codes < 0)
        return is_judgement & has_document & self.is_complete

    @cached_property
    def is_counted(self) -> Mask:
        """The rows of complete answers and of their judgements."""
        return (self.is_answer & self.is_complete) | self.is_score

    def rulings(self, scorer: str) -> Mask:
        """Return the rows of what a judge ruled on criteria, of complete answers."""
        has_criterion = self.column["criterion"].codes >= 0
        return self.column["scorer"].is_(scorer) & has_criterion & self.is_complete

    @cached_property
    def missing(self) -> int:
        """Answers not yet made or scored, over all systems."""
        return int((self.is_answer & ~self.is_complete).sum())

    @cached_property
    def rounds(self) -> int:
        """Answers per query."""
        numbers = self.table.column("repeat").to_numpy()[self.is_complete]
        return max(self.repeats, int(numbers.max(initial=1)))

    @cached_property
    def answers(self) -> int:
        """Answers planned of each system."""
        return int(self.is_answer.sum()) // len(self.systems) if self.systems else 0

    @cached_property
    def n(self) -> int:
        """Planned queries."""
        # Of queries without an evaluation only the number of their answers is known.
        return max(len(self.keys), math.ceil(self.answers / self.rounds))

    @property
    def queries(self) -> list[QueryRow]:
        """The queries that have an evaluation, in the order of their first answer.

        Made anew each time: they take more memory than most else of a large board.
        """
        rows = np.sort(self._first_answers)
        keys = self.column["query"].at(rows)
        categories = self.column["category"].at(rows)
        fields = self.column["field"].at(rows)
        return [*map(QueryRow, keys, categories, fields)]

    @cached_property
    def _first_answers(self) -> Rows:
        """By query of `keys`, the first row of its answers."""
        answers = np.flatnonzero(self.is_answer & self.is_complete)
        _, first = np.unique(self.column["query"].codes[answers], return_index=True)
        rows = answers[first]
        keys = self.column["query"].at(rows)
        # By key, whatever the order of the plan: readers find a key by bisection.
        return rows[sorted(range(len(rows)), key=keys.__getitem__)]

    @cached_property
    def groups(self) -> dict[Group, Rows]:
        """The rows of `values` that are of each group."""
        category = self.column["category"]
        field = self.column["field"]
        pairs = np.stack([category.codes, field.codes])[:, self._first_answers]
        # Sorted by their codes, queries of one group are neighbours: a group begins
        # wherever either code differs from the one before. Every query has both names,
        # so that no code is the -1 before the first.
        order = np.lexsort(pairs)
        is_first = (np.diff(pairs[:, order], prepend=-1) != 0).any(axis=0)
        groups = {}
        for rows in np.split(order, np.flatnonzero(is_first)[1:]):
            # Of a board without answers `split` gives one part with nothing in it.
            if len(rows):
                of_category, of_field = pairs[:, rows[0]]
                group = Group(category.names[of_category], field.names[of_field])
                groups[group] = rows
        # By name, as codes are in the order in which names were seen.
        return {group: groups[group] for group in sorted(groups)}

    def groups_of_category(self, name: str) -> list[Group]:
        """Return the groups of a category, one for each field that it has queries of."""
        return [group for group in self.groups if group.category == name]

    def groups_of_field(self, name: str) -> list[Group]:
        """Return the groups of a field, one for each category that it has queries of."""
        return [group for group in self.groups if group.field == name]

    def rows_of(self, groups: Iterable[Group]) -> Rows:
        """Return the rows of `values` that are of some groups."""
        # `concatenate` wants at least one array, and there may be no group.
        parts = [np.zeros(0, np.int64)]
        for group in groups:
            parts.append(self.groups[group])
        return np.concatenate(parts)

    @cached_property
    def category_names(self) -> list[str]:
        """Categories in the published order, then any others."""
        return _order(self.categories, {group.category for group in self.groups})

    @cached_property
    def field_names(self) -> list[str]:
        """Fields in the task set's order, then any others."""
        return _order(self.fields, {group.field for group in self.groups})

    @cached_property
    def keys(self) -> list[str]:
        """The queries' keys in sorted order: the rows of `values`."""
        return self.column["query"].at(self._first_answers)

    @cached_property
    def tallies(self) -> dict[tuple[str, str, str], Counter[tuple[str, str]]]:
        """Outcomes by (system, category, field), counted under (scorer or "", name)."""
        tallies: dict[tuple[str, str, str], Counter[tuple[str, str]]] = {}
        # Also of systems without any row, so that all have the same groups.
        for system in self.system_names:
            for group in self.groups:
                tallies[system, *group] = Counter()
        columns = ["system", "category", "field", "scorer", "outcome"]
        counted = self.group(self.is_counted, columns)
        for system, category, field_name, scorer, outcome, count in counted:
            # An answer and a judgement that failed are different things, with two names.
            shown = OutcomeName(outcome).of_scores if scorer else outcome
            tallies[system, category, field_name][scorer or "", shown] = count
        return tallies

    def group(
        self, where: Mask, columns: Sequence[str], value: str | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the different combinations of some columns, the first seen first.

        With the number of their rows and, of another column, the sum of its `value`s.
        """
        aggregates: list[Any] = [([], "count_all")]
        wanted = [*columns]
        if value:
            aggregates.append((value, "sum"))
            wanted.append(value)
        aggregates.append(("place", "min"))
        rows = self.table.select(wanted).filter(pa.array(where)).unify_dictionaries()
        rows = rows.append_column("place", pa.array(np.arange(len(rows))))
        # Several threads would add numbers in an order that differs from time to time.
        groups = rows.group_by([*columns], use_threads=False).aggregate(aggregates)
        # Groups are in an order of their own, which follows from hashes.
        groups = groups.sort_by("place_min").drop_columns("place_min")
        return zip(*map(pa.ChunkedArray.to_pylist, groups.columns), strict=True)

    @cached_property
    def values(self) -> dict[str, Floats]:
        """By scorer (queries, systems): means over repeats, NaN where none is scored."""
        # By row of the table, its place in the arrays that are made here.
        query_of = self.column["query"].recode(self.keys)
        system_of = self.column["system"].recode(self.system_names)
        value = self.table.column("value").to_numpy()
        scored = self.is_score & ~np.isnan(value)
        # Each repeat counts as a fraction below 1, so that no sum of large scores
        # overflows; a power of two, by which the mean loses no digit.
        unit = 2.0 ** -self.rounds.bit_length()
        shape = len(self.keys), len(self.systems)
        values = {}
        for scorer in self.scorers:
            rows = np.flatnonzero(scored & self.column["scorer"].is_(scorer.name))
            places = query_of[rows], system_of[rows]
            sums = np.zeros(shape)
            counts = np.zeros(shape)
            # Not `sums[places] += ...`, which would count repeats of a query once.
            np.add.at(sums, places, unit * value[rows])
            np.add.at(counts, places, unit)
            # 0 / 0 is the NaN of a query without a score.
            with np.errstate(invalid="ignore"):
                values[scorer.name] = sums / counts
        return values

    def rows(self, where: Mask, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Some columns of some rows, as plain values."""
        selected = self.table.select(columns).filter(pa.array(where))
        # Some rows at a time: as Python's values they take many times the memory.
        for batch in selected.to_batches(max_chunksize=10_000):
            yield from zip(*map(pa.Array.to_pylist, batch.columns), strict=True)

    @property
    def faults(self) -> Iterator[str]:
        """Why answers and judgements failed, one for each."""
        failed = self.is_counted & self.column["outcome"].is_(OutcomeName.FAILED)
        return (fault for (fault,) in self.rows(failed, "fault"))

    @property
    def images_per_document(self) -> dict[str, float]:
        """Images of one answer on average, by system, failed and skipped ones included."""
        answers = self.is_answer & self.is_complete
        means = {}
        for system, n, images in self.group(answers, ["system"], "images"):
            # A sum over nulls alone, of answers without documents, is null too.
            means[system] = round((images or 0) / n, 4)
        return means

    @property
    def nothing_scored(self) -> dict[str, int]:
        """Return the scorers that scored nothing, with the judgements that gave no score.

        A scorer that applies to nothing is none of them, and where random weights answer
        or judge, nobody expects a score.
        """
        random = {*chain.from_iterable(self._random_weights.values())}
        if random.issuperset(self.system_names):
            return {}
        counts = Counter[tuple[str, str]]()
        for tally in self.tallies.values():
            counts.update(tally)
        judgements = {}
        for name in self.scorer_names:
            without_score = counts[name, "unscored"] + counts[name, "failed_scores"]
            if name not in random and not counts[name, "scored"] and without_score:
                judgements[name] = without_score
        return judgements

    @property
    def unanswered(self) -> int:
        """Count the answers, where each has failed or was skipped; else 0."""
        counts = Counter[str]()
        for tally in self.tallies.values():
            for (scorer, outcome), count in tally.items():
                # The outcomes of answers themselves stand under no scorer.
                if not scorer:
                    counts[outcome] += count
        return 0 if counts["done"] else counts["failed"] + counts["skipped"]

    def _of_weights(self, kind: str) -> list[str]:
        """Return the systems and scorers that have a stage with weights of a kind."""
        names = []
        parts: list[DescribedSystem | Scorer] = [*self.systems, *self.scorers]
        for part in parts:
            if any(stage.weights == kind for stage in part.stages):
                names.append(part.name)
        return names

    @property
    def _random_weights(self) -> dict[str, list[str]]:
        """By kind of random weights, the systems and scorers that have them."""
        names: dict[str, list[str]] = {}
        for kind in RANDOM:
            if own := self._of_weights(kind):
                names[kind] = own
        return names

    @property
    def title(self) -> str:
        """Heading of every table: which queries, and how many repeats."""
        queries = f"{self.n:,} {'query' if self.n == 1 else 'queries'}"
        repeats = f" x {self.rounds} repeats" if self.rounds > 1 else ""
        return f"{self.selection or queries}{repeats}"

    @property
    def mark(self) -> dict[str, int]:
        """What every row tells programs; nothing where no part is damaged."""
        return {"damaged_parts": self.damaged} if self.damaged else {}

    def mark_of(self, system: str) -> dict[str, int]:
        """What the rows of a system tell programs besides."""
        if not self.thoughts:
            return self.mark
        return self.mark | {"answers_with_thoughts": self.thoughts.get(system, 0)}

    @cached_property
    def warnings(self) -> list[str]:
        """What readers must know before any number."""
        found = []
        if self.damaged:
            found.append(
                f"damaged parts in this run ({self.damaged:,}), whose records count as "
                "missing in all numbers"
            )
        if random := self._random_weights:
            kinds = [f"{kind}: {', '.join(own)}" for kind, own in random.items()]
            named = "; ".join(kinds)
            found.append(f"random weights ({named}): the numbers mean nothing")
        if mini := self._of_weights(MINI):
            judged = any(name.startswith("judge:") for name in mini)
            about = f"{ABOUT}; {ABOUT_JUDGE}" if judged else ABOUT
            found.append(f"mini weights ({', '.join(mini)}), {about}")
        if self.thoughts:
            found.append(self._about_thoughts)
        if levers := self._levers:
            named = "; ".join(f"{name}: {', '.join(own)}" for name, own in levers.items())
            found.append(f"images that are not the plain model's ({named})")
        return found

    @cached_property
    def _levers(self) -> dict[str, list[str]]:
        """By system, what makes its images others than its model's, where anything does."""
        levers = {system.name: levers_of(system) for system in self.systems}
        return {name: own for name, own in levers.items() if own}

    @property
    def _about_thoughts(self) -> str:
        counts = []
        makers = []
        for system in self.systems:
            thoughts = self.thoughts.get(system.name)
            if thoughts:
                counts.append(f"{system.name}: {thoughts:,} of {self.answers:,}")
                # Answers that were given cannot be made again.
                if system.stages:
                    makers.append(system.name)
        advice = ""
        if makers:
            advice = f"; `plait run --remake` makes those of {', '.join(makers)} again"
        named = ", ".join(counts)
        return f"answers that hold the model's thought ({named}) are scored with it{advice}"

    @property
    def warning(self) -> str:
        """The warnings on one line; empty if there is none."""
        return ". ".join(self.warnings)

    @property
    def brief_warning(self) -> str:
        """The same in a few words, for captions."""
        parts = []
        if self.damaged:
            parts.append("Damaged parts: records are missing.")
        if self._random_weights:
            parts.append("Random weights: the numbers mean nothing.")
        elif self._of_weights(MINI):
            parts.append("Mini weights: nothing is said about published models.")
        if self.thoughts:
            parts.append("Some answers hold the model's thought.")
        for name, levers in self._levers.items():
            parts.append(f"{name} draws with {', '.join(levers)}.")
        return " ".join(parts)


def weights_of(system: DescribedSystem) -> str | None:
    """Return the weights a system ran on; None where it has none (endpoints)."""
    kinds = {str(stage.weights) for stage in system.stages if stage.weights is not None}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), None)


_OF_FILES = {"loras": "LoRA", "fused-loras": "LoRA", "denoiser": "another denoiser"}
"""Beginnings of what a checkpoint's identity names besides it, and what they are."""


def levers_of(system: DescribedSystem) -> list[str]:
    """Return what makes a system's images others than its model's: a `speed`, adapters."""
    found: dict[str, None] = {}
    for stage in system.stages:
        if speed := stage.settings.get("speed"):
            found[str(speed)] = None
        for part in stage.identity.split("+"):
            kind, _, _ = part.partition(":")
            if kind in _OF_FILES:
                found[_OF_FILES[kind]] = None
    return [*found]


def _order(first: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return names in the order of the task set, then any `others` sorted."""
    in_task = list(first)
    return in_task + sorted(set(others) - set(in_task))
