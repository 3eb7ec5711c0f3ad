"""Who watches a run, and what there is to see beside its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cluster.counts import StageCount
from cluster.options import StageProgress

FailureKind = Literal["died", "timed out", "lost with its node"]


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A worker that was lost with work in hand, or before it had any."""

    at: str
    """UTC, ISO 8601."""
    stage: str
    host: str
    kind: FailureKind
    reason: str
    records: int
    """How many records it had in hand."""

    def __str__(self) -> str:
        text = f"worker of {self.stage} on {self.host} {self.kind}: {self.reason}"
        if not self.records:
            return text
        return f"{text} ({self.records:,} record{'s' * (self.records > 1)} in hand)"

    def as_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        return asdict(self)


class Watcher:
    """Sees how a run goes; does nothing itself. The command line draws."""

    def starting(self, counts: Sequence[StageCount]) -> None:
        """Called once, before Ray is started, with what there is to do."""

    def turn(self, stages: Sequence[StageProgress]) -> None:
        """Called a few times a second."""

    def notice(self, text: str) -> None:
        """Something the user should know now."""

    def worker_failed(self, failure: WorkerFailure) -> None:
        """A worker died or timed out; another takes its place where one can."""
