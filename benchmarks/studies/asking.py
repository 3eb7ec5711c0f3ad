"""Have judges asked about answers that a run holds, into a store beside its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from plait.benchmarks.runs.display import Display
from plait.cluster.counts import count, totals_of
from plait.cluster.lock import RunLock
from plait.cluster.plan import EngineOptions, Plan, iter_comparisons
from plait.cluster.run import RunResult, execute
from plait.cluster.store import Store
from plait.generators.buckets import AnyPath


def ask_missing(
    plan: Plan,
    place: AnyPath,
    root: AnyPath,
    about: Mapping[str, Any],
    display: Display,
    prepare: Callable[[], EngineOptions],
) -> RunResult:
    """Have everything of `plan` asked that has no record in `place`, if anything.

    The run in `root` is locked meanwhile; RunInUse while it is under way. `prepare` refuses
    what cannot be asked and returns the engine's options: it is called only where something
    is missing.
    """
    began = time.monotonic()
    store = Store(place)
    counts = count(plan, store)
    if not any(c.to_run for c in counts):
        display.starting(counts)
        totals = totals_of(iter_comparisons(plan, store))
        seconds = time.monotonic() - began
        failed = totals["failed"] + totals["failed_scores"]
        return RunResult(totals, failed=failed, made=0, seconds=seconds)
    options = prepare()
    with RunLock(root):
        return execute(plan, place, options, about, display)
