"""Whether the results of a run are what reading all of its records would write again.

Where they are, a command that makes nothing need not read the records: its counts, and what
was used, are in the tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.benchmarks.results.files.about import RunAbout
from plait.benchmarks.results.files.rulings import TABLE, series_of
from plait.benchmarks.results.files.schema import ABOUT
from plait.benchmarks.results.files.tables import ResultsError, ResultTables
from plait.benchmarks.results.files.writing import (
    LOST_IMAGES,
    USAGE,
    former_content,
    plain_facts,
)
from plait.cluster.counts import StageCount, totals_in
from plait.cluster.manifest import version_of
from plait.cluster.parts import parts_in, stage_folders
from plait.cluster.plan import Plan
from plait.generators.base import Fault, OutcomeName
from plait.generators.buckets import AnyPath
from plait.generators.document import key_of

_ABOUT = ["system", "query", "repeat"]
_STAGES = "jobs.list.element.stage"
"""Of the jobs, their stages alone."""
_OF_TABLES = ("run_digest", "systems", "scorers", "stages", "categories", "fields", "ids")
"""What of a run decides what its tables hold, and how they are read."""


@dataclass(frozen=True, eq=False)
class CurrentResults:
    """The results of a run that are made of all of its records as they are now."""

    tables: ResultTables
    content: Mapping[str, Any]
    """What `run.json` says of them."""

    @classmethod
    def of(
        cls, root: AnyPath, plan: Plan, about: RunAbout, rows: Mapping[str, str]
    ) -> CurrentResults | None:
        """Return the results of the run in `root`, where reading it anew would change none.

        `rows` are the digests of all rows of the task set, by id. None where a part came,
        went or was written since, where a record or an image could not be read, where
        another version of plait wrote them, and where a table is damaged.
        """
        try:
            tables = ResultTables.at(root)
            content = former_content(tables.folder)
            is_whole = (
                content.get("plait") == version_of("plait")
                and not content.get(LOST_IMAGES, True)
                and not (tables.about.damaged or tables.about.unreadable)
            )
            if not is_whole or not content.get(USAGE) or _are_other_parts(tables):
                return None
            if not _is_about(tables, about) or not _are_of(tables, plan, rows):
                return None
            if series_of(root) - _series_in(tables) or tables.damage():
                return None
        except (ResultsError, OSError):
            return None
        return cls(tables, content)

    def are_unchanged(self) -> bool:
        """Return whether nothing in the run's folder has changed since they were checked.

        Of the same plan and the same data, only the run itself can have changed.
        """
        tables = self.tables
        try:
            if former_content(tables.folder) != self.content or _are_other_parts(tables):
                return False
            return not (series_of(tables.root) - _series_in(tables) or tables.damage())
        except (ResultsError, OSError):
            return False

    @property
    def usage(self) -> Mapping[str, Mapping[str, float]]:
        """What all records used, by the stages' names, as `usage_of` sums it."""
        usage: Mapping[str, Mapping[str, float]] = self.content[USAGE]
        return usage

    @property
    def totals(self) -> dict[str, int]:
        """Outcomes of documents and judgements, as `totals_of` counts them."""
        answers = self.tables.table("answers", [*_ABOUT, "outcome"])
        scores = self.tables.table("scores", [*_ABOUT, "outcome"])
        planned = len(answers)
        documents = _count(answers)
        judgements = _count(scores)
        if judgements[OutcomeName.MISSING]:
            is_missing = pc.equal(scores.column("outcome"), OutcomeName.MISSING)
            lost = scores.filter(is_missing).select(_ABOUT)
            # Of an answer without all of its scores, none counts.
            answers = answers.join(lost, _ABOUT, join_type="left anti")
            scores = scores.join(lost, _ABOUT, join_type="left anti")
            documents = _count(answers)
            judgements = _count(scores)
        documents[OutcomeName.MISSING] += planned - len(answers)
        return totals_in(documents, judgements)

    @property
    def retried(self) -> int:
        """Records that the next run would make again: of failures that are not final."""
        faults = self.tables.table("records", ["fault"]).column("fault")
        retried = 0
        for found in _value_counts(faults):
            if found["values"] and not Fault(found["values"]).final:
                retried += found["counts"]
        return retried

    def is_complete(self) -> bool:
        """Return whether a run would make nothing."""
        return not self.totals["missing"] and not self.retried

    def counts(self, plan: Plan, *, only_scorers: bool = False) -> list[StageCount]:
        """Return the jobs of each stage, as `count` does where a run is complete."""
        requests = Counter[str]()
        for name in ("scores",) if only_scorers else ("answers", "scores"):
            requests.update(self._requests(name))
        existing = defaultdict[str, Counter[str]](Counter)
        # Neither `group_by` nor `to_numpy`: they import pyarrow's data sets and pandas,
        # which takes longer than all else here.
        for batch in self.tables.batches("records", ["stage", "outcome"]):
            stages = batch.column("stage").dictionary_encode()
            outcomes = batch.column("outcome").dictionary_encode()
            size = len(outcomes.dictionary)
            stage_codes = np.from_dlpack(stages.indices).astype(np.int64)
            outcome_codes = np.from_dlpack(outcomes.indices).astype(np.int64)
            pairs = stage_codes * size + outcome_codes
            for pair, number in enumerate(np.bincount(pairs).tolist()):
                stage = stages.dictionary[pair // size].as_py()
                outcome = outcomes.dictionary[pair % size].as_py()
                if number:
                    existing[stage][outcome] += number
        counts = []
        for spec in plan.stages:
            asked = requests[spec.folder]
            known = existing[spec.folder] if asked else Counter()
            count = StageCount(spec, asked, distinct=known.total(), existing=known)
            counts.append(count)
        return counts

    def _requests(self, name: str) -> Counter[str]:
        """Return how often each stage was asked for the rows of a table."""
        requests = Counter[str]()
        for entry in self.tables.tables.get(name, ()):
            with self.tables.open_file(entry) as file:
                for group in range(file.metadata.num_row_groups):
                    jobs = file.read_row_group(group, columns=[_STAGES]).column("jobs")
                    stages = pc.struct_field(jobs.combine_chunks().flatten(), "stage")
                    for found in _value_counts(stages):
                        requests[found["values"]] += found["counts"]
        return requests


def _count(table: pa.Table) -> Counter[OutcomeName]:
    counts = Counter[OutcomeName]()
    for found in _value_counts(table.column("outcome")):
        counts[OutcomeName(found["values"])] = found["counts"]
    return counts


def _value_counts(column: pa.Array | pa.ChunkedArray) -> list[dict[str, Any]]:
    counts: list[dict[str, Any]] = column.value_counts().to_pylist()
    return counts


def _are_other_parts(tables: ResultTables) -> bool:
    """Return whether the run's parts are not those that the results were made of."""
    written = (tables.folder / ABOUT).stat().st_mtime
    gone = {name for name, parts in tables.records.items() if parts}
    for folder in stage_folders(tables.root):
        gone.discard(folder.name)
        parts = parts_in(folder)
        names = {part.name for part in parts}
        if names != {*tables.records.get(folder.name, ())}:
            return True
        # One with the very time of `run.json` may be later than what was read.
        if any(part.stat().st_mtime >= written for part in parts):
            return True
    return bool(gone)


def _is_about(tables: ResultTables, about: RunAbout) -> bool:
    now = plain_facts(about)
    return all(getattr(tables.about, name) == now[name] for name in _OF_TABLES)


def _are_of(tables: ResultTables, plan: Plan, rows: Mapping[str, str]) -> bool:
    """Return whether the results are of the queries of a plan and the rows of its data."""
    if dict(_digests_in(tables.table("data"))) != rows:
        return False
    asked = tables.table("queries", ["query", "id", "digest"])
    if asked.column("query").to_pylist() != [*map(key_of, plan.queries)]:
        return False
    # A query is stored as it was asked, and a row of the data may have changed since.
    return all(rows.get(id) == digest for id, digest in _digests_in(asked))


def _digests_in(table: pa.Table) -> Iterator[tuple[str, str]]:
    """Yield id and digest of each row of a table; ids may repeat."""
    ids = table.column("id").to_pylist()
    return zip(ids, table.column("digest").to_pylist(), strict=True)


def _series_in(tables: ResultTables) -> set[str]:
    return {*tables.table(TABLE, ["series"]).column("series").to_pylist()}
