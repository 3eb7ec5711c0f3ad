"""The board of a run from its tables: columns are joined, no row becomes a value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from plait.benchmarks.protocols.differences import PinnedRunFacts
from plait.benchmarks.results.board import (
    NAME,
    SCHEMA,
    Board,
    Codes,
    Mask,
    Names,
    in_one_chunk,
)
from plait.benchmarks.results.costs import Amounts, DocumentCost, RecordCost
from plait.benchmarks.results.files.about import figures_of, read_measured
from plait.benchmarks.results.files.key_index import Indices, KeyIndex, numbers_of
from plait.benchmarks.results.files.schema import TABLES
from plait.benchmarks.results.files.tables import ResultTables
from plait.benchmarks.results.pairings.matrix import composition_of, matrices_of
from plait.cluster.memory import release_memory
from plait.generators.base import Kind, OutcomeName
from plait.generators.system import DescribedSystem
from plait.pipelines.chat.endings import CUT
from plait.scorers.parts import RULED
from plait.scorers.statistics.estimate import Floats
from plait.scorers.statistics.judge_error import JudgeErrors

_AMOUNTS = (
    "seconds",
    "gpu_seconds",
    "input_tokens",
    "output_tokens",
    "pictures",
    "joules",
    "cost",
    CUT,
)
_ABOUT = ("system", "query", "repeat")


def board_of(results: ResultTables) -> Board:
    """Return the board of stored results, which brings back no answers."""
    about = results.about
    answers = _columns_of(results, "answers", _OF_ANSWERS)
    scores = _columns_of(results, "scores", _OF_SCORES)
    spending = Spending.of(results, answers, scores)
    # Null where there is no document that could begin with one.
    thought = answers.filter(pc.fill_null(answers.column("thought"), False))
    judge_errors = {}
    for name, facts in about.judge_errors.items():
        judge_errors[name] = JudgeErrors.from_json(facts["errors"])
    return Board(
        table=_Rows(results, answers, scores, spending).table(),
        figures=figures_of(about.figures),
        systems=results.systems,
        scorers=results.scorers,
        categories=about.categories,
        fields=about.fields,
        weights=about.weights,
        selection=about.selection,
        repeats=about.repeats,
        costs=_document_costs(results),
        spent=spending.totals,
        thoughts=Counter(thought.column("system").to_pylist()),
        cut=spending.cut,
        damaged=about.damaged,
        criterion_scales=_criterion_scales(results),
        judge_errors=judge_errors,
        agreement=read_measured(about.agreement),
        pinned=_pinned_facts(results),
    )


def _pinned_facts(results: ResultTables) -> PinnedRunFacts | None:
    """Return what of a run its pinned protocol is compared with; None without one."""
    about = results.about
    if not about.config.get("pinned"):
        return None
    return PinnedRunFacts(
        protocol=str(about.config["pinned"]),
        task=about.name,
        digest=str(about.data.get("digest") or ""),
        queries=len(results.heads),
        repeats=about.repeats,
    )


_KEYS = "jobs.list.element.key"
"""Of the jobs, their keys alone."""
_OF_ANSWERS = (*_ABOUT, "outcome", "reason", "fault", "images", "discarded", "thought")
_OF_SCORES = (*_ABOUT, "scorer", "outcome", "value", "reason", "fault")


def _columns_of(results: ResultTables, name: str, columns: Sequence[str]) -> pa.Table:
    """Return columns of a table, texts as dictionaries.

    A text is in memory once, however many rows have it.
    """
    texts = []
    fields = []
    for column in columns:
        kind = TABLES[name].field(column).type
        if kind == pa.string():
            texts.append(column)
            kind = NAME
        fields.append((column, kind))
    schema = pa.schema(fields)
    parts = []
    for entry in results.tables.get(name, ()):
        with results.open_file(entry, texts) as file:
            parts.append(file.read(columns=list(columns)).cast(schema))
    whole = pa.concat_tables(parts) if parts else schema.empty_table()
    return pa.table([in_one_chunk(c) for c in whole.columns], schema=schema)


def _keys_of_jobs(results: ResultTables, name: str) -> Iterator[pa.ListArray]:
    """Yield the keys of the jobs of each row of a table, some rows at a time.

    They are longer than all else in the table, and nothing but the index needs them.
    """
    kind = pa.list_(pa.struct([("key", pa.string())]))
    for batch in results.batches(name, [_KEYS]):
        yield batch.column(0).cast(kind)


@dataclass(frozen=True, eq=False)
class Asked:
    """The records that rows of a table are made of, each once for a row."""

    row: Indices
    record: Indices
    """Its row in the table of records."""


@dataclass(frozen=True, eq=False)
class Spending:
    """What answers and scores took, from the records that they are made of."""

    amounts: Mapping[str, Floats]
    """By measure, of each record; NaN where it is not known."""
    answers: Asked
    scores: Asked
    totals: Mapping[str, Amounts]
    """By the names of systems and scorers, and of all as "", each record once."""
    cut: Counter[str]
    """By system its answers, by scorer its judgements, with a reply that was cut."""

    @classmethod
    def of(cls, results: ResultTables, answers: pa.Table, scores: pa.Table) -> Spending:
        """Return what the rows of both tables took."""
        keys, amounts = _read_amounts(results)
        n = len(amounts[CUT])
        made = _records_of(_keys_of_jobs(results, "answers"), keys)
        judged = _records_of(_keys_of_jobs(results, "scores"), keys)
        del keys
        pa.default_memory_pool().release_unused()
        release_memory()
        totals: dict[str, Amounts] = {}
        cut: dict[str, int] = {}
        for table, asked, name in ((answers, made, "system"), (scores, judged, "scorer")):
            owners = Names.of(table, name)
            totals |= _totals_by(owners, asked, amounts)
            cut |= _count_cut(owners, asked, amounts[CUT], table)
        used = _mask_of(made.record, n) | _mask_of(judged.record, n)
        if used.any():
            totals[""] = _total(amounts, used)
        return cls(amounts, made, judged, totals, Counter(cut))


def _read_amounts(results: ResultTables) -> tuple[KeyIndex, dict[str, Floats]]:
    """Return the keys of all records, and by measure what each took, NaN where unknown.

    They are read some at a time: as texts, the keys of millions of records would take most
    of a machine's memory.
    """
    n = sum(entry["rows"] for entry in results.tables.get("records", ()))
    numbers = np.empty((n, 2), np.uint64)
    amounts = {name: np.empty(n) for name in _AMOUNTS}
    first = 0
    for batch in results.batches("records", ["key", *_AMOUNTS]):
        here = slice(first, first + len(batch))
        numbers[here] = numbers_of(pa.chunked_array([batch.column("key")]))
        for name, values in amounts.items():
            known = batch.column(name).cast(pa.float64())
            values[here] = pc.fill_null(known, np.nan).to_numpy()
        first += len(batch)
    return KeyIndex(numbers), amounts


def _mask_of(places: Indices, n: int) -> Mask:
    """Return which of n rows are among `places`."""
    mask = np.zeros(n, np.bool_)
    mask[places] = True
    return mask


def _records_of(jobs_of_rows: Iterable[pa.ListArray], keys: KeyIndex) -> Asked:
    """Return the records behind each row, by the keys of the jobs of the rows in turn."""
    rows = [np.zeros(0, np.int64)]
    records = [np.zeros(0, np.int64)]
    first = 0
    for jobs in jobs_of_rows:
        counts = pc.fill_null(pc.list_value_length(jobs), 0).to_numpy()
        row = np.repeat(np.arange(len(jobs)), counts)
        found = keys.places(pa.chunked_array([pc.struct_field(jobs.flatten(), "key")]))
        is_there = found >= 0
        # Both numbers in one sort by row, then by record. A record counts once in a row.
        pairs = np.sort(row[is_there] * keys.size + found[is_there])
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        rows.append(first + pairs // keys.size)
        records.append(pairs % keys.size)
        first += len(jobs)
    return Asked(np.concatenate(rows), np.concatenate(records))


def _totals_by(
    owners: Names, asked: Asked, amounts: Mapping[str, Floats]
) -> dict[str, Amounts]:
    """Return by owner of rows the sum of each measure over the records behind them."""
    owner_of_asked = owners.codes[asked.row]
    totals: dict[str, Amounts] = {}
    for code, owner in enumerate(owners.names):
        # A record that several rows of an owner share counts once.
        own = _mask_of(asked.record[owner_of_asked == code], len(amounts[CUT]))
        if own.any():
            totals[owner] = _total(amounts, own)
    return totals


def _count_cut(owners: Names, asked: Asked, cut: Floats, table: pa.Table) -> dict[str, int]:
    """Return by owner how many of its rows with a value hold a reply that was cut."""
    done = Names.of(table, "outcome").is_(OutcomeName.DONE, OutcomeName.SCORED)
    is_cut = ~np.isnan(cut)[asked.record] & done[asked.row]
    codes = owners.codes[_mask_of(asked.row[is_cut], len(table))]
    counts = {}
    for code, owner in enumerate(owners.names):
        if n := int((codes == code).sum()):
            counts[owner] = n
    return counts


def _total(amounts: Mapping[str, Floats], rows: Mask) -> Amounts:
    """Return the sum of each measure over some records; without those nothing tells."""
    sums = {}
    for name, values in amounts.items():
        known = rows & ~np.isnan(values)
        if known.any():
            sums[name] = float(values[known].sum())
    return sums


@dataclass(frozen=True, eq=False)
class _Rows:
    """Makes the rows of a board: of answers, of scores, and of the parts of scores."""

    results: ResultTables
    answers: pa.Table
    scores: pa.Table
    spending: Spending

    def table(self) -> pa.Table:
        """Return them in the order of the plan: repeat, query, system, scorer, part."""
        parts = _parts_of(self.results)
        whole = pa.concat_tables([self._answers(), self._scores(), self._parts(parts)])
        # An answer has no scorer (-1), so it comes before its scores; these are no part
        # (-1), so each comes before its own.
        answers_and_scores = len(self.answers) + len(self.scores)
        part = np.full(len(whole), -1)
        part[answers_and_scores:] = np.arange(len(parts))
        scorers = [scorer.name for scorer in self.results.scorers]
        scorer = Names.of(whole, "scorer").recode(scorers)
        # The last key of `lexsort` is the first to be sorted by.
        order = pa.array(np.lexsort((part, scorer, *self._position(whole)[::-1])))
        columns = []
        # Each column is let go of before the next is ordered.
        for name in SCHEMA.names:
            columns.append(in_one_chunk(whole.column(name)).take(order))
            whole = whole.drop_columns(name)
        return pa.table(columns, schema=SCHEMA)

    def _position(self, table: pa.Table) -> tuple[npt.NDArray[Any], Codes, Codes]:
        """Return by row its repeat, and the places of its query and its system."""
        return (
            table.column("repeat").to_numpy(),
            Names.of(table, "query").recode([*self.results.heads]),
            Names.of(table, "system").recode(self._system_names),
        )

    def _answers(self) -> pa.Table:
        images = self.answers.column("images")
        discarded = self.answers.column("discarded")
        asked = self.spending.answers
        return self._rows(self.answers, asked, images=images, discarded=discarded)

    def _scores(self) -> pa.Table:
        scorer = self.scores.column("scorer")
        value = self.scores.column("value")
        return self._rows(self.scores, self.spending.scores, scorer=scorer, value=value)

    def _parts(self, parts: pa.Table) -> pa.Table:
        # What a judgement took stands in the row of its score alone, to count once.
        nothing = Asked(np.zeros(0, np.int64), np.zeros(0, np.int64))
        texts = {"outcome": OutcomeName.SCORED, "reason": "", "fault": ""}
        for name, text in texts.items():
            parts = parts.append_column(name, _texts_at([text], np.zeros(len(parts))))
        own = {
            "criterion": parts.column("name"),
            "scorer": parts.column("scorer"),
            "value": parts.column("value"),
        }
        return self._rows(parts, nothing, **own)

    def _rows(self, table: pa.Table, asked: Asked, **own: Any) -> pa.Table:
        """Return rows with the columns of a board, those of `own` as they are given.

        A column that neither `table` nor `own` has is null.
        """
        columns = {}
        for name in (*_ABOUT, "outcome", "reason", "fault"):
            columns[name] = table.column(name)
        columns |= self._of_systems(table)
        columns |= self._of_queries(table)
        columns |= self._spent(asked, len(table))
        columns |= own
        arrays = []
        for column in SCHEMA:
            values = columns.get(column.name)
            nothing = pa.nulls(len(table), column.type)
            arrays.append(nothing if values is None else values.cast(column.type))
        return pa.table(arrays, schema=SCHEMA)

    def _of_systems(self, table: pa.Table) -> dict[str, pa.Array]:
        at = Names.of(table, "system").recode(self._system_names)
        lvlms = []
        t2is = []
        protocols = []
        for system in self.results.systems:
            composition = composition_of(system)
            lvlms.append(composition.lvlm)
            t2is.append(composition.t2i)
            protocols.append(composition.protocol)
        return {
            "lvlm": _texts_at(lvlms, at),
            "t2i": _texts_at(t2is, at),
            "protocol": _texts_at(protocols, at),
        }

    @property
    def _system_names(self) -> list[str]:
        return [system.name for system in self.results.systems]

    def _of_queries(self, table: pa.Table) -> dict[str, pa.Array]:
        heads = self.results.heads
        at = Names.of(table, "query").recode([*heads])
        categories = []
        fields = []
        for category, field in heads.values():
            categories.append(category)
            fields.append(field)
        return {"category": _texts_at(categories, at), "field": _texts_at(fields, at)}

    def _spent(self, asked: Asked, n: int) -> dict[str, pa.Array]:
        sums = {}
        for name in ("seconds", "input_tokens", "output_tokens", "cost"):
            sums[name] = _sums(self.spending.amounts[name][asked.record], asked.row, n)
        # Of two counts one that is not known is 0; where neither is known, nor is the sum.
        pair = np.stack([sums["input_tokens"], sums["output_tokens"]])
        tokens = np.where(np.isnan(pair).all(0), np.nan, np.nansum(pair, 0))
        spent = {"seconds": sums["seconds"], "tokens": tokens, "cost": sums["cost"]}
        # `from_pandas` makes null of NaN.
        return {name: pa.array(values, from_pandas=True) for name, values in spent.items()}


def _parts_of(results: ResultTables) -> pa.Table:
    """Return the parts of scores that have a row of the board."""
    parts = [TABLES["parts"].empty_table()]
    for entry in results.tables.get("parts", ()):
        with results.open_file(entry) as file:
            table = file.read(columns=[*_ABOUT, "scorer", "name", "kind", "value"])
            table = table.filter(pc.is_in(table.column("kind"), pa.array(RULED)))
            # Of the others there is one a score, which its kind names.
            is_criterion = pc.equal(table.column("kind"), "criterion")
            shown = pc.if_else(is_criterion, table.column("name"), table.column("kind"))
            place = table.column_names.index("name")
            parts.append(table.set_column(place, "name", shown))
    whole = pa.concat_tables(parts, promote_options="default")
    # All other texts of a board are dictionaries, and tables of one schema can be joined.
    for i, column in enumerate(whole.schema):
        if column.type == pa.string():
            encoded = whole.column(i).combine_chunks().dictionary_encode()
            whole = whole.set_column(i, column.name, encoded.cast(NAME))
    return whole


def _criterion_scales(results: ResultTables) -> dict[tuple[str, str], str]:
    """Return by scorer and criterion its scale, where the scorers' criteria have some."""
    if all(scorer.criteria_are_shares for scorer in results.scorers):
        return {}
    names = ("scorer", "name", "scale", "kind")
    rows = results.table("parts", names)
    rows = rows.filter(pc.equal(rows.column("kind"), "criterion"))
    if not len(rows):
        return {}  # grouping imports pyarrow's data sets, which takes longer than a board
    # Grouped without any aggregate, the rows are each combination once.
    found = rows.group_by([*names], use_threads=False).aggregate([])
    scales = {}
    for row in found.to_pylist():
        scales[row["scorer"], row["name"]] = row["scale"]
    return scales


