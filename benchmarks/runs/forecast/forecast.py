"""What a run will take: wall time, GPU-hours, tokens, money and disk, before it starts.

What no source of rates knows, not even a prior, is named and not guessed: then a total is a
lower bound. The forecast is kept in the manifest, and told beside what the run took.

`rates` tells how fast each stage is, `simulation` lets the engine run on a virtual clock at
these rates, and this file makes totals, tables and remarks of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple, Self, get_args

from plait.benchmarks.durations import in_words
from plait.benchmarks.results.board import Board
from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.config import USD, is_run
from plait.benchmarks.runs.forecast.machines import Machine
from plait.benchmarks.runs.forecast.prior import ASSUMED, GPUS, break_even, gpu_of
from plait.benchmarks.runs.forecast.rates import (
    IMAGES,
    OTHER_WORK,
    Origin,
    Sources,
    StageRates,
)
from plait.benchmarks.runs.forecast.simulation import (
    Simulated,
    StageWork,
    simulate,
    work_of,
)
from plait.benchmarks.runs.run_directory import read_manifest
from plait.benchmarks.runs.stage_labels import label_stages
from plait.cluster.counts import StageCount
from plait.cluster.manifest import other_work, write_json
from plait.cluster.plan import Plan
from plait.cluster.run import MANIFEST, RunResult
from plait.generators.base import StageSpec
from plait.generators.batches import BATCH_PRICE
from plait.generators.buckets import AnyPath
from plait.generators.work import NOTHING, FigureRange, RangeEnd

FORECAST = "forecast"
OUTCOME = "forecast_outcome"
"""Entries of the manifest."""


class _Price(NamedTuple):
    """A price that a config may give for an endpoint."""

    option: str
    """The setting's name."""
    amount: str
    """What of a record's usage it is for."""
    unit: float
    """Part of the price that one of that costs."""


