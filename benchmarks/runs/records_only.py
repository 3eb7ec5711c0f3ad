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
"""Errors of a disk that is full or read-only, where nothing of the run is gone."""
_GONE = (TaskError, MissingInput, UnknownName, ImportError)
"""Errors that say that something which a run was made with is not there."""
_OUTCOMES = (
    *(OutcomeName.DONE, OutcomeName.FAILED, OutcomeName.SKIPPED),
    *(OutcomeName.UNSCORED, OutcomeName.NOT_APPLICABLE),
)
_HEAD = (
    *("stage", "of", "queries", "records"),
    *(name.replace("_", " ") for name in _OUTCOMES),
    *("values", "mean value"),
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
    gone = False
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _DISK:
            return False
        if isinstance(cause, _GONE):
            gone = True
    return gone


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, the one that it came of, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def record_tables(root: AnyPath, manifest: Mapping[str, Any]) -> list[ResultTable]:
    """Return what the records of each stage came to, and why some have no value."""
    store = Store(root, on_notice=lambda _: None)
    stages = [StageRecords.of(store, spec) for spec in _stages(root, manifest)]
    systems = manifest.get("systems", ())
    scorers = manifest.get("scorers", ())
    notes = [
        f"systems: {', '.join(systems) or 'none'}",
        f"scorers: {', '.join(scorers) or 'none'}",
        "Means are over all systems; the records do not tell the scorers' scales. "
        "Stages that embed or reply have no values.",
    ]
    weights = manifest.get("weights")
    if weights in RANDOM:
        notes.append(f"Warning: random weights ({weights}): the numbers mean nothing.")
    rows = []
    missing: list[MissingValue] = []
    for stage in stages:
        users = _users(stage.spec, [*systems, *scorers])
        rows.append(stage.row(users))
        missing += stage.missing
    title = f"Records of {root.name}, by stage"
    tables = [ResultTable.of(title, _HEAD, rows, [*notes, *store.notices])]
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
                # A record does not tell of which query or scorer it is.
                missing.append(
                    MissingValue(
                        system=spec.folder,
                        query="",
                        category="",
                        field="",
                        repeat=1,
                        scorer="",
                        outcome=row.outcome,
                        fault=row.fault or "",
                        reason=row.reason or "",
                    )
                )
        queries = None
        with suppress(DamagedPart):
            queries = len({row["label"] for row in store.columns(spec, ["label"])})
        return cls(spec, outcomes, tuple(missing), tuple(values), queries)

    def row(self, users: Iterable[str]) -> list[str]:
        """Return its line of the table; `users` are systems and scorers that have it."""
        queries = "-" if self.queries is None else f"{self.queries:,}"
        row = [self.spec.folder, ", ".join(users), queries, f"{self.outcomes.total():,}"]
        for name in _OUTCOMES:
            row.append(f"{self.outcomes[name]:,}")
        row.append(f"{len(self.values):,}" if self.spec.kind in _WITH_VALUES else "-")
        row.append(f"{fmean(self.values):.4g}" if self.values else "-")
        return row


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
    models_of_name = {name: models_named([name]) for name in names}
    every = set[str]()
    every = every.union(*models_of_name.values())
    model = stage.target if stage.target in every else stage.name
    # A model's stages are called after it: `anole-draft` is one of `anole`.
    while model and model not in every:
        model = model.rpartition("-")[0]
    return [name for name, models in models_of_name.items() if model in models]
