"""One run from lock to manifest: makes the missing records and keeps the others.

`execute` is the whole of it: it takes the lock, opens the store and writes the manifest.
Between, `_Work` counts what is missing, has a `Scheduler` (`schedule.py`) make it on an
executor, reads all records back, and begins again where parts turn out to be damaged.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, cast, get_args

from plait.cluster.control import Control, Request
from plait.cluster.counts import Counted, StageCount, count, totals_of
from plait.cluster.executors.base import ClusterError, Executor, ExecutorName
from plait.cluster.executors.probe import is_inside_job, is_local, locate, use_token
from plait.cluster.lock import RunInUse, RunLock
from plait.cluster.manifest import (
    RECORDS,
    TIMING,
    environment,
    former_entries,
    now,
    of_shards,
    read_entries,
    timing,
    write_json,
)
from plait.cluster.parts import stage_folders
from plait.cluster.plan import (
    EngineOptions,
    Evaluation,
    Plan,
    evaluations,
    iter_comparisons,
    thinking_drafts,
)
from plait.cluster.shard import SHARD_FILE
from plait.cluster.sources import keep_sources
from plait.cluster.store import DamagedPart, Store, StoreError
from plait.cluster.tracing.journal import MAKING, STARTING_RAY, SpanJournal
from plait.cluster.tracing.summary import TRACE, TRACE_ENTRY, write_trace
from plait.cluster.usage import usage_of
from plait.cluster.watcher import FAILURES, RunLog, RunProgress, Watcher
from plait.generators.buckets import AnyPath
from plait.generators.errors import WriteError
from plait.generators.extras import is_installed, require_extra

MANIFEST = "manifest.json"
RUN_DIGEST = "run_digest"
"""The manifest's entry that tells whether two commands make the same run."""
EXECUTOR_VARIABLE = "PLAIT_EXECUTOR"
_WITHOUT_RAY = (
    "Ray is not installed, so this process does all the work, as with --executor local; "
    "pip install 'plait[ray]' for a process per model and for clusters"
)
MADE_VARIABLE = "PLAIT_MADE_FILE"
"""Names a file that a run, when it ends or is stopped, tells how many records it made."""
_KEPT = (TIMING, FAILURES, RECORDS)
"""Entries of the manifest that tell of earlier commands too."""
_STOPPING = "stopping after the batches in flight; interrupt again to stop at once"
_MOST_REPAIRS = 3
"""How often one command makes damaged parts again."""
Reading = Callable[[Iterator[Evaluation], Store], Iterator[Evaluation]]
"""Passes on what it is given, and may keep of it what it likes."""


class CurrentResults(Protocol):
    """What results of a run tell of it that were made of all of its records."""

    @property
    def totals(self) -> Mapping[str, int]:
        """Outcomes of documents and judgements, as `totals_of` counts them."""

    @property
    def usage(self) -> Mapping[str, Any]:
        """What all records used, by the stages' names."""

    def is_complete(self) -> bool:
        """Return whether a run would make nothing."""


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
    stopped_by: int | None = None
    """The signal that ended it before its end."""
    traced: bool = False
    """Whether this command added a session to the trace of the run."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """How many requests wait in which of the provider's batches."""

    @property
    def interrupted(self) -> bool:
        """Whether it ended before its end: it was stopped, or requests wait in batches."""
        return self.stopped_by is not None or bool(self.waiting)

    @property
    def exit_status(self) -> int:
        """What a command ends with: 1 after failures, 128 and the number of a signal.

        Where requests wait in batches, as if it had been stopped by SIGTERM.
        """
        if self.stopped_by or self.waiting:
            return 128 + (self.stopped_by or signal.SIGTERM)
        return int(self.failed > 0)


@dataclass
class _Stopper:
    """Remembers the first signal, to stop in order; Ctrl-C after it stops at once."""

    on_stop: Callable[[], None]
    number: int | None = None

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        if self.number is None:
            self.number = number
            self.on_stop()
        elif number == signal.SIGINT:
            # Not TERM: batch systems send it to every process, and their scripts again.
            raise KeyboardInterrupt