_PRICES = (
    _Price("price_per_million_input", "input_tokens", 1e-6),
    _Price("price_per_million_output", "output_tokens", 1e-6),
    _Price("price_per_image", "images", 1.0),
)
_MEASURE = (
    "To measure it, run a few queries first (--limit 8) into a folder next to this one"
)
_TOTALS = ("input_tokens", "output_tokens", "disk_bytes", "money")
"""Names of what a forecast sums up over stages, besides time."""
_HEAD = (
    *("stage", "records", "s each", "load s", "workers", "tokens in", "tokens out"),
    "disk",
)
"""Headings of a stage's row, but for those of its cost and of the source of its rates."""
_WORTH_COMPARING_S = 60
"""A run is compared with its forecast where either takes as long: in seconds, what starts
and ends a process decides."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StageForecast(StageWork):
    """What one stage will take."""

    rates: StageRates
    workers: int
    """Most workers at a time."""

    @classmethod
    def of(cls, work: StageWork, rates: StageRates, workers: int) -> Self:
        """Return the forecast of a stage that has this much work left."""
        # A forecast is the work, with what is known of it besides.
        own = {field.name: getattr(work, field.name) for field in fields(work)}
        return cls(**own, rates=rates, workers=workers)

    @property
    def busy_s(self) -> float:
        """Seconds in which its workers compute, as far as is known."""
        return self.rates.seconds.mean * self.jobs if self.rates.seconds else 0.0

    def used(self, name: str) -> FigureRange | None:
        """Return how much of a name of `_TOTALS` it uses; None where it is not known.

        Money is in the currency of the config, and 0 without an endpoint.
        """
        usage = self.rates.usage
        each = _money(self.spec, usage) if name == "money" else usage.get(name)
        return None if each is None else each * self.jobs

    @property
    def as_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        rates = self.rates
        return {
            "jobs": round(self.jobs, 2),
            "expected_by": list(self.grounds),
            "seconds_per_record": rates.seconds and asdict(rates.seconds),
            "load_seconds": rates.load_s and asdict(rates.load_s),
            "workers": self.workers,
            "origin": rates.origin.value,
            "other_work": rates.other_work,
            "detail": rates.detail,
        }

    def row(self, label: str) -> list[str]:
        """Return its row in the table of the forecast, where it is called `label`."""
        rates = self.rates
        about = "about " if self.grounds else ""
        source = rates.origin.value
        if rates.detail:
            source = f"{source}: {rates.detail}"
        return [
            label,
            f"{about}{self.jobs:,.0f}",
            _figure_text(rates.seconds),
            _figure_text(rates.load_s),
            str(self.workers) if rates.seconds else "?",
            _tokens_text(self.used("input_tokens")),
            _tokens_text(self.used("output_tokens")),
            _disk_text(self.used("disk_bytes")),
            _money_text(self.used("money")),
            source,
        ]


def _tokens_text(tokens: FigureRange | None) -> str:
    return "" if tokens is None else _count_text(tokens.mean)


def _disk_text(disk: FigureRange | None) -> str:
    return "?" if disk is None else _bytes_text(disk.mean)


def _money_text(money: FigureRange | None) -> str:
    if money is None:
        return "?"
    return f"{money.mean:,.4g}" if money.mean else ""


def _money(spec: StageSpec, usage: Mapping[str, FigureRange]) -> FigureRange | None:
    """Return what a record costs by the config's prices, else as recorded.

    None where neither is known.
    """
    if not spec.placement.remote:
        return NOTHING
    priced = [one for one in _PRICES if spec.options.get(one.option) is not None]
    # Where an amount is missing: a part of the price alone would look like all of it.
    if not priced or any(one.amount not in usage for one in priced):
        return usage.get("cost")
    total = NOTHING
    for one in priced:
        price = float(spec.options[one.option]) * one.unit
        total = total + usage[one.amount] * price
    return total * BATCH_PRICE if spec.placement.batch_api else total


def _range_of(runs: Sequence[float]) -> FigureRange:
    """Return the range of a figure, of which the first run has the mean.

    Another order of stages may make a slower rate finish earlier, by a little, so that the
    ends are not always those of the other two runs.
    """
    return FigureRange(runs[0], min(runs), max(runs))


class Total(NamedTuple):
    """What all stages of a run use together."""

    amount: FigureRange
    is_whole: bool
    """Whether it is known of every stage; else it is a lower bound."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run will take, from the start of Ray to its end."""

    machine: Machine
    stages: Sequence[StageForecast]
    seconds: FigureRange
    """Wall time; a lower bound where `missing` names something."""
    gpu_hours: FigureRange
    """Held by workers, loading and idling included."""
    price_per_gpu_hour: float | None = None
    currency: str = USD
    """Of all prices."""
    notes: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        plan: Plan,
        counts: Sequence[StageCount],
        sources: Sources,
        *,
        max_cost: float | None = None,
        price_per_gpu_hour: float | None = None,
        currency: str = USD,
    ) -> Forecast:
        """Forecast running `plan`, whose jobs are `counts`.

        `max_cost` is what all endpoints may cost together.
        """
        work = work_of(plan, counts, sources)
        rates = {}
        for of_stage in work:
            spec = of_stage.spec
            rates[spec.digest] = sources.rates(spec, of_stage.jobs)
        nodes = sources.machine.resources
        # One run with mean rates, one with the lower and one with the upper ends of all.
        runs = [simulate(work, rates, nodes, end) for end in get_args(RangeEnd)]
        mean = runs[0]
        stages = []
        for of_stage in work:
            key = of_stage.spec.digest
            stages.append(StageForecast.of(of_stage, rates[key], mean.workers[key]))
        seconds = NOTHING
        if work:
            seconds = _range_of([run.seconds for run in runs]) + sources.overhead_s
        gpu_seconds = _range_of([run.gpu_seconds for run in runs])
        notes = [*_notes(stages, sources, mean)]
        notes += _notes_on_costs(stages, max_cost, currency)
        return cls(
            machine=sources.machine,
            stages=stages,
            seconds=seconds,
            gpu_hours=gpu_seconds * (1 / 3600),
            price_per_gpu_hour=price_per_gpu_hour,
            currency=currency,
            notes=notes,
        )

    @property
    def missing(self) -> list[str]:
        """What no source knows about the time of its stages."""
        # Stages that lack the same figures share a line.
        by_gap: dict[str, list[str]] = {}
        labels = label_stages(stage.spec for stage in self.stages)
        for stage in self.stages:
            lacking = []
            if not stage.rates.seconds:
                lacking.append("seconds per record")
            if not stage.rates.load_s:
                lacking.append("load time")
            if lacking:
                label = labels[stage.spec.digest]
                by_gap.setdefault(" and ".join(lacking), []).append(label)
        return [f"{gap} of {', '.join(names)}" for gap, names in by_gap.items()]

    @property
    def on_gpus(self) -> bool:
        """Whether some stage takes a GPU."""
        return any(stage.spec.placement.num_gpus for stage in self.stages)

    @property
    def hours(self) -> FigureRange:
        """What a budget counts: GPU-hours where a stage takes a GPU, else hours."""
        return self.gpu_hours if self.on_gpus else self.seconds * (1 / 3600)

    def total(self, name: str) -> Total:
        """Return the sum of a name of `_TOTALS` over all stages."""
        total = NOTHING
        is_whole = True
        for stage in self.stages:
            used = stage.used(name)
            if used is not None:
                total = total + used
            # Stages that use no tokens have none in their usage, which is known all the
            # same; of money a part that is not known is not nothing.
            is_known = used is not None if name == "money" else bool(stage.rates.usage)
            is_whole = is_whole and is_known
        if name == "money":
            total = total + self.gpu_hours * (self.price_per_gpu_hour or 0.0)
        return Total(total, is_whole)

    @property
    def as_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        return {
            "machine": str(self.machine),
            "seconds": asdict(self.seconds),
            "gpu_hours": asdict(self.gpu_hours),
            "lower_bound": bool(self.missing),
            "missing": self.missing,
            **{name: asdict(self.total(name).amount) for name in _TOTALS},
            "stages": {stage.spec.folder: stage.as_json for stage in self.stages},
        }

    @property
    def headline(self) -> str:
        """The totals on one line: time, GPU-hours, money, disk and tokens."""
        if not self.stages:
            return "nothing to compute"
        origins = {stage.rates.origin for stage in self.stages}
        if origins == {Origin.UNKNOWN}:
            return "not available: none of these stages has been measured on this machine"
        is_timed = not self.missing
        parts = [_bound_text(_range_text(self.seconds, time_text), is_timed)]
        if self.on_gpus:
            hours = f"{_range_text(self.gpu_hours)} GPU-hours"
            parts.append(_bound_text(hours, is_timed))
        money = self.total("money")
        # That a run costs nothing goes without saying, unless it may cost something.
        if money.amount.mean or not money.is_whole:
            text = f"{_range_text(money.amount)} {self.currency}"
            parts.append(_bound_text(text, money.is_whole))
        disk = self.total("disk_bytes")
        # Of disk and tokens, `at least 0` would tell nothing.
        if disk.amount.mean or disk.is_whole:
            text = f"{_range_text(disk.amount, _bytes_text)} on disk"
            parts.append(_bound_text(text, disk.is_whole))
        read = self.total("input_tokens")
        written = self.total("output_tokens")
        if read.amount.mean or written.amount.mean or read.is_whole:
            text = (
                f"{_range_text(read.amount)} tokens read and "
                f"{_range_text(written.amount)} written"
            )
            parts.append(_bound_text(text, read.is_whole))
        return "; ".join(parts)

    @property
    def table(self) -> ResultTable:
        """One row per stage with work; the totals and what is not known below."""
        notes = [self.headline]
        if self.missing:
            notes.append(f"Unknown, and not included: {', '.join(self.missing)}")
        if any(stage.rates.origin is Origin.PRIOR for stage in self.stages):
            notes.append(f"{Origin.PRIOR}: {ASSUMED}")
        if len(notes) > 1:
            notes.append(_MEASURE)
        title = f"Forecast for {self.machine}"
        head = (*_HEAD, f"cost ({self.currency})", "source")
        labels = label_stages(stage.spec for stage in self.stages)
        rows = [stage.row(labels[stage.spec.digest]) for stage in self.stages]
        return ResultTable.of(title, head, rows, [*notes, *self.notes])


