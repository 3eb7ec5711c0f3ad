"""What a run would do, as a value: jobs by stage, what is missing, and its forecast.

    plan = RunPlan.of(experiment)
    plan.ready()          # whether `plait run` would start
    plan.show(console)    # what `plait plan` prints

Nothing is started and nothing written. Where a budget is given, the run is trimmed to as
many queries as fit (`_within_budget`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from plait.benchmarks.results.files.current import CurrentResults
from plait.benchmarks.results.table import ResultTable, TableColumn
from plait.benchmarks.runs.config import is_run
from plait.benchmarks.runs.experiment import Experiment, engine_options
from plait.benchmarks.runs.forecast.forecast import Forecast, time_text
from plait.benchmarks.runs.forecast.machines import Machine
from plait.benchmarks.runs.forecast.rates import Sources
from plait.benchmarks.runs.reference import FidelityPlan
from plait.benchmarks.runs.reopening import find_superseded
from plait.benchmarks.runs.requirements import key_problems, package_problems
from plait.benchmarks.runs.run_directory import read_manifest
from plait.benchmarks.runs.stage_labels import label_stages
from plait.benchmarks.tasks.row_tables import IdTable
from plait.benchmarks.wording import quantity
from plait.cluster.counts import Counted, StageCount, count
from plait.cluster.plan import Plan, thinking_drafts
from plait.cluster.shard import Shard
from plait.cluster.sources import StageSource, sources_of
from plait.cluster.store import Store
from plait.generators.base import Placement
from plait.generators.buckets import AnyPath
from plait.generators.document import Image, Malformed, Query
from plait.generators.errors import UsageError
from plait.generators.system import System
from plait.pipelines.presets import retirements
from plait.scorers.applicability import (
    Applicability,
    PlannedAnswers,
    applicability,
    group_lines,
)

_HEAD = (
    *("stage", "kind", "requests", "shared", "done", "to run", "later (max)", "batch"),
    TableColumn("one worker needs", numeric=False),
)
"""Headings of `_row`."""
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
            raise UsageError("--trim needs --budget-hours")


NO_OPTIONS = ForecastOptions()


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What `run` would do. Nothing was started or written.

    Examples:
        >>> plan = plait.plan(data="sample", systems=["gpt-4o+sdxl-turbo"], weights="tiny")
        >>> plan.ready()
        False
        >>> print(plan.missing[0])
        gpt-4o needs the environment variable OPENAI_API_KEY
    """

    experiment: Experiment = field(repr=False)
    """The run with all names resolved, of fewer queries where they were trimmed."""
    counts: Sequence[StageCount]
    """Jobs by stage: known keys exactly, later stages as upper bounds."""
    forecast: Forecast
    """What the run will take."""
    missing: Sequence[str] = ()
    """Packages, API keys and weights without which `run` would refuse to start."""
    made_again: Sequence[str] = ()
    """Records of earlier versions of stages, which `run` refuses to make again unasked."""
    remake: bool = False
    """Whether they are made again, and so are answers that hold a model's thought."""
    sources: Sequence[StageSource] = ()
    """The source of the user's own stages."""
    same_code: bool = False
    """Whether records of stages whose source has changed are kept."""
    retired: Sequence[str] = ()
    """Models that their makers no longer serve."""
    applicability: Sequence[Applicability] = ()
    """How many of the answers each scorer can score."""
    useless_scorers: Sequence[str] = ()
    """Scorers that can score no answer to any query of the data, each with what could;
    `run` refuses them. Those that the run directory has already stay in it."""
    trimmed: str = ""
    """That queries were left out to fit a budget; empty where none were."""
    over_budget: str = ""
    """Why the run does not fit into the budget that was given; empty where it does."""
    shard: Shard | None = None
    """The shard of it that this is the plan of, if not of all."""
    store: Store | None = field(default=None, repr=False)
    """The records that were counted."""
    settled: CurrentResults | None = field(default=None, repr=False)
    """The results of a run that lacks nothing, in whose place no record was read."""

    def current_results(self) -> CurrentResults | None:
        """Return the run's results as `Experiment.current_results` does.

        Those that the plan was made of are not compared with the data again.
        """
        if self.settled is not None and self.settled.are_unchanged():
            return self.settled
        return self.experiment.current_results()

    @property
    def counted(self) -> Counted | None:
        """The jobs and the records that they were looked up in."""
        return None if self.store is None else Counted(self.counts, self.store)

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        options: ForecastOptions = NO_OPTIONS,
        *,
        only_scorers: bool = False,
        shard: Shard | None = None,
        remake: bool = False,
        same_code: bool = False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> RunPlan:
        """Return what running `experiment` would do, trimmed where the options say so.

        With a shard, what running that part of it would do. `on_progress` is told how many
        queries were counted, of about how many: trimming counts them several times.
        UsageError for options that cannot be used; a budget that is exceeded is stated.
        """
        if shard is not None and options.trim:
            raise UsageError(
                "--trim applies to a whole run: leave out either --trim or --shard"
            )
        config = experiment.config
        store = Store(config.root)
        settled = None
        if not remake and shard is None:
            settled = _complete_results(experiment)
        trials = _Trials(
            experiment=experiment,
            store=store,
            sources=Sources.at(config.root, Machine.of(options.on), config.address),
            settled=settled,
            only_scorers=only_scorers,
            shard=shard,
            on_progress=on_progress,
        )
        # Counted as if the records that are to be made again were not there.
        again = thinking_drafts(experiment.plan.part(shard), store) if remake else ()
        with store.without(again):
            plan = _within_budget(trials.plan_of, experiment, options)
        planned = plan.experiment
        is_trimmed = planned is not experiment
        expected = ExpectedAnswers(planned.systems, planned.queries, config.repeats)
        applies = applicability(planned.scorers, expected)
        making = replace(experiment.plan, systems=()) if only_scorers else experiment.plan
        return replace(
            plan,
            # A trimmed run is another, with other queries.
            settled=None if is_trimmed else settled,
            missing=_missing_requirements(experiment, plan.counts),
            made_again=[str(change) for change in find_superseded(experiment, store)],
            remake=remake,
            sources=sources_of(making.stages, store),
            same_code=same_code,
            retired=list(retirements(experiment.plan.stages, date.today())),
            applicability=applies,
            useless_scorers=_useless_scorers(planned, applies),
        )

    @property
    def root(self) -> AnyPath:
        """The run directory."""
        return self.experiment.config.root

    @property
    def plan(self) -> Plan:
        """All walks of it."""
        return self.experiment.plan.part(self.shard)

    @property
    def extent(self) -> str:
        """How many documents, queries, systems and repeats, in words."""
        made = self.experiment
        plan = self.plan
        selection = f" ({made.selection})" if made.selection else ""
        if self.shard is not None:
            selection = f" (shard {self.shard} of {len(made.queries):,})"
        queries = quantity(len(plan.queries), "query")
        return (
            f"{quantity(len(plan), 'answer')}: {queries}{selection}, "
            f"{quantity(len(made.systems), 'system')}, "
            f"{quantity(made.config.repeats, 'repeat')}"
        )

    @property
    def malformed(self) -> Sequence[str]:
        """Rows of the task set that count as failed."""
        by_rule = self.experiment.task.about.get("malformed")
        if not by_rule:
            return []
        rules = ", ".join(f"{rows:,} {rule}" for rule, rows in by_rule.items())
        return [f"{rules}; these rows count as failed"]

    @property
    def pinned(self) -> Sequence[str]:
        """The pinned protocol, and in what the run differs from it; a line each."""
        remarks = self.experiment.pinned
        return () if remarks is None else remarks.lines

    @property
    def fidelity(self) -> Sequence[str]:
        """What is shown on a few queries first, in a line; empty where nothing is."""
        asked = FidelityPlan.of(self.experiment)
        return () if asked is None else (str(asked),)

    @property
    def shared(self) -> Sequence[str]:
        """Stages whose records serve several systems."""
        lines = []
        for tally in self.counts:
            if tally.requests > tally.distinct:
                lines.append(
                    f"{tally.spec.name}: {tally.requests:,} requests share "
                    f"{quantity(tally.distinct, 'record')}, each made once"
                )
        return lines

    @property
    def partly_scored(self) -> Sequence[str]:
        """Scorers that cannot score all of the answers: how many they can, and why."""
        return () if self.useless_scorers else group_lines(self.applicability)

    @property
    def kept_images(self) -> str:
        """How many images of the data the run's results will hold copies of."""
        # An image that several queries show is copied once.
        known = IdTable()
        size = 0
        for query in self.experiment.queries:
            if not isinstance(query, Query):
                continue
            for image in query.images:
                if image.digest not in known:
                    known.add(image.digest)
                    size += _bytes_of(image)
        if not known:
            return ""
        images = quantity(len(known), "image")
        return f"{images} of queries and references, {size / 1e6:,.1f} MB"

    @property
    def to_run(self) -> int:
        """At most this many jobs are left; what later stages get is an upper bound."""
        return sum(tally.to_run for tally in self.counts)

    @property
    def edited(self) -> Sequence[str]:
        """The user's stages whose source has changed since their records were made."""
        return [str(source) for source in self.sources if source.changed]

    def refuse_edited(self) -> None:
        """UsageError where a class was edited and its version is that of its records."""
        if self.edited and not self.same_code:
            lines = "\n".join(f"  {line}" for line in self.edited)
            raise UsageError(
                f"{self.root} holds records of classes whose code was edited since, in "
                f"the modules named here:\n{lines}\n"
                "Where a class's results change, raise its `version` and add --remake; "
                "where they are the same, add --same-code (from Python, same_code=True)."
            )

    def ready(self) -> bool:
        """Return whether `run` would start."""
        if self.missing or self.useless_scorers or self.over_budget:
            return False
        if self.made_again and not self.remake:
            return False
        return self.same_code or not self.edited

    @property
    def table(self) -> ResultTable:
        """One row per stage, and everything that needs attention below."""
        notes = [f"{remark.heading}: {remark.text}" for remark in self._remarks]
        notes += self.partly_scored
        notes += self.shared
        labels = label_stages(tally.spec for tally in self.counts)
        rows = [_row(tally, labels[tally.spec.digest]) for tally in self.counts]
        return ResultTable.of(self.extent, _HEAD, rows, notes)

    @property
    def _remarks(self) -> list[_Remark]:
        """What needs attention, the most urgent first."""
        remarks = []
        for heading, colour, texts in (
            ("missing", "red", self.missing),
            ("cannot score", "red", self.useless_scorers),
            ("would be made again", "yellow", self.made_again),
            ("edited since its records were made", "yellow", self.edited),
            ("pinned", "yellow", self.pinned),
            ("fidelity", "yellow", self.fidelity),
            ("retired model", "yellow", self.retired),
            ("malformed rows", "yellow", self.malformed),
            ("over budget", "red", [self.over_budget]),
            ("trimmed", "yellow", [self.trimmed]),
        ):
            for text in texts:
                if text:
                    remarks.append(_Remark(heading, colour, text))
        return remarks

    def show(self, console: Console) -> None:
        """Print all of it: first what it takes, and what is in the way."""
        console.print(f"forecast: {self.forecast.headline}")
        for remark in self._remarks:
            console.print(Text(remark.heading, remark.colour), remark.text)
        console.print(f"run directory {self.root}")
        console.print(replace(self.table, notes=()).rich)
        for line in (*self.partly_scored, *self.shared):
            console.print(line)
        kept = self.kept_images
        if kept:
            console.print(f"copied into its results: {kept}")
        if self.forecast.stages:
            table = self.forecast_table
            console.print()
            # The first note is the headline, which stands above.
            console.print(replace(table, notes=table.notes[1:]).rich)

    @property
    def forecast_table(self) -> ResultTable:
        """What the run will take, by stage, with where each rate comes from."""
        return self.forecast.table

    def _repr_html_(self) -> str:
        return self.table.html


