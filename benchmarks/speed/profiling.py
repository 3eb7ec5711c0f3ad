"""Where the time of one call goes: a trace by torch.profiler, and one table of its parts.

Parts of a pipeline (text encoders, each step of the denoiser, the VAE's decoder) are
marked in the trace by name. On a GPU their time is that of the kernels launched inside,
so that nothing waits for the device in between; on a CPU it is the wall clock's.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function
from torch.utils.flop_counter import FlopCounterMode

from plait.benchmarks.results.table import ResultTable
from plait.benchmarks.runs.forecast.machines import same_gpu
from plait.benchmarks.runs.forecast.prior import GPUS, Gpu
from plait.benchmarks.speed.device import device_name, synchronise
from plait.benchmarks.speed.rounds import forget_earlier
from plait.generators.cuda_graphs import eagerly

_ATTENTION = "aten::scaled_dot_product_attention"
_COPIES = ("aten::copy_", "Memcpy")
"""Beginnings of names: CUDA's go on, as in `Memcpy HtoD (Pageable -> Device)`."""
_HOST = "CPU"
"""Name of the `device_type` of events that are operators and marks, not kernels."""
_NONE = "-"
NO_ROOFLINE = "no roofline for this device"


@dataclass
class Part:
    """A part of the call, or a kind of operation in all of it."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    flops: float = 0.0
    weight_bytes: float = 0.0
    """Read by all calls together; 0 for kinds of operation."""

    def roofline(self, gpu: Gpu | None) -> float | None:
        """Return the shortest time that the device allows, over the time it took.

        That is the longer one of its operations at the published rate and of its weights
        at the published bandwidth. None for a device that is not known, or without both.
        """
        if gpu is None or not self.seconds or not (self.flops or self.weight_bytes):
            return None
        least = max(self.flops / gpu.flops, self.weight_bytes / gpu.bytes_per_s)
        return least / self.seconds


@dataclass(frozen=True)
class Profile:
    """One profiled call."""

    title: str
    device: str
    seconds: float
    """Of the whole call, under the profiler."""
    parts: Sequence[Part]
    kinds: Sequence[Part]

    @property
    def gpu(self) -> Gpu | None:
        """What was published of this GPU; None for others and for CPUs."""
        for gpu in GPUS:
            if same_gpu(gpu.name, self.device):
                return gpu
        return None

    def data(self) -> dict[str, Any]:
        """Return the parts and kinds, with the share of the roofline, as plain data."""
        rows = []
        for part in (*self.parts, *self.kinds):
            rows.append(asdict(part) | {"roofline": part.roofline(self.gpu)})
        return {"device": self.device, "seconds": self.seconds, "parts": rows}

    @property
    def table(self) -> ResultTable:
        """Parts in the order of their first call, then kinds of operation."""
        rooted = self.gpu is not None
        head = ["part", "calls", "s", "of the call", "GFLOP", "of the roofline"]
        rows = [self._row(part) for part in (*self.parts, *self.kinds)]
        rows.append(["whole call", "1", f"{self.seconds:.4f}", "100.0%", _NONE, _NONE])
        note = "" if rooted else f"; {NO_ROOFLINE}"
        return ResultTable.of(f"{self.title} on {self.device}, profiled{note}", head, rows)

    def _row(self, part: Part) -> list[str]:
        share = part.roofline(self.gpu)
        return [
            part.name,
            str(part.calls) if part.calls else _NONE,
            f"{part.seconds:.4f}",
            f"{part.seconds / self.seconds:.1%}",
            f"{part.flops / 1e9:.4g}" if part.flops else _NONE,
            _NONE if share is None else f"{share:.1%}",
        ]


class _Marks:
    """Marks the parts of a stage's pipeline while they run, and counts their operations."""

    def __init__(self, pipeline: Any) -> None:
        self.parts: dict[str, Part] = {}
        self.counter: FlopCounterMode | None = None
        self._stack = ExitStack()
        self._steps = 0
        components = getattr(pipeline, "components", {})
        for name, module in components.items():
            if name.startswith("text_encoder"):
                self._wrap(module, "forward", functools.partial(str, name))
            elif name in ("transformer", "unet"):
                self._wrap(module, "forward", self._step)
            elif name == "vae":
                self._wrap(module, "decode", lambda: "VAE decoder")

    def restart(self) -> None:
        """Count steps from 1 again, before another call."""
        self._steps = 0

    def _step(self) -> str:
        self._steps += 1
        return f"denoiser, step {self._steps}"

    def _wrap(self, module: Any, method: str, name_of: Callable[[], str]) -> None:
        if not isinstance(module, torch.nn.Module):
            return
        inner = getattr(module, method)
        # What places a module on a device, or computes it by graphs, is one there already.
        own = vars(module).get(method)
        weight_bytes = 0
        for weights in module.parameters():
            weight_bytes += weights.numel() * weights.element_size()

        @functools.wraps(inner)
        def marked(*given: Any, **named: Any) -> Any:
            name = name_of()
            part = self.parts.setdefault(name, Part(name))
            before = self.counter.get_total_flops() if self.counter else 0
            with record_function(name):
                result = inner(*given, **named)
            if self.counter is None:
                part.calls += 1
                part.weight_bytes += weight_bytes
            else:
                part.flops += self.counter.get_total_flops() - before
            return result

        # An attribute of the instance hides the method of its class.
        setattr(module, method, marked)
        if own is None:
            self._stack.callback(delattr, module, method)
        else:
            self._stack.callback(setattr, module, method, own)

    def close(self) -> None:
        """Give the modules their own methods back."""
        self._stack.close()