# ------------------------------------------------------------------------------- remarks


def _notes(
    stages: Sequence[StageForecast], sources: Sources, run: Simulated
) -> Iterator[str]:
    """Yield what a reader has to know of the figures, a note each."""
    yield from _notes_on_expected_records(stages)
    yield from _notes_on_other_work(stages)
    yield from _notes_on_compiling(stages, sources)
    yield from _notes_on_machine(stages, sources)
    batched = _names(stage for stage in stages if stage.spec.placement.batch_api)
    if batched:
        yield (
            "Asked in batches of the provider, whose replies may take a day, which no time "
            f"here includes: {batched}"
        )
    for name in run.unplaced:
        yield f"{name} fits on no node of {sources.machine} and is not included"


def _names(stages: Iterable[StageForecast]) -> str:
    return ", ".join(stage.spec.name for stage in stages)


def _notes_on_expected_records(stages: Sequence[StageForecast]) -> Iterator[str]:
    """Yield on what the numbers of records rest that follow answers still to be made."""
    by_grounds: dict[Sequence[str], list[StageForecast]] = {}
    for stage in stages:
        if stage.grounds:
            by_grounds.setdefault(stage.grounds, []).append(stage)
    for grounds, on_them in by_grounds.items():
        yield (
            f"Expected records of {_names(on_them)}, which follow answers that do not "
            f"exist yet: {'; '.join(grounds)}"
        )


