"""The board of a run from its tables: columns are joined, no row becomes a value."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.results.board import SCHEMA, Board
from benchmarks.results.costs import Amounts, DocumentCost, RecordCost
from benchmarks.results.files.about import figures_of, measured_of
from benchmarks.results.pairings.matrix import composition_of, matrices_of
from generators.base import Kind, OutcomeName
from pipelines.chat.endings import CUT

if TYPE_CHECKING:
    from benchmarks.results.files.reading import RunResults

Indices = npt.NDArray[np.int64]
_AMOUNTS = (
    *("seconds", "gpu_seconds", "input_tokens", "output_tokens"),
    *("pictures", "joules", "cost", CUT),
)
_SHOWN = ("criterion", "penalty", "raw")
"""Kinds of parts of a score that have a row of the board."""
_ABOUT = ("system", "query", "repeat")


def board_of(results: RunResults) -> Board:
    """Return the board of stored results."""
    about, answers = results.about, results.table("answers", _COLUMNS_OF_ANSWERS)
    scores = results.table("scores", _COLUMNS_OF_SCORES)
    spending = Spending.of(results, answers, scores)
    table = _Rows(results, answers, scores, spending).table()
    thought = answers.filter(pc.fill_null(answers.column("thought"), False))
    return Board(
        table=table,
        figures=figures_of(about.figures),
        systems=results.systems,
        scorers=results.scorers,
        categories=about.categories,
        fields=about.fields,
        weights=about.weights,
        selection=about.selection,
        repeats=about.repeats,
        costs=_document_costs(results, answers, spending),
        spent=spending.totals,
        thoughts=Counter(thought.column("system").to_pylist()),
        cut=spending.cut,
        damaged=about.damaged,
        agreement=measured_of(about.agreement),
        reading=partial(results.evaluations, notes=True),
    )


_COLUMNS_OF_ANSWERS = (
    *_ABOUT,
    *("outcome", "reason", "fault", "images", "discarded", "thought", "tries", "jobs"),
)
_COLUMNS_OF_SCORES = (
    *(*_ABOUT, "scorer"),
    *("outcome", "value", "reason", "fault", "jobs"),
)


@dataclass(frozen=True, eq=False)
class Asked:
    """The records that rows of a table are made of, each once for a row."""

    row: Indices
    record: Indices
    """Its row in the table of records."""


@dataclass(frozen=True, eq=False)
class Spending:
    """What answers and scores took, from the records that they are made of."""

    records: pa.Table
    amounts: Mapping[str, npt.NDArray[np.float64]]
    """By measure, of each record; NaN where it is not known."""
    answers: Asked
    scores: Asked
    totals: Mapping[str, Amounts]
    """By the names of systems and scorers, and of all as "", each record once."""
    cut: Counter[str]
    """By system its answers, by scorer its judgements, with a reply that was cut."""

    @classmethod
    def of(cls, results: RunResults, answers: pa.Table, scores: pa.Table) -> Spending:
        """Return what the rows of both tables took."""
        records = results.table("records", ["key", "stage", *_AMOUNTS])
        amounts = {}
        for name in _AMOUNTS:
            column = pc.fill_null(records.column(name), np.nan)
            amounts[name] = column.to_numpy()
        keys = records.column("key").combine_chunks()
        made, judged = (_asked(table, keys) for table in (answers, scores))
        totals: dict[str, Amounts] = {}
        cut = Counter[str]()
        every = []
        for table, asked, name in ((answers, made, "system"), (scores, judged, "scorer")):
            whose = table.column(name).combine_chunks().dictionary_encode()
            codes = whose.indices.to_numpy()
            valued = pa.array(_VALUED, pa.string())
            done = pc.is_in(table.column("outcome"), valued).to_numpy()
            is_cut = ~np.isnan(amounts[CUT])[asked.record] & done[asked.row]
            cut_rows = np.unique(asked.row[is_cut])
            for code, owner in enumerate(whose.dictionary.to_pylist()):
                own = np.unique(asked.record[codes[asked.row] == code])
                if len(own):
                    totals[owner] = _total(amounts, own)
                if n := int((codes[cut_rows] == code).sum()):
                    cut[owner] = n
            every.append(asked.record)
        if len(used := np.unique(np.concatenate(every))):
            totals[""] = _total(amounts, used)
        return cls(records, amounts, made, judged, totals, cut)


_VALUED = (OutcomeName.DONE, OutcomeName.SCORED)


def _asked(table: pa.Table, keys: pa.Array) -> Asked:
    jobs = table.column("jobs").combine_chunks()
    counts = pc.fill_null(pc.list_value_length(jobs), 0).to_numpy()
    row = np.repeat(np.arange(len(jobs)), counts)
    found = pc.index_in(pc.struct_field(jobs.flatten(), "key"), keys)
    record = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    # A record counts once in a row.
    known = record >= 0
    pairs = np.unique(row[known] * max(1, len(keys)) + record[known])
    return Asked(pairs // max(1, len(keys)), pairs % max(1, len(keys)))


def _total(amounts: Mapping[str, npt.NDArray[np.float64]], rows: Indices) -> Amounts:
    """Return the sum of each measure over some records; without those nothing tells."""
    sums = {}
    for name, values in amounts.items():
        known = values[rows][~np.isnan(values[rows])]
        if len(known):
            sums[name] = float(known.sum())
    return sums


@dataclass(frozen=True, eq=False)
class _Rows:
    """Makes the rows of a board: of answers, of scores, and of the parts of scores."""

    results: RunResults
    answers: pa.Table
    scores: pa.Table
    spending: Spending

    def table(self) -> pa.Table:
        """Return them in the order of the plan: repeat, query, system, scorer, part."""
        shown = self.results.table("parts")
        shown = shown.filter(pc.is_in(shown.column("kind"), pa.array(_SHOWN)))
        sources = [
            self._answers(),
            self._scores(),
            self._parts(shown),
        ]
        whole = pa.concat_tables(sources)
        names = [scorer.name for scorer in self.results.scorers]
        scorer = _codes(whole.column("scorer"), names)
        part = np.concatenate(
            [np.full(len(t), -1) for t in sources[:2]] + [np.arange(len(shown))]
        )
        keys = (part, scorer, *self._position(whole)[::-1])
        table = whole.take(pa.array(np.lexsort(keys)))
        columns = []
        for column in SCHEMA:
            values = table.column(column.name)
            if pa.types.is_dictionary(column.type):
                values = values.combine_chunks().dictionary_encode()
            columns.append(values.cast(column.type))
        return pa.table(columns, schema=SCHEMA).combine_chunks()

    def _position(self, table: pa.Table) -> tuple[Indices, Indices, Indices]:
        systems = [system.name for system in self.results.systems]
        return (
            table.column("repeat").to_numpy(),
            _codes(table.column("query"), [*self.results.heads]),
            _codes(table.column("system"), systems),
        )

    def _answers(self) -> pa.Table:
        more = {name: self.answers.column(name) for name in ("images", "discarded")}
        return self._rows(self.answers, self.spending.answers, **more)

    def _scores(self) -> pa.Table:
        own = {name: self.scores.column(name) for name in ("scorer", "value")}
        return self._rows(self.scores, self.spending.scores, **own)

    def _parts(self, parts: pa.Table) -> pa.Table:
        n = len(parts)
        own = {name: parts.column(name) for name in ("scorer", "value")}
        scored = pa.array([OutcomeName.SCORED] * n, pa.string())
        empty = pa.array([""] * n, pa.string())
        nothing = Asked(np.zeros(0, np.int64), np.zeros(0, np.int64))
        plain = parts.append_column("outcome", scored)
        plain = plain.append_column("reason", empty).append_column("fault", empty)
        return self._rows(plain, nothing, criterion=parts.column("name"), **own)

    def _rows(self, table: pa.Table, asked: Asked, **own: Any) -> pa.Table:
        """Return rows with the columns of a board, whose names are plain texts."""
        n = len(table)
        columns = {name: table.column(name) for name in (*_ABOUT, "outcome")}
        columns |= {name: table.column(name) for name in ("reason", "fault")}
        columns |= self._of_systems(table) | self._of_queries(table)
        columns |= self._spent(asked, n) | own
        arrays = []
        for column in SCHEMA:
            kind = column.type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            values = columns.get(column.name)
            arrays.append(pa.nulls(n, kind) if values is None else values.cast(kind))
        names = SCHEMA.names
        return pa.table(dict(zip(names, arrays, strict=True)))

    def _of_systems(self, table: pa.Table) -> dict[str, pa.Array]:
        systems = self.results.systems
        at = pa.array(_codes(table.column("system"), [s.name for s in systems]))
        parts = [composition_of(system) for system in systems]
        named = {}
        for i, name in enumerate(("lvlm", "t2i", "protocol")):
            named[name] = pa.array([part[i] for part in parts], pa.string()).take(at)
        return named

    def _of_queries(self, table: pa.Table) -> dict[str, pa.Array]:
        heads = self.results.heads
        at = pa.array(_codes(table.column("query"), [*heads]))
        groups = [*heads.values()]
        return {
            name: pa.array([group[i] for group in groups], pa.string()).take(at)
            for i, name in enumerate(("category", "field"))
        }

    def _spent(self, asked: Asked, n: int) -> dict[str, pa.Array]:
        amounts = self.spending.amounts
        sums = {}
        for name in ("seconds", "input_tokens", "output_tokens", "cost"):
            sums[name] = _sums(amounts[name][asked.record], asked.row, n)
        pair = np.stack([sums["input_tokens"], sums["output_tokens"]])
        tokens = np.where(np.isnan(pair).all(0), np.nan, np.nansum(pair, 0))
        spent = {"seconds": sums["seconds"], "tokens": tokens, "cost": sums["cost"]}
        return {name: pa.array(values, from_pandas=True) for name, values in spent.items()}


def _sums(values: npt.NDArray[np.float64], row: Indices, n: int) -> npt.NDArray[np.float64]:
    """Return the sum of each row's known values; NaN where none is known."""
    known = ~np.isnan(values)
    sums = np.bincount(row[known], values[known], minlength=n)
    counts = np.bincount(row[known], minlength=n)
    return np.where(counts > 0, sums, np.nan)