@contextmanager
def handling_signals(
    handler: Callable[[int, FrameType | None], object],
) -> Iterator[Callable[[], None]]:
    """Have SIGINT and SIGTERM handled within, in the main thread only.

    Yields what sets the handler again, for after a library has set one of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [(n, signal.getsignal(n)) for n in numbers]

    def listen() -> None:
        for number in numbers:
            signal.signal(number, handler)

    listen()
    try:
        yield listen
    finally:
        for number, former in before:
            signal.signal(number, former)


def execute(
    plan: Plan,
    root: AnyPath,
    options: EngineOptions,
    about: Mapping[str, Any],
    watcher: Watcher,
    reading: Reading = lambda evaluations, store: evaluations,
    *,
    notes: bool = False,
    counted: Counted | None = None,
    current: Callable[[], CurrentResults | None] = lambda: None,
) -> RunResult:
    """Make every missing record of `plan` under `root`; RunInUse, StoreError, ClusterError.

    `about` goes to the manifest unchanged: resolved config, data revision, digests. At the
    end `reading` is given the evaluation of every planned document in the plan's order and
    passes each on; again, from the first, where a part had to be repaired meanwhile. With
    `notes`, they are read with what their stages noted.
    """
    began = time.monotonic()
    shard = options.shard
    # The folder of what drivers of shards do not share.
    own = shard.folder(root) if shard else root
    with (
        RunLock(root, shard, str(about.get(RUN_DIGEST))) as lock,
        RunLog(own, watcher) as log,
        SpanJournal(own) as journal,
        ExitStack() as stack,
    ):
        store = Store(
            root,
            repairs=options.makes,
            strict=not options.makes,
            on_notice=log.notice,
            former=None if counted is None else counted.store,
        )
        store.sweep()
        if options.makes:
            stack.enter_context(store.noting_parts(own if shard else None))
        known = read_entries(root / MANIFEST)
        # Before the lock was there, another command may have made another run of it.
        if known.get(RUN_DIGEST, "") not in ("", options.joins, about.get(RUN_DIGEST)):
            raise RunInUse(f"{root} has changed since this command began; run it again")
        keep_sources(root, options.sources if options.makes else ())
        if shard is not None and known.get(RUN_DIGEST) != about[RUN_DIGEST]:
            _write_shared_manifest(root, about, known)
        manifest = _ManifestFile.begin(root, own, about, is_shard=shard is not None)
        work = _Work(
            plan, store, options, log, lock, journal, reading, Control(own), counted
        )
        try:
            # A shard, or a command that makes records anew, is not done by what is there.
            whole = options.makes and shard is None and not options.remake
            results = current() if whole else None
            if results is not None and results.is_complete():
                work.take(results)
            else:
                work.finish(notes=notes)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                log.notice("stopped; run the same command again to continue")
            # A driver that took the run over writes its own, and the disk may be full.
            if not isinstance(error, RunInUse):
                manifest.note_failures(log)
                with suppress(WriteError):
                    manifest.write("interrupted")
            raise
        status = "interrupted" if work.stopped_by or work.waiting else "finished"
        # The trace is made of what is in its file then.
        journal.close(status)
        manifest.note_work(work)
        manifest.note_timing(work, seconds=time.monotonic() - began)
        manifest.entries["status"] = status
        if work.waiting:
            manifest.entries["waiting"] = dict(work.waiting)
        if shard is None:
            # A command that noted no session leaves the trace as it is.
            former_trace = known.get(TRACE_ENTRY) if work.settled else None
            if former_trace and (root / TRACE).exists():
                manifest.entries[TRACE_ENTRY] = former_trace
            else:
                manifest.entries |= write_trace(root, log.notice)
        manifest.write(status)
    return RunResult(
        work.totals,
        failed=work.totals["failed"] + work.totals["failed_scores"],
        made=work.made,
        seconds=time.monotonic() - began,
        stopped_by=work.stopped_by,
        traced=journal.active,
        waiting=work.waiting,
    )


def _write_shared_manifest(
    root: AnyPath, about: Mapping[str, Any], known: Mapping[str, Any]
) -> None:
    """Write the manifest that all shards share, for `known` of an earlier run.

    Any of them may: the lock admits only those that write the same.
    """
    kept = {name: known[name] for name in _KEPT if name in known}
    entries = {**about, **environment(), "started": now(), **kept}
    write_json(root / MANIFEST, entries | {"status": "started"})


@dataclass
class _ManifestFile:
    """The manifest of a run, or what a shard's driver writes of its part."""

    path: AnyPath
    former: Mapping[str, Any]
    """What it said of earlier commands."""
    entries: dict[str, Any]

    @classmethod
    def begin(
        cls, root: AnyPath, own: AnyPath, about: Mapping[str, Any], *, is_shard: bool
    ) -> _ManifestFile:
        """Write that a run has started; `own` is the folder of its driver."""
        path = own / (SHARD_FILE if is_shard else MANIFEST)
        former = former_entries(path, _KEPT)
        entries = {} if is_shard else {**about, **of_shards(root)}
        entries |= environment() | {"started": now()} | former
        manifest = cls(path, former, entries)
        manifest.write("started")
        return manifest

    def write(self, status: str) -> None:
        """Write all entries."""
        write_json(self.path, self.entries | {"status": status})

    def note_failures(self, log: RunLog) -> None:
        """Note the workers that failed, those of earlier commands too."""
        self.entries[FAILURES] = log.all_failures(self.former.get(FAILURES))

    def note_work(self, work: _Work) -> None:
        """Note what a command has made and read back."""
        self.entries |= {"finished": now(), "counts": work.totals, "usage": work.usage}
        self.note_failures(work.watcher)
        records = self.former.get(RECORDS, {})
        if not work.settled:
            records = _count_records(work.store, work.plan, records)
        self.entries[RECORDS] = records

    def note_timing(self, work: _Work, seconds: float) -> None:
        """Note how long a command took, and its workers to load."""
        former = self.entries.get(TIMING, {})
        entry = timing(former, seconds, work.scheduling_s, work.watcher.ready)
        if entry:
            self.entries[TIMING] = entry


