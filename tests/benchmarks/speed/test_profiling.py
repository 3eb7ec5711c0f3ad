"""`--profile`: the trace, and the table of where a call's time goes."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch
from diffusion_helpers import REQUESTS, shared
from torch.utils.flop_counter import FlopCounterMode

from plait.benchmarks.runs.forecast.prior import GPUS
from plait.benchmarks.speed.command import main
from plait.benchmarks.speed.profiling import (
    NO_ROOFLINE,
    Part,
    Profile,
    profile_call,
    sum_kinds,
)

pytestmark = pytest.mark.models
H100 = next(gpu for gpu in GPUS if gpu.name == "H100")


def test_parts_of_a_pipeline_are_named_timed_and_counted(tmp_path):
    stage = shared("sdxl")
    pipeline = stage.drawer.pipeline
    trace = tmp_path / "trace.json"
    profile = profile_call(stage, REQUESTS[:2], "sdxl", trace)
    parts = {part.name: part for part in profile.parts}
    steps = [f"denoiser, step {n}" for n in (1, 2)]
    assert set(parts) == {"text_encoder", "text_encoder_2", *steps, "VAE decoder"}
    for part in parts.values():
        assert part.seconds > 0
        assert part.flops > 0
        assert part.roofline(None) is None
    weights = sum(p.numel() * 4 for p in pipeline.unet.parameters())
    assert all(parts[step].weight_bytes == weights for step in steps)
    assert sum(part.seconds for part in parts.values()) < profile.seconds
    stage.forget()
    with FlopCounterMode(display=False) as counter:
        stage(REQUESTS[:2])
    counted = sum(part.flops for part in parts.values())
    # What stands between the parts multiplies nothing to speak of.
    assert counted == pytest.approx(counter.get_total_flops(), rel=0.01)
    kernels, attention, copies, host = profile.kinds
    assert 0 < attention.seconds < kernels.seconds < profile.seconds
    assert 0 < copies.seconds < kernels.seconds
    assert host.seconds == pytest.approx(profile.seconds - kernels.seconds)
    events = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert set(parts) <= events
    assert "forward" not in vars(pipeline.unet), "the modules have their own methods again"


def test_what_took_the_place_of_a_method_stays(tmp_path):
    """As a hook of accelerate does, or CUDA graphs."""
    stage = Denoising()
    placed = stage.unet.forward = functools.partial(torch.nn.functional.relu)
    profile = profile_call(stage, [torch.ones(1, 2)], "relu", tmp_path / "trace.json")
    assert [part.name for part in profile.parts] == ["denoiser, step 1"]
    assert stage.unet.forward is placed


class Denoising:
    """A stage that evaluates a UNet once for every input."""

    def __init__(self) -> None:
        self.unet = torch.nn.Identity()
        pipeline = SimpleNamespace(components={"unet": self.unet})
        self.drawer = SimpleNamespace(pipeline=pipeline)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [self.unet(given) for given in inputs]


def event_of(key: str, device: str, own_us: float, total_us: float) -> SimpleNamespace:
    """An average of torch.profiler, as it tells one where there is a GPU."""
    times = {"self_device_time_total": own_us, "device_time_total": total_us}
    kind = SimpleNamespace(name=device)
    return SimpleNamespace(key=key, device_type=kind, count=2, **times)


def test_kernels_of_a_gpu_are_counted_once_and_not_with_their_operators():
    host = "CPU"
    gpu = "CUDA"
    events = [
        event_of("aten::scaled_dot_product_attention", host, 0.0, 3e6),
        event_of("aten::mm", host, 4e6, 4e6),
        event_of("cudaLaunchKernel", host, 0.0, 0.0),
        event_of("VAE decoder", host, 0.0, 7e6),
        event_of("VAE decoder", gpu, 7e6, 7e6),
        event_of("flash_fwd_kernel", gpu, 3e6, 3e6),
        event_of("gemm", gpu, 4e6, 4e6),
        event_of("Memcpy HtoD (Pageable -> Device)", gpu, 1e6, 1e6),
    ]
    kinds = sum_kinds(events, 10.0, on_gpu=True, marks={"VAE decoder"})
    assert [kind.seconds for kind in kinds] == [8.0, 3.0, 1.0, 2.0]
    assert [kind.calls for kind in kinds] == [6, 2, 2, 0]


@pytest.mark.parametrize(
    ("flops", "weight_bytes", "share"),
    [(989.5e12, 0.0, 0.5), (0.0, 3.35e12, 0.5), (989.5e12, 6.7e12, 1.0), (0.0, 0.0, None)],
)
def test_the_roofline_is_the_longer_of_operations_and_bytes(flops, weight_bytes, share):
    part = Part("any", 1, 2.0, flops, weight_bytes)
    assert part.roofline(H100) == share


def test_a_device_of_which_nothing_is_known_has_no_roofline():
    parts = [Part("VAE decoder", 1, 0.5, 1e12, 1e9)]
    known = Profile("any", "NVIDIA H100 80GB HBM3", 1.0, parts, [])
    assert known.gpu == H100
    assert NO_ROOFLINE not in known.table.title
    assert NO_ROOFLINE in Profile("any", "CPU, 2 threads", 1.0, parts, []).table.title


@pytest.mark.skipif(torch.cuda.is_available(), reason="of a CPU")
def test_the_command_writes_a_trace_and_the_table(tmp_path):
    trace, out = tmp_path / "deep" / "trace.json", tmp_path / "out.json"
    size = ["--batches", "1", "--queries", "1", "--rounds", "1", "--weights", "tiny"]
    words = ["sdxl-turbo", "--part", "render", *size, "--profile", str(trace)]
    assert main([*words, "--out", str(out)]) == 0
    profile = json.loads(out.read_text())["profile"]
    names = [part["name"] for part in profile["parts"]]
    assert {"text_encoder", "denoiser, step 1", "VAE decoder", "all kernels"} <= set(names)
    assert all(part["roofline"] is None for part in profile["parts"])
    assert trace.stat().st_size > 0
