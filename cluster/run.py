"""One run from lock to manifest: makes the missing records and keeps the others."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from cluster.counts import count, totals_of
from cluster.lock import RunInUse, RunLock
from cluster.manifest import environment, now, write_json
from cluster.plan import (
    EngineOptions,
    Evaluation,
    OnAnswer,
    Plan,
    compared,
    evaluations,
)
from cluster.store import DamagedPart, Store, StoreError
from cluster.timing import TIMING, former_timing, timing
from cluster.tracing.journal import SpanJournal
from cluster.tracing.results import traced
from cluster.tracing.sessions import MAKING, STARTING_RAY
from cluster.usage import usage_of
from cluster.walks import Pending
from cluster.watcher import RunLog, Watcher
from scorers.base import ItemOutcome

MANIFEST = "manifest.json"
_MOST_REPAIRS = 3
"""How often one command makes damaged parts again."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of running a plan."""

    counts: Mapping[str, int]
    """Documents: planned, done, failed, skipped; judgements: unscored, ..."""
    failed: int
    """Documents and judgements that failed."""
    made: int
    """Records made by this command."""
    seconds: float
    interrupted: bool = False
    evaluations: Sequence[Evaluation | Pending] = field(default=(), repr=False)
    """The evaluation of every planned document, in the plan's order."""
    traced: bool = False
    """Whether this command added a session to the trace of the run."""


@dataclass
class _Stopper:
    """Remembers the first signal, to stop in order; the second one stops at once."""

    requested: bool = False
    on_stop: Callable[[], None] = field(default=lambda: None)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.on_stop()


@contextmanager
def _signals(stopper: _Stopper) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(n, stopper) for n in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def execute(
    plan: Plan,
    root: Path,
    options: EngineOptions,
    about: Mapping[str, Any],
    watcher: Watcher,
    *,
    notes: bool = False,
    on_answer: OnAnswer | None = None,
) -> RunResult:
    """Make every missing record of `plan` under `root`; RunInUse, StoreError, ClusterError.

    `about` goes to the manifest unchanged: resolved config, data revision, digests. With
    `notes`, the documents of the result carry what their stages noted. `on_answer` is told
    of every document of the result, again where a part had to be repaired meanwhile.
    """
    began = time.monotonic()
    with RunLock(root) as lock, RunLog(root, watcher) as log, SpanJournal(root) as journal:
        store = Store(root, repairs=True, on_notice=log.notice)
        store.sweep()
        earlier = former_timing(root / MANIFEST)
        manifest = dict(about) | environment() | {"started": now(), "status": "started"}
        manifest |= {TIMING: earlier} if earlier else {}
        write_json(root / MANIFEST, manifest)
        work = _Work(plan, store, options, log, lock, journal, on_answer)
        work.finish(notes=notes)
        journal.close("interrupted" if work.interrupted else "finished")
        totals = totals_of([*work.evaluations, *work.comparisons])
        manifest |= {
            "finished": now(),
            "counts": totals,
            "usage": work.usage,
            "worker_failures": log.about_failures(),
        }
        seconds = time.monotonic() - began
        if entry := timing(earlier, seconds, work.scheduling_s, log.loads, log.takeovers):
            manifest[TIMING] = entry
        manifest["status"] = "interrupted" if work.interrupted else "finished"
        manifest |= traced(root, log.notice)
        write_json(root / MANIFEST, manifest)
    failed = totals["failed"] + totals["failed_scores"]
    seconds = time.monotonic() - began
    return RunResult(
        totals,
        failed,
        work.made,
        seconds,
        work.interrupted,
        work.evaluations,
        journal.active,
    )


@dataclass
class _Work:
    """Makes the missing records, again where parts are damaged, and reads all back."""

    plan: Plan
    store: Store
    options: EngineOptions
    watcher: Watcher
    lock: RunLock
    journal: SpanJournal
    on_answer: OnAnswer | None = None
    made: int = 0
    scheduling_s: float = 0.0
    """Seconds between the start of Ray and its end."""
    interrupted: bool = False
    usage: Mapping[str, Any] = field(default_factory=dict)
    evaluations: Sequence[Evaluation | Pending] = ()
    comparisons: Sequence[ItemOutcome | Pending] = ()

    def finish(self, *, notes: bool) -> None:
        """Work until nothing is missing or damaged; StoreError when it never ends."""
        for attempt in range(_MOST_REPAIRS + 1):
            try:
                self._make_missing(announce=attempt == 0)
                self._read_back(notes=notes)
            except DamagedPart as damage:
                if not self._repaired(damage.part):
                    raise
            else:
                if self.interrupted or not self._repaired():
                    return
        raise StoreError(
            f"{self.store.root} was repaired {_MOST_REPAIRS} times and parts are damaged "
            "again: check the disk, then run the same command again"
        )

    def _repaired(self, *damaged: str) -> bool:
        """Whether damaged parts were set aside, so that there is work again."""
        if not self.store.set_aside([*damaged, *self.store.suspects]):
            return False
        # Damage is seldom limited to one part, and each would cost another pass.
        self.watcher.notice("all other parts of the run are being checked")
        self.store.check_all(self.plan.stages)
        return True

    def _make_missing(self, *, announce: bool) -> None:
        only_scorers = self.options.only_scorers
        with self.journal.phase("counting what is missing"):
            counts = count(self.plan, self.store, only_scorers=only_scorers)
        if announce:
            self.watcher.starting(counts)
        if any(c.to_run for c in counts) and not self.interrupted:
            self._on_ray()
        with self.journal.phase("compacting parts"):
            for spec in self.plan.stages:
                self.store.compact(spec)

    def _read_back(self, *, notes: bool) -> None:
        with self.journal.phase("reading results"):
            read = evaluations(self.plan, self.store, notes=notes, on_answer=self.on_answer)
            self.evaluations = list(read)
            self.comparisons = list(compared(self.plan, self.store))
            self.usage = usage_of(self.plan, self.store)

    def _on_ray(self) -> None:
        from cluster import actors

        stopper, journal = _Stopper(), self.journal
        journal.activate()
        with (
            _signals(stopper),
            journal.phase(STARTING_RAY) as starting,
            actors.connected(self.options.address),
        ):
            starting.end()
            with journal.phase(MAKING):
                self._schedule(stopper)

    def _schedule(self, stopper: _Stopper) -> None:
        from cluster.schedule import Interrupted, Scheduler

        scheduler = Scheduler(
            self.plan,
            self.store,
            self.options,
            on_turn=self.watcher.turn,
            on_notice=self.watcher.notice,
            on_failure=self.watcher.worker_failed,
            on_ready=self.watcher.worker_ready,
            should_stop=lambda: stopper.requested or self.lock.lost,
            journal=self.journal,
        )
        stopper.on_stop = lambda: self.watcher.notice(
            "stopping after the batches in flight; interrupt again to stop at once"
        )
        began = time.monotonic()
        try:
            scheduler.run()
        except (Interrupted, KeyboardInterrupt):
            if self.lock.lost:
                raise RunInUse(f"another process took over {self.store.root}") from None
            self.interrupted = True
        finally:
            self.made += scheduler.made
            self.scheduling_s += time.monotonic() - began
