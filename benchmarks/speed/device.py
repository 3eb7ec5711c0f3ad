"""The device: its name, bandwidth and peak memory, and the weights that a call reads."""

from __future__ import annotations

import contextlib
import gc
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

_GPU_COPY_BYTES, _CPU_COPY_BYTES = 2**32, 2**28
_COPIES = 9


def device() -> torch.device:
    """The device that `auto` means."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


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
    where = device()
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


class Peak:
    """Memory in GiB: allocated on the GPU, or resident in the process on a CPU."""

    gib = 0.0


@contextlib.contextmanager
def peak_memory() -> Iterator[Peak]:
    """The peak of what runs inside; on a CPU it includes what was resident before."""
    gc.collect()
    peak = Peak()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        yield peak
        peak.gib = torch.cuda.max_memory_allocated() / 2**30
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


class Traffic:
    """Bytes read so far."""

    bytes = 0


@contextmanager
def weight_traffic() -> Iterator[Traffic]:
    """Count the bytes of weights read by all modules that run inside; slows them down."""
    traffic = Traffic()

    def count(module: nn.Module, _: Any) -> None:
        if not isinstance(module, nn.Embedding):
            own = module.parameters(recurse=False)
            traffic.bytes += sum(p.numel() * p.element_size() for p in own)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        yield traffic
    finally:
        handle.remove()
