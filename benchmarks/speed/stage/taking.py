"""Takes one measurement: loads the stage, times all ways, and says how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.speed.instruments.clock import Clock
from benchmarks.speed.instruments.device import (
    copy_bandwidth,
    device_name,
    matrix_rate,
    memory_kind,
)
from benchmarks.speed.instruments.speeds import Scenario, Speed
from benchmarks.speed.reporting.figures import Surroundings
from benchmarks.speed.reporting.formats import Measurement
from benchmarks.speed.reporting.output import Report
from benchmarks.speed.stage import loadgen
from benchmarks.speed.stage.measure import Compute, in_batches, measure, timed_load, ways_of
from benchmarks.speed.stage.workload import Workload, of_scorer, of_system, whole
from cluster.manifest import environment
from generators.base import StageSpec, WeightsName
from pipelines.systems import Models

WHOLE = "all"
"""The part that is every part."""


@dataclass(frozen=True, kw_only=True)
class StageMeasurement:
    """What to measure, as the options name it."""

    system: str | None
    scorer: str | None
    part: str
    """`draft`, `condition`, `render` or `all`."""
    weights: WeightsName
    batches: tuple[int, ...]
    queries: int
    answers: int
    rounds: int
    upstream: bool
    settings: dict[str, Any]
    price_per_hour: float | None = None
    scenarios: tuple[Scenario, ...] = ()
    min_duration_s: float = 10.0

    @property
    def models(self) -> Models:
        """The settings are those of the system's model."""
        overrides = {} if self.system is None else {self.system: self.settings}
        return Models(weights=self.weights, overrides=overrides)


@dataclass(frozen=True)
class _Subject:
    """What is measured, loaded."""

    name: str
    title: str
    settings: Mapping[str, Any]
    ways: Mapping[str, Compute]
    inputs: Sequence[Any]
    compute: Any
    """The stage or the whole system: a call answers a list of inputs."""
    spec: StageSpec | None = None
    load_s: float | None = None


def taken(request: StageMeasurement, command: Sequence[str]) -> Measurement:
    """The measurement that `request` describes; `command` is quoted in it."""
    if request.scenarios:
        loadgen.require()
    subject = _loaded(request)
    clock = Clock()
    uncounted = _uncounted(subject.spec)
    speeds = measure(subject.ways, subject.inputs, request.rounds, clock, uncounted)
    bandwidth, rates = copy_bandwidth(), _matrix_rates(speeds)
    around = _surroundings(request, subject, bandwidth, rates)
    report = Report(speeds, bandwidth, around)
    about = environment() | {
        "device": device_name(),
        "measured": subject.title,
        "weights": None if around.server else request.weights,
        "settings": subject.settings,
        "inputs": len(subject.inputs),
        "rounds": request.rounds,
        "warm_up_rounds": 1,
        "timer": clock.name,
        "bandwidth": bandwidth,
        "matrix_rates": rates,
        "command": list(command),
    }
    about |= {} if subject.spec is None else {"spec": _named(subject.spec)}
    measurement = Measurement(subject.name, subject.title, report, about)
    runs = [_loadgen_run(s, request, subject, report) for s in request.scenarios]
    return replace(measurement, loadgen=runs)


def _loaded(request: StageMeasurement) -> _Subject:
    sizes = list(request.batches)
    if request.part == WHOLE and request.system is not None:
        system, samples = whole(request.system, request.models, request.queries)
        title = f"{request.system}, whole documents ({request.weights})"
        ways, name = in_batches(system, sizes), f"{request.system}-{request.weights}"
        return _Subject(name, title, request.settings, ways, samples, system)
    workload = _workload(request)
    spec = workload.spec
    stage, load_s = timed_load(spec, sizes)
    ways = ways_of(spec, stage, sizes, request.upstream)
    title = f"{spec.name} ({spec.identity}, {spec.weights or 'server'})"
    name, settings = f"{spec.name}-{spec.weights or 'server'}", dict(spec.settings)
    return _Subject(name, title, settings, ways, workload.inputs, stage, spec, load_s)


def _workload(request: StageMeasurement) -> Workload:
    if request.scorer is not None:
        wanted = (request.queries, request.answers)
        return of_scorer(request.scorer, request.weights, request.settings, *wanted)
    return of_system(request.system or "", request.part, request.models, request.queries)


def _named(spec: StageSpec) -> dict[str, Any]:
    """What the measured stage is, for programs that look its speed up."""
    names = ("name", "kind", "identity", "weights")
    return {n: getattr(spec, n) for n in names} | {"settings": dict(spec.settings)}


def _uncounted(spec: StageSpec | None) -> str | None:
    """Why operations of the stage cannot be counted; None where they can."""
    if spec is not None and spec.settings.get("compile"):
        return "torch's FLOP counter does not see into compiled code"
    if spec is not None and spec.settings.get("attention") == "xformers":
        return "torch's FLOP counter does not know the kernels of xformers"
    return None


def _matrix_rates(speeds: Sequence[Speed]) -> dict[str, float]:
    """The device's rate for each type of weights that was read."""
    rates = {}
    for name in sorted({speed.dtype for speed in speeds if speed.dtype}):
        try:
            rates[name] = matrix_rate(getattr(torch, name))
        except RuntimeError:
            # Figures.absent says that the product of this type could not be timed.
            continue
    return rates


def _surroundings(
    request: StageMeasurement,
    subject: _Subject,
    bandwidth: float,
    rates: Mapping[str, float],
) -> Surroundings:
    spec = subject.spec
    server = spec is not None and spec.weights is None
    return Surroundings(
        kind=None if spec is None else spec.kind,
        bandwidth=bandwidth,
        matrix_rates=rates,
        memory_kind=memory_kind(),
        load_s=subject.load_s,
        server=server,
        compiled=bool(spec is not None and spec.settings.get("compile")),
        price_per_hour=request.price_per_hour,
    )


def _loadgen_run(
    scenario: Scenario, request: StageMeasurement, subject: _Subject, report: Report
) -> dict[str, Any]:
    """One scenario: Offline at the largest batch size, SingleStream one by one."""
    size = max(request.batches) if scenario is Scenario.OFFLINE else 1
    same = next((s for s in report.speeds if s.batch_size == size), None)
    nearest = same or report.speeds[-1]
    made = loadgen.run(
        scenario,
        subject.compute,
        subject.inputs,
        size,
        min_duration_s=request.min_duration_s,
        expected_per_s=nearest.per_s(len(subject.inputs)),
    )
    own = {} if same is None else loadgen.beside(report.figures(same), scenario)
    return made.data(own)