def _texts_at(texts: Sequence[str | None], at: npt.NDArray[Any]) -> pa.Array:
    """Return by row the text that stands at its place in `texts`, as a dictionary."""
    # Several systems may have the same LVLM, whose name is in the dictionary once.
    names = pa.array(dict.fromkeys(texts), pa.string())
    code_of = {name: i for i, name in enumerate(names.to_pylist())}
    codes = np.array([code_of[text] for text in texts], np.int32)
    rows = pa.DictionaryArray.from_arrays(pa.array(codes[at.astype(np.int64)]), names)
    # None is no name: encoding anew makes rows of it null.
    return rows.cast(pa.string()).dictionary_encode() if None in code_of else rows


def _sums(values: Floats, row: Indices, n: int) -> Floats:
    """Return the sum of each row's known values; NaN where none is known."""
    known = ~np.isnan(values)
    sums = np.bincount(row[known], values[known], minlength=n)
    counts = np.bincount(row[known], minlength=n)
    return np.where(counts > 0, sums, np.nan)


# ------------------------------------------------------------------------------ documents


def _document_costs(results: ResultTables) -> list[DocumentCost] | None:
    """Return what the documents of paired systems cost; None where that is not known."""
    paired: list[DescribedSystem] = []
    for matrix in matrices_of(results.systems):
        paired += matrix.cells
    stages = set[str]()
    for system in paired:
        stages.update(spec.folder for spec in system.stages)
    if not paired or stages & {*results.about.unreadable}:
        return None
    records = _record_costs(results, stages)
    columns = [*_ABOUT, "outcome", "tries", "jobs"]
    names = [system.name for system in paired]
    answers = results.rows("answers", columns, {"system": names})
    place_of_query = {key: i for i, key in enumerate(results.heads)}
    place_of_system = {system.name: i for i, system in enumerate(results.systems)}

    def position(row: Mapping[str, Any]) -> tuple[int, int, int]:
        query = place_of_query[row["query"]]
        return row["repeat"], query, place_of_system[row["system"]]

    return [_cost(results, row, records) for row in sorted(answers, key=position)]


