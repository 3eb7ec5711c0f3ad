"""Every figure against one computed by hand; what cannot be measured is absent."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from speed_helpers import FakeTime, figures

from benchmarks.speed.instruments.clock import Clock
from benchmarks.speed.instruments.device import matrix_rate, peak_memory, weight_traffic
from benchmarks.speed.instruments.flops import counted
from benchmarks.speed.instruments.speeds import Speed, Timings
from benchmarks.speed.reporting.figures import SERVER, distribution
from benchmarks.speed.stage.measure import InBatches, measure
from generators.base import Kind, Result
from generators.document import Draft, Text
from generators.loading.packed import PackedLinear, pack
from generators.pictures import Drawing


def test_percentiles_lie_linearly_between_values_as_numpys_do() -> None:
    figure = distribution([v / 1000 for v in range(1, 101)], "ms", 1000)
    assert figure.value == pytest.approx(50.5)
    assert figure.spread == pytest.approx(
        {"median": 50.5, "p90": 90.1, "p95": 95.05, "p99": 99.01, "min": 1, "max": 100}
        | {"n": 100}
    )
    values = np.random.default_rng(0).lognormal(size=37)
    spread = distribution(list(values), "ms").spread
    ordered = np.sort(values)
    place = 0.95 * 36  # independent of np.percentile: the 35th and 36th of 37 values
    low, high = ordered[int(place)], ordered[int(place) + 1]
    assert spread["p95"] == pytest.approx(low + (place % 1) * (high - low))


def test_figures_by_hand() -> None:
    timings = Timings(
        requests=[0.5, 1.5],
        images=[0.25, 0.75],
        first_tokens=[0.1],
        between_tokens=[0.02, 0.04],
        steps=[0.03],
        first_batch=[0.4, 0.5, 9.0],
        warm_up=3.0,
        first_call=2.5,
    )
    speed = Speed(
        way="batch 2",
        seconds=[2.0],
        records=2,
        usage={"input_tokens": 30, "output_tokens": 10},
        peak_memory_gib=1.5,
        weight_bytes=10**9,
        timings=timings,
        pictures=[(1000, 500)] * 4,
        flops=10**9,
        joules=[9.0, 10.0, 11.0],
        dtype="float32",
    )
    made = figures(speed, kind=Kind.DRAFT, load_s=7.0, compiled=True, price_per_hour=3.6)
    values = {name: figure.value for name, figure in made.present.items()}
    assert values == pytest.approx(
        {
            "request_throughput": 1.0,
            "image_throughput": 2.0,
            "megapixel_throughput": 1.0,
            "input_token_throughput": 15.0,
            "output_token_throughput": 5.0,
            "total_token_throughput": 20.0,
            "request_latency": 1000.0,
            "image_latency": 500.0,
            "time_to_first_token": 100.0,
            "inter_token_latency": 30.0,
            "denoise_step_latency": 30.0,
            "peak_memory": 1.5,
            "load_time": 7.0,
            "warm_up_time": 3.0,
            "compile_time": 2.0,
            "model_flops": 1.0,
            "model_flops_utilization": 1e9 / 0.5 / 4e9,
            "memory_bandwidth_utilization": 1e9 / 1e9 / 2.0,
            "energy": 10.0,
            "energy_per_request": 5.0,
            "energy_per_image": 2.5,
            "energy_per_output_token": 1.0,
            # A thousandth of a dollar per second, two seconds.
            "cost_per_1000_images": 0.5,
            "cost_per_1m_output_tokens": 200.0,
        }
    )
    assert made.absent == {}


def test_what_a_server_hides_is_absent_with_its_reason_and_never_zero() -> None:
    speed = Speed("batch 1", [1.0], 0, timings=Timings(requests=[1.0]))
    made = figures(speed, kind=Kind.DRAFT, server=True, price_per_hour=2.0)
    assert set(made.present) == {"request_latency"}
    for name in ("peak_memory", "model_flops", "memory_bandwidth_utilization", "energy"):
        assert made.absent[name] == SERVER
    assert "token by token" in made.absent["time_to_first_token"]
    assert made.absent["request_throughput"] == "no request succeeded"
    assert made.absent["cost_per_1000_images"] == "the stage gives none"


def test_a_text_stage_without_a_second_token_has_no_inter_token_latency() -> None:
    speed = Speed("batch 1", [1.0], 1, timings=Timings(first_tokens=[0.1]))
    made = figures(speed, kind=Kind.DRAFT)
    assert made.absent["inter_token_latency"] == "no answer has a second token"
    emu2 = figures(speed, kind=Kind.CONDITION)
    assert emu2.absent["time_to_first_token"] == "the stage writes no text"


def test_operations_of_known_layers() -> None:
    layer = torch.nn.Linear(4, 6)
    with torch.inference_mode():
        value, flops = counted(lambda: layer(torch.ones(3, 4)))
    assert flops.count == 2 * 3 * 4 * 6
    assert value.shape == (3, 6)
    query = torch.ones(1, 2, 5, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.inference_mode():
        _, flops = counted(lambda: attend(query, query, query))
    assert flops.count == 2 * (2 * 2 * 5 * 5 * 8), "two products of two heads"


@pytest.mark.models
def test_products_of_packed_weights_are_counted() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(512, 512))
    pack(layer)
    assert isinstance(layer[0], PackedLinear)
    with torch.inference_mode():
        _, flops = counted(lambda: layer(torch.ones(3, 5, 512)))
    assert flops.count == 2 * 3 * 5 * 512 * 512


def test_operations_that_cannot_be_counted_say_why() -> None:
    value, flops = counted(lambda: [1])
    assert (value, flops.count) == ([1], None)
    assert flops.reason == "torch counted no operation in this process"
    calls: list[int] = []

    def fails_once() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("no kernel under this mode\nat line 7")
        return "answer"

    value, flops = counted(fails_once)
    assert value == "answer"
    assert flops.reason == "torch's FLOP counter failed: no kernel under this mode"


def test_modules_that_ran_are_counted_once() -> None:
    inner = torch.nn.Sequential(torch.nn.Embedding(100, 4), torch.nn.Linear(4, 6))
    inner[1].half()
    with weight_traffic() as traffic:
        for _ in range(3):
            inner[0](torch.tensor([1]))
            inner[1](torch.zeros(1, 4, dtype=torch.float16))
    assert traffic.parameters == 400 + 30
    assert traffic.dtype is torch.float32
    assert traffic.largest == "Embedding"


def test_peak_memory_is_that_of_all_gpus_of_a_model(monkeypatch) -> None:
    allocated = {0: 2**30, 1: 3 * 2**30}
    cuda = {
        "is_available": lambda: True,
        "device_count": lambda: len(allocated),
        "reset_peak_memory_stats": lambda number: None,
        "max_memory_allocated": allocated.__getitem__,
    }
    for name, replacement in cuda.items():
        monkeypatch.setattr(torch.cuda, name, replacement)
    with peak_memory() as peak:
        pass
    assert peak.gib == 4.0


def test_with_several_gpus_a_mark_waits_for_all_of_them(monkeypatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    clock = Clock()
    assert clock.seconds(clock.mark(), clock.mark()) >= 0
    assert waited == [0, 1, 0, 1]
    assert clock.name == "perf_counter, all GPUs idle"


def test_the_matrix_rate_is_that_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.speed.instruments import device

    time, real = FakeTime(), torch.mm

    def product(*arguments: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        time.pass_(0.5)
        return real(*arguments, **named)

    monkeypatch.setattr(device.time, "perf_counter", time)
    monkeypatch.setattr(device.torch, "mm", product)
    monkeypatch.setattr(device, "_CPU_MATRIX", 8)
    monkeypatch.setattr(device, "device_of", lambda _: torch.device("cpu"))
    assert matrix_rate(torch.float32) == 2 * 8**3 / 0.5


def test_calls_rounds_and_energy_of_a_stage_that_takes_known_time(monkeypatch) -> None:
    time, nvml = FakeTime(), ModuleType("pynvml")
    nvml.millijoules = 500_000
    nvml.nvmlInit = nvml.nvmlShutdown = lambda: None
    nvml.nvmlDeviceGetCount = lambda: 1
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda handle: nvml.millijoules
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def stage(inputs: list[int]) -> list[Result]:
        time.pass_(1.0 + 0.25 * len(inputs))
        nvml.millijoules += 2_000
        picture = Drawing(np.zeros((4, 8, 3), np.uint8))
        return [Result(picture if i else Draft((Text("no picture"),))) for i in inputs]

    (speed,) = measure({"batch 2": InBatches(stage, 2)}, [0, 1, 2], 2, Clock(time))
    assert speed.seconds == [1.5 + 1.25] * 2
    assert speed.timings.requests == [1.5, 1.5, 1.25] * 2
    assert speed.timings.images == [1.5, 1.25] * 2
    assert speed.timings.first_batch == [1.5] * 2
    assert (speed.timings.warm_up, speed.timings.first_call) == (2.75, 1.5)
    assert speed.pictures == [(8, 4)] * 2
    assert speed.joules == [4.0] * 2
    assert speed.energy_reason is None
    assert speed.flops_reason == "torch counted no operation in this process"