def _notes_on_machine(stages: Sequence[StageForecast], sources: Sources) -> Iterator[str]:
    """Yield what is not known of the machine, and which stages are too large for it."""
    if sources.address is not None and not sources.machine.described:
        yield (
            f"The size of the cluster at {sources.address} is not known, so this forecast "
            f"is for {sources.machine}; describe the cluster with --on, such as --on "
            "2x8xH100"
        )
    gpu = gpu_of(sources.machine)
    if sources.machine.gpus and gpu is None:
        yield (
            f"plait has no published figures for the GPU {sources.machine.gpu!r} (it has "
            f"them for {', '.join(known.name for known in GPUS)}), so stages that have not "
            "been measured on it have no forecast"
        )
    for stage in stages:
        need = stage.spec.placement.gpu_memory_gib
        gpus = stage.spec.placement.num_gpus
        if gpu and gpus >= 1 and need > gpus * gpu.memory_gib:
            yield (
                f"{stage.spec.name} needs about {need:.0f} GiB, more than the memory of "
                f"{gpus:g} {gpu.name}: set engine.gpu_memory_gib = {gpu.memory_gib:g}"
            )


def _notes_on_compiling(stages: Sequence[StageForecast], sources: Sources) -> Iterator[str]:
    """Yield for which stages it pays to compile their model."""
    for stage in stages:
        spec = stage.spec
        work = spec.work
        if work is None or not work.compile_s:
            continue
        measured_s = sources.compile_s(spec)
        even = break_even(spec, sources.machine, stage.rates.seconds, measured_s)
        if even is None:
            continue
        # Every worker compiles the model for itself.
        planned = stage.jobs / max(stage.workers, 1)
        pays = planned >= even.records
        if work.compiled:
            advice = "it pays" if pays else "leave compile out"
        else:
            advice = "set compile = true" if pays else "it would not pay"
        origin = "as measured" if even.measured else "an estimate"
        yield (
            f"{spec.name}: compiling takes a worker about {even.compile_s:.3g} s "
            f"({origin}) and saves about {even.saved_s:.2g} s an image, which pays after "
            f"{even.records:,} images; with {planned:,.0f} planned for each worker, "
            f"{advice}"
        )


def _notes_on_other_work(stages: Sequence[StageForecast]) -> Iterator[str]:
    """Yield which rates were measured beside other programs, or may have been."""
    disturbed = [stage for stage in stages if stage.rates.disturbed]
    if disturbed:
        most = max(stage.rates.other_work or 0.0 for stage in disturbed)
        yield (
            f"Measured while other programs took up to {most:.0%} of the CPUs or of a GPU, "
            f"so that a free machine may be faster: {_names(disturbed)}"
        )
    unknown = _names(stage for stage in stages if stage.rates.other_work is None)
    if unknown:
        yield (
            "Whether other programs ran meanwhile was not recorded when these were "
            f"measured: {unknown}"
        )


