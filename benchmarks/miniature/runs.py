"""The ordinary runs that `plait bench miniature` measures; run again, they resume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import api
from benchmarks.local import available
from benchmarks.miniature.outputs import SCORERS, SYSTEMS
from benchmarks.miniature.settings import BenchSettings, Say
from benchmarks.runs.run_data import RunData
from benchmarks.tasks.controls import TRUTH, is_control
from generators.errors import PlaitError, UsageError
from pipelines.systems import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """A finished run, and what was left out of it."""

    data: RunData
    absent: Mapping[str, str]
    """Systems and scorers that are not to be had, with the reason."""


def bench_run(settings: BenchSettings, say: Say) -> BenchRun:
    """All systems and scorers that are to be had, one answer to each query."""
    return _run(settings, "run", SYSTEMS, SCORERS, settings.models, 1, say)


def repeated_run(
    settings: BenchSettings,
    systems: Sequence[str],
    scorers: Sequence[str],
    models: Mapping[str, Mapping[str, Any]],
    say: Say,
) -> BenchRun:
    """Several answers to each query; UsageError where a system is not to be had."""
    made = (settings, "repeats", systems, scorers, models, settings.repeats, say)
    return _run(*made)


def _run(
    settings: BenchSettings,
    folder: str,
    systems: Sequence[str],
    scorers: Sequence[str],
    models: Mapping[str, Mapping[str, Any]],
    repeats: int,
    say: Say,
) -> BenchRun:
    absent = absent_names(settings, (*systems, *scorers))
    named = [name for name in systems if name not in absent]
    judges = [name for name in scorers if name not in absent]
    if not named:
        raise UsageError("; ".join(absent[name] for name in systems))
    say(f"run {folder}: {', '.join(named)} on {settings.queries} queries")
    for name, reason in absent.items():
        say(f"left out: {name}: {reason}")
    summary = api.run(
        data=f"miniature:{settings.queries}",
        systems=named,
        scorers=judges,
        weights=settings.weights,
        models=models,
        repeats=repeats,
        seed=settings.seed,
        out=settings.out / folder,
    )
    say(f"{summary.made:,} records made in {summary.seconds:.0f} s")
    return BenchRun(data=summary.results, absent=absent)


def absent_names(settings: BenchSettings, names: Iterable[str]) -> dict[str, str]:
    """Systems and scorers that cannot be had, with the reason."""
    reasons = {name: _why_not(settings, name) for name in names}
    return {name: reason for name, reason in reasons.items() if reason}


def _why_not(settings: BenchSettings, name: str) -> str:
    if name == TRUTH or is_control(name):
        return ""
    try:
        if name in SCORERS:
            settings.scorer(name)
        else:
            available(lambda: resolve(name, settings.asked), lambda s: s.stages)
    except PlaitError as error:
        return str(error)
    return ""
