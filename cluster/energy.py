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
from typing import Any


class EnergyMeter:
    """Counts the energy of the GPUs that this process sees, from now on.

    It follows `CUDA_VISIBLE_DEVICES`, indices or UUIDs. Where several processes share a
    device, each counts the whole device; a slice of one (MIG) has no counter.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        """Why there is no reading; None where there is one."""
        self._nvml: Any = None
        self._start = 0
        try:
            import pynvml

            self._nvml = pynvml
            pynvml.nvmlInit()
            self._handles = self._visible(os.environ.get("CUDA_VISIBLE_DEVICES"))
            self._start = self._millijoules()
        except ImportError:
            self.reason = "pynvml is not installed (pip install nvidia-ml-py)"
        except Exception as error:
            self._give_up(error)

    def joules(self) -> float | None:
        """Energy used since the meter was made; None, and `reason` says why."""
        if self.reason is not None:
            return None
        try:
            used = self._millijoules() - self._start
            if used < 0:
                raise ValueError("the driver has reset its energy counter")
        except Exception as error:
            self._give_up(error)
            return None
        return used / 1000.0

    def _visible(self, names: str | None) -> list[Any]:
        """Return the devices that CUDA shows this process, as CUDA reads the variable."""
        nvml = self._nvml
        count = nvml.nvmlDeviceGetCount()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        if names is None and handles:
            return handles
        uuids: list[str] = []
        for handle in handles:
            uuid = nvml.nvmlDeviceGetUUID(handle)
            # Some versions of the library return bytes.
            uuids.append(uuid.decode() if isinstance(uuid, bytes) else uuid)
        # By number, in the order that the variable names them.
        visible: dict[int, Any] = {}
        for entry in (names or "").split(","):
            name = entry.strip()
            if name.startswith("MIG-"):
                raise ValueError("a slice of a GPU (MIG) has no energy counter")
            named = [i for i, uuid in enumerate(uuids) if _is_named(name, i, uuid)]
            if len(named) != 1:
                break  # CUDA ignores what follows a name that is not valid
            visible[named[0]] = handles[named[0]]
        if not visible:
            raise ValueError("this process sees no GPU")
        return list(visible.values())

    def _millijoules(self) -> int:
        """Energy that all visible devices have used since the driver was loaded."""
        total = 0
        for handle in self._handles:
            total += int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        return total

    def _give_up(self, error: Exception) -> None:
        # NVML has many errors, none of which may stop a run that can do without.
        self.reason = str(error) or type(error).__name__
        with contextlib.suppress(Exception):
            self._nvml.nvmlShutdown()


def _is_named(name: str, number: int, uuid: str) -> bool:
    """Return whether a name is a GPU's number, or `GPU-` and how its id goes on."""
    if name.startswith("GPU-"):
        return uuid.startswith(name)
    return name.isdecimal() and int(name) == number