class _Remark(NamedTuple):
    """Something about a plan that needs attention."""

    heading: str
    colour: str
    text: str


def _row(tally: StageCount, label: str) -> list[str]:
    """Return the line of a stage in the table of a plan."""
    spec = tally.spec
    return [
        label,
        spec.kind.value,
        f"{tally.requests:,}",
        f"{tally.requests - tally.distinct:,}",
        f"{tally.done:,}",
        f"{tally.distinct - tally.done:,}",
        f"{tally.later:,}",
        str(spec.placement.batch_size),
        _need_text(spec.placement),
    ]


def _need_text(placement: Placement) -> str:
    """Say what one worker of a stage needs: `1 GPU, 2 CPU, about 40 GiB`."""
    if placement.endpoint and placement.server is None:
        return f"{placement.endpoint}, {placement.concurrency} at a time"
    parts = []
    if placement.num_gpus:
        parts.append(f"{placement.num_gpus:g} GPU")
    if placement.num_cpus:
        parts.append(f"{placement.num_cpus:g} CPU")
    if placement.gpu_memory_gib:
        parts.append(f"about {placement.gpu_memory_gib:.0f} GiB")
    if placement.server is None:
        return ", ".join(parts)
    parts.append(f"{placement.concurrency} at a time")
    return f"server {placement.server.name}: {', '.join(parts)}"


