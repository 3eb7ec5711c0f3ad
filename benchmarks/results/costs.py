"""What each document of a run cost, and what systems that share records saved.

Read from the records: a stage's busy seconds, its usage (tokens, joules, money where prices
are set), and the GPUs that one of its workers holds. A document costs what it takes to make
it alone: a text that serves several systems counts in full for each of them, and once in
the total of the run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from plait.generators.base import Kind, StageSpec
from plait.pipelines.chat.endings import CUT

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
_TOLD = ("input_tokens", "output_tokens", "joules", "cost", CUT)
"""What the usage of a record may tell."""


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
    def with_amounts(cls, spec: StageSpec, amounts: Amounts) -> RecordCost:
        """Return the cost of a record of which these amounts are told.

        Energy is told by all records of a document or not at all; money by endpoints.
        """
        place = spec.placement
        priced = place.endpoint and place.server is None
        told = {"joules", "cost"} if priced else {"joules"}
        return cls(spec.name, spec.kind, amounts, _same(frozenset(told - amounts.keys())))


def amounts_of(spec: StageSpec, records: pa.Table) -> dict[str, pa.Array]:
    """Return by measure what records of a stage tell of it, from their usage and seconds.

    A column for each of `MEASURES` and of `CUT`, null where a record does not tell.
    """
    # Records of one stage often use the same: each text is read once.
    usage = records.column("usage").combine_chunks().dictionary_encode()
    told = [json.loads(text) for text in usage.dictionary.to_pylist()]
    columns = {}
    for name in _TOLD:
        values = [float(own[name]) if name in own else None for own in told]
        columns[name] = pa.array(values, pa.float64()).take(usage.indices)
    seconds = pc.fill_null(records.column("seconds"), 0.0).combine_chunks()
    drawn = 1.0 if spec.kind is Kind.RENDER else None
    return columns | {
        "seconds": seconds,
        "gpu_seconds": pc.multiply(seconds, float(spec.placement.num_gpus)),
        "pictures": pa.array([drawn] * len(records), pa.float64()),
    }


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