def _codes(column: pa.ChunkedArray, names: Sequence[str]) -> Indices:
    """Return by row the position of its name; -1 for none."""
    found = pc.index_in(column, pa.array(names, pa.string()))
    codes: Indices = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    return codes


# ------------------------------------------------------------------------------ documents


def _document_costs(
    results: RunResults, answers: pa.Table, spending: Spending
) -> list[DocumentCost] | None:
    """Return what the documents of paired systems cost; None where that is not known."""
    paired = {s.name: s for m in matrices_of(results.systems) for s in m.cells}
    stages = {spec.folder for system in paired.values() for spec in system.stages}
    if not paired or stages & {*results.about.unreadable}:
        return None
    wanted = pc.is_in(answers.column("system"), pa.array([*paired]))
    own = answers.filter(wanted)
    records = _record_costs(results, spending)
    order = [system.name for system in results.systems]
    at = (
        own.column("repeat").to_numpy(),
        _codes(own.column("query"), [*results.heads]),
        _codes(own.column("system"), order),
    )
    ordered = own.take(pa.array(np.lexsort(at[::-1])))
    return [*_costs(results, ordered, records)]


def _record_costs(results: RunResults, spending: Spending) -> dict[str, RecordCost]:
    costs = {}
    keys, folders = (spending.records.column(n).to_pylist() for n in ("key", "stage"))
    columns = {name: values.tolist() for name, values in spending.amounts.items()}
    for i, (key, folder) in enumerate(zip(keys, folders, strict=True)):
        own = {name: values[i] for name, values in columns.items()}
        amounts = {name: value for name, value in own.items() if not math.isnan(value)}
        costs[key] = RecordCost.with_amounts(results.stages[folder], amounts)
    return costs


def _costs(
    results: RunResults, answers: pa.Table, records: Mapping[str, RecordCost]
) -> Iterator[DocumentCost]:
    columns = ["system", "query", "repeat", "outcome", "tries", "jobs"]
    for batch in answers.select(columns).to_batches(max_chunksize=1_000):
        for row in batch.to_pylist():
            jobs = row["jobs"]
            keys = sorted(job["key"] for job in jobs)
            kinds = [results.stages[job["stage"]].kind for job in jobs]
            drawn = [j for j, kind in zip(jobs, kinds, strict=True) if kind is Kind.RENDER]
            tries = json.loads(row["tries"] or "[]")
            seeds = [tried["seed"] for tried in tries if tried["try"] == 1]
            seeds = seeds or [job["seed"] for job in drawn]
            yield DocumentCost(
                system=row["system"],
                query=row["query"],
                repeat=row["repeat"] - 1,
                done=row["outcome"] == OutcomeName.DONE,
                records={key: records[key] for key in keys if key in records},
                requests=Counter(kinds),
                seeds={i: seed for i, seed in enumerate(seeds) if seed is not None},
            )
