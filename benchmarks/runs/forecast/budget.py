"""Keeping a run within a budget of hours: refuse it, or answer fewer queries."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.runs.experiment import Experiment
from benchmarks.runs.forecast.forecast import Forecast, StageForecast, gaps
from benchmarks.runs.forecast.options import ForecastOptions
from benchmarks.runs.forecast.table import time_text
from generators.errors import UsageError

Forecaster = Callable[[Experiment], Forecast]
_MOST_TRIES = 20


class OverBudget(UsageError):
    """The forecast is more than the budget, or cannot be compared with it."""


def refuse_over_budget(forecast: Forecast, options: ForecastOptions) -> None:
    """OverBudget with the figures where a budget is given and the forecast exceeds it."""
    if options.budget_hours is None:
        return
    refuse_unknown(forecast, options.budget_hours)
    if forecast.hours.mean > options.budget_hours:
        raise OverBudget(_excess(forecast, options.budget_hours))


def refuse_unknown(forecast: Forecast, hours: float) -> None:
    """OverBudget that names the rates without which there is no forecast."""
    if unknown := gaps(forecast.stages):
        raise OverBudget(
            f"--budget-hours {hours:g} cannot be checked, since no source knows "
            f"{', '.join(unknown)}. Run a few queries (--limit 8) into a folder beside "
            "this run, or name files of `plait bench stage` with --rates."
        )


def _excess(forecast: Forecast, hours: float) -> str:
    span, unit = forecast.hours, "GPU-hours" if forecast.on_gpus else "hours"
    busiest = sorted(forecast.stages, key=_busy_s, reverse=True)[:3]
    parts = ", ".join(f"{s.spec.name} {time_text(_busy_s(s))}" for s in busiest)
    return (
        f"the forecast is {span.mean:.3g} {unit} ({span.low:.3g} to {span.high:.3g}), more "
        f"than --budget-hours {hours:g}; most of it computes {parts}. Add --trim to answer "
        "as many queries as fit, or lower --limit."
    )


def _busy_s(stage: StageForecast) -> float:
    seconds = stage.rates.seconds
    return seconds.mean * stage.jobs if seconds else 0.0


def trimmed(
    experiment: Experiment, options: ForecastOptions, forecaster: Forecaster
) -> Experiment:
    """`experiment` with as many queries as fit into the budget, drawn as by `--limit`.

    Queries that the run directory holds already stay. OverBudget where no more than these
    would be left, or where rates are unknown.
    """
    hours, most = options.budget_hours, len(experiment.samples)
    if hours is None:
        return experiment
    whole = forecaster(experiment)
    refuse_unknown(whole, hours)
    if whole.hours.mean <= hours:
        return experiment
    least = max(1, experiment.recorded_queries)
    smallest = forecaster(experiment.limited_to(least))
    if least >= most or smallest.hours.mean > hours:
        raise OverBudget(
            f"{_excess(whole, hours).partition('; most of it')[0]}; even {least:,} "
            f"quer{'y' if least == 1 else 'ies'} would take {smallest.hours.mean:.3g}"
        )
    ends = ((least, smallest.hours.mean), (most, whole.hours.mean))
    return experiment.limited_to(_most_that_fit(experiment, hours, forecaster, *ends))


def _most_that_fit(
    experiment: Experiment,
    hours: float,
    forecaster: Forecaster,
    fits: tuple[int, float],
    exceeds: tuple[int, float],
) -> int:
    """The largest number of queries that fits, to a two-hundredth of them."""
    close = max(1, len(experiment.samples) // 200)
    for turn in range(_MOST_TRIES):
        (low, low_h), (high, high_h) = fits, exceeds
        if high - low <= close:
            break
        share = 0.5 if turn % 3 == 2 else (hours - low_h) / max(high_h - low_h, 1e-12)
        middle = min(max(low + round((high - low) * share), low + 1), high - 1)
        value = forecaster(experiment.limited_to(middle)).hours.mean
        if value <= hours:
            fits = (middle, value)
        else:
            exceeds = (middle, value)
    return fits[0]