@contextmanager
def _marking(pipeline: Any) -> Iterator[_Marks]:
    marks = _Marks(pipeline)
    try:
        yield marks
    finally:
        marks.close()


def profile_call(
    compute: Callable[[Sequence[Any]], Any], inputs: Sequence[Any], title: str, trace: Path
) -> Profile:
    """Call a stage three times, once to warm up, once profiled, once to count operations.

    The trace of the second call is written to `trace`, in Chrome's format.
    """
    pipeline = getattr(getattr(compute, "drawer", None), "pipeline", None)
    compute(inputs)
    activities = [ProfilerActivity.CPU]
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        activities.append(ProfilerActivity.CUDA)
    with _marking(pipeline) as marks:
        forget_earlier(compute)
        synchronise()
        with torch.profiler.profile(activities=activities) as profiler:
            began = time.perf_counter()
            compute(inputs)
            synchronise()
            seconds = time.perf_counter() - began
        marks.restart()
        forget_earlier(compute)
        # A CUDA graph is replayed without calling an operator: nothing would count.
        with eagerly(), FlopCounterMode(display=False) as marks.counter:
            compute(inputs)
    trace.parent.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(trace))
    events = profiler.key_averages()
    marked = {}
    for event in events:
        # A mark stands among the events of the GPU too, by the same name.
        if event.device_type.name == _HOST:
            marked[event.key] = event
    for name, part in marks.parts.items():
        event = marked[name]
        microseconds = event.device_time_total if on_gpu else event.cpu_time_total
        part.seconds = microseconds / 1e6
    kinds = sum_kinds(events, seconds, on_gpu=on_gpu, marks=set(marks.parts))
    return Profile(title, device_name(), seconds, [*marks.parts.values()], kinds)


def sum_kinds(
    events: Iterable[Any], seconds: float, *, on_gpu: bool, marks: Collection[str]
) -> list[Part]:
    """Return the time of all kernels, of attention and copies in them, and between them.

    Args:
        events: Averages of torch.profiler, with times in microseconds.
        seconds: How long the whole call took.
        on_gpu: Whether kernels are those of a GPU. The operators that launch them are told
            the same device time once more, so that of these only attention is looked at.
        marks: Names of parts, which are no kernels.
    """
    kernels = Part("all kernels")
    attention = Part("of which attention")
    copies = Part("of which copies")
    for event in events:
        name = event.key
        if name in marks:
            continue
        is_operator = event.device_type.name == _HOST
        if is_operator and name == _ATTENTION:
            total = event.device_time_total if on_gpu else event.cpu_time_total
            attention.calls += event.count
            attention.seconds += total / 1e6
        if is_operator == on_gpu or (is_operator and not name.startswith("aten::")):
            continue
        own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        kernels.calls += event.count
        kernels.seconds += own / 1e6
        if name.startswith(_COPIES):
            copies.calls += event.count
            copies.seconds += own / 1e6
    gaps = Part("host, between kernels", seconds=max(0.0, seconds - kernels.seconds))
    return [kernels, attention, copies, gaps]
