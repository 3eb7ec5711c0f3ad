"""Times one stage on one workload, at several batch sizes and as upstream runs it.

All variants are timed in turn, round by round, so that other load on the machine affects
all of them alike. A first round of each variant warms up and is not counted; weights and
operations are counted in a last call, which is not timed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from plait.benchmarks.speed.device import (
    count_operations,
    peak_memory,
    synchronise,
    weight_traffic,
)
from plait.benchmarks.speed.figures import Speed, images_of
from plait.benchmarks.speed.watches import Clock, ExchangeTimes, StepTimes, TokenTimes
from plait.cluster.energy import EnergyMeter
from plait.cluster.loading import load_stage
from plait.generators.base import Outcome, StageSpec, import_target
from plait.generators.cuda_graphs import eagerly
from plait.generators.errors import UsageError

Compute = Callable[[Sequence[Any]], list[Outcome[Any]]]
"""A stage: gives an outcome for every input."""
_LOOPS = "plait.benchmarks.speed.upstream"
UPSTREAM: Mapping[str, str] = {
    "plait.generators.anole.draft:AnoleDraft": f"{_LOOPS}:AnoleLoop",
    "plait.generators.emu2.condition:Emu2Condition": f"{_LOOPS}:Emu2Loop",
    "plait.generators.gill.draft:GillDraft": f"{_LOOPS}:GillLoop",
    "plait.generators.janus.condition:JanusCondition": f"{_LOOPS}:JanusLoop",
    "plait.generators.minigpt5.draft:MiniGPT5Draft": f"{_LOOPS}:MiniGPT5Loop",
    "plait.pipelines.text_to_image:TextToImage": f"{_LOOPS}:PipelineLoop",
    "plait.pipelines.vlm.stage:VisionLanguageModel": f"{_LOOPS}:GenerateLoop",
    "plait.scorers.internvl.stage:MmieScore": f"{_LOOPS}:MmieScoreLoop",
}
"""Target of a stage -> `module:Class` that runs its weights as upstream's loop does.

The class takes the loaded stage; its `__call__` has the contract of a stage. With
`batched = True` it is given the largest batch, with `at_every_size = True` each batch
that the stage is given, otherwise one input at a time.
"""


@dataclass(frozen=True)
class Variant:
    """One way of computing the workload: `size` inputs at a time."""

    name: str
    compute: Compute
    size: int

    def batches(self, inputs: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the inputs of each call."""
        starts = range(0, len(inputs), self.size)
        return [inputs[start : start + self.size] for start in starts]


def variants_of(
    compute: Compute,
    sizes: Sequence[int],
    loop: Compute | None = None,
    *,
    eager: bool = False,
) -> list[Variant]:
    """Return upstream's loop, where there is one, and `compute` at every batch size.

    With `eager`, each size without CUDA graphs too.
    """

    def without_graphs(inputs: Sequence[Any]) -> list[Outcome[Any]]:
        with eagerly():
            return compute(inputs)

    made: list[Variant] = []
    each = getattr(loop, "at_every_size", False)
    if loop is not None and not each:
        size = max(sizes) if getattr(loop, "batched", False) else 1
        made.append(Variant("upstream", loop, size))
    for size in sizes:
        if loop is not None and each:
            made.append(Variant(f"upstream batch {size}", loop, size))
        if eager:
            made.append(Variant(f"batch {size} eager", without_graphs, size))
        made.append(Variant(f"batch {size}", compute, size))
    return made


def upstream_loop(spec: StageSpec, stage: Any) -> Any | None:
    """Return the upstream loop around a loaded stage; None where none is written."""
    return import_target(UPSTREAM[spec.target])(stage) if spec.target in UPSTREAM else None


def load_timed(spec: StageSpec, sizes: Sequence[int]) -> tuple[Any, float]:
    """Load a stage; return it and the seconds it took.

    Raises:
        UsageError: For a compiled stage at several batch sizes.
    """
    if spec.settings.get("compile") and len(sizes) > 1:
        raise UsageError("a compiled stage has one batch size; give one with --batches")
    options = {"batch_size": max(sizes)} if "batch_size" in spec.options else {}
    began = time.perf_counter()
    stage = load_stage(spec, **options)
    synchronise()
    return stage, time.perf_counter() - began


