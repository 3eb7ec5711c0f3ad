"""One line of the journal: one batch of a worker, or several that followed each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

PHASES = ("read", "compute", "write")


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """One phase of one or several batches, in microseconds of the session."""

    begin: int
    end: int
    busy: int
    """How much of it was spent so, added up over batches that may overlap."""

    def joined(self, other: "PhaseTime | None") -> "PhaseTime":
        """Both together."""
        if other is None:
            return self
        begin, end = min(self.begin, other.begin), max(self.end, other.end)
        return PhaseTime(begin, end, self.busy + other.busy)


@dataclass(frozen=True, slots=True)
class MergedBatches:
    """Batches of one worker, with the times of their phases by the worker's clock."""

    batches: int
    records: int
    phases: tuple[PhaseTime | None, ...]
    """Of read, compute and write."""
    sent_before: int
    """Least time between the sending of a batch and its first phase."""
    received_after: int
    """Least time between the last phase of a batch and the arrival of its receipt."""
    status: str = "done"
    joules: float | None = None
    """Reading of the worker's meter at the end."""

    @classmethod
    def of_batch(
        cls,
        times: Sequence[tuple[str, int, int]],
        records: int,
        status: str,
        message: tuple[int, int],
        joules: float | None,
    ) -> "MergedBatches":
        """One batch; `message` is when it was sent and its receipt came."""
        by_name = {name: PhaseTime(b, e, e - b) for name, b, e in times}
        sent, received = message
        return cls(
            batches=1,
            records=records,
            phases=tuple(by_name.get(name) for name in PHASES),
            sent_before=min(b for _, b, _ in times) - sent,
            received_after=received - max(e for _, _, e in times),
            status=status,
            joules=joules,
        )

    @property
    def begin(self) -> int:
        """When the first phase began."""
        return min(p.begin for p in self.phases if p is not None)

    @property
    def end(self) -> int:
        """When the last phase ended."""
        return max(p.end for p in self.phases if p is not None)

    @property
    def duration_us(self) -> int:
        """From the first to the last."""
        return self.end - self.begin

    def takes(self, other: "MergedBatches", resolution_us: int) -> bool:
        """Whether `other` may be added: alike, without a long gap, and short enough."""
        gap = other.begin - self.end
        whole = max(self.end, other.end) - min(self.begin, other.begin)
        return (
            self.status == other.status
            and gap < resolution_us / 4
            and whole < resolution_us
        )

    def with_batch(self, other: "MergedBatches") -> "MergedBatches":
        """Both together."""
        return replace(
            self,
            batches=self.batches + other.batches,
            records=self.records + other.records,
            phases=tuple(
                b if a is None else a.joined(b)
                for a, b in zip(self.phases, other.phases, strict=True)
            ),
            sent_before=min(self.sent_before, other.sent_before),
            received_after=min(self.received_after, other.received_after),
            joules=self.joules if other.joules is None else other.joules,
        )

    def as_json(self) -> list[Any]:
        """As a line of the journal has it."""
        phases = [None if p is None else [p.begin, p.end, p.busy] for p in self.phases]
        about = [self.batches, self.records, self.status, self.joules]
        return [*about, self.sent_before, self.received_after, *phases]

    @classmethod
    def from_json(cls, line: Sequence[Any]) -> "MergedBatches":
        """What `as_json` made."""
        batches, records, status, joules, before, after, *phases = line
        times = tuple(None if p is None else PhaseTime(*p) for p in phases)
        return cls(batches, records, times, before, after, status, joules)

    def shifted(self, by_us: int) -> "MergedBatches":
        """With all times moved, to another clock."""
        phases = tuple(
            p and PhaseTime(p.begin + by_us, p.end + by_us, p.busy) for p in self.phases
        )
        return replace(self, phases=phases)
