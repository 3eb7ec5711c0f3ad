"""Every figure against one computed by hand; what cannot be measured is absent."""

from __future__ import annotations

import sys
from mmap import PAGESIZE, mmap
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.numpy import save
from speed_helpers import FakeTime, figures, surroundings

from plait.benchmarks.speed import device
from plait.benchmarks.speed.device import (
    count_operations,
    matrix_rate,
    peak_memory,
    weight_traffic,
)
from plait.benchmarks.speed.figures import SERVER, STREAMED, Speed, distribution
from plait.benchmarks.speed.report import Measurement, same
from plait.benchmarks.speed.rounds import Variant, measure, variants_of
from plait.benchmarks.speed.watches import Clock
from plait.generators.base import Failure, Kind, Result
from plait.generators.document import Draft, ImageRequest, Payload, Score, Text
from plait.generators.images import Drawing

pytestmark = pytest.mark.models


def test_percentiles_lie_linearly_between_values():
    values = np.random.default_rng(0).lognormal(size=37)
    figure = distribution(list(values), "ms")
    ordered = np.sort(values) * 1000
    place = 0.95 * 36  # independent of np.percentile: the 35th and 36th of 37 values
    low, high = ordered[int(place)], ordered[int(place) + 1]
    assert figure.spread["p95"] == pytest.approx(low + (place % 1) * (high - low))
    assert figure.spread["median"] == pytest.approx(ordered[18])
    assert figure.value == pytest.approx(values.mean() * 1000)
    assert figure.spread["n"] == 37


def test_figures_by_hand():
    drawing = Drawing(np.zeros((500, 1000, 3), np.uint8))
    usage = {"input_tokens": 15, "output_tokens": 5}
    speed = Speed(
        "batch 2",
        seconds=[2.0],
        outcomes=[Result(drawing, usage)] * 2,
        requests=[0.5, 1.5],
        per_image=[0.25, 0.75],
        first_tokens=[0.1],
        between_tokens=[0.02, 0.04],
        steps=[0.03],
        first_batch=[0.4, 0.5, 9.0],
        warm_up=[2.5, 0.5],
        peak_memory_gib=1.5,
        weight_bytes=10**9,
        flops=10**9,
        joules=[9.0, 10.0, 11.0],
        dtype="float32",
    )
    made = figures(speed, kind=Kind.DRAFT, load_s=7.0, compiled=True, price_per_hour=3.6)
    values = {name: figure.value for name, figure in made.present.items()}
    assert values == pytest.approx(
        {
            "request_throughput": 1.0,
            "image_throughput": 1.0,
            "megapixel_throughput": 0.5,
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
            "memory_bandwidth_utilization": 1e9 / 1e9 / 0.5,
            "energy": 10.0,
            "energy_per_request": 5.0,
            "energy_per_image": 5.0,
            "energy_per_output_token": 1.0,
            # A thousandth of a dollar per second, two seconds.
            "cost_per_1000_images": 1.0,
            "cost_per_1m_output_tokens": 200.0,
        }
    )
    assert made.absent == {}


def test_what_a_server_hides_is_absent_and_never_zero():
    speed = Speed("batch 1", [1.0], requests=[1.0], peak_memory_gib=3.0)
    made = figures(speed, kind=Kind.DRAFT, server=True, price_per_hour=2.0)
    assert set(made.present) == {"request_latency"}
    for name in ("peak_memory", "model_flops", "memory_bandwidth_utilization", "energy"):
        assert made.absent[name] == SERVER
    assert made.absent["time_to_first_token"] == STREAMED
    assert {"request_throughput", "cost_per_1000_images"} <= made.absent.keys()


def test_a_compiled_stage_whose_first_call_was_no_slower_is_not_called_uncompiled():
    speed = Speed("batch 1", [1.0], first_batch=[0.5], warm_up=[0.5])
    compiled = figures(speed, kind=Kind.RENDER, compiled=True).absent["compile_time"]
    assert compiled == "the first call took no longer than the same call later"
    uncompiled = figures(speed, kind=Kind.RENDER).absent["compile_time"]
    assert uncompiled == "the stage is not compiled"