def _notes_on_costs(
    stages: Sequence[StageForecast], most: float | None, currency: str
) -> Iterator[str]:
    """Yield which costs are not known, and which exceed a limit; `most` is that of all."""
    costs = {stage: stage.used("money") for stage in stages}
    money = sum(cost.mean for cost in costs.values() if cost)
    if most is not None and money > most:
        yield (
            f"The expected cost of {money:.4g} {currency} exceeds engine.max_cost = "
            f"{most:g}: once that is spent, the remaining requests to paid endpoints fail"
        )
    for stage, cost in costs.items():
        spec = stage.spec
        own = spec.options.get("max_cost")
        if cost is None:
            yield f"{spec.name}: cost unknown, as its prices or its tokens per record are"
        elif own is not None and cost.mean > own:
            yield (
                f"{spec.name}: the expected cost of {cost.mean:.4g} {currency} exceeds its "
                f"max_cost = {own:g}"
            )


# -------------------------------------------------------------------------- the manifest


def keep_forecast(forecast: Forecast | None, root: AnyPath) -> dict[str, Any]:
    """Return the manifest's entries at the start of a command, which may have none.

    Those of the last command that made something stay where there is nothing to make. Of
    other work on the machine, the most that any command found.
    """
    former = read_manifest(root) if is_run(root) else {}
    if forecast is None or not forecast.stages:
        kept = (IMAGES, FORECAST, OUTCOME, OTHER_WORK)
        return {name: former[name] for name in kept if name in former}
    entries: dict[str, Any] = {}
    if IMAGES in former:
        entries[IMAGES] = former[IMAGES]
    entries[FORECAST] = forecast.as_json
    if FORECAST in former and OTHER_WORK not in former:
        # What else ran while the records of the earlier command were made is not known.
        return entries
    earlier = former.get(OTHER_WORK) or {}
    most = {}
    for device, share in other_work().items():
        most[device] = max(share, earlier.get(device, 0.0))
    entries[OTHER_WORK] = most
    return entries


def conclude(root: AnyPath, forecast: Forecast, result: RunResult, board: Board) -> str:
    """Add what the run took to the manifest; return it beside the forecast, in words.

    Without words where rates were not known, and for runs of less than a minute.
    """
    manifest = read_manifest(root)
    line = ""
    manifest[IMAGES] = board.images_per_document
    if result.made and forecast.stages and not result.interrupted:
        line = _compare_times(forecast, result.seconds)
        manifest[OUTCOME] = {"seconds": round(result.seconds, 3), "lines": [line]}
    write_json(root / MANIFEST, manifest)
    return line


def _compare_times(forecast: Forecast, seconds: float) -> str:
    """Say how much longer a run took than was forecast; empty where that tells nothing."""
    mean = forecast.seconds.mean
    if forecast.missing or max(seconds, mean) < _WORTH_COMPARING_S:
        return ""
    share = seconds / mean - 1
    more = "longer" if share > 0 else "shorter"
    planned = _range_text(forecast.seconds, time_text)
    return f"forecast {planned}, took {time_text(seconds)} ({abs(share):.0%} {more})"


# ------------------------------------------------------------------------------ wording


def time_text(seconds: float) -> str:
    """Word a time: `93 s`, `12 min 05 s` or `3 h 20 min`."""
    return in_words(seconds, seconds_below=120)


def _bytes_text(amount: float) -> str:
    return f"{amount / 1e9:.3g} GB" if amount >= 1e9 else f"{amount / 1e6:.3g} MB"


def _count_text(amount: float) -> str:
    """Word a number to three digits: `0.0452`, `311`, `43.1 M`."""
    if amount >= 1e6:
        return f"{amount / 1e6:,.3g} M" if amount < 1e9 else f"{amount / 1e6:,.0f} M"
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def _figure_text(span: FigureRange | None) -> str:
    """Word a rate: `4.51 (2.1-9.3)`."""
    if span is None:
        return "?"
    # Ends are known less well than the mean: to two digits.
    low = _count_text(float(f"{span.low:.2g}"))
    high = _count_text(float(f"{span.high:.2g}"))
    mean = _count_text(span.mean)
    return mean if low == high else f"{mean} ({low}-{high})"


def _range_text(span: FigureRange, text: Callable[[float], str] = _count_text) -> str:
    """Word a total: `2.1 GB (1.3 GB to 4 GB)`, `41 s (35 s to 50 s)`."""
    mean = text(span.mean)
    low = text(span.low)
    high = text(span.high)
    return mean if low == high else f"{mean} ({low} to {high})"


def _bound_text(total: str, is_whole: bool) -> str:
    """Word a total of which something may not be known: `at least 2.1 GB on disk`."""
    return total if is_whole else f"at least {total}"
