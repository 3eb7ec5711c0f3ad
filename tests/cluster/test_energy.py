"""The energy meter, on an NVML that counts as it is told to."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from cluster.energy import EnergyMeter


class Nvml(ModuleType):
    """As `pynvml`: counters in millijoules, by device."""

    def __init__(self, counters: list[int]) -> None:
        super().__init__("pynvml")
        self.counters = counters
        self.fails: str | None = None

    def nvmlInit(self) -> None:
        if self.fails == "init":
            raise RuntimeError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        self.counters.clear()

    def nvmlDeviceGetCount(self) -> int:
        return len(self.counters)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{'abcdef'[handle]}0000000".encode()

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if self.fails:
            raise RuntimeError("Not Supported")
        return self.counters[handle]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    fake = Nvml([1_000, 5_000, 70_000])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


@pytest.mark.parametrize(
    ("visible", "joules"),
    [
        (None, 112.0),
        ("1", 2.0),
        ("2,0", 110.0),
        ("GPU-b", 2.0),
        ("1,1", 2.0),
        ("1,-1,2", 2.0),
    ],
)
def test_only_what_visible_devices_have_used_since_counts(
    nvml: Nvml,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    joules: float,
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    meter = EnergyMeter()
    nvml.counters[1] += 2_000
    nvml.counters[2] += 110_000
    assert (meter.joules(), meter.reason) == (joules, None)


@pytest.mark.parametrize("visible", ["", "-1", "7"])
def test_a_process_without_gpus_has_no_reading(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    meter = EnergyMeter()
    assert (meter.joules(), meter.reason) == (None, "this process sees no GPU")


def test_a_slice_of_a_device_has_no_counter(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234")
    meter = EnergyMeter()
    assert meter.joules() is None
    assert "MIG" in str(meter.reason)


@pytest.mark.parametrize("fails", ["init", "read"])
def test_what_the_driver_refuses_is_a_reason_and_no_error(nvml: Nvml, fails: str) -> None:
    nvml.fails = fails
    meter = EnergyMeter()
    assert meter.joules() is None
    assert meter.reason == {"init": "Driver Not Loaded", "read": "Not Supported"}[fails]


def test_a_meter_that_breaks_later_gives_no_further_reading(nvml: Nvml) -> None:
    meter = EnergyMeter()
    assert meter.joules() == 0.0
    nvml.fails = "read"
    assert (meter.joules(), meter.reason) == (None, "Not Supported")


def test_a_counter_that_was_reset_gives_no_negative_energy(nvml: Nvml) -> None:
    meter = EnergyMeter()
    nvml.counters[2] = 0
    assert meter.joules() is None
    assert "reset" in str(meter.reason)


def test_without_the_package_the_reason_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing: Any = None  # what the import system takes for "there is no such module"
    monkeypatch.setitem(sys.modules, "pynvml", missing)
    meter = EnergyMeter()
    assert meter.joules() is None
    assert "nvidia-ml-py" in str(meter.reason)