def _complete_results(experiment: Experiment) -> CurrentResults | None:
    """Return the results of a run that has ended; None for any other.

    Its records need not be read again to see that nothing is missing.
    """
    results = experiment.current_results()
    if results is None or not results.is_complete():
        return None
    return results


def _missing_requirements(
    experiment: Experiment, counts: Iterable[StageCount]
) -> list[str]:
    """Return packages, API keys and weights that stages with work left do not have.

    A run that has ended can be reported without any of them.
    """
    left = [tally.spec for tally in counts if tally.to_run]
    if not left:
        return []
    return [
        *package_problems(left, engine_options(experiment.config)),
        *key_problems(left),
        *experiment.missing_weights,
    ]


def _useless_scorers(
    experiment: Experiment, of_queries: Iterable[Applicability]
) -> list[str]:
    """Say which new scorers can score no answer, whichever queries of the data are asked.

    `of_queries` is what each scorer can score of those that are asked.
    """
    config = experiment.config
    former = read_manifest(config.root).get("scorers", ()) if is_run(config.root) else ()
    idle = set()
    for applies in of_queries:
        if applies.answers and not applies.scorable and applies.scorer not in former:
            idle.add(applies.scorer)
    if not idle:
        return []
    # Of a few queries a scorer may suit none by chance, so that all are asked for.
    every = ExpectedAnswers(experiment.systems, experiment.task.samples, config.repeats)
    scorers = [scorer for scorer in experiment.scorers if scorer.name in idle]
    of_all = applicability(scorers, every)
    return [applies.refused for applies in of_all if applies.refused]