def _count_records(store: Store, plan: Plan, former: Mapping[str, int]) -> dict[str, int]:
    """Return how many records each stage has, those of other plans as they were noted."""
    there = {folder.name for folder in stage_folders(store.root)}
    counts = {name: number for name, number in former.items() if name in there}
    for spec in plan.stages:
        number = len(store.rows(spec))
        if number:
            counts[spec.folder] = number
    return counts


def executor_of(options: EngineOptions) -> ExecutorName | AbstractContextManager[Executor]:
    """Return where workers run: as asked, else on Ray where it is installed; ClusterError.

    Where a cluster is named, on Ray all the same.
    """
    if options.executor is not None:
        return options.executor
    asked = "" if options.address else os.environ.get(EXECUTOR_VARIABLE)
    if not asked:
        return "ray" if is_installed("ray") or not is_local(options.address) else "local"
    if asked not in get_args(ExecutorName):
        valid = ", ".join(get_args(ExecutorName))
        raise ClusterError(f"{EXECUTOR_VARIABLE} is {asked!r}; valid: {valid}")
    return cast(ExecutorName, asked)


def open_executor(
    options: EngineOptions, notice: Callable[[str], None]
) -> AbstractContextManager[Executor]:
    """Return the executor of a run, for as long as it lasts; ClusterError."""
    chosen = executor_of(options)
    if not isinstance(chosen, str):
        return chosen
    if chosen == "local":
        if options.address:
            raise ClusterError("--executor local joins no cluster; leave out --address")
        if not (options.executor or os.environ.get(EXECUTOR_VARIABLE)):
            notice(_WITHOUT_RAY)
        from plait.cluster.executors import local

        return local.running()
    require_extra("ray", "--executor ray")
    address = options.address
    joins = not (is_local(address) or is_inside_job())
    # Whether Ray sends a token is settled when it is imported.
    if joins and "ray" not in sys.modules:
        sent = use_token(locate(address))
        if sent:
            notice(sent)
    from plait.cluster.executors import on_ray

    return on_ray.connect(options.address)


