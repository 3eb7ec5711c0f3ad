"""Forecasts of one experiment, whole or with fewer queries, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.runs.experiment import Experiment
from benchmarks.runs.forecast.budget import OverBudget, refuse_over_budget, trimmed
from benchmarks.runs.forecast.forecast import Forecast
from benchmarks.runs.forecast.machine import described, this_machine
from benchmarks.runs.forecast.options import ForecastOptions
from benchmarks.runs.forecast.sources import Sources
from cluster.counts import StageCount, count
from cluster.store import Store

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
    """The forecast of `experiment`, trimmed to the budget where the options say so.

    UsageError for options that cannot be used; a budget that is exceeded is stated.
    """
    address, root = experiment.config.address, experiment.config.root
    machine = this_machine() if options.on is None else described(options.on)
    sources = Sources.at(root, machine, address, options.rates)
    # Records are read once, however many numbers of queries are tried.
    store = Store(root)

    most = experiment.config.engine.max_cost

    def one(of: Experiment) -> PlannedForecast:
        counts = count(of.plan, store, only_scorers=only_scorers)
        forecast = Forecast.of(of.plan, counts, sources, max_cost=most)
        return PlannedForecast(experiment=of, counts=counts, forecast=forecast)

    try:
        if not options.trim:
            plan = one(experiment)
            refuse_over_budget(plan.forecast, options)
            return plan
        fitting = trimmed(experiment, options, lambda of: one(of).forecast)
    except OverBudget as error:
        return replace(one(experiment), over_budget=str(error))
    left_out = fitting is not experiment
    return replace(one(fitting), trimmed_from=len(experiment.samples) if left_out else None)
