"""The waiting jobs of one stage, and how the jobs of a failed batch are tried again.

The engine (`engine.py`) adds jobs, the pool of workers (`workers.py`) takes batches and
says what became of them, and allocation (`allocation.py`) weighs what waits. A job waits
on a heap, or in a batch that is to be tried again (`_retries`).
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import filterfalse
from typing import Any

from plait.cluster.placement import Resources
from plait.generators.base import RANDOM, Failure, Fault, Job, Outcome, StageSpec

DEATHS_TO_QUARANTINE = 3
"""Deaths of workers that had only this record, before it is not tried again."""
_SHARES = 2
"""In how many messages a worker's share of the waiting jobs is sent at least."""
MOST_UNREAD = 32
"""First replies of a judge, all unread, after which it is not asked any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Jobs that go to a worker together."""

    jobs: tuple[Job, ...]
    alone: bool = False
    """Sent to a worker that has nothing else in flight, so that the cause is certain."""


FailedJobs = list[tuple[Job, Failure]]
"""Jobs that no worker could do, with the reason."""


@dataclass(eq=False)
class StageQueue:
    """One stage's queue: decides which records are computed together."""

    spec: StageSpec
    rank: int
    """Position in the chains: lower ranks feed higher ones."""
    now: Callable[[], float] = time.monotonic
    """The clock."""
    limit: int = 0
    """Most records in a batch; halved by every out-of-memory."""
    requested: int = 0
    """Jobs without a record that walks have asked for."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Outcomes of the jobs that have ended, under earlier commands too."""
    made: int = 0
    """Records made by this command."""
    waiting: int = 0
    """Jobs that wait in a provider's batch for a later command."""
    replies: Counter[bool] = field(default_factory=Counter)
    """Judgements by whether they can be read: those of this command, and former read ones
    as far as needed."""
    readers: dict[str, Callable[[Outcome[Any]], bool]] = field(default_factory=dict)
    """`Job.readable` of the jobs that ask for judgements, by key."""
    first_made_at: float | None = None
    """When its first record was made."""
    usage: dict[str, float] = field(default_factory=dict)
    """Usage of the records made by this command: tokens, images, cost."""
    unusable: str | None = None
    """Why no more of its records can be made, once that is known."""
    unusable_fault: Fault = Fault.NOT_LOADED
    """Of the records that wait for a stage that is unusable."""
    max_workers: int | None = None
    """Number of workers beyond which another could not be started."""
    asked_workers: int | None = None
    """Most workers that were asked for: by its placement, or since by a user."""
    released_beyond: int | None = None
    """Workers beyond which others give way to other stages, once they have no batch."""
    growing: bool = True
    """Whether more jobs may still come."""
    expected: float | None = None
    """How many; None where nothing tells."""
    stands_for: float = 1.0
    """Records that are computed for each of its jobs, in a forecast."""
    out: int = 0
    """Batches that were taken and have not come back."""
    patience_s: float = 0.0
    """How long a batch that is not full waits for further jobs."""
    unplaced: int = 0
    """How many workers in a row were never placed although resources seemed free."""
    computed: int = 0
    """Records of the batches that workers of this run have finished,"""
    busy_s: float = 0.0
    """and how long the workers took for them, by the driver's clock."""
    load_s: float | None = None
    """How long its last new worker took to be ready."""
    waiting_since: float | None = None
    """When its jobs began to wait for a worker."""
    _heap: list[tuple[str, int, int, Job]] = field(default_factory=list)
    """Jobs that wait, with what orders them: see `add`."""
    _retries: deque[Batch] = field(default_factory=deque)
    """Batches that came back without records; they are sent before what is on the heap."""
    _deaths: Counter[str] = field(default_factory=Counter)
    """By key, how many workers have certainly died of a job."""
    _suspects: set[str] = field(default_factory=set)
    """Keys of jobs that were in flight with others when a worker died."""
    _arrivals: int = 0
    """Jobs that were ever added: of equal ones, the first is sent first."""
    _since: float = 0.0
    """When the jobs that wait began to."""

    def __post_init__(self) -> None:
        self.limit = self.spec.placement.batch_size
        self.asked_workers = self.spec.placement.workers

    def add(self, job: Job) -> None:
        """Queue a job: by group, then longest first where lengths are to be alike."""
        order = -job.size if self.spec.placement.longest_first else 0
        if not self._heap:
            self._since = self.now()
        heapq.heappush(self._heap, (job.group, order, self._arrivals, job))
        self._arrivals += 1
        if job.readable is not None:
            self.readers[job.key] = job.readable

    @cached_property
    def need(self) -> Resources:
        """The resources of one worker."""
        return Resources.of_placement(self.spec.placement)

    @property
    def pending(self) -> int:
        """Jobs waiting to be sent."""
        waiting = len(self._heap)
        for batch in self._retries:
            waiting += len(batch.jobs)
        return waiting

    @property
    def total(self) -> int:
        """Jobs that are known to belong to this stage, those of earlier commands too."""
        return self.requested - self.made + self.outcomes.total()

    @property
    def rest_s(self) -> float:
        """How long an idle worker leaves the waiting jobs to be joined by others."""
        if not self._heap or self._retries or len(self._heap) >= self.limit:
            return 0.0
        return max(0.0, self._since + self.patience_s - self.now())

    @property
    def record_s(self) -> float | None:
        """Seconds of one worker for a record; None before the first batch."""
        return self.busy_s / self.computed if self.computed else None

    @property
    def backlog_s(self) -> float | None:
        """Seconds of one worker for the waiting jobs; None before the first batch."""
        return None if self.record_s is None else self.record_s * self.pending

    @property
    def work_s(self) -> float | None:
        """The same for the expected jobs too."""
        record_s = self.record_s
        jobs = self.pending + (self.expected or 0.0)
        return None if record_s is None else record_s * jobs

    @property
    def oldest(self) -> str:
        """The group of the job that is next."""
        return self._retries[0].jobs[0].group if self._retries else self._heap[0][0]

    def take(self, *, idle: bool, workers: int) -> Batch | None:
        """The next batch for one worker; None where it is better to wait for more jobs.

        A busy worker is given full batches only, as long as the queue is `growing`, and
        none of the last: they go to those of the `workers` that are idle first, and are
        shared out over them in halves of a batch at least.
        """
        batch = self._next(idle, workers)
        self.out += batch is not None
        return batch

    def take_several(self, most: int, *, idle: bool, workers: int) -> list[Batch]:
        """Return up to `most` batches for one worker, and no more than its share of them.

        Those after the first are such as a busy worker is given. One that is to be alone
        is.
        """
        # No more than a share: else one worker would have all that waits, and others none.
        shared = self.pending // (self.limit * max(1, workers) * _SHARES)
        batches: list[Batch] = []
        while len(batches) < max(1, min(most, shared)):
            batch = self.take(idle=idle and not batches, workers=workers)
            if batch is None:
                break
            batches.append(batch)
            if batch.alone:
                break
        return batches

    def _next(self, idle: bool, workers: int) -> Batch | None:
        """The batch that `take` counts."""
        if self._retries and (idle or not self._retries[0].alone):
            return self._retries.popleft()
        waiting = len(self._heap)
        if self.growing:
            is_full = waiting >= self.limit
            if not is_full and (not idle or self.rest_s):
                return None
            return self._pop(self.limit)
        is_last = waiting <= self.limit * workers
        if is_last and not idle and not self.spec.placement.asks:
            return None  # those that are idle come first
        share = math.ceil(waiting / max(1, workers))
        half_a_batch = math.ceil(self.limit / 2)
        return self._pop(min(self.limit, max(share, half_a_batch)))

    def _pop(self, most: int) -> Batch | None:
        """Take the first jobs off the heap; None where there are none."""
        count = min(most, len(self._heap))
        jobs = tuple(heapq.heappop(self._heap)[-1] for _ in range(count))
        self._since = self.now()
        return Batch(jobs) if jobs else None

    def drain(self, chosen: Callable[[Job], bool] = lambda job: True) -> list[Job]:
        """The `chosen` ones of the waiting jobs, taken off the queue; by default all."""
        taken: list[Job] = []
        heap = self._heap
        self._heap = []
        for entry in heap:
            if chosen(entry[-1]):
                taken.append(entry[-1])
            else:
                self._heap.append(entry)
        heapq.heapify(self._heap)
        retries = self._retries
        self._retries = deque()
        for batch in retries:
            taken += filter(chosen, batch.jobs)
            left = tuple(filterfalse(chosen, batch.jobs))
            if left:
                self._retries.append(replace(batch, jobs=left))
        return taken

    def finish_batch(self, records: int = 0, busy_s: float = 0.0) -> None:
        """Note that a batch has come back and needs no further attempt.

        `busy_s` is how long its worker took for its `records`.
        """
        self.out -= 1
        self.computed += records
        self.busy_s += busy_s

    def put_back(self, batch: Batch) -> None:
        """Queue a batch again that was never computed."""
        self.out -= 1
        self._retries.appendleft(batch)  # first again, as it was

    def batch_raised(self, batch: Batch, error: str) -> FailedJobs:
        """Bisect a batch that raised, until the record at fault is alone and fails."""
        self.out -= 1
        if len(batch.jobs) == 1:
            return [(batch.jobs[0], Failure(error, Fault.ERROR))]
        self._split(batch)
        return []

    def out_of_memory(self, batch: Batch, error: str) -> FailedJobs:
        """Halve the batch size after a batch that was too large for the device."""
        self.out -= 1
        if len(batch.jobs) == 1:
            return [(batch.jobs[0], Failure(error, Fault.OUT_OF_MEMORY))]
        # Half of this batch, which may have been smaller than the limit.
        self.limit = max(1, min(self.limit, len(batch.jobs) // 2))
        for job in batch.jobs:
            self.add(job)
        return []

    def worker_died(
        self, batch: Batch, reason: str, *, certain: bool, fault: Fault = Fault.DIED
    ) -> FailedJobs:
        """Retry a batch whose worker died; `certain` when nothing else can be the cause.

        Where a server died, all its requests are retried together at first: most deaths
        have other causes, and one request at a time would leave the next server idle.
        """
        self.out -= 1
        keys = [job.key for job in batch.jobs]
        if not certain:
            were_suspects = self._suspects.issuperset(keys)
            self._suspects.update(keys)
            alone = were_suspects or self.spec.placement.server is None
            self._retries.append(Batch(batch.jobs, alone=alone))
            return []
        self._deaths.update(keys)
        job, *others = batch.jobs
        if others:
            # One of them is at fault: halves, each alone with its worker, tell which.
            self._split(batch, alone=True)
            return []
        if self._deaths[job.key] < DEATHS_TO_QUARANTINE:
            self._retries.append(Batch(batch.jobs, alone=True))
            return []
        times = self._deaths.pop(job.key)
        message = f"{reason}; not tried again after {times} attempts that ended this way"
        return [(job, Failure(message, fault))]

    def _split(self, batch: Batch, alone: bool = False) -> None:
        """Queue a batch again in two halves."""
        middle = (len(batch.jobs) + 1) // 2
        for half in (batch.jobs[:middle], batch.jobs[middle:]):
            self._retries.append(Batch(half, alone=alone or batch.alone))

    def count(self, outcome: str) -> None:
        """Count a job that has ended."""
        self.outcomes[outcome] += 1
        self.made += 1
        self.first_made_at = self.first_made_at or self.now()

    def unread(self) -> list[Job]:
        """Return the waiting judgements, taken off the queue once the first cannot be read.

        Those of random weights never can, and are made for the time they take.
        """
        few = self.replies[True] or self.replies[False] < MOST_UNREAD
        if few or not self.readers or self.spec.weights in RANDOM:
            return []
        return self.drain(lambda job: job.readable is not None)

    def note_pause(self, seconds: float) -> None:
        """Note for how long nothing was sent, which the rate leaves out."""
        if self.first_made_at is not None:
            self.first_made_at = min(self.now(), self.first_made_at + seconds)

    @property
    def working_s(self) -> float:
        """Seconds since the first record was made, for a rate."""
        return self.now() - self.first_made_at if self.first_made_at else 0.0

    def seconds_waiting(self) -> float:
        """Seconds for which the stage has had work and no worker, from its first call."""
        now = self.now()
        if self.waiting_since is None:
            self.waiting_since = now
        return now - self.waiting_since
