"""One run from lock to manifest: what is missing is made, what is there stays."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from cluster.counts import StageCount, count
from cluster.lock import RunInUse, RunLock
from cluster.manifest import environment, now, write_json
from cluster.options import EngineOptions, StageProgress
from cluster.plan import Evaluation, Plan, compared, evaluations, outcome_name
from cluster.store import Store
from cluster.walks import Pending
from scorers.base import ItemOutcome

MANIFEST = "manifest.json"


class Watcher:
    """Is told how a run goes; does nothing itself. The command line draws."""

    def starting(self, counts: Sequence[StageCount]) -> None:
        """Called once, before Ray is started, with what there is to do."""

    def turn(self, stages: Sequence[StageProgress]) -> None:
        """Called a few times a second."""

    def notice(self, text: str) -> None:
        """Something the user should know now."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a command did to a run directory."""

    counts: Mapping[str, int]
    """Documents: planned, done, failed, skipped; judgements: unscored, ..."""
    failed: int
    """Documents and judgements that failed."""
    made: int
    """Records made by this command."""
    seconds: float
    interrupted: bool = False
    evaluations: Sequence[Evaluation | Pending] = field(default=(), repr=False)
    """What is known of every document the plan asks for, in its order."""


@dataclass
class _Stopper:
    """Turns signals into a wish to stop; a second signal is not waited for."""

    wanted: bool = False
    on_stop: Callable[[], None] = field(default=lambda: None)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True
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
) -> RunResult:
    """Make every missing record of `plan` under `root`; RunInUse, StoreError, ClusterError.

    `about` goes to the manifest as it is: resolved config, data revision, digests. With
    `notes`, the documents of the result carry what their stages noted.
    """
    began = time.monotonic()
    with RunLock(root) as lock:
        store = Store(root)
        store.sweep()
        manifest = dict(about) | environment() | {"started": now(), "status": "started"}
        write_json(root / MANIFEST, manifest)
        counts = count(plan, store, only_scorers=options.only_scorers)
        for text in store.notices:
            watcher.notice(text)
        watcher.starting(counts)
        made, interrupted = 0, False
        if any(c.to_run for c in counts):
            made, interrupted = _on_ray(plan, store, options, watcher, lock)
        for spec in plan.stages:
            store.compact(spec)
        found = list(evaluations(plan, store, notes=notes))
        totals = totals_of([*found, *compared(plan, store)])
        manifest |= {
            "finished": now(),
            "counts": totals,
            "usage": usage_of(plan, store),
        }
        manifest["status"] = "interrupted" if interrupted else "finished"
        write_json(root / MANIFEST, manifest)
    failed = totals["failed"] + totals["failed_scores"]
    seconds = time.monotonic() - began
    return RunResult(totals, failed, made, seconds, interrupted, found)


def _on_ray(
    plan: Plan, store: Store, options: EngineOptions, watcher: Watcher, lock: RunLock
) -> tuple[int, bool]:
    from cluster import actors
    from cluster.schedule import Interrupted, Scheduler

    stopper = _Stopper()
    with _signals(stopper), actors.connected(options.address):
        scheduler = Scheduler(
            plan,
            store,
            options,
            on_turn=watcher.turn,
            on_notice=watcher.notice,
            should_stop=lambda: stopper.wanted or lock.lost,
        )
        stopper.on_stop = lambda: watcher.notice(
            "stopping: batches in flight are taken in; once more to leave at once"
        )
        try:
            scheduler.run()
        except (Interrupted, KeyboardInterrupt):
            if lock.lost:
                raise RunInUse(f"another process took over {store.root}") from None
            return scheduler.made, True
    return scheduler.made, False


def totals_of(found: Sequence[Evaluation | ItemOutcome | Pending]) -> dict[str, int]:
    """Outcomes of documents or pairs and of judgements, over all a plan asks for."""
    documents = Counter[str]()
    scores = Counter[str]()
    for one in found:
        if isinstance(one, Pending):
            documents["missing"] += 1
        else:
            documents[outcome_name(one.subject)] += 1
            scores.update(outcome_name(verdict) for verdict in one.verdicts)
    totals = {name: documents[name] for name in ("done", "failed", "skipped", "missing")}
    return {
        "planned": len(found),
        **totals,
        "scored": scores["done"],
        "unscored": scores["unscored"],
        "not_applicable": scores["not_applicable"],
        "failed_scores": scores["failed"],
        "skipped_scores": scores["skipped"],
    }


def usage_of(plan: Plan, store: Store) -> dict[str, dict[str, float]]:
    """Tokens, images, steps and busy seconds by the stages' names, over all records."""
    usage: dict[str, dict[str, float]] = {}
    for spec in plan.stages:
        total = usage.setdefault(spec.name, defaultdict(float))
        for record in store.columns(spec, ["usage", "seconds"]):
            for name, amount in json.loads(record["usage"]).items():
                total[name] += amount
            total["busy_seconds"] += record["seconds"] or 0.0
    return {
        name: {k: round(v, 3) for k, v in sorted(total.items())}
        for name, total in usage.items()
    }
