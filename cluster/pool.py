"""The jobs of one stage that wait, and what to do with a batch that came to grief."""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from generators.base import Failure, Fault, Job, StageSpec

DEATHS_TO_QUARANTINE = 3
"""Deaths a record may be the only suspect of, before it is not tried again."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Jobs that go to a worker together."""

    jobs: tuple[Job, ...]
    alone: bool = False
    """Sent to a worker that has nothing else in flight, so that guilt is certain."""


Casualties = list[tuple[Job, Failure]]


@dataclass(eq=False)
class StagePool:
    """One stage's queue. Decides which records travel together; knows nothing of Ray."""

    spec: StageSpec
    rank: int
    """Position in the chains: lower ranks feed higher ones."""
    limit: int = 0
    """Most records in a batch; halved by every out-of-memory."""
    seen: set[str] = field(default_factory=set)
    """Keys of all jobs that any system needs from this stage."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """How the seen jobs ended."""
    fresh: int = 0
    """Records made by this command rather than found."""
    first_at: float | None = None
    """When its first record was made."""
    usage: dict[str, float] = field(default_factory=dict)
    """What its records made by this command have used: tokens, images, cost."""
    unusable: str | None = None
    """Why no more of its records can be made, once that is known."""
    unusable_fault: Fault = Fault.NOT_LOADED
    """Of the records that wait for a stage that is unusable."""
    most_workers: int | None = None
    """Workers beyond which one more was tried in vain."""
    unplaced: int = 0
    """Workers in a row that the cluster had no place for after all."""
    waiting_since: float | None = None
    """When its jobs began to wait for a place on the cluster."""
    _queue: list[tuple[str, int, int, Job]] = field(default_factory=list)
    _again: deque[Batch] = field(default_factory=deque)
    _deaths: Counter[str] = field(default_factory=Counter)
    _arrivals: int = 0

    def __post_init__(self) -> None:
        self.limit = self.spec.placement.batch_size

    def add(self, job: Job) -> None:
        """Queue a job: by group, then longest first where that makes like batches."""
        order = -job.size if self.spec.placement.longest_first else 0
        heapq.heappush(self._queue, (job.group, order, self._arrivals, job))
        self._arrivals += 1

    @property
    def pending(self) -> int:
        """Jobs waiting to be sent."""
        return len(self._queue) + sum(len(b.jobs) for b in self._again)

    def take(self, *, idle: bool, growing: bool, workers: int) -> Batch | None:
        """The next batch for one worker; None where it is better to wait for more.

        A busy worker is given full batches only, as long as the queue is `growing`;
        the last records are shared out over the `workers`, in halves of a batch at least.
        """
        if self._again and (idle or not self._again[0].alone):
            return self._again.popleft()
        size = self.limit
        if len(self._queue) < size and growing and not idle:
            return None
        if not growing:
            share = math.ceil(len(self._queue) / max(1, workers))
            size = min(size, max(share, math.ceil(size / 2)))
        taken = min(size, len(self._queue))
        jobs = tuple(heapq.heappop(self._queue)[-1] for _ in range(taken))
        return Batch(jobs) if jobs else None

    def drain(self) -> list[Job]:
        """All waiting jobs, taken off the queue."""
        jobs = [entry[-1] for entry in self._queue]
        jobs += [job for batch in self._again for job in batch.jobs]
        self._queue.clear()
        self._again.clear()
        return jobs

    def returned(self, batch: Batch) -> None:
        """A batch that was never computed, through no fault of its own."""
        self._again.appendleft(batch)

    def raised(self, batch: Batch, error: str) -> Casualties:
        """A batch that raised: bisected until the poison record stands alone."""
        if len(batch.jobs) == 1:
            return [(batch.jobs[0], Failure(error, Fault.ERROR))]
        self._split(batch)
        return []

    def out_of_memory(self, batch: Batch, error: str) -> Casualties:
        """A batch too large for the device: halved, and the limit remembered."""
        if len(batch.jobs) == 1:
            return [(batch.jobs[0], Failure(error, Fault.OUT_OF_MEMORY))]
        self.limit = max(1, min(self.limit, len(batch.jobs) // 2))
        for job in batch.jobs:
            self.add(job)
        return []

    def killed(
        self, batch: Batch, reason: str, *, certain: bool, fault: Fault = Fault.DIED
    ) -> Casualties:
        """A batch whose worker died; `certain` when nothing else can have killed it."""
        if not certain:
            self._again.append(Batch(batch.jobs, alone=True))
            return []
        self._deaths.update(job.key for job in batch.jobs)
        job, *others = batch.jobs
        if others:
            self._split(batch, alone=True)
            return []
        if self._deaths[job.key] < DEATHS_TO_QUARANTINE:
            self._again.append(Batch(batch.jobs, alone=True))
            return []
        times = self._deaths.pop(job.key)
        message = f"{reason}; set aside after {times} attempts that each ended so"
        return [(job, Failure(message, fault))]

    def _split(self, batch: Batch, alone: bool = False) -> None:
        middle = (len(batch.jobs) + 1) // 2
        for half in (batch.jobs[:middle], batch.jobs[middle:]):
            self._again.append(Batch(half, alone=alone or batch.alone))

    def settled(self, outcome: str, *, fresh: bool = True) -> None:
        """Count a job that has ended, now (`fresh`) or under an earlier command."""
        self.outcomes[outcome] += 1
        if fresh:
            self.fresh += 1
            self.first_at = self.first_at or time.monotonic()

    def used(self, usage: Mapping[str, float]) -> None:
        """Add what a batch has used."""
        for name, amount in usage.items():
            self.usage[name] = self.usage.get(name, 0.0) + amount

    @property
    def working_s(self) -> float:
        """Seconds since the first record was made, for a rate."""
        return time.monotonic() - self.first_at if self.first_at else 0.0

    def wait_for_place(self) -> float:
        """Seconds for which the stage has had work and no worker."""
        now = time.monotonic()
        if self.waiting_since is None:
            self.waiting_since = now
        return now - self.waiting_since
