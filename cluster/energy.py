"""The energy that GPUs use, from the counters which NVIDIA's driver keeps (NVML).

    meter = EnergyMeter()
    ...
    print(meter.joules() or meter.reason)

`pynvml` comes with the package `nvidia-ml-py` and is optional. A counter is of a whole
device, since Volta, and the driver advances it every 20 to 100 ms: shorter differences are
rough, their sum is not.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

_NO_PACKAGE = "pynvml is not installed (pip install nvidia-ml-py)"
_NO_GPU = "this process sees no GPU"


class EnergyMeter:
    """Counts the energy of the GPUs that this process sees, from now on.

    It follows `CUDA_VISIBLE_DEVICES`, indices or UUIDs. Where several processes share a
    device, each counts the whole device; a slice of one (MIG) has no counter.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why there is no reading; None where there is one."""
        self._nvml: Any = None
        self._handles: list[Any] = []
        self._start = 0
        try:
            self._open()
        except Exception as error:
            # NVML has many errors, none of which may stop a run that can do without.
            self._give_up(str(error) or type(error).__name__)

    def joules(self) -> float | None:
        """Energy used since the meter was made; None, and `reason` says why."""
        if self.reason is not None:
            return None
        try:
            used = self._millijoules() - self._start
        except Exception as error:
            self._give_up(str(error) or type(error).__name__)
            return None
        if used < 0:
            self._give_up("the driver has reset its energy counter")
            return None
        return used / 1000.0

    def _open(self) -> None:
        try:
            import pynvml
        except ImportError:
            self.reason = _NO_PACKAGE
            return
        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handles = self._visible(os.environ.get("CUDA_VISIBLE_DEVICES"))
        if self._handles:
            self._start = self._millijoules()
        else:
            self.reason = _NO_GPU

    def _visible(self, names: str | None) -> list[Any]:
        """Return the devices that CUDA shows this process, as CUDA reads the variable."""
        nvml = self._nvml
        count = nvml.nvmlDeviceGetCount()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        if names is None:
            return handles
        visible: dict[int, Any] = {}
        for name in (n.strip() for n in names.split(",")):
            if name.startswith("MIG-"):
                raise ValueError("a slice of a GPU (MIG) has no energy counter")
            index = self._index_of(name, handles)
            if index is None:
                break  # CUDA ignores what follows a name that is not valid
            visible[index] = handles[index]
        return list(visible.values())

    def _index_of(self, name: str, handles: Sequence[Any]) -> int | None:
        if name.isdecimal():
            return int(name) if int(name) < len(handles) else None
        if not name.startswith("GPU-"):
            return None
        uuids = (_text(self._nvml.nvmlDeviceGetUUID(handle)) for handle in handles)
        same = [i for i, uuid in enumerate(uuids) if uuid.startswith(name)]
        return same[0] if len(same) == 1 else None

    def _millijoules(self) -> int:
        read = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        return sum(int(read(handle)) for handle in self._handles)

    def _give_up(self, reason: str) -> None:
        self.reason, self._handles = reason, []
        with contextlib.suppress(Exception):
            self._nvml.nvmlShutdown()


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
