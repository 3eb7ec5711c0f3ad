"""The outcome of a run beside its forecast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.runs.forecast.measured import records_made
from benchmarks.runs.forecast.rates import FigureRange
from benchmarks.runs.forecast.table import span_text, time_text

_WORTH_NAMING = 0.1
"""Of the wall time: a smaller difference of one stage is not named."""


def outcome_of(
    root: Path, manifest: Mapping[str, Any], seconds: float, since_us: int
) -> dict[str, Any]:
    """What a command of `seconds` made, as the manifest keeps it beside the forecast.

    `since_us` is when it began, in microseconds since the epoch.
    """
    stages = {}
    for folder in manifest["forecast"]["stages"]:
        made = records_made(root, folder, since_us)
        if made is not None:
            each = made.seconds / made.records if made.records else 0.0
            stages[folder] = {"jobs": made.records, "seconds_per_record": round(each, 6)}
    loads = manifest.get("timing", {}).get("load_seconds", {})
    return {"seconds": round(seconds, 3), "stages": stages, "load_seconds": loads}


def outcome_lines(forecast: Mapping[str, Any], outcome: Mapping[str, Any]) -> list[str]:
    """At most two lines for people: the times, and what the difference is made of."""
    planned, took = FigureRange(**forecast["seconds"]), outcome["seconds"]
    if forecast["lower_bound"]:
        unknown = sum(s["seconds_per_record"] is None for s in forecast["stages"].values())
        if unknown == len(forecast["stages"]):
            return []
        line = (
            f"planned at least {span_text(planned)}, took {time_text(took)} (not all "
            f"rates were known; {unknown} of {len(forecast['stages'])} stages had none)"
        )
        return [line]
    line = f"planned {span_text(planned)}, took {time_text(took)}"
    if planned.mean > 0:
        share = took / planned.mean - 1
        line += f" ({abs(share):.0%} {'longer' if share > 0 else 'shorter'})"
    return [line, *_causes(forecast, outcome)]


def _causes(forecast: Mapping[str, Any], outcome: Mapping[str, Any]) -> list[str]:
    """What differs most from the plan, at most two of work and loads of all stages."""
    differences = [*_loads(forecast, outcome)]
    for folder, planned in forecast["stages"].items():
        actual = outcome["stages"].get(folder, {"jobs": 0, "seconds_per_record": 0.0})
        each = (planned["seconds_per_record"] or {}).get("mean", 0.0)
        more = actual["jobs"] * actual["seconds_per_record"] - planned["jobs"] * each
        words = (
            f"{folder.rpartition('-')[0]} made {actual['jobs']:,} records at "
            f"{actual['seconds_per_record']:.3g} s, planned {planned['jobs']:,.0f} at "
            f"{each:.3g} s"
        )
        differences.append((abs(more), words))
    least = _WORTH_NAMING * outcome["seconds"]
    worst = sorted(differences, reverse=True)[:2]
    named = [words for difference, words in worst if difference > least]
    return ["; ".join(named)] if named else []


def _loads(
    forecast: Mapping[str, Any], outcome: Mapping[str, Any]
) -> Iterator[tuple[float, str]]:
    """By how much the last load of each stage differs from the plan, in words too."""
    for folder, planned in forecast["stages"].items():
        loads, load = outcome["load_seconds"].get(folder), planned["load_seconds"]
        if loads and load:
            words = (
                f"{folder.rpartition('-')[0]} loaded in {loads[-1]:.3g} s, planned "
                f"{load['mean']:.3g} s"
            )
            yield abs(loads[-1] - load["mean"]), words
