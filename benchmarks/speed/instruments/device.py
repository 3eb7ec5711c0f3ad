"""The device: its name, rates and peak memory, and the weights that a call reads."""

from __future__ import annotations

import contextlib
import gc
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from generators.loading.strict import device_of

_GPU_COPY_BYTES, _CPU_COPY_BYTES = 2**32, 2**28
_COPIES = 9
_GPU_MATRIX, _CPU_MATRIX = 8192, 1024


def device_name() -> str:
    """The GPU's name, or the number of CPU threads torch uses."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"CPU, {torch.get_num_threads()} threads"


def synchronise() -> None:
    """Wait until the GPU is idle."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def copy_bandwidth() -> float:
    """Bytes per second that a large copy reads and writes on the device, median of 9."""
    where = device_of("auto")
    size = _GPU_COPY_BYTES if where.type == "cuda" else _CPU_COPY_BYTES
    source = torch.ones(size, dtype=torch.uint8, device=where)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(_COPIES):
        synchronise()
        began = time.perf_counter()
        target.copy_(source)
        synchronise()
        seconds.append(time.perf_counter() - began)
    return 2 * size / median(seconds)


def matrix_rate(dtype: torch.dtype) -> float:
    """FLOP per second of a large matrix product of this type on the device, median of 9.

    Not every device multiplies every type; RuntimeError where it does not.
    """
    where = device_of("auto")
    side = _GPU_MATRIX if where.type == "cuda" else _CPU_MATRIX
    one = torch.ones(side, side, dtype=dtype, device=where)
    product = torch.empty_like(one)
    seconds = []
    for _ in range(1 + _COPIES):
        synchronise()
        began = time.perf_counter()
        torch.mm(one, one, out=product)
        synchronise()
        seconds.append(time.perf_counter() - began)
    return 2 * side**3 / median(seconds[1:])


class Peak:
    """Memory in GiB: allocated on all GPUs, or resident in the process on a CPU."""

    gib = 0.0


@contextlib.contextmanager
def peak_memory() -> Iterator[Peak]:
    """The peak of what runs inside; on a CPU it includes what was resident before."""
    gc.collect()
    peak = Peak()
    if torch.cuda.is_available():
        devices = range(torch.cuda.device_count())
        for number in devices:
            torch.cuda.reset_peak_memory_stats(number)
        yield peak
        peak.gib = sum(map(torch.cuda.max_memory_allocated, devices)) / 2**30
        return
    with contextlib.suppress(OSError):
        # Sets the kernel's high-water mark back to what is resident now (proc(5)).
        Path("/proc/self/clear_refs").write_text("5")
    yield peak
    peak.gib = _resident_peak_kib() / 2**20


def _resident_peak_kib() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory_kind() -> str:
    """What `peak_memory` measures here."""
    on_gpu = torch.cuda.is_available()
    return "CUDA allocator" if on_gpu else "resident set of the process (RSS)"


class Traffic:
    """What the modules that ran have read so far."""

    def __init__(self) -> None:
        self.bytes = 0
        self._sizes: dict[int, tuple[int, torch.dtype]] = {}
        self._modules: dict[int, tuple[int, str]] = {}

    @property
    def parameters(self) -> int:
        """Parameters of the modules that ran, each counted once."""
        return sum(count for count, _ in self._sizes.values())

    @property
    def dtype(self) -> torch.dtype | None:
        """Type of most of those parameters; None where no module ran."""
        counts: Counter[torch.dtype] = Counter()
        for count, dtype in self._sizes.values():
            counts[dtype] += count
        return counts.most_common(1)[0][0] if counts else None

    @property
    def largest(self) -> str | None:
        """Class of the largest module that ran."""
        return max(self._modules.values())[1] if self._modules else None

    def note(self, module: nn.Module) -> None:
        """`module` runs now."""
        own = list(module.parameters(recurse=False))
        if not isinstance(module, nn.Embedding):
            self.bytes += sum(p.numel() * p.element_size() for p in own)
        if id(module) not in self._modules:
            size = sum(p.numel() for p in module.parameters())
            self._modules[id(module)] = (size, type(module).__name__)
            self._sizes |= {id(p): (p.numel(), p.dtype) for p in own}


@contextmanager
def weight_traffic() -> Iterator[Traffic]:
    """Count the bytes of weights read by all modules that run inside; slows them down."""
    traffic = Traffic()

    def count(module: nn.Module, _: Any) -> None:
        traffic.note(module)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        yield traffic
    finally:
        handle.remove()
