"""What makes records: walks ask for them, queues form batches, workers compute them.

A run (`plait.cluster.schedule`) and the stages of this process (`plait.cluster.local`)
differ in where walks come from and where records are kept; all else is here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from plait.cluster.allocation import Allocator
from plait.cluster.executors.base import Executor, Ref
from plait.cluster.outlook import Outlook
from plait.cluster.plan import EngineOptions
from plait.cluster.stage_queue import FailedJobs, StageQueue
from plait.cluster.tracing.journal import SpanJournal
from plait.cluster.walks import Walker
from plait.cluster.watcher import Watcher
from plait.cluster.worker import Receipt
from plait.cluster.workers import StageEvent, WorkerPool
from plait.generators.base import Failure, Job, Outcome, StageSpec
from plait.generators.buckets import AnyPath

Known = tuple[str, Outcome[Any]]
"""The key of a record, and the outcome that it holds."""
_LOOKED_EVERY_S = 0.5
"""How often it is counted anew which jobs are to come."""
_LEAST_EXPECTED = 0.5
"""Jobs; fewer are none."""


class Engine(ABC):
    """Advances walks with the workers of an executor; one loop in one thread."""

    def __init__(
        self,
        executor: Executor,
        root: AnyPath,
        options: EngineOptions,
        watcher: Watcher | None = None,
        journal: SpanJournal | None = None,
        probe: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`probe` are (path, digest) of files that workers may be able to read."""
        self._executor = executor
        self._now = executor.now
        watcher = watcher or Watcher()
        journal = journal or SpanJournal()
        self._pool = WorkerPool(executor, root, options, watcher, journal, list(probe))
        self._allocator = Allocator(self._pool)
        self._queues: dict[str, StageQueue] = {}
        self._waiting: dict[str, list[Walker[Any]]] = defaultdict(list)
        """By key, the walks that wait for a record."""
        self._held: dict[str, str] = {}
        """By key, the batches in which requests wait for a later command."""
        self._left = 0
        """Walks that wait for such requests alone."""
        self._refused: list[StageEvent] = []
        self._outlook: Outlook | None = None
        """Of walks that are alike, so that stages are loaded before their jobs come,"""
        self._foreseen: Sequence[StageSpec] = ()
        """and all stages of these."""
        self._looked_at = -math.inf

    @abstractmethod
    def _lookup(self, job: Job) -> Outcome[Any] | None:
        """Return the outcome of a job, where it is known."""

    @abstractmethod
    def _keep(self, queue: StageQueue, receipt: Receipt) -> Iterable[Known]:
        """Keep the records of a batch; their outcomes by key."""

    @abstractmethod
    def _keep_failures(self, queue: StageQueue, failed: FailedJobs) -> Iterable[Known]:
        """Keep failures that no worker could; by key."""

    @abstractmethod
    def _end_walk(self, walker: Walker[Any], outcome: Outcome[Any]) -> None:
        """A walk has come to its end."""

    def _turn(self, timeout_s: float, *bells: Ref) -> None:
        """Give stages workers, workers batches, and walks what has come of them."""
        self._look_ahead()
        self._handle(self._allocator.allocate(self._queues.values()))
        self._dispatch()
        self._handle(self._pool.collect(timeout_s, *bells))

    def _look_ahead(self) -> None:
        """Have the allocation and the queues know which jobs are to come."""
        if self._outlook is None or self._now() - self._looked_at < _LOOKED_EVERY_S:
            return
        self._looked_at = self._now()
        ahead = self._outlook.look()
        self._allocator.ahead = ahead
        for spec in self._foreseen:
            jobs = ahead.jobs.get(spec.digest, 0.0)
            if jobs < _LEAST_EXPECTED:
                jobs = 0.0
            # A queue is made for jobs that are still to come: its model may be loaded.
            if jobs or spec.digest in self._queues:
                self._queue_of(spec).expected = jobs

    def _dispatch(self) -> None:
        """Send workers what they may have; a subclass may hold batches back."""
        self._pool.dispatch()

    def _note_growth(
        self, feeders: Mapping[str, Collection[str]], *, more: bool = False
    ) -> None:
        """Note to which stages `more` walks or their `feeders` may still give jobs."""
        busy = {d for d, queue in self._queues.items() if queue.pending or queue.out}
        for digest, queue in self._queues.items():
            fed = not busy.isdisjoint(feeders[digest])
            # `expected` is None where nothing tells, and 0 where no job will follow.
            queue.growing = more or (fed and queue.expected != 0.0)

    def _advance(self, walker: Walker[Any]) -> None:
        """Follow a walk as far as outcomes are known, and queue what it waits for."""
        outcome = walker.advance(self._lookup)
        if outcome is not None:
            self._end_walk(walker, outcome)
        elif walker.pending is not None:
            for job in walker.pending.missing:
                self._request(job, walker)
            self._left += walker.is_held

    def _request(self, job: Job, walker: Walker[Any]) -> None:
        """Queue a job for a walk, unless it is queued for another."""
        if job.key in self._held:
            walker.held += 1
            return
        is_queued = job.key in self._waiting
        self._waiting[job.key].append(walker)
        if self._outlook is not None:
            self._outlook.ask(job.spec.digest, walker.steps, is_new=not is_queued)
        if is_queued:
            return
        queue = self._queue_of(job.spec)
        queue.requested += 1
        refusal = self._refusal_of(queue, job)
        if refusal is None:
            queue.add(job)
        else:
            # Delivered later: its walk is still asking for its other jobs.
            self._refused.append(StageEvent.of_failed(queue, [job], refusal))

    def _refusal_of(self, queue: StageQueue, job: Job) -> Failure | None:
        """Return why a job cannot be queued."""
        if queue.unusable is None:
            return None
        return Failure(queue.unusable, queue.unusable_fault)

    def _queue_of(self, spec: StageSpec) -> StageQueue:
        if spec.digest not in self._queues:
            queue = self._new_queue(spec)
            self._queues[spec.digest] = queue
            queue.max_workers = self._executor.most_workers(spec.placement)
        return self._queues[spec.digest]

    def _new_queue(self, spec: StageSpec) -> StageQueue:
        return StageQueue(spec, len(self._queues), self._now)

    def _handle(self, events: Iterable[StageEvent]) -> None:
        """Keep what was made and what failed, and advance the walks."""
        failed: dict[str, FailedJobs] = defaultdict(list)
        refused = self._refused
        self._refused = []
        for queue, outcome in (*events, *refused):
            if isinstance(outcome, Receipt):
                self._deliver(self._keep(queue, outcome), queue)
                self._hold(queue, outcome.waiting)
            else:
                failed[queue.spec.digest] += outcome
        # Those of a stage at once: a store writes them as one part.
        for digest, failed_jobs in failed.items():
            if failed_jobs:
                queue = self._queues[digest]
                self._deliver(self._keep_failures(queue, failed_jobs), queue)

    def _deliver(self, outcomes: Iterable[Known], queue: StageQueue) -> None:
        """Give the walks what they wait for, and advance those that wait for no more."""
        digest = queue.spec.digest
        outlook = self._outlook
        for key, outcome in outcomes:
            for number, walker in enumerate(self._waiting.pop(key, ())):
                if outlook is not None:
                    outlook.answer(digest, walker.steps, is_first=number == 0)
                if walker.give(key, outcome):
                    self._advance(walker)
                else:
                    self._left += walker.is_held

    def _hold(self, queue: StageQueue, waiting: Mapping[str, str]) -> None:
        """Leave requests to a later command, and the walks that wait for nothing else."""
        queue.waiting += len(waiting)
        for key, batch in waiting.items():
            self._held[key] = batch
            for number, walker in enumerate(self._waiting.pop(key, ())):
                if self._outlook is not None:
                    digest = queue.spec.digest
                    self._outlook.answer(digest, walker.steps, is_first=number == 0)
                walker.held += 1
                self._left += walker.is_held
