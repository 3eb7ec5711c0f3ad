"""The scheduler: opens the walks of a plan, and keeps their records in a store.

`Engine` (`engine.py`) advances walks and has their jobs computed. `Scheduler` adds what a
run is beside that: which walks are open, what the store knows already, the ceiling of cost,
requests that go into a provider's batches, parts that are joined meanwhile, progress, and
what is asked of a run under way (`plait ctl`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from plait.cluster.compaction import Compaction
from plait.cluster.control import Request
from plait.cluster.engine import Engine, Known
from plait.cluster.executors.base import Executor
from plait.cluster.outlook import Outlook
from plait.cluster.plan import DocumentRequest, EngineOptions, Plan, PlanItem, final_lookup
from plait.cluster.records import Item, RecordRow, decode, encode
from plait.cluster.stage_queue import MOST_UNREAD, FailedJobs, StageQueue
from plait.cluster.store import Store
from plait.cluster.tracing.journal import SpanJournal
from plait.cluster.usage import Spending
from plait.cluster.walks import Pending, Walker, read
from plait.cluster.watcher import RunPhase, RunProgress, StageProgress, Watcher
from plait.cluster.worker import Receipt
from plait.cluster.workers import StageEvent
from plait.generators.base import (
    Failure,
    Fault,
    Job,
    Outcome,
    Result,
    StageSpec,
    Walk,
    add_usage,
    outcome_name,
)
from plait.generators.batches import handed_batches
from plait.generators.document import Image, Query
from plait.generators.errors import UsageError
from plait.generators.names import unknown
from plait.scorers.base import Scorer

_OPENING_S = 0.02
"""Time per turn for opening walks, so that workers never wait for the driver's."""
_TURN_S = 0.2
"""Time between two reports of progress."""
_LEAST_OPEN = 4_096
_MOST_OPEN = 65_536
"""Walks that are open at a time, at least, and at most: one that waits takes 3 kB."""
_MESSAGES_AHEAD = 8
"""For each worker of a stage where walks begin, messages for which jobs are to wait."""
_UNREAD = f"none of the judge's first {MOST_UNREAD} replies can be read"


class Interrupted(Exception):
    """The run was asked to stop; everything committed is kept."""


