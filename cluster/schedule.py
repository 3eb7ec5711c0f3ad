"""The scheduler: walks ask for records, pools form batches, workers on Ray make them.

One loop in one thread. Every turn it opens walks, places workers, sends batches, takes
receipts in, and tells its observer where things stand.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from cluster.crew import Crew, Event
from cluster.hiring import Hiring
from cluster.options import EngineOptions, StageProgress
from cluster.plan import Asked, Plan, outcome_name, standing_in
from cluster.pool import Casualties, StagePool
from cluster.records import Item, decode, encode
from cluster.spending import Spending
from cluster.store import Store
from cluster.walks import Pending, Walker, read
from cluster.watcher import WorkerFailure
from cluster.worker import Receipt
from generators.base import Failure, Fault, Job, Outcome, Result, StageSpec
from generators.document import Image, Malformed, Sample
from generators.system import System
from scorers.base import PlanItem

_OPENING_S = 0.02
"""Time per turn for opening walks, so that workers never wait for the driver's."""
_TURN_S = 0.2
"""Time between two looks of the observer."""


class Interrupted(Exception):
    """The run was asked to stop; everything committed stands."""


class Scheduler:
    """Runs a plan to its end on the connected Ray cluster."""

    def __init__(
        self,
        plan: Plan,
        store: Store,
        options: EngineOptions,
        *,
        on_turn: Callable[[Sequence[StageProgress]], None] = lambda stages: None,
        on_notice: Callable[[str], None] = lambda text: None,
        on_failure: Callable[[WorkerFailure], None] = lambda failure: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.plan = plan
        self.store = store
        self.options = options
        self.on_turn = on_turn
        self.should_stop = should_stop
        self.finished: Counter[str] = Counter()
        """Documents and pairs by outcome."""
        self._on_notice = on_notice
        self._noticed: set[str] = set()
        self._ranks = {s.digest: i for i, s in enumerate(plan.stages)}
        self._feeders = plan.feeders
        self._asked: Iterator[Asked | PlanItem]
        self._asked = chain(plan.asked(), plan.comparisons)
        self._more_walks = True
        self._waiting: dict[str, list[Walker[Any]]] = defaultdict(list)
        self._failed_now: set[str] = set()
        """Keys that failed under this command: not tried again before the next one."""
        self._pools: dict[str, StagePool] = {}
        self._refused: list[Event] = []
        self._spending = Spending(options.max_cost)
        self._spending.count_records(store, plan.stages)
        probe = _probe_of(plan)
        self._crew = Crew(store.root, options, probe, self._notice, on_failure)
        self._hiring = Hiring(self._crew, self._growing)
        self._shown = 0.0

    # ---------------------------------------------------------------- the loop

    def run(self) -> None:
        """Work until nothing is missing; Interrupted once `should_stop` says so."""
        try:
            while self._more_walks or self._waiting:
                if self.should_stop():
                    self._wind_down()
                self._open_walks()
                self._take_in(self._stop_paying())
                self._take_in(self._hiring.place(self._pools.values()))
                self._crew.feed(self._growing)
                self._take_in(self._crew.collect(0.0 if self._more_walks else 0.1))
                self._show()
        finally:
            self._crew.kill_all()
        self.on_turn(self.progress())

    def _stop_paying(self) -> list[Event]:
        """Once the budget is reached, what still waits for a paid stage fails."""
        reason = self._spending.exhausted()
        if reason is None:
            return []
        paid = (p for p in self._pools.values() if self._spending.is_paid(p.spec))
        return [self._crew.give_up(p, reason, Fault.BUDGET) for p in paid if p.pending]

    def _wind_down(self) -> None:
        """Take in what is in flight, for a limited time, and leave."""
        until = time.monotonic() + self.options.grace_s
        while time.monotonic() < until and any(r.in_flight for r in self._crew.replicas):
            self._take_in(self._crew.collect(0.1))
        raise Interrupted

    def _show(self) -> None:
        if time.monotonic() - self._shown > _TURN_S:
            self._shown = time.monotonic()
            self.on_turn(self.progress())

    def _notice(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._on_notice(text)

    # ------------------------------------------------------------------- walks

    def _open_walks(self) -> None:
        until = time.monotonic() + _OPENING_S
        while self._more_walks and time.monotonic() < until:
            what = next(self._asked, None)
            if what is None:
                self._more_walks = False
            elif not isinstance(what, tuple):
                self._advance(Walker(what.walk()))
            elif not self.options.only_scorers or self._is_answered(*what):
                self._advance(Walker(self.plan.evaluation(*what)))

    def _is_answered(self, system: System, sample: Sample | Malformed, repeat: int) -> bool:
        walk = self.plan.answer(system, sample, repeat)
        return not isinstance(read(walk, standing_in(self.store)), Pending)

    def _advance(self, walker: Walker[Any]) -> None:
        outcome = walker.advance(self._lookup)
        if isinstance(outcome, Result):
            self.finished[outcome_name(outcome.value.subject)] += 1
        elif walker.pending is not None:
            for job in walker.pending.missing:
                self._want(job, walker)

    def _lookup(self, job: Job) -> Outcome[Any] | None:
        row = self.store.rows(job.spec).get(job.key)
        if row is None or not (row.final or job.key in self._failed_now):
            return None
        pool = self._pool(job.spec)
        if job.key not in pool.seen:
            pool.seen.add(job.key)
            pool.settled(row.outcome, fresh=False)
        return decode(job.spec.kind, row)

    def _want(self, job: Job, walker: Walker[Any]) -> None:
        asked_before = job.key in self._waiting
        self._waiting[job.key].append(walker)
        if asked_before:
            return
        pool = self._pool(job.spec)
        pool.seen.add(job.key)
        if pool.unusable is None:
            pool.add(job)
        else:
            failure = Failure(pool.unusable, pool.unusable_fault)
            self._refused.append((pool, [(job, failure)]))

    def _pool(self, spec: StageSpec) -> StagePool:
        if spec.digest not in self._pools:
            self._pools[spec.digest] = StagePool(spec, self._ranks[spec.digest])
        return self._pools[spec.digest]

    def _growing(self, pool: StagePool) -> bool:
        """Whether more jobs may still reach the stage from stages before it."""
        if self._more_walks:
            return True
        busy = {id(r.pool) for r in self._crew.replicas if r.in_flight}
        feeders = self._feeders[pool.spec.digest]
        before = (p for d, p in self._pools.items() if d in feeders)
        return any(p.pending or id(p) in busy for p in before)

    # ------------------------------------------------------------- what came of it

    def _take_in(self, events: Iterable[Event]) -> None:
        """Note what was committed, write down what failed, wake the walks."""
        failed: dict[str, Casualties] = defaultdict(list)
        refused, self._refused = self._refused, []
        for pool, what in (*events, *refused):
            if isinstance(what, Receipt):
                self._note(pool, what)
            else:
                failed[pool.spec.digest] += what
        for digest, casualties in failed.items():
            if casualties:
                self._write_down(self._pools[digest], casualties)

    def _note(self, pool: StagePool, receipt: Receipt) -> None:
        rows = receipt.rows
        self.store.suspects.update(receipt.damaged)
        pool.used(receipt.usage)
        self._spending.count_receipt(pool.spec, receipt)
        if receipt.table is not None:
            rows = self.store.commit(pool.spec, receipt.table)
        else:
            self.store.add(pool.spec, rows)
        self._settle(pool, {key: row.outcome for key, row in rows.items()})

    def _write_down(self, pool: StagePool, casualties: Casualties) -> None:
        """Failures that no worker could commit."""
        items = [Item(j.key, j.label, j.input) for j, _ in casualties]
        table = encode(pool.spec.kind, items, [f for _, f in casualties], 0.0)
        rows = self.store.commit(pool.spec, table)
        self._settle(pool, {key: row.outcome for key, row in rows.items()})

    def _settle(self, pool: StagePool, outcomes: Mapping[str, str]) -> None:
        for key, outcome in outcomes.items():
            pool.settled(outcome)
            if outcome == "failed":
                self._failed_now.add(key)
            for walker in self._waiting.pop(key, ()):
                walker.missing -= 1
                if walker.missing == 0:
                    self._advance(walker)

    # ----------------------------------------------------------------- progress

    @property
    def made(self) -> int:
        """Records made by this scheduler."""
        return sum(pool.fresh for pool in self._pools.values())

    def progress(self) -> list[StageProgress]:
        """Where every stage stands, in chain order."""
        pools = sorted(self._pools.values(), key=lambda p: p.rank)
        return [self._progress_of(pool) for pool in pools]

    def _progress_of(self, pool: StagePool) -> StageProgress:
        replicas = self._crew.of(pool)
        ready = [r for r in replicas if r.state == "ready"]
        return StageProgress(
            name=pool.spec.name,
            total=len(pool.seen),
            outcomes=dict(pool.outcomes),
            fresh=pool.fresh,
            workers=len(ready),
            state=_state(pool, len(replicas), any(r.in_flight for r in ready), len(ready)),
            seconds=pool.working_s,
            usage=dict(pool.usage),
        )


def _state(pool: StagePool, replicas: int, busy: bool, ready: int) -> str:
    if pool.unusable is not None:
        return "unusable"
    if busy:
        return "running"
    if replicas and not ready:
        return "loading"
    if pool.pending and not ready:
        return "waiting"
    return "idle" if ready else "done"


def _probe_of(plan: Plan) -> list[tuple[str, str]]:
    """(path, digest) of one picture file, to see which workers can read the data."""
    for sample in (s for s in plan.samples if isinstance(s, Sample)):
        answer = sample.reference.segments if sample.reference else ()
        for image in (*sample.question, *answer):
            if isinstance(image, Image) and image.data is None and image.place:
                return [(image.place, image.digest)]
    return []