def test_only_stages_that_write_text_have_token_times():
    speed = Speed("batch 1", [1.0], first_tokens=[0.1])
    draft = figures(speed, kind=Kind.DRAFT)
    assert "time_to_first_token" in draft.present
    assert "inter_token_latency" in draft.absent
    assert "time_to_first_token" in figures(speed, kind=Kind.CONDITION).absent


def test_operations_of_known_layers():
    layer = torch.nn.Linear(4, 6)
    query = torch.ones(1, 2, 5, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    with torch.inference_mode():
        value, flops, reason = count_operations(lambda: layer(torch.ones(3, 4)))
        assert (value.shape, flops, reason) == ((3, 6), 2 * 3 * 4 * 6, None)
        _, flops, _ = count_operations(lambda: attend(query, query, query))
    assert flops == 2 * (2 * 2 * 5 * 5 * 8), "two products of two heads"


def test_operations_that_cannot_be_counted_say_why():
    value, flops, reason = count_operations(lambda: [1])
    assert (value, flops) == ([1], None)
    assert reason
    calls: list[int] = []

    def fails_once():
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("no kernel under this mode\nat line 7")
        return "answer"

    value, flops, reason = count_operations(fails_once)
    assert (value, flops) == ("answer", None)
    assert "no kernel under this mode" in reason


def test_weights_are_counted_as_often_as_they_are_read():
    inner, embedding = torch.nn.Linear(4, 6), torch.nn.Embedding(100, 4)
    with weight_traffic() as traffic:
        for _ in range(3):
            inner(embedding(torch.tensor([1])))
    read = 3 * (4 * 6 + 6) * 4
    assert (traffic.bytes, traffic.parameters, traffic.dtype) == (read, 430, "float32")
    inner(torch.zeros(1, 4))
    assert traffic.bytes == read, "the count has ended"


def test_peak_memory_is_that_of_all_gpus(monkeypatch):
    allocated = {0: 2**30, 1: 3 * 2**30}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(allocated))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda number: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", allocated.__getitem__)
    with peak_memory() as peak:
        pass
    assert peak.gib == 4.0


def test_the_peak_of_a_cpu_is_of_what_runs_inside():
    def peak(megabytes: int) -> float:
        # Not from the heap, which may have as much to give that is resident already.
        with peak_memory() as measured, mmap(-1, megabytes * 2**20) as memory:
            memory[::PAGESIZE] = bytes(len(memory) // PAGESIZE)
        return measured.gib * 1024

    large, small = peak(300), peak(1)
    assert 200 < large - small < 400, "MiB; the second starts anew"


def test_with_several_gpus_a_mark_waits_for_all_of_them(monkeypatch):
    waited: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    clock = Clock()
    assert clock.seconds(clock.mark(), clock.mark()) >= 0
    assert waited == [0, 1, 0, 1]


def test_the_matrix_rate_is_that_of_a_product(monkeypatch):
    monkeypatch.setattr(device, "_CPU_MATRIX_SIDE", 8)
    monkeypatch.setattr(device, "device_of", lambda _: torch.device("cpu"))
    monkeypatch.setattr(device, "_median_s", lambda *_, **__: 0.5)
    assert matrix_rate(torch.float32) == 2 * 8**3 / 0.5
    monkeypatch.undo()
    monkeypatch.setattr(device, "_CPU_MATRIX_SIDE", 8)
    assert matrix_rate(torch.float32) > 0


def test_calls_rounds_and_energy_of_a_stage_that_takes_known_time(monkeypatch):
    time, nvml = FakeTime(), ModuleType("pynvml")
    nvml.millijoules = 500_000
    nvml.nvmlInit = nvml.nvmlShutdown = lambda: None
    nvml.nvmlDeviceGetCount = lambda: 1
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda handle: nvml.millijoules
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def stage(inputs):
        time.pass_(1.0 + 0.25 * len(inputs))
        nvml.millijoules += 2_000
        image = Drawing(np.zeros((4, 8, 3), np.uint8))
        return [Result(image if i else Draft((Text("no image"),))) for i in inputs]

    (speed,) = measure([Variant("batch 2", stage, 2)], [0, 1, 2], 2, Clock(time))
    assert speed.seconds == [1.5 + 1.25] * 2
    assert speed.requests == [1.5, 1.5, 1.25] * 2
    assert speed.per_image == [1.5, 1.25] * 2
    assert speed.first_batch == [1.5] * 2
    assert speed.warm_up == [1.5, 1.25]
    assert speed.image_sizes == [(8, 4)] * 2
    assert speed.joules == [4.0] * 2
    assert speed.energy_reason is None
    assert (speed.flops, bool(speed.flops_reason)) == (None, True)


def test_every_variant_computes_the_whole_workload_every_round():
    batches: list[list[int]] = []

    def stage(inputs):
        batches.append(list(inputs))
        return [Failure("no") if i == 4 else Result(i, {"tokens": i}) for i in inputs]

    speeds = measure(variants_of(stage, [2, 5]), [0, 1, 2, 3, 4], rounds=2)
    # One round to warm up, two timed; the first batch once more, to count the weights.
    counts = [batches.count(batch) for batch in ([0, 1], [2, 3], [4], [0, 1, 2, 3, 4])]
    assert counts == [4, 3, 3, 4]
    assert [s.variant for s in speeds] == ["batch 2", "batch 5"]
    for speed in speeds:
        assert (len(speed.seconds), speed.records) == (2, 4)
        assert speed.usage == {"tokens": 6}
        assert speed.failures == {"no": 1}
        assert speed.answers == [0, 1, 2, 3, None]


def test_what_does_not_fit_is_left_out_and_other_errors_are_not(capsys):
    def full(inputs):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried ...")

    def broken(inputs):
        raise RuntimeError("shapes differ")

    fine = Variant("small", lambda inputs: [Result(1)], 1)
    assert [s.variant for s in measure([Variant("big", full, 1), fine], [0], 1)] == [
        "small"
    ]
    assert "big" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="shapes differ"):
        measure([Variant("broken", broken, 1)], [0], 1)