def forget_earlier(stage: Any) -> None:
    """Let a stage forget what it remembers of inputs: rounds have the same ones."""
    getattr(stage, "forget", lambda: None)()


def measure(
    variants: Sequence[Variant],
    inputs: Sequence[Any],
    rounds: int,
    clock: Clock | None = None,
    uncounted: str | None = None,
    stage: Any = None,
) -> list[Speed]:
    """Measure the speeds of all variants, which may be of one `stage` that remembers.

    Operations are counted unless `uncounted` says why they cannot be. A variant that does
    not fit into the device's memory is left out, with a message on stderr.
    """
    clock = clock or Clock()
    meter = EnergyMeter()
    fitting: list[tuple[Variant, Speed]] = []
    for variant in variants:
        speed = Speed(variant.name)
        if _fits(variant, inputs, speed, clock):
            fitting.append((variant, speed))
    for variant, speed in rounds * fitting:
        forget_earlier(stage)
        with peak_memory() as peak:
            _round(variant, inputs, speed, clock, meter)
        speed.peak_memory_gib = max(speed.peak_memory_gib, peak.gib)
        speed.energy_reason = meter.reason
    for variant, speed in fitting:
        forget_earlier(stage)
        _count(variant, inputs, speed, uncounted)
    return [speed for _, speed in fitting]


def _fits(variant: Variant, inputs: Sequence[Any], speed: Speed, clock: Clock) -> bool:
    """Warm up; False where the device's memory is too small."""
    try:
        for batch in variant.batches(inputs):
            began = clock.now()
            variant.compute(batch)
            synchronise()
            speed.warm_up.append(clock.now() - began)
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
        reason = str(error).splitlines()[0]
        print(f"{variant.name} does not fit: {reason}", file=sys.stderr)
        return False
    return True


def _round(
    variant: Variant, inputs: Sequence[Any], speed: Speed, clock: Clock, meter: EnergyMeter
) -> None:
    """Time one round, its calls, and the tokens, steps and requests inside of them."""
    tokens = TokenTimes(speed, clock.now)
    steps = StepTimes(speed, clock)
    exchanges = ExchangeTimes(clock.now)
    outcomes: list[Outcome[Any]] = []
    with ExitStack() as stack:
        for watch in (tokens, steps, exchanges):
            stack.enter_context(watch.watching())
        # What an earlier call has left to the GPU belongs neither to time nor to energy.
        synchronise()
        before = meter.joules()
        began = clock.now()
        for batch in variant.batches(inputs):
            tokens.begin()
            mark = clock.mark()
            made = variant.compute(batch)
            seconds = clock.seconds(mark, clock.mark())
            tokens.end()
            steps.end()
            _note_call(speed, exchanges.take() or [seconds] * len(batch), made)
            if not outcomes:
                speed.first_batch.append(seconds)
            outcomes += made
        synchronise()
        speed.seconds.append(clock.now() - began)
        after = meter.joules()
    if before is not None and after is not None:
        speed.joules.append(after - before)
    speed.outcomes = outcomes


def _note_call(
    speed: Speed, requests: Sequence[float], outcomes: Sequence[Outcome[Any]]
) -> None:
    """Note the seconds of requests; per image too, where each request has an outcome."""
    speed.requests += requests
    if len(requests) == len(outcomes):
        for seconds, outcome in zip(requests, outcomes, strict=True):
            if count := len(images_of(getattr(outcome, "value", None))):
                speed.per_image.append(seconds / count)


def _count(
    variant: Variant, inputs: Sequence[Any], speed: Speed, uncounted: str | None
) -> None:
    """Compute the first batch once more, to count weights and operations."""
    first = variant.batches(inputs)[0]
    # A CUDA graph is replayed without calling a module or an operator: nothing would count.
    with eagerly(), weight_traffic() as traffic:
        if uncounted is None:
            _, speed.flops, speed.flops_reason = count_operations(
                lambda: variant.compute(first)
            )
        else:
            speed.flops_reason = uncounted
            variant.compute(first)
    speed.weight_bytes = traffic.bytes
    speed.parameters = traffic.parameters
    speed.dtype = traffic.dtype
