"""What a run would do, as a value: jobs by stage, what is done, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.results.table import ResultTable
from benchmarks.runs.experiment import Experiment, superseded
from benchmarks.runs.forecast.budget import NO_OPTIONS, ForecastOptions, planned_forecast
from benchmarks.runs.forecast.forecast import Forecast
from cluster.counts import StageCount
from cluster.store import Store
from pipelines.presets import retirements

_COUNTS = ("asked", "shared", "there", "to run", "then up to", "batch")
"""Headings of the numbers of `_row`."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What `run` would do. Nothing was started or written."""

    root: Path
    extent: str
    """How many documents, queries, systems and repeats, in words."""
    counts: Sequence[StageCount]
    """Jobs by stage: known keys exactly, later stages as upper bounds."""
    missing: Sequence[str] = ()
    """API keys and weights without which `run` would refuse to start."""
    made_again: Sequence[str] = ()
    """Records of earlier versions of stages, which `run` refuses to make again unasked."""
    retired: Sequence[str] = ()
    """Models that their makers no longer serve."""
    malformed: Sequence[str] = ()
    """Rows of the task set that count as failed."""
    shared: Sequence[str] = ()
    """Stages whose records serve several systems."""
    forecast: Forecast
    """What the run will take."""
    trimmed: str = ""
    """That queries were left out to fit a budget; empty where none were."""
    over_budget: str = ""
    """Why the run does not fit into the budget that was given; empty where it does."""

    @classmethod
    def of(cls, experiment: Experiment, options: ForecastOptions = NO_OPTIONS) -> "RunPlan":
        """What running `experiment` would do; UsageError for options not to be used."""
        plan = planned_forecast(experiment, options)
        experiment, counts = plan.experiment, plan.counts
        store = Store(experiment.config.root)
        return cls(
            root=experiment.config.root,
            extent=_extent(experiment),
            counts=counts,
            missing=_missing(experiment, counts),
            made_again=[str(change) for change in superseded(experiment, store)],
            retired=list(retirements(experiment.plan.stages, date.today())),
            malformed=list(_malformed(experiment)),
            shared=[_sharing(c) for c in counts if c.requests > c.distinct],
            forecast=plan.forecast,
            trimmed=plan.remark,
            over_budget=plan.over_budget,
        )

    @property
    def to_run(self) -> int:
        """At most this many jobs are left; what later stages get is an upper bound."""
        return sum(tally.to_run for tally in self.counts)

    def ready(self, *, remake: bool = False) -> bool:
        """Whether `run` would start."""
        refused = self.missing or self.over_budget
        return not refused and (remake or not self.made_again)

    @property
    def table(self) -> ResultTable:
        """One row per stage, and everything that needs attention below."""
        head = ("stage", "kind", *_COUNTS, "one worker needs")
        notes = [f"missing: {text}" for text in self.missing]
        notes += [f"would be made again: {text}" for text in self.made_again]
        notes += [f"retired model: {text}" for text in self.retired]
        notes += [f"malformed rows: {text}" for text in self.malformed]
        rows = [_row(tally) for tally in self.counts]
        notes += [f"over budget: {self.over_budget}"] if self.over_budget else []
        return ResultTable.of(self.extent, head, rows, (*notes, *self.shared))

    @property
    def forecast_table(self) -> ResultTable:
        """What the run will take, by stage, with where each rate comes from."""
        return self.forecast.table

    def _repr_html_(self) -> str:
        return self.table.html


def _row(tally: StageCount) -> list[str]:
    """Stage, kind, the numbers of `_COUNTS`, and what one worker needs."""
    numbers = (
        tally.requests,
        tally.requests - tally.distinct,
        tally.done,
        tally.distinct - tally.done,
        tally.later,
    )
    placement = tally.spec.placement
    texts = (*(f"{n:,}" for n in numbers), str(placement.batch_size))
    return [tally.spec.name, tally.spec.kind.value, *texts, _need(tally)]


def _need(tally: StageCount) -> str:
    placement = tally.spec.placement
    if placement.endpoint and placement.server is None:
        return f"{placement.endpoint}, {placement.concurrency} at a time"
    parts = [f"{placement.num_gpus:g} GPU"] if placement.num_gpus else []
    parts += [f"{placement.num_cpus:g} CPU"] if placement.num_cpus else []
    if placement.gpu_memory_gib:
        parts.append(f"about {placement.gpu_memory_gib:.0f} GiB")
    if placement.server is None:
        return ", ".join(parts)
    parts.append(f"{placement.concurrency} at a time")
    return f"server {placement.server.name}: {', '.join(parts)}"


def _extent(experiment: Experiment) -> str:
    selection = f" ({experiment.selection})" if experiment.selection else ""
    return (
        f"{len(experiment.plan):,} documents: {len(experiment.samples):,} queries"
        f"{selection}, {len(experiment.systems)} systems, "
        f"{experiment.config.repeats} repeats"
    )


def _missing(experiment: Experiment, counts: Sequence[StageCount]) -> list[str]:
    left = {c.spec.name for c in counts if c.to_run}
    keys = [
        f"{stage} needs {', '.join(names)} in the environment"
        for stage, names in experiment.missing_keys.items()
        if stage in left
    ]
    return [*keys, *(experiment.missing_weights if left else ())]


def _malformed(experiment: Experiment) -> Iterator[str]:
    malformed: dict[str, Any] = dict(experiment.task.about).get("malformed") or {}
    if malformed:
        rules = ", ".join(f"{n:,} {rule}" for rule, n in malformed.items())
        yield f"{rules}; they count as failed"


def _sharing(tally: StageCount) -> str:
    return (
        f"{tally.spec.name}: asked for {tally.requests:,} times, made once each "
        f"({tally.distinct:,} records)"
    )


# -------------------------------------------------------------------------- terminal


def show_plan(plan: RunPlan, console: Console) -> None:
    """Print what a run would do."""
    console.print(f"run directory {plan.root}", soft_wrap=True)
    console.print(plan.extent)
    console.print(_terminal_table(plan.counts))
    for heading, colour, lines in (
        ("missing", "red", plan.missing),
        ("made again", "yellow", plan.made_again),
        ("retired model", "yellow", plan.retired),
        ("malformed rows", "yellow", plan.malformed),
        ("over budget", "red", (plan.over_budget,) if plan.over_budget else ()),
        ("trimmed", "yellow", (plan.trimmed,) if plan.trimmed else ()),
    ):
        for line in lines:
            console.print(Text(heading, colour), line, soft_wrap=True)
    for line in plan.shared:
        console.print(line, soft_wrap=True)
    if plan.forecast.stages:
        console.print()
        console.print(plan.forecast_table.rich)


def _terminal_table(counts: Sequence[StageCount]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("stage", no_wrap=True)
    table.add_column("kind")
    for name in _COUNTS:
        table.add_column(name, justify="right")
    table.add_column("one worker needs")
    for tally in counts:
        table.add_row(*_row(tally))
    return table