def test_rates_ratios_and_fractions_by_hand():
    usage = {"images": 0.25}
    one, other = ([Result(v, usage) for v in values] for values in ("abbbbbbb", "abbbbbbx"))
    first = Speed("upstream", [4.0, 2.0, 9.0], one, peak_memory_gib=0.5, weight_bytes=600)
    first.first_batch = [0.5, 0.4, 1.0]
    second = Speed("batch 2", [1.0], other, peak_memory_gib=0.5, weight_bytes=300)
    around = surroundings(bandwidth=1200.0)
    made = Measurement("n", "title", [first, second], around, {"device": "CPU"})
    assert (made.ratio(first), made.ratio(second)) == (None, 4.0)
    assert made.agreement(second) == 7
    data = made.data()["speeds"]
    assert data[0]["fraction_of_bandwidth"] == pytest.approx(600 / 1200 / 0.5)
    assert [d["batch_size"] for d in data] == [None, 2]
    head, *rows = ([c.text for c in row] for row in made.tables[0].rows)
    assert [head[:4], *(row[:4] for row in rows)] == [
        ["upstream", "4.000", "2.00", "30.0"],
        ["batch 2", "1.000", "8.00", "120.0"],
    ]


GREY = np.full((2, 2, 3), 7, dtype=np.uint8)


def draft(value, text="a"):
    states = save({"states": np.full((2, 3), value, dtype=np.float32)})
    return Draft((Text(text), ImageRequest(payload=Payload.of(states))))


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (draft(1.0), draft(1.00001), True),
        (draft(1.0), draft(1.01), False),
        (draft(1.0), draft(1.0, "b"), False),
        (draft(1.0), Draft(draft(1.0).segments[:1]), False),
        (Drawing(GREY), Drawing(GREY - 1), True),
        (Drawing(GREY), Drawing(GREY - 2), False),
        (Drawing(GREY), Drawing(GREY[:1]), False),
        (Score(0.5), Score(0.50001), True),
        (Score(0.5), Score(0.51), False),
    ],
)
def test_answers_are_compared_within_tolerances(one, other, equal):
    assert same(one, other) is equal
