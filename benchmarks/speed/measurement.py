"""Takes one measurement: loads the stage, times all variants, and says how."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from plait.benchmarks.speed import loadgen
from plait.benchmarks.speed.device import (
    copy_bandwidth,
    device_name,
    matrix_rate,
    memory_kind,
)
from plait.benchmarks.speed.figures import Speed, Surroundings
from plait.benchmarks.speed.profiling import profile_call
from plait.benchmarks.speed.report import Measurement
from plait.benchmarks.speed.rounds import (
    Compute,
    Variant,
    load_timed,
    measure,
    upstream_loop,
    variants_of,
)
from plait.benchmarks.speed.watches import Clock
from plait.benchmarks.speed.workload import Workload, of_scorer, of_system
from plait.cluster.manifest import environment
from plait.generators.base import StageSpec, WeightsName
from plait.generators.errors import UsageError
from plait.pipelines.systems import Models


@dataclass(frozen=True, kw_only=True)
class StageRequest:
    """The measurement that the options ask for."""

    system: str | None
    scorer: str | None
    part: str
    """`draft`, `condition` or `render`."""
    weights: WeightsName
    batches: tuple[int, ...]
    queries: int
    answers: int
    rounds: int
    upstream: bool
    eager: bool
    settings: dict[str, Any]
    price_per_hour: float | None = None
    scenarios: tuple[loadgen.Scenario, ...] = ()
    min_duration_s: float = 10.0
    profile: Path | None = None
    """Where the trace of a profiled call is written."""


def take_measurement(request: StageRequest, command: Sequence[str]) -> Measurement:
    """Take the measurement that `request` describes; `command` is quoted in it.

    Raises:
        UsageError: Where no batch size fits into the device's memory.
    """
    if request.scenarios:
        loadgen.require()
    spec, inputs = _workload(request)
    stage, load_s = load_timed(spec, request.batches)
    loop = upstream_loop(spec, stage) if request.upstream else None
    variants = variants_of(stage, request.batches, loop, eager=request.eager)
    clock = Clock()
    uncounted = _why_uncounted(spec)
    speeds = measure(variants, inputs, request.rounds, clock, uncounted, stage)
    if not speeds:
        raise UsageError("no batch size fits into memory; give smaller ones with --batches")
    around = Surroundings(
        kind=spec.kind,
        bandwidth=copy_bandwidth(),
        matrix_rates=_matrix_rates(speeds),
        memory_kind=memory_kind(),
        load_s=load_s,
        server=spec.weights is None,
        compiled=bool(spec.settings.get("compile")),
        price_per_hour=request.price_per_hour,
    )
    title = f"{spec.name} ({spec.identity}, {spec.weights or 'server'})"
    about = environment() | {
        "device": device_name(),
        "measured": title,
        "weights": spec.weights,
        "settings": dict(spec.settings),
        "inputs": len(inputs),
        "rounds": request.rounds,
        "warm_up_rounds": 1,
        "timer": clock.name,
        "bandwidth": around.bandwidth,
        "matrix_rates": around.matrix_rates,
        "command": list(command),
        "spec": _describe(spec),
    }
    profile = None
    if request.profile is not None:
        profile = profile_call(
            stage, inputs[: max(request.batches)], title, request.profile
        )
    per_s = speeds[-1].per_s(len(inputs))
    runs = [_loadgen_run(s, request, stage, inputs, per_s) for s in request.scenarios]
    name = f"{spec.name}-{spec.weights or 'server'}"
    return Measurement(name, title, speeds, around, about, runs, profile)


def _workload(request: StageRequest) -> Workload:
    if request.scorer is not None:
        wanted = (request.queries, request.answers)
        return of_scorer(request.scorer, request.weights, request.settings, *wanted)
    system = request.system or ""
    models = Models(weights=request.weights, overrides={system: request.settings})
    return of_system(system, request.part, models, request.queries)


def _why_uncounted(spec: StageSpec) -> str | None:
    """Say why operations cannot be counted; None where they can."""
    if spec.settings.get("compile"):
        return "torch's FLOP counter does not see into compiled code"
    if spec.settings.get("attention") == "xformers":
        return "torch's FLOP counter does not know the kernels of xformers"
    return None


def _describe(spec: StageSpec) -> dict[str, Any]:
    """Describe the measured stage for programs that look its speed up."""
    names = ("name", "kind", "identity", "weights")
    return {n: getattr(spec, n) for n in names} | {"settings": dict(spec.settings)}


def _matrix_rates(speeds: Sequence[Speed]) -> dict[str, float]:
    """Measure the device's rate for each type of weights that was read."""
    rates = {}
    for name in sorted({speed.dtype for speed in speeds if speed.dtype}):
        # `Figures.absent` says that the product of a type could not be timed.
        with contextlib.suppress(RuntimeError):
            rates[name] = matrix_rate(getattr(torch, name))
    return rates


def _loadgen_run(
    scenario: loadgen.Scenario,
    request: StageRequest,
    stage: Compute,
    inputs: Sequence[Any],
    per_s: float,
) -> dict[str, Any]:
    """Run one scenario: Offline at the largest batch size, SingleStream one by one."""
    size = max(request.batches) if scenario is loadgen.Scenario.OFFLINE else 1
    variant = Variant(scenario, stage, size)
    least_s = request.min_duration_s
    return loadgen.run(
        scenario, variant, inputs, min_duration_s=least_s, expected_per_s=per_s
    )