def _record_costs(results: ResultTables, stages: Collection[str]) -> dict[str, RecordCost]:
    """Return by key what the records of some stages, named by their folders, cost."""
    records = {}
    for row in results.rows("records", ["key", "stage", *_AMOUNTS], {"stage": stages}):
        amounts = {}
        for name in _AMOUNTS:
            if row[name] is not None:
                amounts[name] = row[name]
        spec = results.stages[row["stage"]]
        records[row["key"]] = RecordCost.with_amounts(spec, amounts)
    return records


def _cost(
    results: ResultTables, row: Mapping[str, Any], records: Mapping[str, RecordCost]
) -> DocumentCost:
    """Return what the document of one row of the answers cost."""
    keys = []
    requests = Counter[Kind]()
    render_seeds = []
    for job in row["jobs"]:
        keys.append(job["key"])
        kind = results.stages[job["stage"]].kind
        requests[kind] += 1
        if kind is Kind.RENDER:
            render_seeds.append(job["seed"])
    # Where a critic has images drawn again, the first try of each has the seed that images
    # of other systems share.
    tries = json.loads(row["tries"] or "[]")
    first_seeds = [one["seed"] for one in tries if one["try"] == 1]
    seeds = {}
    for position, seed in enumerate(first_seeds or render_seeds):
        if seed is not None:
            seeds[position] = seed
    return DocumentCost(
        system=row["system"],
        query=row["query"],
        repeat=row["repeat"] - 1,
        done=row["outcome"] == OutcomeName.DONE,
        # Sorted, so that sums over them are always made in one order.
        records={key: records[key] for key in sorted(keys) if key in records},
        requests=requests,
        seeds=seeds,
    )
