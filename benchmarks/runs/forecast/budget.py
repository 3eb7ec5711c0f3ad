"""An experiment as it will be run: its forecast, within a budget of hours.

The forecast is kept in the manifest, and told beside what the run took.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.results.board import Board
from benchmarks.runs.experiment import Experiment
from benchmarks.runs.forecast.forecast import Forecast, span_text, time_text
from benchmarks.runs.forecast.machine import Machine
from benchmarks.runs.forecast.rates import PICTURES, FigureRange, Sources
from benchmarks.runs.run_directory import is_run, read_manifest
from cluster.counts import StageCount, count
from cluster.manifest import write_json
from cluster.run import MANIFEST, RunResult
from cluster.store import Store
from generators.errors import UsageError

FORECAST, OUTCOME = "forecast", "forecast_outcome"
"""Entries of the manifest."""
_MOST_TRIES = 20
_OF_ALL = 200
"""Trimming is exact to one part in so many of the queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """What `plan` and `run` are told about their forecast. None of it changes a result."""

    on: str | None = None
    """Machines such as 8xH100; by default this one."""
    budget_hours: float | None = None
    """GPU-hours where a stage takes a GPU, else hours of wall time."""
    trim: bool = False
    """Answer fewer queries rather than refuse."""

    def __post_init__(self) -> None:
        if self.budget_hours is not None and not self.budget_hours > 0:
            raise UsageError(
                f"--budget-hours {self.budget_hours:g} is not a valid budget: it must be "
                "more than 0"
            )
        if self.trim and self.budget_hours is None:
            raise UsageError("--trim needs --budget-hours, which it trims to")


NO_OPTIONS = ForecastOptions()


@dataclass(frozen=True, kw_only=True)
class PlannedForecast:
    """An experiment as it will be run, and its forecast."""

    experiment: Experiment
    counts: Sequence[StageCount]
    forecast: Forecast
    trimmed_from: int | None = None
    """How many queries there were before some were left out for the budget."""
    over_budget: str = ""
    """Why it does not fit into the budget; empty where it does."""

    @property
    def remark(self) -> str:
        """That queries were left out; empty where none were."""
        if self.trimmed_from is None:
            return ""
        return (
            f"trimmed to {len(self.experiment.samples):,} of {self.trimmed_from:,} "
            "queries, drawn by category, to fit the budget"
        )


def planned_forecast(
    experiment: Experiment,
    options: ForecastOptions = NO_OPTIONS,
    *,
    only_scorers: bool = False,
) -> PlannedForecast:
    """Forecast `experiment`, trimmed to the budget where the options say so.

    UsageError for options that cannot be used; a budget that is exceeded is stated.
    """
    config = experiment.config
    machine = Machine.of(options.on)
    sources = Sources.at(config.root, machine, config.address)
    store = Store(config.root)  # read once, however many numbers of queries are tried

    def planned(of: Experiment) -> PlannedForecast:
        counts = count(of.plan, store, only_scorers=only_scorers)
        most = config.engine.max_cost
        forecast = Forecast.of(of.plan, counts, sources, max_cost=most)
        return PlannedForecast(experiment=of, counts=counts, forecast=forecast)

    whole = planned(experiment)
    if options.budget_hours is None:
        return whole
    if refusal := over_budget(whole.forecast, options.budget_hours, trim=options.trim):
        return replace(whole, over_budget=refusal)
    if whole.forecast.hours.mean <= options.budget_hours:
        return whole
    return _trimmed(whole, options.budget_hours, planned)


def over_budget(forecast: Forecast, hours: float, *, trim: bool = False) -> str:
    """Say why a run is not within a budget; empty where it is, or is to be trimmed."""
    if unknown := forecast.unmeasured:
        return (
            f"--budget-hours {hours:g} cannot be checked, since no source knows {unknown}. "
            "Run a few queries (--limit 8) into a folder beside this run first."
        )
    if trim or forecast.hours.mean <= hours:
        return ""
    busiest = sorted(forecast.stages, key=lambda s: s.busy_s, reverse=True)[:3]
    parts = ", ".join(f"{s.spec.name} {time_text(s.busy_s)}" for s in busiest)
    return (
        f"{_excess(forecast, hours)}; most of it computes {parts}. Add --trim to answer as "
        "many queries as fit, or lower --limit."
    )


