"""The forecast of a run: what it will take by stage and in all, with its range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from benchmarks.runs.forecast.machine import Machine
from benchmarks.runs.forecast.rates import FigureRange, StageRates
from benchmarks.runs.forecast.simulation import Simulated, WorkerSpeed, simulate
from benchmarks.runs.forecast.sources import Sources
from benchmarks.runs.forecast.work import StageWork, work_of
from cluster.counts import StageCount
from cluster.plan import Plan
from generators.base import StageSpec

End = Literal["mean", "low", "high"]
_PRICES = ("price_per_million_input", "price_per_million_output", "price_per_image")


@dataclass(frozen=True, kw_only=True)
class StageForecast:
    """What one stage will take."""

    work: StageWork
    rates: StageRates
    workers: int
    """Most workers at a time."""

    @property
    def spec(self) -> StageSpec:
        """The stage."""
        return self.work.spec

    @property
    def jobs(self) -> float:
        """Records it will make."""
        return self.work.jobs

    @property
    def gap(self) -> str:
        """What no source knows about its time; empty where all is known."""
        names = [] if self.rates.seconds else ["seconds per record"]
        names += [] if self.rates.load_s else ["load time"]
        return " and ".join(names)

    def used(self, name: str) -> float | None:
        """How much of `input_tokens`, `output_tokens` or `disk_bytes` it will use."""
        each = getattr(self.rates.usage, name)
        return None if each is None else float(each * self.jobs)

    @property
    def money(self) -> float | None:
        """In the unit of its prices; 0 without an endpoint, None where it is not known."""
        each = cost_per_record(self.spec, self.rates)
        return None if each is None else each * self.jobs


def cost_per_record(spec: StageSpec, rates: StageRates) -> float | None:
    """By the config's prices, else as recorded; None where neither is known."""
    remote = spec.placement.endpoint is not None and spec.placement.server is None
    if not remote:
        return 0.0
    read, written, image = (spec.options.get(name) for name in _PRICES)
    usage = rates.usage
    total, priced = 0.0, False
    for price, amount, unit in (
        (read, usage.input_tokens, 1e6),
        (written, usage.output_tokens, 1e6),
        (image, usage.images, 1.0),
    ):
        if price is not None:
            if amount is None:
                return usage.cost
            total, priced = total + price * amount / unit, True
    return total if priced else usage.cost


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run will take, from the start of Ray to its end."""

    machine: Machine
    stages: Sequence[StageForecast]
    seconds: FigureRange
    """Wall time; a lower bound where `missing` names something."""
    gpu_hours: FigureRange
    """Held by workers, loading and idling included."""
    missing: Sequence[str] = ()
    """What no source knows about its time."""
    notes: Sequence[str] = field(default=())

    @classmethod
    def of(
        cls,
        plan: Plan,
        counts: Sequence[StageCount],
        sources: Sources,
        *,
        max_cost: float | None = None,
    ) -> Forecast:
        """The forecast of running `plan`, whose jobs are `counts`.

        `max_cost` is what all endpoints may cost together.
        """
        work = work_of(plan, counts, sources)
        rates = {w.spec.digest: sources.rates(w.spec, w.jobs) for w in work}
        runs = {end: _simulated(work, rates, sources.machine, end) for end in get_args(End)}
        stages = [
            StageForecast(
                work=w,
                rates=rates[w.spec.digest],
                workers=runs["mean"].workers[w.spec.digest],
            )
            for w in work
        ]
        overhead = sources.overhead_s
        missing = [*gaps(stages), *([] if overhead else ["start of Ray"])]
        seconds = _span({end: run.seconds for end, run in runs.items()})
        held = _span({end: run.gpu_seconds / 3600 for end, run in runs.items()})
        return cls(
            machine=sources.machine,
            stages=stages,
            seconds=seconds + (overhead or FigureRange.exact(0.0))
            if work
            else FigureRange.exact(0.0),
            gpu_hours=held,
            missing=missing if work else (),
            notes=[*_notes(stages, sources, max_cost), *_unplaced(runs["mean"], sources)],
        )

    @property
    def complete(self) -> bool:
        """Whether all of its time is known; otherwise it is a lower bound."""
        return not self.missing

    @property
    def on_gpus(self) -> bool:
        """Whether some stage takes a GPU."""
        return any(stage.spec.placement.num_gpus for stage in self.stages)

    @property
    def hours(self) -> FigureRange:
        """What a budget counts: GPU-hours where a stage takes a GPU, else hours."""
        return self.gpu_hours if self.on_gpus else self.seconds * (1 / 3600)

    def total(self, name: str) -> tuple[float, bool]:
        """The sum of `input_tokens`, `output_tokens`, `disk_bytes` or `money`.

        Over all stages, and whether all of them are known.
        """
        values = [s.money if name == "money" else s.used(name) for s in self.stages]
        known = [value for value in values if value is not None]
        if name == "money":
            return sum(known), len(known) == len(values)
        told = [stage.rates.usage_origin != "unknown" for stage in self.stages]
        return sum(known), all(told)

    def as_json(self) -> dict[str, Any]:
        """As the manifest keeps it."""
        names = ("input_tokens", "output_tokens", "disk_bytes", "money")
        return {
            "machine": str(self.machine),
            "seconds": asdict(self.seconds),
            "gpu_hours": asdict(self.gpu_hours),
            "lower_bound": not self.complete,
            "missing": list(self.missing),
            **{name: round(self.total(name)[0], 6) for name in names},
            "stages": {stage.spec.folder: _as_json(stage) for stage in self.stages},
        }


def gaps(stages: Iterable[StageForecast]) -> list[str]:
    """What no source knows about the time of stages, in words."""
    names: dict[str, list[str]] = {}
    for stage in stages:
        hint = stage.rates.elsewhere
        where = f" ({hint}, not on such hardware)" if hint else ""
        names.setdefault(stage.gap, []).append(f"{stage.spec.name}{where}")
    return [f"{gap} of {', '.join(known)}" for gap, known in names.items() if gap]


def _as_json(stage: StageForecast) -> dict[str, Any]:
    rates = stage.rates
    return {
        "jobs": round(stage.jobs, 2),
        "at_most": stage.work.bound,
        "seconds_per_record": rates.seconds and asdict(rates.seconds),
        "load_seconds": rates.load_s and asdict(rates.load_s),
        "workers": stage.workers,
        "origin": rates.origin.value,
        "detail": rates.detail,
    }


def _simulated(
    work: Sequence[StageWork],
    rates: Mapping[str, StageRates],
    machine: Machine,
    end: End,
) -> Simulated:
    speeds = {digest: _speed(r, end) for digest, r in rates.items()}
    return simulate(work, speeds, machine.resources)


def _speed(rates: StageRates, end: End) -> WorkerSpeed:
    nothing = FigureRange.exact(0.0)
    loads = rates.load_s or nothing
    return WorkerSpeed(
        (rates.seconds or nothing).at(end),
        loads.at(end),
        (rates.takeover_s or loads).at(end),
    )


def _span(values: Mapping[End, float]) -> FigureRange:
    # Another order of stages may make a slower rate finish earlier, by a little.
    low, high = min(values.values()), max(values.values())
    return FigureRange(values["mean"], low, high)


def _notes(
    stages: Sequence[StageForecast], sources: Sources, max_cost: float | None
) -> list[str]:
    names = [stage.spec.name for stage in stages if stage.work.bound]
    notes = []
    if names:
        notes.append(
            f"no run tells how many records follow for {', '.join(names)}: their most "
            "are counted"
        )
    if once := [s.spec.name for s in stages if s.rates.load_s and not s.rates.load_s.wide]:
        notes.append(
            f"one load of {', '.join(once)} was measured, so the range leaves out how "
            "loads differ"
        )
    if sources.address is not None and not sources.machine.described:
        notes.append(
            f"the cluster at {sources.address} was not asked for its size: this is for "
            f"{sources.machine}; describe it with --on, such as --on 2x8xH100"
        )
    return notes + _ceilings(stages, max_cost)


def _ceilings(stages: Sequence[StageForecast], most: float | None) -> list[str]:
    notes = []
    money = sum(stage.money or 0.0 for stage in stages)
    if most is not None and money > most:
        notes.append(
            f"costs of {money:.4g} are more than engine.max_cost {most:g}: once it is "
            "reached, what still waits for a paid stage fails"
        )
    for stage in stages:
        own = stage.spec.options.get("max_cost")
        if own is not None and (stage.money or 0.0) > own:
            notes.append(
                f"{stage.spec.name}: costs of {stage.money:.4g} are more than its "
                f"max_cost {own:g}"
            )
        if stage.money is None:
            notes.append(f"{stage.spec.name}: prices or its tokens per record are unknown")
    return notes


def _unplaced(run: Simulated, sources: Sources) -> list[str]:
    return [
        f"{name} fits on no node of {sources.machine}, and is not counted"
        for name in run.unplaced
    ]
