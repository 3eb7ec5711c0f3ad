"""What each document of a run cost, and what systems that share records saved.

Read from the records: a stage's busy seconds, its usage (tokens, joules, money where prices
are set), and the GPUs that one of its workers holds. A document costs what it takes to make
it alone: a text that serves several systems counts in full for each of them, and once in
the total of the run.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cluster.plan import Evaluation
from cluster.store import DamagedPart, Store
from generators.base import Job, Kind, Result, StageSpec
from generators.document import key_of
from generators.system import TRIES
from pipelines.chat.endings import CUT

MEASURES: Mapping[str, str] = {
    "seconds": "seconds",
    "gpu_seconds": "GPU-seconds",
    "input_tokens": "tokens in",
    "output_tokens": "tokens out",
    "pictures": "images",
    "joules": "joules",
    "cost": "money",
}
"""What is measured, with its heading. Seconds are those that stages were busy."""
Amounts = Mapping[str, float]
"""By the names of `MEASURES`, and replies that were `CUT`; without what is not known."""
_NOT_SHOWN = "What documents cost is not shown."


@cache
def _same(names: frozenset[str]) -> frozenset[str]:
    """Return one object for equal sets: there are as many as records."""
    return names


@dataclass(frozen=True, slots=True, eq=False)
class RecordCost:
    """One record that a document is made of; equal to itself alone."""

    stage: str
    kind: Kind
    amounts: Amounts
    untold: frozenset[str] = frozenset()
    """Measures that it should tell and does not."""

    @classmethod
    def of(cls, spec: StageSpec, row: Mapping[str, Any]) -> RecordCost:
        """Read the `usage` and the `seconds` of a record.

        Energy is told by all records of a document or not at all; money by endpoints.
        """
        usage, place = json.loads(row["usage"]), spec.placement
        seconds = row["seconds"] or 0.0
        own = ("input_tokens", "output_tokens", "joules", "cost", CUT)
        amounts = {"seconds": seconds, "gpu_seconds": seconds * place.num_gpus}
        amounts |= {name: float(usage[name]) for name in own if name in usage}
        amounts |= {"pictures": 1.0} if spec.kind is Kind.RENDER else {}
        return cls.with_amounts(spec, amounts)

    @classmethod
    def with_amounts(cls, spec: StageSpec, amounts: Amounts) -> RecordCost:
        """Return the cost of a record of which these amounts are told."""
        place = spec.placement
        priced = place.endpoint and place.server is None
        told = {"joules", "cost"} if priced else {"joules"}
        return cls(spec.name, spec.kind, amounts, _same(frozenset(told - amounts.keys())))


class RecordCosts:
    """What the records in a store cost; those of a stage are read when first asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stages: dict[str, dict[str, RecordCost]] = {}
        self.unreadable: set[str] = set()
        """Digests of stages some of whose costs are unknown: a part is damaged or gone."""

    def of(self, jobs: Iterable[Job]) -> dict[str, RecordCost]:
        """Return the records there are of `jobs`, by key and in that order."""
        records = {}
        stages = {self._store.key_of(job): job.spec for job in jobs}
        for key in sorted(stages):
            spec = stages[key]
            if spec.digest not in self._stages:
                self._stages[spec.digest] = self._read(spec)
            if (record := self._stages[spec.digest].get(key)) is not None:
                records[key] = record
        return records

    def _read(self, spec: StageSpec) -> dict[str, RecordCost]:
        rows = self._store.columns(spec, ["usage", "seconds"])
        try:
            return {row["key"]: RecordCost.of(spec, row) for row in rows}
        except DamagedPart as damage:
            self._store.go_on_without(damage, _NOT_SHOWN)
        except FileNotFoundError as error:
            self._store.on_notice(f"{error}. {_NOT_SHOWN}")
        self.unreadable.add(spec.digest)
        return {}


def total(amounts: Iterable[Amounts]) -> dict[str, float]:
    """Return the sum of each measure; without those that nothing tells."""
    sums = defaultdict[str, float](float)
    for one in amounts:
        for name, amount in one.items():
            sums[name] += amount
    return dict(sums)


@dataclass(frozen=True, slots=True)
class DocumentCost:
    """The records that one document is made of."""

    system: str
    query: str
    repeat: int
    done: bool
    records: Mapping[str, RecordCost]
    """By key, in that order."""
    requests: Mapping[Kind, int]
    """How many records of each kind the document asked for."""
    seeds: Mapping[int, int] = field(default_factory=dict)
    """Seed of the noise of each image that has one, by its position: of its first try."""

    @property
    def amounts(self) -> Amounts:
        """What it takes to make the document alone."""
        return total(record.amounts for record in self.records.values())

    @classmethod
    def of(cls, e: Evaluation, costs: RecordCosts) -> DocumentCost:
        """Return the cost of one evaluation's document."""
        jobs = e.jobs.get("", ())
        tries = getattr(e.document, "notes", {}).get(TRIES, ())
        drawn = [j.input for j in jobs if j.spec.kind is Kind.RENDER]
        seeds = [t["seed"] for t in tries if t["try"] == 1]
        seeds = seeds or [getattr(request, "seed", None) for request in drawn]
        return cls(
            system=e.system,
            query=key_of(e.sample),
            repeat=e.repeat,
            done=isinstance(e.document, Result),
            records=costs.of(jobs),
            requests=Counter(job.spec.kind for job in jobs),
            seeds={i: seed for i, seed in enumerate(seeds) if seed is not None},
        )
