"""Times one stage on one workload, at several batch sizes and as upstream runs it.

All ways are timed in turn, round by round, so that other load on the machine affects all
of them alike. A first round of each way warms up and is not counted; a last one counts
weights and operations and is not timed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.speed.instruments.clock import Clock
from benchmarks.speed.instruments.device import peak_memory, synchronise, weight_traffic
from benchmarks.speed.instruments.flops import Flops, counted
from benchmarks.speed.instruments.observations import Observations
from benchmarks.speed.instruments.speeds import Speed
from cluster.energy import EnergyMeter
from cluster.local import load_stage
from generators.base import Outcome, StageSpec, imported
from generators.errors import UsageError

Compute = Callable[[Sequence[Any]], list[Outcome[Any]]]
"""One way of computing the whole workload."""


def measure(
    ways: Mapping[str, Compute],
    inputs: Sequence[Any],
    rounds: int,
    clock: Clock | None = None,
    uncounted: str | None = None,
) -> list[Speed]:
    """Speeds of all ways; a first round warms up and is not counted.

    Operations are counted unless `uncounted` says why they cannot be. A way that does not
    fit into the device's memory is left out, with a message on stderr.
    """
    clock, meter = clock or Clock(), EnergyMeter()
    seen = {way: Observations(clock, meter) for way in ways}
    fitting = {w: c for w, c in ways.items() if _fits(w, c, inputs, seen[w])}
    for way, compute in rounds * list(fitting.items()):
        _round(compute, inputs, seen[way])
    for way, compute in fitting.items():
        _count(compute, inputs, seen[way], uncounted)
    return [seen[way].speed(way) for way in fitting]


def _fits(way: str, compute: Compute, inputs: Sequence[Any], seen: Observations) -> bool:
    """Warm up; False where the device's memory is too small."""
    try:
        for batch in _batches(compute, inputs):
            began = seen.clock.now()
            compute(batch)
            synchronise()
            seen.warm_up.append(seen.clock.now() - began)
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
        print(f"{way} does not fit: {str(error).splitlines()[0]}", file=sys.stderr)
        return False
    return True


def _round(compute: Compute, inputs: Sequence[Any], seen: Observations) -> None:
    with peak_memory() as peak, seen.timed_round():
        for batch in _batches(compute, inputs):
            with seen.timed_call(batch) as outcomes:
                outcomes += compute(batch)
    seen.peak_gib = max(seen.peak_gib, peak.gib)


def _count(
    compute: Compute, inputs: Sequence[Any], seen: Observations, uncounted: str | None
) -> None:
    """Compute once more, to count weights and, on the first batch, operations."""
    first, *others = _batches(compute, inputs)
    with weight_traffic() as traffic:
        if uncounted is None:
            _, seen.flops = counted(lambda: compute(first))
        else:
            compute(first)
            seen.flops = Flops(reason=uncounted)
        for batch in others:
            compute(batch)
    seen.traffic = traffic


def _batches(compute: Compute, inputs: Sequence[Any]) -> list[Sequence[Any]]:
    """What a way is called with, one after another."""
    size = compute.size if isinstance(compute, InBatches) else len(inputs)
    return [inputs[i : i + size] for i in range(0, len(inputs), size)] or [inputs]


class InBatches:
    """A stage that is called with a number of inputs at a time."""

    def __init__(self, stage: Compute, size: int) -> None:
        self.size = size
        self._stage = stage

    def __call__(self, inputs: Sequence[Any]) -> list[Outcome[Any]]:
        """The outcomes of all inputs, in order."""
        batches = _batches(self, inputs)
        return [outcome for batch in batches for outcome in self._stage(batch)]


def ways_of(
    spec: StageSpec, stage: Any, sizes: Sequence[int], upstream: bool
) -> dict[str, Compute]:
    """The stage at every batch size, and its upstream loop where one is written."""
    loop = upstream_loop(spec, stage) if upstream else None
    first: dict[str, Compute] = {} if loop is None else {"upstream": InBatches(loop, 1)}
    return first | in_batches(stage, sizes)


def in_batches(compute: Compute, sizes: Sequence[int]) -> dict[str, Compute]:
    """`compute` called with each number of inputs at a time."""
    return {f"batch {size}": InBatches(compute, size) for size in sizes}


UPSTREAM: Mapping[str, str] = {
    "generators.anole.draft:AnoleDraft": "benchmarks.speed.stage.upstream:AnoleLoop",
    "generators.emu2.condition:Emu2Condition": "benchmarks.speed.stage.upstream:Emu2Loop",
    "generators.gill.draft:GillDraft": "benchmarks.speed.stage.upstream:GillLoop",
    "generators.minigpt5.draft:MiniGPT5Draft": (
        "benchmarks.speed.stage.upstream:MiniGPT5Loop"
    ),
    "scorers.internvl.stage:MmieScore": "benchmarks.speed.stage.upstream:MmieScoreLoop",
}
"""Target of a stage -> `module:Class` that runs its weights as upstream's loop does.

The class takes the loaded stage; its `__call__` has the contract of a stage.
"""


def upstream_loop(spec: StageSpec, stage: Any) -> Any | None:
    """The upstream loop around a loaded stage; None where none is written."""
    return imported(UPSTREAM[spec.target])(stage) if spec.target in UPSTREAM else None


def loaded_stage(spec: StageSpec, sizes: Sequence[int]) -> Any:
    """The stage of a spec; UsageError for a compiled one at several batch sizes."""
    if spec.settings.get("compile") and len(sizes) > 1:
        raise UsageError("a compiled stage has one batch size; give one with --batches")
    options = {"batch_size": max(sizes)} if "batch_size" in spec.options else {}
    return load_stage(spec, **options)


def timed_load(spec: StageSpec, sizes: Sequence[int]) -> tuple[Any, float]:
    """The loaded stage, and the seconds it took."""
    began = time.perf_counter()
    stage = loaded_stage(spec, sizes)
    synchronise()
    return stage, time.perf_counter() - began
