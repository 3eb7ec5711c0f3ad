"""Times one stage on one workload, at several batch sizes and as upstream runs it.

All ways are timed in turn, round by round, so that other load on the machine affects all
of them alike.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.speed.device import peak_memory, synchronise, weight_traffic
from cluster.local import load_stage
from generators.base import Outcome, Result, StageSpec, add_usage, imported
from generators.errors import UsageError

Compute = Callable[[Sequence[Any]], list[Outcome[Any]]]
"""One way of computing the whole workload."""


@dataclass(frozen=True)
class Speed:
    """One way of computing the workload."""

    way: str
    seconds: Sequence[float]
    """For the whole workload, of every round."""
    records: int
    """Results in the workload; failures are not counted."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """Tokens, images, steps, ... of the whole workload, as the stage counts them."""
    peak_memory_gib: float = 0.0
    weight_bytes: int = 0
    """Bytes of weights read in one round."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Outcomes that are not results, by reason."""
    answers: Sequence[Any] = field(default=(), repr=False)

    @property
    def median_s(self) -> float:
        """Of the rounds."""
        return median(self.seconds)

    @property
    def batch_size(self) -> int | None:
        """Inputs of one call; None where the original program's loop answers one by one."""
        kind, _, size = self.way.partition(" ")
        return int(size) if kind == "batch" else None

    @property
    def seconds_per_input(self) -> float | None:
        """Median seconds of a round over its inputs; None where there were none."""
        return self.median_s / len(self.answers) if self.answers else None

    def per_s(self, amount: float) -> float:
        """An amount of the whole workload by the second."""
        return amount / self.median_s


def measure(ways: Mapping[str, Compute], inputs: Sequence[Any], rounds: int) -> list[Speed]:
    """Speeds of all ways; a first round warms up and is not counted.

    A way that does not fit into the device's memory is left out, with a message on stderr.
    """
    fitting = {w: compute for w, compute in ways.items() if _fits(w, compute, inputs)}
    seconds: dict[str, list[float]] = {way: [] for way in fitting}
    peaks = dict.fromkeys(fitting, 0.0)
    outcomes: dict[str, list[Outcome[Any]]] = {}
    for way, compute in rounds * list(fitting.items()):
        with peak_memory() as peak:
            began = time.perf_counter()
            outcomes[way] = compute(inputs)
            synchronise()
            seconds[way].append(time.perf_counter() - began)
        peaks[way] = max(peaks[way], peak.gib)
    return [
        _speed(way, seconds[way], outcomes[way], peaks[way], _read(compute, inputs))
        for way, compute in fitting.items()
    ]


def _fits(way: str, compute: Compute, inputs: Sequence[Any]) -> bool:
    try:
        compute(inputs)
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
        print(f"{way} does not fit: {str(error).splitlines()[0]}", file=sys.stderr)
        return False
    return True


def _read(compute: Compute, inputs: Sequence[Any]) -> int:
    with weight_traffic() as traffic:
        compute(inputs)
    return traffic.bytes


def _speed(
    way: str,
    seconds: Sequence[float],
    outcomes: Sequence[Outcome[Any]],
    peak: float,
    weight_bytes: int,
) -> Speed:
    usage: dict[str, float] = {}
    for outcome in outcomes:
        add_usage(usage, getattr(outcome, "usage", {}))
    failed = [o for o in outcomes if not isinstance(o, Result)]
    return Speed(
        way=way,
        seconds=seconds,
        records=len(outcomes) - len(failed),
        usage=dict(sorted(usage.items())),
        peak_memory_gib=peak,
        weight_bytes=weight_bytes,
        failures=dict(Counter(getattr(o, "reason", "") for o in failed).most_common(3)),
        answers=[o.value if isinstance(o, Result) else None for o in outcomes],
    )


def ways_of(
    spec: StageSpec, stage: Any, sizes: Sequence[int], upstream: bool
) -> dict[str, Compute]:
    """The stage at every batch size, and its upstream loop where one is written."""
    loop = upstream_loop(spec, stage) if upstream else None
    return ({} if loop is None else {"upstream": loop}) | in_batches(stage, sizes)


def in_batches(compute: Compute, sizes: Sequence[int]) -> dict[str, Compute]:
    """`compute` called with each number of inputs at a time."""
    return {f"batch {size}": _in_batches(compute, size) for size in sizes}


def _in_batches(stage: Compute, size: int) -> Compute:
    def compute(inputs: Sequence[Any]) -> list[Outcome[Any]]:
        batches = [inputs[i : i + size] for i in range(0, len(inputs), size)]
        return [outcome for batch in batches for outcome in stage(batch)]

    return compute


UPSTREAM: Mapping[str, str] = {
    "generators.anole.draft:AnoleDraft": "benchmarks.speed.upstream:AnoleLoop",
    "generators.emu2.condition:Emu2Condition": "benchmarks.speed.upstream:Emu2Loop",
    "generators.gill.draft:GillDraft": "benchmarks.speed.upstream:GillLoop",
    "generators.minigpt5.draft:MiniGPT5Draft": "benchmarks.speed.upstream:MiniGPT5Loop",
    "scorers.internvl.stage:MmieScore": "benchmarks.speed.upstream:MmieScoreLoop",
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