@dataclass(frozen=True, slots=True)
class ExpectedAnswers:
    """What answers to queries may hold; rows without a query have none.

    They are made as they are needed, and again when they are iterated over again.
    """

    systems: Sequence[System]
    queries: Iterable[Query | Malformed]
    repeats: int = 1

    def __iter__(self) -> Iterator[PlannedAnswers]:
        """Yield the answers to one query that may hold the same."""
        for query in self.queries:
            if isinstance(query, Malformed):
                continue
            # Systems whose answers have the same form count together.
            forms = Counter(system.answer_form(query) for system in self.systems)
            for form, systems in forms.items():
                if form is not None:
                    yield PlannedAnswers(query, form, systems * self.repeats)


# ------------------------------------------------------------------------------ budget


@dataclass(kw_only=True, eq=False)
class _Trials:
    """Plans of one run for several numbers of queries, each made once.

    The records are read once, however many numbers are tried.
    """

    experiment: Experiment
    store: Store
    sources: Sources
    settled: CurrentResults | None
    """The results of a run that lacks nothing, in whose place no record is read."""
    only_scorers: bool
    shard: Shard | None
    on_progress: Callable[[int, int], None] | None
    _plans: dict[int, RunPlan] = field(default_factory=dict)
    """By their number of queries."""
    _counted: int = 0
    """Queries of all plans together."""

    def plan_of(self, queries: int) -> RunPlan:
        """Return the plan of so many queries."""
        if queries not in self._plans:
            self._plans[queries] = self._make(queries)
            self._counted += queries
            self._tell()
        return self._plans[queries]

    def _make(self, queries: int) -> RunPlan:
        """Count the jobs of so many queries, and forecast them."""
        experiment = self.experiment
        is_whole = queries == len(experiment.queries)
        if not is_whole:
            experiment = experiment.with_limit(queries)
        part = experiment.plan.part(self.shard)
        if is_whole and self.settled is not None:
            counts = self.settled.counts(part, only_scorers=self.only_scorers)
        else:
            counts = count(part, self.store, only_scorers=self.only_scorers)
        return RunPlan(
            experiment=experiment,
            counts=counts,
            forecast=self._forecast(part, counts),
            shard=self.shard,
            store=self.store,
        )

    def _forecast(self, part: Plan, counts: Sequence[StageCount]) -> Forecast:
        engine = self.experiment.config.engine
        max_cost = engine.max_cost
        if self.shard is not None:
            max_cost = self.shard.share(max_cost)
        return Forecast.of(
            part,
            counts,
            self.sources,
            max_cost=max_cost,
            price_per_gpu_hour=engine.price_per_gpu_hour,
            currency=engine.currency,
        )

    def _tell(self) -> None:
        if self.on_progress is None:
            return
        # Trimming halves the numbers of queries that may fit until one is left.
        in_all = len(self.experiment.queries) * (1 + _OF_ALL.bit_length() // 2)
        self.on_progress(self._counted, max(self._counted, in_all))


def _within_budget(
    plan_of: Callable[[int], RunPlan], experiment: Experiment, options: ForecastOptions
) -> RunPlan:
    """Return the plan of all queries, or of as many as fit, drawn as by `--limit`.

    Queries that the run directory holds already stay.
    """
    most = len(experiment.queries)
    hours = options.budget_hours
    whole = plan_of(most)
    if hours is None:
        return whole
    refusal = over_budget(whole.forecast, hours, trim=options.trim)
    if refusal or whole.forecast.hours.mean <= hours:
        return replace(whole, over_budget=refusal)
    least = max(1, experiment.recorded_queries)
    # More queries never take less time, so that the most that fit can be bisected.
    sizes = range(least, most, max(1, most // _OF_ALL))
    fitting = bisect_right(
        sizes, hours, key=lambda queries: plan_of(queries).forecast.hours.mean
    )
    if not fitting:
        mean = plan_of(least).forecast.hours.mean
        queries = quantity(least, "query")
        excess = f"{_excess(whole.forecast, hours)}; even {queries} would take {mean:.3g}"
        return replace(whole, over_budget=excess)
    kept = sizes[fitting - 1]
    return replace(
        plan_of(kept),
        trimmed=f"trimmed to {kept:,} of {most:,} queries, drawn by category, to fit the "
        "budget",
    )


def over_budget(forecast: Forecast, hours: float, *, trim: bool = False) -> str:
    """Say why a run is not within a budget; empty where it is, or is to be trimmed."""
    unknown = ", ".join(forecast.missing)
    if unknown:
        return (
            f"--budget-hours {hours:g} cannot be checked: the {unknown} "
            "have not been measured. Run a few queries first (--limit 8) into a folder "
            "next to this run."
        )
    if trim or forecast.hours.mean <= hours:
        return ""
    by_time = sorted(forecast.stages, key=lambda stage: stage.busy_s, reverse=True)
    busiest = [f"{stage.spec.name} {time_text(stage.busy_s)}" for stage in by_time[:3]]
    parts = ", ".join(busiest)
    return (
        f"{_excess(forecast, hours)}; most of that is {parts}. Add --trim to answer as "
        "many queries as fit, or lower --limit."
    )


def _excess(forecast: Forecast, hours: float) -> str:
    span = forecast.hours
    unit = "GPU-hours" if forecast.on_gpus else "hours"
    return (
        f"the forecast is {span.mean:.3g} {unit} ({span.low:.3g} to {span.high:.3g}), more "
        f"than --budget-hours {hours:g}"
    )


def _bytes_of(image: Image) -> int:
    if image.data is not None:
        return len(image.data)
    try:
        return Path(image.place or "").stat().st_size
    except OSError:
        return 0  # It is named when it cannot be copied.
