"""What the records of a run hold where its data or its modules are gone.

Runs of versions that wrote no results are read by making their experiment again. Where
that cannot be done, the records of each stage still say what came of it. Only what they
hold themselves is shown: no name is resolved, and no reply is read as a score.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from plait.benchmarks.results.reasons import MissingValue, count_reasons, reasons_table
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.resolving import models_named
from plait.benchmarks.runs.run_directory import digest_in_run
from plait.benchmarks.tasks.task_set import TaskError
from plait.cluster.parts import DamagedPart, open_part, parts_in, reading, stage_folders
from plait.cluster.records import kind_of
from plait.cluster.store import Store
from plait.generators.base import RANDOM, VALUED, Kind, OutcomeName, StageSpec
from plait.generators.buckets import AnyPath
from plait.generators.errors import MissingInput, UnknownName, UsageError

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_GONE = (TaskError, MissingInput, UnknownName, ImportError)
_OUTCOMES = (
    *(OutcomeName.DONE, OutcomeName.FAILED, OutcomeName.SKIPPED),
    *(OutcomeName.UNSCORED, OutcomeName.NOT_APPLICABLE),
)
_WITH_VALUES = (Kind.SCORE, Kind.LOGPROBS)
"""Kinds of stages whose records hold a number each."""


class RecordsOnly(UsageError):
    """A run whose records are there, and neither results nor what they are made of."""

    exit_status = 1

    @classmethod
    def of(cls, root: AnyPath, manifest: Mapping[str, Any], why: Exception) -> RecordsOnly:
        """Return the error for the run in `root`, with tables of its records."""
        error = cls(
            f"{root} has no results, and they cannot be built from its records alone: "
            f"{' '.join(str(why).split())}. Without that, only the records above are "
            "available, and no texts of queries, references or given answers; once "
            "it is back, `plait report` builds the results"
        )
        error.tables = record_tables(root, manifest)
        return error


def is_gone(error: BaseException) -> bool:
    """Return whether a run cannot be made again since something of it is not there.

    Its data, a file of answers or of prompts, a module, or a name that this version does
    not know. All else is another mistake, such as a config that is wrong or a full disk.
    """
    chain = [*_causes(error)]
    if any(isinstance(cause, OSError) and cause.errno in _DISK for cause in chain):
        return False
    return any(isinstance(cause, _GONE) for cause in chain)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def record_tables(root: AnyPath, manifest: Mapping[str, Any]) -> list[ResultTable]:
    """Return what the records of each stage came to, and why some have no value."""
    store = Store(root, on_notice=lambda _: None)
    stages = [StageRecords.of(store, spec) for spec in _stages(root, manifest)]
    names = [*manifest.get("systems", ()), *manifest.get("scorers", ())]
    notes = [
        f"systems: {', '.join(manifest.get('systems', ())) or 'none'}",
        f"scorers: {', '.join(manifest.get('scorers', ())) or 'none'}",
        "Means are over all systems; the records do not tell the scorers' scales. "
        "Stages that embed or reply have no values.",
    ]
    if (weights := manifest.get("weights")) in RANDOM:
        notes.append(f"Warning: random weights ({weights}): the numbers mean nothing.")
    rows = (stage.row(_users(stage.spec, names)) for stage in stages)
    counted = (name.replace("_", " ") for name in _OUTCOMES)
    head = ["stage", "of", "queries", "records", *counted, "values", "mean value"]
    title = f"Records of {root.name}, by stage"
    tables = [ResultTable.of(title, head, rows, [*notes, *store.notices])]
    missing = list(chain.from_iterable(stage.missing for stage in stages))
    if missing:
        reasons = count_reasons(missing, [stage.spec.folder for stage in stages])
        tables.append(reasons_table("stage", reasons.items()))
    return tables


@dataclass(frozen=True, eq=False)
class StageRecords:
    """What the records of one stage came to."""

    spec: StageSpec
    outcomes: Counter[str]
    missing: tuple[MissingValue, ...]
    """Those without a value, with their reasons; the stage stands for a system."""
    values: tuple[float, ...]
    """That the stage gave; none of one that embeds or replies."""
    queries: int | None
    """Of how many queries; None where a damaged part does not tell."""

    @classmethod
    def of(cls, store: Store, spec: StageSpec) -> StageRecords:
        """Read the records of a stage, each once."""
        outcomes = Counter[str]()
        values = list[float]()
        missing = list[MissingValue]()
        for _, row in store.records(spec):
            outcomes[row.outcome] += 1
            if row.outcome in VALUED:
                if spec.kind in _WITH_VALUES:
                    values += row.light[:1]
            elif row.outcome != OutcomeName.NOT_APPLICABLE:
                about = (row.outcome, row.fault or "", row.reason or "")
                missing.append(MissingValue(spec.folder, "", "", "", 1, "", *about))
        queries = None
        with suppress(DamagedPart):
            queries = len({row["label"] for row in store.columns(spec, ["label"])})
        return cls(spec, outcomes, tuple(missing), tuple(values), queries)

    def row(self, users: Iterable[str]) -> list[str]:
        """Return its line of the table; `users` are systems and scorers that have it."""
        queries = "-" if self.queries is None else f"{self.queries:,}"
        numbers = (self.outcomes.total(), *(self.outcomes[name] for name in _OUTCOMES))
        counts = (f"{n:,}" for n in numbers)
        mean = f"{fmean(self.values):.4g}" if self.values else "-"
        values = f"{len(self.values):,}" if self.spec.kind in _WITH_VALUES else "-"
        return [self.spec.folder, ", ".join(users), queries, *counts, values, mean]


def _stages(root: AnyPath, manifest: Mapping[str, Any]) -> Iterator[StageSpec]:
    """Yield the stages that have records, as the manifest or their parts tell of them."""
    known: Mapping[str, Any] = manifest.get("stages", {})
    seen = set[str]()
    for folder in stage_folders(root):
        name, _, digest = folder.name.rpartition("-")
        facts = known.get(folder.name)
        kind = Kind(facts["kind"]) if facts else _kind(folder)
        # Records of one digest may lie in several folders, which are read together.
        if kind is not None and digest not in seen:
            seen.add(digest)
            target = facts["class"] if facts else ""
            recorded = digest_in_run(facts) if facts else digest
            yield StageSpec(name=name, kind=kind, target=target, recorded=recorded)


def _kind(folder: AnyPath) -> Kind | None:
    """Return the kind of the stage whose parts are in a folder, as their columns tell."""
    for part in parts_in(folder):
        with suppress(DamagedPart), reading(str(part)), open_part(part) as file:
            return kind_of(file.schema_arrow.names)
    return None


def _users(stage: StageSpec, names: Iterable[str]) -> list[str]:
    """Return the systems and scorers that name a stage, or the model it is a part of."""
    named = {name: models_named([name]) for name in names}
    every = set().union(*named.values())
    model = stage.target if stage.target in every else stage.name
    while model and model not in every:
        model = model.rpartition("-")[0]
    return [name for name, models in named.items() if model in models]
