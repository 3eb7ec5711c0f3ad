"""How fast one stage is at several batch sizes, without Ray and without a store.

    plait bench stage --system sdxl-turbo --weights dummy --batches 1,2,4,8
    python -m benchmarks.stage --system anole --part draft --weights tiny

The stage class is loaded in this process and called on queries of the bundled sample
set: one call to warm up, then `--calls` timed ones per batch size. `dummy` weights have
the full size and need no download. Runs wherever torch and the stage's library are.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.tasks import load
from cluster.manifest import environment
from generators.base import Job, Outcome, Result, StageInput, StageSpec
from generators.document import Blob, Sample, with_blobs
from generators.names import UsageError, unknown
from generators.system import Asking, System, answer
from pipelines.systems import (
    Models,
    artist_spec,
    is_artist,
    is_writer,
    resolve,
    writer_spec,
)

PARTS = ("draft", "condition", "render")


@dataclass(frozen=True)
class Speed:
    """One stage at one batch size."""

    batch_size: int
    seconds_per_call: float
    """Median over the timed calls."""
    records_per_s: float
    usage_per_s: Mapping[str, float] = field(default_factory=dict)
    """Tokens, images, steps, ... per second, as the stage counts them."""
    peak_memory_gib: float = 0.0
    """Allocated on the device; on a CPU the largest resident size so far."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Outcomes that were no results, by reason."""


def measure(
    spec: StageSpec, inputs: Sequence[StageInput], sizes: Sequence[int], calls: int
) -> Iterator[Speed]:
    """Speeds at every batch size; a size that does not fit on the device ends the row."""
    for size in sizes:
        stage = _loaded(spec, size)
        cycle = itertools.cycle(inputs)
        batches = [[next(cycle) for _ in range(size)] for _ in range(calls + 1)]
        try:
            with _peak_memory() as peak:
                timed = [_timed(stage, batch) for batch in batches][1:]
        except RuntimeError as error:
            if "out of memory" not in str(error).lower():
                raise
            print(
                f"batch {size} does not fit: {str(error).splitlines()[0]}", file=sys.stderr
            )
            return
        yield _speed(size, timed, peak[0])
        del stage
        gc.collect()


def _loaded(spec: StageSpec, size: int) -> Any:
    from cluster.worker import load_class

    options = dict(spec.options)
    if "batch_size" in options:
        options["batch_size"] = size
    return load_class(spec.target)(**{**spec.settings, **options})


def _timed(stage: Any, batch: list[StageInput]) -> tuple[float, list[Outcome[Any]]]:
    began = time.perf_counter()
    outcomes = stage(batch)
    _synchronise()
    return time.perf_counter() - began, outcomes


