"""A budget refuses a run with figures, or trims its queries by category."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forecast_helpers import TWO_CPUS, stage, work

from benchmarks.runs.config import load_config
from benchmarks.runs.experiment import Experiment, open_experiment
from benchmarks.runs.forecast.budget import OverBudget, refuse_over_budget, trimmed
from benchmarks.runs.forecast.forecast import Forecast, StageForecast, gaps
from benchmarks.runs.forecast.options import ForecastOptions
from benchmarks.runs.forecast.rates import FigureRange, Origin, StageRates
from benchmarks.runs.forecast.table import headline
from benchmarks.tasks.task_set import limited
from generators.errors import UsageError

DRAW = stage("draw", num_gpus=1.0)


def forecast(queries: float, *, known: bool = True, gpus: bool = True) -> Forecast:
    """A GPU-hour for every query, a fixed one for loading, half of it in wall time."""
    spec = DRAW if gpus else stage("draw")
    seconds = FigureRange.exact(3600.0) if known else None
    rates = StageRates(seconds=seconds, load_s=FigureRange.exact(3600.0))
    one = StageForecast(work=work(spec, 0, queries), rates=rates, workers=2)
    hours = 1.0 + queries
    return Forecast(
        machine=TWO_CPUS,
        stages=[one],
        seconds=FigureRange(hours * 1800, hours * 1700, hours * 1900),
        gpu_hours=FigureRange(hours, hours * 0.9, hours * 1.1),
        missing=gaps([one]),
    )


def of(experiment: Experiment) -> Forecast:
    return forecast(len(experiment.samples) - experiment.recorded_queries)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    flags: dict[str, Any] = {"data": "sample", "systems": ("gt",), "weights": "tiny"}
    return open_experiment(load_config(None, flags | {"out": tmp_path / "run"}))


def budget(hours: float, *, trim: bool = False) -> ForecastOptions:
    return ForecastOptions(budget_hours=hours, trim=trim)


def test_a_forecast_within_the_budget_passes() -> None:
    refuse_over_budget(forecast(9), budget(10))
    refuse_over_budget(forecast(9), ForecastOptions())


def test_the_headline_has_ranges_and_no_amounts_that_nobody_knows() -> None:
    made = forecast(9)
    (stage,) = made.stages
    known = replace(stage, rates=replace(stage.rates, origin=Origin.OWN))
    text = headline(replace(made, stages=[known]))
    assert text == "5 h 00 min (4 h 43 min to 5 h 16 min); 10 GPU-hours (9 to 11)"


def test_a_forecast_beyond_the_budget_is_refused_with_its_figures() -> None:
    with pytest.raises(OverBudget, match=r"10 GPU-hours \(9 to 11\).*--budget-hours 9.5"):
        refuse_over_budget(forecast(9), budget(9.5))


def test_without_gpus_a_budget_is_of_wall_time() -> None:
    refuse_over_budget(forecast(9, gpus=False), budget(5))
    with pytest.raises(OverBudget, match=r"is 5 hours"):
        refuse_over_budget(forecast(9, gpus=False), budget(4.9))


def test_unknown_rates_are_refused_and_not_guessed() -> None:
    with pytest.raises(OverBudget, match=r"seconds per record of draw.*--rates"):
        refuse_over_budget(forecast(9, known=False), budget(1000))


def test_trimming_takes_what_limit_would_take(experiment: Experiment) -> None:
    fitting = trimmed(experiment, budget(13.5, trim=True), of)
    assert len(fitting.samples) == 12
    assert fitting.samples == limited(experiment.samples, 12, experiment.config.seed)
    assert len(Counter(s.category for s in fitting.samples)) == len(
        Counter(s.category for s in experiment.samples)
    )
    assert fitting.config.root == experiment.config.root
    assert fitting.config.limit == 12


def test_nothing_is_trimmed_where_all_fits(experiment: Experiment) -> None:
    assert trimmed(experiment, budget(1000, trim=True), of) is experiment


def test_trimming_to_nothing_is_refused(experiment: Experiment) -> None:
    with pytest.raises(OverBudget, match=r"even 1 query would take 2"):
        trimmed(experiment, budget(1.5, trim=True), of)


def test_queries_of_the_run_directory_are_not_trimmed(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Experiment, "recorded_queries", property(lambda _: 20))
    with pytest.raises(OverBudget, match=r"even 20 queries would take 1"):
        trimmed(experiment, budget(0.5, trim=True), of)
    assert len(trimmed(experiment, budget(3.0, trim=True), of).samples) == 22


def test_trimming_needs_known_rates(experiment: Experiment) -> None:
    with pytest.raises(OverBudget, match=r"no source knows"):
        trimmed(
            experiment,
            budget(3, trim=True),
            lambda e: forecast(len(e.samples), known=False),
        )


@pytest.mark.parametrize("hours", [0.0, -1.0, float("nan")])
def test_a_budget_is_more_than_nothing(hours: float) -> None:
    with pytest.raises(UsageError, match=r"must be more than 0"):
        budget(hours)


def test_trimming_needs_a_budget() -> None:
    with pytest.raises(UsageError, match=r"--trim needs --budget-hours"):
        ForecastOptions(trim=True)
