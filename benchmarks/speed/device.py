"""The device: its name, rates and peak memory; the weights and operations of a call."""

from __future__ import annotations

import contextlib
import gc
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from plait.generators.loading.strict import device_of

T = TypeVar("T")
# Larger than any cache, so that what is measured is memory.
_COPY_BYTES = {"cuda": 2**32}
_CPU_COPY_BYTES = 2**28
_MATRIX_SIDE = {"cuda": 8192}
_CPU_MATRIX_SIDE = 1024


def device_name() -> str:
    """Return the GPU's name, or the number of CPU threads torch uses."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"CPU, {torch.get_num_threads()} threads"


def synchronise() -> None:
    """Wait until all GPUs that this process sees are idle."""
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)


def copy_bandwidth() -> float:
    """Measure how many bytes per second a large copy reads and writes on the device."""
    where = device_of("auto")
    size = _COPY_BYTES.get(where.type, _CPU_COPY_BYTES)
    source = torch.ones(size, dtype=torch.uint8, device=where)
    # Each byte is read once and written once.
    return 2 * size / _median_s("b.copy_(a)", a=source, b=torch.empty_like(source))


def matrix_rate(dtype: torch.dtype) -> float:
    """Measure the FLOP per second of a large matrix product of this type on the device.

    Raises:
        RuntimeError: Where the device does not multiply matrices of this type.
    """
    where = device_of("auto")
    side = _MATRIX_SIDE.get(where.type, _CPU_MATRIX_SIDE)
    one = torch.ones(side, side, dtype=dtype, device=where)
    product = torch.empty_like(one)
    # A multiplication and an addition for each of side^3 products.
    return 2 * side**3 / _median_s("mm(a, a, out=b)", a=one, b=product, mm=torch.mm)


def _median_s(statement: str, **names: Any) -> float:
    # Here, since it loads what compiles extensions of torch.
    from torch.utils.benchmark import Timer

    timer = Timer(statement, globals=names, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=0.5).median


def memory_kind() -> str:
    """Name what `peak_memory` measures here."""
    on_gpu = torch.cuda.is_available()
    return "CUDA allocator" if on_gpu else "resident set of the process (RSS)"


@dataclass
class Peak:
    """Memory in GiB: allocated on all GPUs, or resident in the process on a CPU."""

    gib: float = 0.0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measure the peak inside; on a CPU it includes what was resident before."""
    gc.collect()
    peak = Peak()
    devices = range(torch.cuda.device_count())
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)
    with contextlib.suppress(OSError):
        # Sets the kernel's high-water mark back to what is resident now (proc(5)).
        Path("/proc/self/clear_refs").write_text("5")
    yield peak
    gpu = sum(map(torch.cuda.max_memory_allocated, devices))
    peak.gib = (gpu if devices else _resident_peak()) / 2**30


def _resident_peak() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Traffic:
    """The weights that the modules which ran have read so far."""

    def __init__(self) -> None:
        self.bytes = 0
        self._sizes: dict[int, tuple[int, torch.dtype]] = {}

    @property
    def parameters(self) -> int:
        """Parameters of the modules that ran, each counted once."""
        return self._by_type().total()

    @property
    def dtype(self) -> str | None:
        """Type of most of those parameters, such as `float32`; None where none ran."""
        counts = self._by_type()
        if not counts:
            return None
        [(most, _)] = counts.most_common(1)
        return str(most).removeprefix("torch.")

    def _by_type(self) -> Counter[torch.dtype]:
        counts: Counter[torch.dtype] = Counter()
        for count, dtype in self._sizes.values():
            counts[dtype] += count
        return counts

    def note(self, module: nn.Module) -> None:
        """Count `module`, which runs now; an embedding reads next to nothing."""
        # Each submodule runs by itself, and is noted then.
        for own in module.parameters(recurse=False):
            count = own.numel()
            if not isinstance(module, nn.Embedding):
                self.bytes += count * own.element_size()
            # By identity, since modules may share a parameter.
            self._sizes[id(own)] = (count, own.dtype)


@contextmanager
def weight_traffic() -> Iterator[Traffic]:
    """Count the bytes of weights read by all modules that run inside; slows them down."""
    traffic = Traffic()
    handle = nn.modules.module.register_module_forward_pre_hook(
        lambda module, _: traffic.note(module)
    )
    try:
        yield traffic
    finally:
        handle.remove()


def count_operations(compute: Callable[[], T]) -> tuple[T, int | None, str | None]:
    """Return what `compute` gives, and its number of operations or why there is none.

    torch counts matrix products, convolutions and attention. Element-wise work is not
    counted, as is usual, nor are kernels that torch does not know (xformers, quantised
    layers). Where torch cannot count, `compute` is called again without.
    """
    counter = FlopCounterMode(display=False)
    try:
        with _countable_attention(), counter:
            value = compute()
    except Exception as error:
        first = str(error).partition("\n")[0]
        return compute(), None, f"torch's FLOP counter failed: {first}"
    if total := counter.get_total_flops():
        return value, total, None
    return value, None, "torch counted no operation in this process"


def _countable_attention() -> contextlib.AbstractContextManager[Any]:
    """Let attention on a CPU be two matrix products: torch's table lacks its kernel."""
    if torch.cuda.is_available():
        return contextlib.nullcontext()
    return sdpa_kernel(SDPBackend.MATH)