def _synchronise() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def _peak_memory() -> Iterator[list[float]]:
    torch = sys.modules.get("torch")
    cuda = torch is not None and torch.cuda.is_available()
    if cuda:
        torch.cuda.reset_peak_memory_stats()  # type: ignore[union-attr]
    peak = [0.0]
    yield peak
    if cuda:
        peak[0] = torch.cuda.max_memory_allocated() / 2**30  # type: ignore[union-attr]
    else:
        peak[0] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _speed(
    size: int, timed: Sequence[tuple[float, list[Outcome[Any]]]], peak: float
) -> Speed:
    seconds = sorted(s for s, _ in timed)
    total = sum(seconds)
    outcomes = [o for _, batch in timed for o in batch]
    usage: Counter[str] = Counter()
    for outcome in outcomes:
        usage.update(getattr(outcome, "usage", {}))
    reasons = Counter(
        o.reason for o in outcomes if not isinstance(o, Result) and hasattr(o, "reason")
    )
    return Speed(
        batch_size=size,
        seconds_per_call=seconds[len(seconds) // 2],
        records_per_s=sum(isinstance(o, Result) for o in outcomes) / total,
        usage_per_s={name: amount / total for name, amount in sorted(usage.items())},
        peak_memory_gib=peak,
        failures=dict(reasons.most_common(3)),
    )


# ------------------------------------------------------------------- what to measure


def stage_and_inputs(
    name: str, part: str, models: Models, most: int
) -> tuple[StageSpec, list[StageInput]]:
    """The stage that `name` and `part` mean, and inputs as a run would give them."""
    samples = [
        s for s in load("sample").samples if isinstance(s, Sample) and s.wants_images
    ]
    if is_writer(name) or is_artist(name):
        writes = is_writer(name)
        spec = writer_spec(name, models) if writes else artist_spec(name, models)
        system = _around(spec, writes)
    else:
        system = resolve(name, models)
        spec = getattr(system, part) or _no_part(name, part, system)
    return spec, _inputs(system, spec, samples, most)


def _around(spec: StageSpec, writes: bool) -> System:
    """A system in which a lone stage has its usual inputs."""
    if writes:
        return System(name=spec.name, draft=spec)
    echo = StageSpec(name="echo", kind=spec.kind, target="benchmarks.stage:Echo")
    return System(name=spec.name, draft=echo, render=spec)


def _no_part(name: str, part: str, system: System) -> StageSpec:
    has = [p for p in PARTS if getattr(system, p) is not None]
    raise unknown(f"part of system {name!r}", part, has)


def _inputs(
    system: System, wanted: StageSpec, samples: Sequence[Sample], most: int
) -> list[StageInput]:
    """Inputs of one stage: the stages before it are run, a few records at a time."""
    prompt = load("sample").prompt
    before: dict[str, Any] = {}
    found: list[StageInput] = []
    for sample in samples:
        walk = answer(system, sample, Asking(prompt))
        found += _asked(walk, wanted, before)
        if len(found) >= most:
            return found[:most]
    if not found:
        raise UsageError(f"no query of the sample set asks anything of stage {wanted.name}")
    return found


def _asked(walk: Any, wanted: StageSpec, before: dict[str, Any]) -> list[StageInput]:
    jobs: list[Job] = next(walk)
    while True:
        if jobs[0].spec.digest == wanted.digest:
            return [with_blobs(job.input, _at_hand) for job in jobs]
        outcomes = [_outcome(job, before) for job in jobs]
        try:
            jobs = walk.send(outcomes)
        except StopIteration:
            return []


def _outcome(job: Job, before: dict[str, Any]) -> Outcome[Any]:
    if job.spec.target == "benchmarks.stage:Echo":
        return _echo(job)
    if job.spec.digest not in before:
        before[job.spec.digest] = _loaded(job.spec, 1)
    stage = before[job.spec.digest]
    outcome: Outcome[Any] = stage([with_blobs(job.input, _at_hand)])[0]
    return outcome


def _echo(job: Job) -> Outcome[Any]:
    """The question itself as the prompt of one picture."""
    from generators.document import Draft, ImageRequest, Request, Text

    assert isinstance(job.input, Request)
    texts = (s.text for t in job.input.turns for s in t.content if isinstance(s, Text))
    return Result(Draft((ImageRequest(prompt=" ".join(texts)),)))


def _at_hand(blob: Blob) -> Blob:
    return (
        blob
        if blob.data is not None
        else replace(blob, data=Path(str(blob.place)).read_bytes())
    )


# ---------------------------------------------------------------------------- output


def report(spec: StageSpec, speeds: Sequence[Speed]) -> str:
    """A plain table."""
    names = sorted({name for s in speeds for name in s.usage_per_s})
    head = [
        "batch",
        "s/call",
        "records/s",
        *(f"{n}/s" for n in names),
        "peak GiB",
        "failed",
    ]
    rows = [
        [
            str(s.batch_size),
            f"{s.seconds_per_call:.3f}",
            f"{s.records_per_s:.2f}",
            *(f"{s.usage_per_s.get(n, 0.0):.1f}" for n in names),
            f"{s.peak_memory_gib:.2f}",
            "; ".join(f"{n} x {r}" for r, n in s.failures.items()),
        ]
        for s in speeds
    ]
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = [
        "  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) for r in [head, *rows]
    ]
    return "\n".join(
        [f"{spec.name} ({spec.identity}, {spec.weights}) on {device_name()}", *lines]
    )


def device_name() -> str:
    """The GPU's name, or the number of CPU threads torch uses."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"CPU, {torch.get_num_threads()} threads"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write JSON where `--out` says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--system", required=True, help="a system, an LVLM or a T2I model")
    parser.add_argument("--part", default="draft", choices=PARTS)
    parser.add_argument(
        "--weights", default="dummy", choices=("pretrained", "dummy", "tiny")
    )
    parser.add_argument("--batches", default="1,2,4,8", help="batch sizes, comma-separated")
    parser.add_argument("--calls", type=int, default=3, help="timed calls per batch size")
    parser.add_argument("--set", action="append", default=[], help="key=value of the model")
    parser.add_argument("--out", type=Path, default=None)
    told = parser.parse_args(arguments)
    sizes = [int(size) for size in told.batches.split(",")]
    overrides = dict(_setting(text) for text in told.set)
    models = Models(weights=told.weights, overrides={told.system: overrides})
    spec, inputs = stage_and_inputs(told.system, told.part, models, max(sizes))
    speeds = list(measure(spec, inputs, sizes, told.calls))
    print(report(spec, speeds))
    if told.out is not None:
        about = environment() | {"device": device_name(), "stage": spec.folder}
        about["settings"] = dict(spec.settings)
        told.out.write_text(
            json.dumps({"about": about, "speeds": [asdict(s) for s in speeds]}, indent=1)
            + "\n"
        )
    return 0 if speeds and not any(s.failures for s in speeds) else 1


def _setting(text: str) -> tuple[str, Any]:
    from benchmarks.config import parsed_setting

    (key, value), *_ = parsed_setting(text).items()
    return key, value


if __name__ == "__main__":
    sys.exit(main())
