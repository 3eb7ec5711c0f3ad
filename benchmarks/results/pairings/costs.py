"""What each document of a run cost, and what systems that share records saved.

Read from the records: a stage's busy seconds, its usage (tokens, joules, money where prices
are set), and the GPUs that one of its workers holds. A document costs what it takes to make
it alone: a text that serves several systems counts in full for each of them, and once in
the total of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from benchmarks.results.board import key_of
from cluster.plan import AnswerLog, DocumentRequest
from cluster.store import DamagedPart, Store
from generators.base import Kind, Result, StageSpec
from generators.document import ImageRequest
from generators.system import System

MEASURES: Mapping[str, str] = {
    "seconds": "seconds",
    "gpu_seconds": "GPU-seconds",
    "input_tokens": "tokens in",
    "output_tokens": "tokens out",
    "pictures": "pictures",
    "joules": "joules",
    "cost": "money",
}
"""What is measured, with its heading. Seconds are those that stages were busy."""
Amounts = Mapping[str, float]
"""By the names of `MEASURES`; what was not measured is left out."""


@dataclass(frozen=True, slots=True)
class RecordCost:
    """One record that a document is made of."""

    stage: str
    """Name of the stage."""
    kind: Kind
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class DocumentCost:
    """The records that one document is made of, by their keys."""

    system: str
    query: str
    repeat: int
    done: bool
    records: frozenset[str]
    requests: Mapping[Kind, int]
    """How many records of each kind the document asked for."""
    seeds: Mapping[int, int] = field(default_factory=dict)
    """Seed of the noise of each picture that has one, by its position."""


@dataclass(frozen=True, kw_only=True)
class RunCosts:
    """The cost of every document of some systems."""

    records: Mapping[str, RecordCost]
    documents: Sequence[DocumentCost]
    unmeasured: Mapping[str, frozenset[str]]
    """By measure, the stages some of whose records do not tell it."""

    def total(self, keys: Iterable[str]) -> dict[str, float]:
        """The amounts of some records, added up; without measures that none tells."""
        total: dict[str, float] = {}
        for key in keys:
            for name, amount in self.records[key].amounts.items():
                total[name] = total.get(name, 0.0) + amount
        return total

    def unknown(self, stages: Set[str]) -> set[str]:
        """The measures that one of these stages does not tell."""
        return {
            measure
            for measure, stages_without in self.unmeasured.items()
            if stages_without & stages
        }

    def of(self, document: DocumentCost) -> dict[str, float]:
        """What one document cost; without measures that one of its stages does not tell."""
        stages = {self.records[key].stage for key in document.records}
        total = self.total(sorted(document.records))
        unknown = self.unknown(stages)
        return {name: amount for name, amount in total.items() if name not in unknown}


class CostNotes:
    """Notes which records each document is made of, while evaluations are read."""

    def __init__(self, systems: Sequence[System]) -> None:
        self._systems = systems
        self._names = frozenset(system.name for system in systems)
        self._documents: dict[tuple[str, str, int], DocumentCost] = {}

    def __call__(self, request: DocumentRequest, log: AnswerLog) -> None:
        """Note one document; read again, the later reading counts."""
        if request[0].name in self._names:
            document = _document(request, log)
            key = document.system, document.query, document.repeat
            self._documents[key] = document

    def costs(self, store: Store) -> RunCosts:
        """What the noted documents cost, as far as their records are there."""
        stages = {spec.digest: spec for system in self._systems for spec in system.stages}
        records: dict[str, RecordCost] = {}
        for spec in stages.values():
            for record in store.columns(spec, ["usage", "seconds"]):
                usage = json.loads(record["usage"])
                amounts = _amounts(spec, usage, record["seconds"] or 0.0)
                records[record["key"]] = RecordCost(spec.name, spec.kind, amounts)
        return RunCosts(
            records=records,
            documents=[
                replace(d, records=d.records & records.keys())
                for d in self._documents.values()
            ],
            unmeasured=_unmeasured(stages.values(), records),
        )


def readable_costs(notes: CostNotes | None, store: Store) -> RunCosts | None:
    """The costs that `notes` tells; None without notes, or where a part is damaged."""
    try:
        return None if notes is None else notes.costs(store)
    except (DamagedPart, FileNotFoundError) as error:
        store.on_notice(f"{error}. What pairings cost is not shown.")
        return None


def _amounts(spec: StageSpec, usage: Mapping[str, float], seconds: float) -> Amounts:
    own = ("input_tokens", "output_tokens", "joules", "cost")
    return {
        "seconds": seconds,
        "gpu_seconds": seconds * spec.placement.num_gpus,
        **{name: float(usage[name]) for name in own if name in usage},
        **({"pictures": 1.0} if spec.kind is Kind.RENDER else {}),
    }


def _unmeasured(
    stages: Iterable[StageSpec], records: Mapping[str, RecordCost]
) -> dict[str, frozenset[str]]:
    """Energy is told by all records of a document or not at all; money by endpoints."""
    priced = {s.name for s in stages if s.placement.endpoint and s.placement.server is None}
    without: dict[str, set[str]] = {"joules": set(), "cost": set()}
    for record in records.values():
        if "joules" not in record.amounts:
            without["joules"].add(record.stage)
        if "cost" not in record.amounts and record.stage in priced:
            without["cost"].add(record.stage)
    return {name: frozenset(names) for name, names in without.items()}


def _document(request: DocumentRequest, log: AnswerLog) -> DocumentCost:
    system, sample, repeat = request
    jobs = [job for step in log.steps for job in step]
    requests: dict[Kind, int] = {}
    for job in jobs:
        requests[job.spec.kind] = requests.get(job.spec.kind, 0) + 1
    drawn = [j.input for j in jobs if j.spec.kind is Kind.RENDER]
    return DocumentCost(
        system=system.name,
        query=key_of(sample),
        repeat=repeat,
        done=isinstance(log.outcome, Result),
        records=frozenset(job.key for job in jobs),
        requests=requests,
        seeds={
            i: request.seed
            for i, request in enumerate(drawn)
            if isinstance(request, ImageRequest) and request.seed is not None
        },
    )