@dataclass
class _Work:
    """Makes the missing records, again where parts are damaged, and reads all back."""

    plan: Plan
    store: Store
    options: EngineOptions
    watcher: RunLog
    lock: RunLock
    journal: SpanJournal
    reading: Reading
    control: Control
    counted: Counted | None
    """What was counted before the lock was taken."""
    made: int = 0
    scheduling_s: float = 0.0
    """Seconds that the executor was open."""
    stopped_by: int | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)
    """How many requests wait in which of the provider's batches."""
    usage: Mapping[str, Any] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    settled: bool = False
    """Whether the results of an earlier command say all; no record was read then."""

    def take(self, results: CurrentResults) -> None:
        """Take what results say of a run that is complete."""
        self.settled = True
        self.totals = results.totals
        self.usage = results.usage
        if self.counted is not None:
            self.watcher.starting(self.counted.stages)

    def finish(self, *, notes: bool) -> None:
        """Work until nothing is missing or damaged; StoreError when it never ends."""
        for attempt in range(_MOST_REPAIRS + 1):
            try:
                self._make_missing(announce=attempt == 0)
                self._read_back(notes=notes)
            except DamagedPart as damage:
                if not self._repair(damage.part):
                    raise
            else:
                # Workers may have met damage that no reading met.
                if self.stopped_by or not self._repair():
                    return
        raise StoreError(
            f"{self.store.root} was repaired {_MOST_REPAIRS} times and parts are damaged "
            "again: check the disk, then run the same command again"
        )

    def _repair(self, *damaged: str) -> bool:
        """Set damaged parts aside and forget those that are gone; whether there are any."""
        if not self.store.set_aside([*damaged, *self.store.suspects]):
            return self.store.forget_missing()
        # Damage is seldom limited to one part, and each would cost another pass.
        self.watcher.notice("all other parts of the run are being checked")
        self.store.check_all(self.plan.stages)
        return True

    def _make_missing(self, *, announce: bool) -> None:
        """Make what is missing, if that is asked for, and join small parts."""
        options = self.options
        if options.makes:
            counts = self._still_counted()
            again = thinking_drafts(self.plan, self.store) if options.remake else ()
            with self.store.without(again):
                self._make(counts, announce=announce)
        if options.shard is None:  # those beside it may be reading the parts
            with self.journal.phase("compacting parts"):
                for spec in self.plan.stages:
                    self.store.compact(spec)

    def _still_counted(self) -> Sequence[StageCount] | None:
        """Return what was counted before the lock was taken, where it holds still."""
        counted = self.counted
        self.counted = None  # it holds for the first attempt only
        is_changed = False
        for spec in self.plan.stages:
            if not self.store.is_current(spec):
                self.store.forget(spec)
                is_changed = True
        if counted is None or counted.store.damage or is_changed:
            return None
        return counted.stages

    def _make(self, counts: Sequence[StageCount] | None, *, announce: bool) -> None:
        """Make what is missing, which is counted unless that was done."""
        if counts is None:
            with self.journal.phase("counting what is missing"):
                only_scorers = self.options.only_scorers
                counts = count(self.plan, self.store, only_scorers=only_scorers)
        if announce:
            self.watcher.starting(counts)
        is_missing = any(stage.to_run for stage in counts)
        if is_missing and not self.stopped_by:
            self._compute(counts)

    def _read_back(self, *, notes: bool) -> None:
        """Pass all records on to `reading`, and count them on the way."""
        with self.journal.phase("reading results"):
            answers = evaluations(self.plan, self.store, notes=notes)
            comparisons = iter_comparisons(self.plan, self.store)
            passed_on = self.reading(answers, self.store)
            self.totals = totals_of(chain(passed_on, comparisons))
            self.usage = usage_of(self.plan, self.store, self.options.shard)

    def _compute(self, counts: Sequence[StageCount]) -> None:
        """Open the executor and work on it, until all is made or a signal comes."""
        stopper = _Stopper(lambda: self.watcher.notice(_STOPPING))
        journal = self.journal
        journal.activate()
        with handling_signals(stopper) as listen:
            try:
                with ExitStack() as stack:
                    with journal.phase(STARTING_RAY):
                        executor = stack.enter_context(
                            open_executor(self.options, self.watcher.notice)
                        )
                    listen()  # again: connecting, Ray has set a handler of its own
                    if stopper.number is None:
                        with journal.phase(MAKING):
                            self._schedule(executor, stopper, counts)
            except SystemExit:  # by that handler; it also has the process aborted after 3 s
                signal.alarm(0)
                stopper(signal.SIGTERM)
        self.stopped_by = self.stopped_by or stopper.number

    def _schedule(
        self, executor: Executor, stopper: _Stopper, counts: Sequence[StageCount]
    ) -> None:
        """Have a scheduler make the records; RunInUse where another driver took over."""
        from plait.cluster.schedule import Interrupted, Scheduler

        def obey(request: Request) -> str:
            if request.action != "stop":
                return scheduler.obey(request)
            stopper(signal.SIGTERM)
            return "stopping after the batches in flight"

        def turn(progress: RunProgress) -> None:
            self.watcher.turn(progress)
            self.control.turn(progress, obey)

        scheduler = Scheduler(
            self.plan,
            self.store,
            self.options,
            executor,
            self.watcher,
            self.journal,
            existing={c.spec.digest: c.existing for c in counts},
            on_turn=turn,
            should_stop=lambda: stopper.number is not None or self.lock.lost,
        )
        began = time.monotonic()
        try:
            scheduler.run()
        except (Interrupted, KeyboardInterrupt):
            if self.lock.lost:
                raise RunInUse(f"another process took over {self.store.root}") from None
            self.stopped_by = stopper.number or signal.SIGINT
        finally:
            if not self.lock.lost:  # else another driver uses the same files by now
                self.control.close()
            self.made += scheduler.made
            self.waiting = scheduler.waiting
            made_file = os.environ.get(MADE_VARIABLE)
            if made_file:
                Path(made_file).write_text(f"{self.made}\n")
            self.scheduling_s += time.monotonic() - began