class Scheduler(Engine):
    """Runs a plan to its end, with the workers of an executor."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        options: EngineOptions,
        executor: Executor,
        watcher: Watcher | None = None,
        journal: SpanJournal | None = None,
        *,
        existing: Mapping[str, Counter[str]] | None = None,
        on_turn: Callable[[RunProgress], None] = lambda progress: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """`existing` are the records of earlier commands, by stage and outcome."""
        self._journal = journal or SpanJournal()
        probe = _probe_of(plan)
        super().__init__(executor, store.root, options, watcher, self._journal, probe)
        self.plan = plan
        self.store = store
        self.options = options
        self.on_turn = on_turn
        self.should_stop = should_stop
        self.finished: Counter[str] = Counter()
        """Documents and pairs by outcome."""
        stages = plan.stages
        self._ranks = {spec.digest: rank for rank, spec in enumerate(stages)}
        """Positions of the stages in the chains, by digest."""
        self._feeders = plan.feeders
        self._final = final_lookup(store)
        self._requests: Iterator[DocumentRequest | PlanItem]
        self._requests = chain(plan.requests(), plan.comparisons)
        """Whose walks are not open yet."""
        self._more_walks = True
        """Whether there may be any."""
        self._existing = existing or {}
        self._open = 0
        """Walks that were opened and have not ended."""
        self._entries: set[StageQueue] = set()
        """Of the stages that walks ask for when they are opened."""
        ordered = {s.digest: self._feeders.get(s.digest, ()) for s in stages}
        self._outlook: Outlook = Outlook(ordered, len(plan))
        self._foreseen = stages
        self._failed_now: set[str] = set()
        """Keys that failed under this command: only the next command tries them again."""
        self._spending = Spending(options.max_cost, options.shard)
        self._spending.count_records(store, stages)
        self._spending.count_batches(store, stages)
        self._warn_of_paying_twice()
        self._compaction: Compaction | None = None
        if options.shard is None:  # else other shards read the parts
            self._compaction = Compaction(store, self._now)
        self._shown = -math.inf
        """When progress was last reported."""
        self._began = self._now()
        self._paused_at: float | None = None
        self._stopping = False

    def _warn_of_paying_twice(self) -> None:
        """Say which requests in batches are asked alone, now that a stage uses none."""
        uses_batches = {s.digest: s.placement.batch_api for s in self.plan.stages}
        for batch in handed_batches(self.store.root):
            if not uses_batches.get(batch.stage, True):
                self._pool.notice(
                    f"{len(batch.requests):,} requests of {batch.stage_name} wait in batch "
                    f"{batch.id or batch.name}; without batch_api = true they are asked "
                    "again, and paid twice"
                )

    # ---------------------------------------------------------------- the loop

    def run(self) -> None:
        """Work until nothing is missing; Interrupted once `should_stop` says so."""
        try:
            while self._more_walks or self._waiting:
                if self.should_stop():
                    self._finish_in_flight()
                opens_more = self._open_walks()
                self._handle(self._stop_paying())
                self._handle(self._stop_asking())
                # What queues know of jobs to come decides whether they send full batches.
                self._note_growth(self._feeders, more=self._more_walks)
                self._hold_batches_back(opens_more=opens_more)
                # While walks can be opened, workers are looked after without waiting.
                self._turn(0.0 if opens_more else 0.1)
                if self._compaction is not None:
                    self._compaction.turn()
                self._show()
        finally:
            self._pool.kill_all()
            if self._compaction is not None:
                self._compaction.close()
        self.on_turn(self.progress())

    def _stop_paying(self) -> list[StageEvent]:
        """Give up the stages that cost money, once no more may be paid."""
        reason = self._spending.reason_to_stop()
        if reason is None:
            return []
        events: list[StageEvent] = []
        for queue in self._queues.values():
            # What goes into a batch was counted when it was queued, or before.
            is_counted = queue.spec.placement.batch_api
            if queue.pending and not is_counted and self._spending.is_paid(queue.spec):
                events.append(self._pool.give_up(queue, reason, Fault.BUDGET))
        return events

    def _stop_asking(self) -> list[StageEvent]:
        """Judgements fail that wait for a judge whose replies cannot be read."""
        failure = Failure(_UNREAD, Fault.UNREAD)
        events: list[StageEvent] = []
        for queue in self._queues.values():
            jobs = queue.unread()
            if jobs:
                self._pool.notice(f"{queue.spec.name} is no longer asked: {_UNREAD}")
                events.append(StageEvent.of_failed(queue, jobs, failure))
        return events

    def _hold_batches_back(self, *, opens_more: bool) -> None:
        """Have requests that go into a batch wait as long as others may join them."""
        in_batches: list[StageQueue] = []
        may_join = opens_more or bool(self._refused)
        for queue in self._queues.values():
            if queue.spec.placement.batch_api:
                in_batches.append(queue)
            elif queue.pending or queue.out:
                may_join = True
        for queue in in_batches:
            queue.growing = may_join

    def _finish_in_flight(self) -> None:
        """Wait for batches in flight, for a limited time, and stop."""
        self._stopping = True
        until = self._now() + self.options.grace_s
        while self._now() < until and any(r.in_flight for r in self._pool.replicas):
            self._handle(self._pool.collect(0.1))
            self._show()
        raise Interrupted

    def _dispatch(self) -> None:
        if self._paused_at is None:
            super()._dispatch()

    def _show(self) -> None:
        """Report progress, every now and then."""
        if self._now() - self._shown > _TURN_S:
            self._shown = self._now()
            waiting = {q.spec.name: q.pending for q in self._queues.values()}
            self._journal.note_queues(waiting)
            self.on_turn(self.progress())

    # ----------------------------------------------------------------- live control

    def obey(self, request: Request) -> str:
        """Do what somebody asks meanwhile, and say so; UsageError where that cannot be."""
        match request:
            case Request(action="pause"):
                if self._paused_at is None:
                    self._paused_at = self._now()
                return "paused: batches in flight are finished, and no others are sent"
            case Request(action="resume"):
                self._resume()
                return "resumed"
            case Request(action="budget", max_cost=float(ceiling)):
                return self._set_budget(ceiling)
            case Request(action="workers", stage=str(name), workers=int(most)):
                return self._set_workers(name, most)
        raise UsageError(f"{request.action} is not understood as it was asked: {request}")

    def _resume(self) -> None:
        if self._paused_at is not None:
            for queue in self._queues.values():
                queue.note_pause(self._now() - self._paused_at)
            self._paused_at = None

    def _set_budget(self, ceiling: float) -> str:
        spending = self._spending
        spending.set_ceiling(ceiling, self.store, self.plan.stages)
        # Stages that were given up for want of money are asked again; failed jobs are not.
        for queue in self._queues.values():
            if queue.unusable_fault is Fault.BUDGET:
                queue.unusable = None
        return (
            f"the budget is {spending.ceiling:g}, of which {spending.spent:.4g} are spent"
        )

    def _set_workers(self, name: str, most: int) -> str:
        named = [spec for spec in self.plan.stages if spec.name == name]
        if not named:
            raise unknown("stage", name, {spec.name for spec in self.plan.stages})
        for spec in named:
            place = spec.placement
            useful = 1 if place.remote else self._executor.most_workers(place)
            if useful is not None and most > useful:
                raise UsageError(f"{name} can use {useful} worker here, not {most}")
            queue = self._queue_of(spec)
            queue.asked_workers = most
            queue.max_workers = useful
        return f"{name} has at most {most:,} workers"

    # ------------------------------------------------------------------- walks

    def _open_walks(self) -> bool:
        """Open walks as far as workers may need them; whether more could be opened now."""
        until = self._now() + _OPENING_S
        requested_before = {queue: queue.requested for queue in self._queues.values()}
        more = self._more_walks and self._needs_walks()
        while more and self._now() < until:
            request = next(self._requests, None)
            if request is None:
                self._more_walks = False
                more = False
                break
            self._outlook.open_walk()
            walk = self._walk_of(request)
            if walk is not None:
                self._open += 1
                self._advance(Walker(walk))
            more = self._needs_walks()
        # Nothing but opened walks has asked meanwhile.
        for queue in self._queues.values():
            if queue.requested > requested_before.get(queue, 0):
                self._entries.add(queue)
        return more

    def _walk_of(self, request: DocumentRequest | PlanItem) -> Walk[Any] | None:
        """Return the walk of a request; None where its document is missing and not made."""
        if not isinstance(request, tuple):
            return request.walk()
        if not self.options.only_scorers:
            return self.plan.evaluation(*request)
        if isinstance(read(self.plan.answer(*request), self._final), Pending):
            return None
        return self.plan.evaluation(*request, self._usable_scorers(request))

    def _usable_scorers(self, request: DocumentRequest) -> list[Scorer]:
        """Return the scorers that need no answer to be made."""
        usable = []
        for scorer in self.plan.scorers:
            if scorer.opponent:
                other = read(self.plan.opponent_answer(scorer, request), self._final)
                if isinstance(other, Pending):
                    continue
            usable.append(scorer)
        return usable

    def _needs_walks(self) -> bool:
        """Whether too few walks are open to keep the stages busy where they begin."""
        at_work = self._open - self._left  # others wait for a later command
        if at_work < _LEAST_OPEN:
            return True
        return at_work < _MOST_OPEN and any(map(self._is_short, self._entries))

    def _is_short(self, queue: StageQueue) -> bool:
        """Whether workers of a stage may soon have nothing to do."""
        workers = self._pool.of(queue)
        if not workers:
            return False
        batches = len(workers) * queue.spec.placement.concurrency * _MESSAGES_AHEAD
        return queue.pending < batches * queue.limit * workers[-1].batches_a_message

    def _end_walk(self, walker: Walker[Any], outcome: Outcome[Any]) -> None:
        self._open -= 1
        if isinstance(outcome, Result):
            self.finished[outcome_name(outcome.value.subject)] += 1

    def _refusal_of(self, queue: StageQueue, job: Job) -> Failure | None:
        refusal = super()._refusal_of(queue, job)
        if refusal is None and job.spec.placement.batch_api:
            reason = self._spending.refusal(job)
            refusal = None if reason is None else Failure(reason, Fault.BUDGET)
        return refusal

    def _lookup(self, job: Job) -> Outcome[Any] | None:
        """Return what the store has of a job and this command will not try again."""
        place = self.store.find(job)
        if place is None or not (place.final or job.key in self._failed_now):
            return None
        row = self.store.read(job.spec, place)
        if row is None:
            return None
        outcome = decode(job.spec.kind, row)
        if job.readable is not None:
            # One former reply that can be read is enough to go on asking.
            replies = self._queue_of(job.spec).replies
            if not replies[True]:
                replies[True] += job.readable(outcome)
        return outcome

    def _new_queue(self, spec: StageSpec) -> StageQueue:
        queue = StageQueue(spec, self._ranks[spec.digest], self._now)
        queue.outcomes.update(self._existing.get(spec.digest, {}))
        if spec.placement.batch_api:
            queue.patience_s = math.inf
        return queue

    # ----------------------------------------------------------------- records

    def _keep(self, queue: StageQueue, receipt: Receipt) -> Iterable[Known]:
        rows = receipt.rows
        self.store.suspects.update(receipt.damaged)
        add_usage(queue.usage, receipt.usage)
        self._spending.count_receipt(queue.spec, receipt)
        if receipt.table is not None:
            rows = self.store.commit(queue.spec, receipt.table)
        else:
            self.store.add(queue.spec, rows)
        return self._count(queue, rows)

    def _keep_failures(self, queue: StageQueue, failed: FailedJobs) -> Iterable[Known]:
        items: list[Item] = []
        failures: list[Failure] = []
        for job, failure in failed:
            items.append(Item(job.key, job.label, job.input))
            failures.append(failure)
        table = encode(queue.spec.kind, items, failures, 0.0)
        return self._count(queue, self.store.commit(queue.spec, table))

    def _count(self, queue: StageQueue, rows: Mapping[str, RecordRow]) -> list[Known]:
        """Count records that were made just now; their outcomes by key."""
        self._spending.release(rows)
        if self._compaction is not None:
            self._compaction.note(queue.spec, {row.part for row in rows.values()})
        outcomes: list[Known] = []
        for key, row in rows.items():
            outcome = decode(queue.spec.kind, row)
            queue.count(row.outcome)
            if row.outcome == "failed":
                self._failed_now.add(key)
            readable = queue.readers.pop(key, None)
            if readable is not None and row.outcome == "done":
                queue.replies[readable(outcome)] += 1
            outcomes.append((key, outcome))
        return outcomes

    # ----------------------------------------------------------------- progress

    @property
    def waiting(self) -> Counter[str]:
        """How many requests wait in which of the provider's batches."""
        return Counter(self._held.values())

    @property
    def made(self) -> int:
        """Records made by this scheduler."""
        return sum(queue.made for queue in self._queues.values())

    def progress(self) -> RunProgress:
        """Return the progress of every stage, and what every worker does."""
        queues = sorted(self._queues.values(), key=lambda q: q.rank)
        running: RunPhase = "running" if self._paused_at is None else "paused"
        return RunProgress(
            state="stopping" if self._stopping else running,
            elapsed_s=self._now() - self._began,
            stages=[self._progress_of(queue) for queue in queues],
            workers=[replica.progress for replica in self._pool.replicas],
            max_cost=self._spending.ceiling,
            spent=self._spending.spent,
        )

    def _progress_of(self, queue: StageQueue) -> StageProgress:
        replicas = self._pool.of(queue)
        ready = [r for r in replicas if r.state == "ready"]
        busy = any(r.in_flight for r in ready)
        return StageProgress(
            name=queue.spec.name,
            total=queue.total,
            outcomes=dict(queue.outcomes),
            made=queue.made,
            waiting=queue.waiting,
            workers=len(ready),
            state=_state(queue, replicas=len(replicas), ready=len(ready), busy=busy),
            seconds=queue.working_s,
            usage=dict(queue.usage),
        )


def _state(queue: StageQueue, *, replicas: int, ready: int, busy: bool) -> str:
    """What a stage is doing, see `StageProgress.state`, from what its workers do."""
    if queue.unusable is not None:
        return "unusable"
    if busy:
        return "running"
    if replicas and not ready:
        return "loading"
    if queue.pending and not ready:
        return "waiting"
    return "idle" if ready else "done"


def _probe_of(plan: Plan) -> list[tuple[str, str]]:
    """(path, digest) of one image file, to see which workers can read the data."""
    for query in plan.queries:
        if not isinstance(query, Query):
            continue
        answer = query.reference.segments if query.reference else ()
        for image in (*query.question, *answer):
            if isinstance(image, Image) and image.data is None and image.place:
                return [(image.place, image.digest)]
    return []