def _excess(forecast: Forecast, hours: float) -> str:
    span, unit = forecast.hours, "GPU-hours" if forecast.on_gpus else "hours"
    return (
        f"the forecast is {span.mean:.3g} {unit} ({span.low:.3g} to {span.high:.3g}), more "
        f"than --budget-hours {hours:g}"
    )


def _trimmed(
    whole: PlannedForecast, hours: float, planned: Callable[[Experiment], PlannedForecast]
) -> PlannedForecast:
    """Leave out queries until the rest fits, drawn as by `--limit`.

    Queries that the run directory holds already stay.
    """
    experiment = whole.experiment
    most, least = len(experiment.samples), max(1, experiment.recorded_queries)
    fits = smallest = planned(experiment.limited_to(least))
    if least >= most or smallest.forecast.hours.mean > hours:
        return replace(
            whole,
            over_budget=f"{_excess(whole.forecast, hours)}; even {least:,} quer"
            f"{'y' if least == 1 else 'ies'} would take {smallest.forecast.hours.mean:.3g}",
        )
    low, high, exceeds = least, most, whole
    for turn in range(_MOST_TRIES):
        if high - low <= max(1, most // _OF_ALL):
            break
        span = exceeds.forecast.hours.mean - fits.forecast.hours.mean
        share = (hours - fits.forecast.hours.mean) / max(span, 1e-12)
        # Every third time by halves, since hours need not follow the queries.
        step = round((high - low) * (0.5 if turn % 3 == 2 else share))
        middle = min(max(low + step, low + 1), high - 1)
        tried = planned(experiment.limited_to(middle))
        if tried.forecast.hours.mean <= hours:
            low, fits = middle, tried
        else:
            high, exceeds = middle, tried
    return replace(fits, trimmed_from=most)


# ------------------------------------------------------------------------ the manifest


def kept_forecast(forecast: Forecast, root: Path) -> dict[str, Any]:
    """Return the manifest's entries at the start of a command.

    Those of the last command that made something stay where there is nothing to make.
    """
    former = read_manifest(root) if is_run(root) else {}
    names = (PICTURES, FORECAST, OUTCOME) if not forecast.stages else (PICTURES,)
    kept = {name: former[name] for name in names if name in former}
    return kept | ({FORECAST: forecast.as_json} if forecast.stages else {})


def concluded(root: Path, forecast: Forecast, result: RunResult, board: Board) -> str:
    """Add what the run took to the manifest; it beside the forecast, in words."""
    manifest = read_manifest(root)
    manifest[PICTURES] = board.images_per_document
    line = ""
    if result.made and forecast.stages and not result.interrupted:
        line = _beside(manifest[FORECAST], result.seconds)
        manifest[OUTCOME] = {"seconds": round(result.seconds, 3), "lines": [line]}
    write_json(root / MANIFEST, manifest)
    return line


def _beside(forecast: Mapping[str, Any], seconds: float) -> str:
    planned, took = FigureRange(**forecast["seconds"]), time_text(seconds)
    stages = forecast["stages"].values()
    unknown = sum(stage["seconds_per_record"] is None for stage in stages)
    if unknown == len(stages):
        return ""
    if forecast["lower_bound"]:
        return (
            f"planned at least {span_text(planned)}, took {took} (not all rates were "
            f"known; {unknown} of {len(stages)} stages had none)"
        )
    line = f"planned {span_text(planned)}, took {took}"
    share = seconds / planned.mean - 1 if planned.mean > 0 else 0.0
    return f"{line} ({abs(share):.0%} {'longer' if share > 0 else 'shorter'})"
