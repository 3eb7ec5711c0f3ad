"""What each document of a run cost, and what systems that share records saved.

Read from the records: a stage's busy seconds, its usage (tokens, joules, money where prices
are set), and the GPUs that one of its workers holds. A document costs what it takes to make
it alone: a text that serves several systems counts in full for each of them, and once in
the total of the run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from cluster.plan import Evaluation
from cluster.store import DamagedPart, Store
from generators.base import Job, Kind, Result, StageSpec
from generators.document import ImageRequest, key_of
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


class RecordCosts:
    """What the records in a store cost; those of a stage are read when first asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stages: dict[str, dict[str, Amounts]] = {}
        self.unreadable: set[str] = set()
        """Digests of stages some of whose costs are unknown: a part is damaged or gone."""

    def of(self, jobs: Iterable[Job]) -> dict[str, Amounts]:
        """The amounts of the records there are of `jobs`, by key and in that order."""
        stages = {self._store.key_of(job): job.spec for job in jobs}
        known = {key: self.of_stage(stages[key]).get(key) for key in sorted(stages)}
        return {key: amounts for key, amounts in known.items() if amounts is not None}

    def spent(self, jobs: Iterable[Job]) -> dict[str, float]:
        """The amounts of the records of `jobs`, added up."""
        return total(self.of(jobs).values())

    def of_stage(self, spec: StageSpec) -> Mapping[str, Amounts]:
        """The amounts of all records of a stage, by key."""
        if spec.digest not in self._stages:
            self._stages[spec.digest] = self._read(spec)
        return self._stages[spec.digest]

    def _read(self, spec: StageSpec) -> dict[str, Amounts]:
        records = self._store.columns(spec, ["usage", "seconds"])
        try:
            return {record["key"]: _amounts(spec, record) for record in records}
        except DamagedPart as damage:
            self._store.go_on_without(damage, _NOT_SHOWN)
        except FileNotFoundError as error:
            self._store.on_notice(f"{error}. {_NOT_SHOWN}")
        self.unreadable.add(spec.digest)
        return {}


_NOT_SHOWN = "What documents cost is not shown."


def _amounts(spec: StageSpec, record: Mapping[str, Any]) -> Amounts:
    usage, seconds = json.loads(record["usage"]), record["seconds"] or 0.0
    own = ("input_tokens", "output_tokens", "joules", "cost")
    return {
        "seconds": seconds,
        "gpu_seconds": seconds * spec.placement.num_gpus,
        **{name: float(usage[name]) for name in own if name in usage},
        **({"pictures": 1.0} if spec.kind is Kind.RENDER else {}),
    }


def total(amounts: Iterable[Amounts]) -> dict[str, float]:
    """The sum of each measure; without those that nothing tells."""
    sums: dict[str, float] = {}
    for one in amounts:
        for name, amount in one.items():
            sums[name] = sums.get(name, 0.0) + amount
    return sums


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
        return total(self.records[key].amounts for key in keys)

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
        amounts = self.total(sorted(document.records))
        unknown = self.unknown(stages)
        return {name: amount for name, amount in amounts.items() if name not in unknown}


class CostNotes:
    """Notes which records the documents of some systems are made of."""

    def __init__(self, systems: Sequence[System], costs: RecordCosts) -> None:
        self._stages = {spec.digest: spec for s in systems for spec in s.stages}
        self._names = frozenset(system.name for system in systems)
        self._costs = costs
        self._documents: list[DocumentCost] = []

    def add(self, e: Evaluation) -> None:
        """Note one document, where it is of one of the systems."""
        if e.system in self._names:
            self._documents.append(_document(e, self._costs))

    def costs(self) -> RunCosts | None:
        """What the noted documents cost; None where records cannot be read."""
        records = {
            key: RecordCost(spec.name, spec.kind, amounts)
            for spec in self._stages.values()
            for key, amounts in self._costs.of_stage(spec).items()
        }
        if self._costs.unreadable & self._stages.keys() or not self._names:
            return None
        return RunCosts(
            records=records,
            documents=self._documents,
            unmeasured=_unmeasured(self._stages.values(), records),
        )


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


def _document(e: Evaluation, costs: RecordCosts) -> DocumentCost:
    jobs = e.jobs.get("", ())
    drawn = [j.input for j in jobs if j.spec.kind is Kind.RENDER]
    return DocumentCost(
        system=e.system,
        query=key_of(e.sample),
        repeat=e.repeat,
        done=isinstance(e.document, Result),
        records=frozenset(costs.of(jobs)),
        requests=Counter(job.spec.kind for job in jobs),
        seeds={
            i: request.seed
            for i, request in enumerate(drawn)
            if isinstance(request, ImageRequest) and request.seed is not None
        },
    )
