"""The prior of a forecast: every named model on every GPU, against what others published.

Run as a program, it prints the predicted time beside the published one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from forecast_helpers import TWO_CPUS, forecast_of, measured, writing
from torch.utils.flop_counter import FlopCounterMode

from plait.benchmarks.runs.forecast.machines import Machine
from plait.benchmarks.runs.forecast.prior import (
    BYTES,
    GPUS,
    LEAST_REACHED,
    MOST_REACHED,
    PROCESS_S,
)
from plait.benchmarks.runs.forecast.rates import Origin, Sources, StageRates
from plait.generators.base import Placement, StageSpec
from plait.generators.diffusion.builds import empty_module
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.designs import PUBLISHED as PUBLISHED_AS
from plait.generators.diffusion.flops import DECODER_FLOPS_PER_PIXEL, evaluation_flops
from plait.generators.natives import NATIVE, native
from plait.generators.work import FigureRange, Work
from plait.pipelines.presets import LVLMS, T2IS
from plait.scorers import SCORERS, resolve_scorer
from plait.scorers.embeddings.settings import ClipSettings
from plait.scorers.judging.resolve import JUDGES


@cache
def stages() -> tuple[StageSpec, ...]:
    """The stages of everything that has a name of its own."""
    return tuple(_stages())


def _stages() -> Iterator[StageSpec]:
    for name, settings in {**LVLMS, **T2IS}.items():
        if not (name in T2IS and DESIGNS[PUBLISHED_AS[settings.model]].unsized):
            yield settings.spec(name, "dummy")
    for name in NATIVE:
        system = native(name, "dummy", {})
        yield from (s for s in (system.draft, system.condition, system.render) if s)
    for name in (*SCORERS, *(f"judge:{judge}" for judge in JUDGES)):
        for spec in resolve_scorer(name, "dummy", {}).stages:
            yield replace(spec, name=name)


@pytest.mark.parametrize("gpu", ["A100", "H100", "H200", "L40S", "RTX 4090"])
def test_every_named_model_has_a_prior_on_every_gpu(gpu: str) -> None:
    for spec in stages():
        rates = StageRates.prior(spec, Machine.of(f"8x{gpu}"))
        assert rates.origin is Origin.PRIOR, spec.name
        spans = (rates.seconds, rates.load_s, *rates.usage.values())
        assert all(0 < span.low <= span.mean <= span.high for span in spans), spec.name
        assert "disk_bytes" in rates.usage, spec.name


# ------------------------------------------------------------------- published figures


class PublishedTime(NamedTuple):
    """Seconds of one image as somebody else measured them."""

    name: str
    gpu: str
    steps: int
    compile: bool
    seconds: float
    source: str
    side: int = 1024


_FAST = "diffusers documentation, tutorials/fast_diffusion.md"
_FAL = "github.com/fal-ai/stable-diffusion-benchmarks (torch 2.1)"
_TORCHAO = "github.com/sayakpaul/diffusers-torchao"
_XDIT = "github.com/xdit-project/xDiT, docs/performance/flux.md"
_TIMM = "github.com/huggingface/pytorch-image-models, results (image tower, AMP)"
PUBLISHED = (
    PublishedTime("sdxl", "A100", 30, False, 3.31, _FAST),
    PublishedTime("sdxl", "A100", 30, True, 2.54, _FAST),
    PublishedTime("sdxl", "A100", 50, False, 5.93, _FAL),
    PublishedTime("sdxl", "A100", 50, True, 5.14, _FAL),
    PublishedTime("sd3", "A100", 28, False, 4.762, "huggingface.co/blog/sd3"),
    PublishedTime("flux", "H100", 28, False, 6.57, _TORCHAO),
    PublishedTime("flux", "H100", 28, True, 4.21, _TORCHAO),
    PublishedTime("flux", "H100", 28, False, 6.71, _XDIT),
    PublishedTime("flux", "H100", 28, True, 4.30, _XDIT),
    # Of an H800, whose peak is an H100's.
    PublishedTime("qwen-image", "H100", 50, False, 20.0, "docs.vllm.ai/projects/vllm-omni"),
    # Of Stable Diffusion 1.5, whose architecture Openjourney has.
    PublishedTime("openjourney", "A100", 50, False, 1.604, _FAL, 512),
    PublishedTime("openjourney", "A100", 50, True, 1.058, _FAL, 512),
    PublishedTime("ViT-L-14:openai", "RTX 4090", 0, False, 1 / 658, _TIMM),
    PublishedTime("ViT-B-32:openai", "RTX 4090", 0, False, 1 / 10_128, _TIMM),
)


def predicted(published: PublishedTime) -> FigureRange:
    """The prior of the same work on a whole GPU."""
    about: dict[str, Any] = {"batch_size": 1, "num_gpus": 1.0}
    if published.name in T2IS:
        values = {n: getattr(published, n) for n in ("steps", "compile")}
        sides = {"height": published.side, "width": published.side}
        settings: Any = T2IS[published.name].model_copy(update=values | sides | about)
        spec = settings.spec("t2i", "dummy")
    else:
        # A batch of 1024: the weights are read once for all of them.
        about |= {"model": published.name, "batch_size": 1024, "dtype": "bfloat16"}
        spec = ClipSettings(**about).spec("clip", "dummy")
        assert spec.work is not None
        spec = replace(spec, work=replace(spec.work, cpu_s=FigureRange.exact(0.0)))
    seconds = StageRates.prior(spec, Machine.of(f"1x{published.gpu}")).seconds
    assert seconds is not None
    return seconds


def table(spans: Mapping[PublishedTime, FigureRange]) -> str:
    """Predicted times beside published ones, one a line."""
    return "\n".join(
        f"{p.name:16}{p.gpu:10}{p.steps:3} steps{' compiled' if p.compile else '':9} "
        f"published {p.seconds:8.4g} s, predicted {span.mean:8.4g} s, "
        f"ratio {span.mean / p.seconds:.2f}"
        for p, span in spans.items()
    )


def test_nine_of_ten_published_times_are_met_within_a_factor_of_two() -> None:
    spans = {p: predicted(p) for p in PUBLISHED}
    met = [0.5 <= span.mean / p.seconds <= 2 for p, span in spans.items()]
    assert sum(met) >= 0.9 * len(met), table(spans)
    within = [span.low <= p.seconds <= span.high for p, span in spans.items()]
    assert sum(within) >= 0.9 * len(within), table(spans)


# ---------------------------------------------------------------------------- the parts


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def unet(side: int, states: int, **more: Any) -> dict[str, Any]:
    read = {"sample": empty(1, 4, side, side), "timestep": empty(1)}
    return read | {"encoder_hidden_states": empty(1, 77, states)} | more


def joint(latents: tuple[int, ...], states: tuple[int, int], **more: Any) -> dict[str, Any]:
    read = {"hidden_states": empty(1, *latents), "timestep": empty(1)}
    return read | {"encoder_hidden_states": empty(1, *states)} | more


SDXL = {"text_embeds": empty(1, 1280), "time_ids": empty(1, 6)}
INPUTS: Mapping[str, tuple[int, int, dict[str, Any]]] = {
    "sd15": (512, 77, unet(64, 768)),
    "sdxl": (1024, 77, unet(128, 2048, added_cond_kwargs=SDXL)),
    "sd3": (
        1024,
        256,
        joint((16, 128, 128), (333, 4096), pooled_projections=empty(1, 2048)),
    ),
    "flux": (
        1024,
        512,
        joint(
            (4096, 64),
            (512, 4096),
            pooled_projections=empty(1, 768),
            guidance=empty(1),
            img_ids=empty(4096, 3),
            txt_ids=empty(512, 3),
        ),
    ),
    "flux2-klein": (
        1024,
        512,
        joint(
            (4096, 128),
            (512, 7680),
            img_ids=empty(1, 4096, 4),
            txt_ids=empty(1, 512, 4),
        ),
    ),
    "pixart-sigma": (
        1024,
        300,
        joint(
            (4, 128, 128),
            (300, 4096),
            added_cond_kwargs={"resolution": None, "aspect_ratio": None},
        ),
    ),
    "sana": (1024, 300, joint((32, 32, 32), (300, 2304))),
    "z-image": (
        1024,
        512,
        {"x": [empty(16, 1, 128, 128)], "t": empty(1), "cap_feats": [empty(512, 2560)]},
    ),
}
"""Architecture -> side in pixels, tokens read, and what its denoiser is called with."""
LARGEST = ("sdxl", "flux")
"""Others have the same kinds of blocks, and are made in less time."""


def counted(architecture: str, module: str, method: str, *args: Any, **named: Any) -> int:
    """Operations that torch counts, without computing anything."""
    network = empty_module(DESIGNS[architecture], module).to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        getattr(network, method)(*args, **named)
    return int(counter.get_total_flops())


@pytest.mark.models
@pytest.mark.parametrize(
    "architecture",
    [pytest.param(a, marks=[pytest.mark.slow] * (a in LARGEST)) for a in INPUTS],
)
def test_operations_are_those_that_torch_counts(architecture: str) -> None:
    side, tokens, inputs = INPUTS[architecture]
    design = DESIGNS[architecture]
    module = "unet" if "unet" in design.modules else "transformer"
    expected = counted(architecture, module, "forward", **inputs)
    assert evaluation_flops(design, side**2, tokens) == pytest.approx(expected, rel=0.15)


@pytest.mark.models
def test_operations_of_decoding_are_those_that_torch_counts() -> None:
    decoded = counted("sdxl", "vae", "decode", empty(1, 4, 128, 128))
    assert decoded / 1024**2 == pytest.approx(DECODER_FLOPS_PER_PIXEL, rel=0.1)


def prior(work: Work, **placement: Any) -> StageRates:
    spec = replace(stages()[0], work=work, placement=Placement(**placement))
    return StageRates.prior(spec, Machine.of("8xH100"))


def test_a_batch_takes_its_operations_or_its_bytes_whichever_take_longer() -> None:
    h100 = GPUS[1]
    flops, bytes_per_s = h100.flops * h100.reached, h100.bytes_per_s * BYTES.mean
    decoding = Work(weight_bytes=bytes_per_s, steps=FigureRange.exact(10.0))
    assert prior(decoding, num_gpus=1.0, batch_size=4).seconds.mean == pytest.approx(11 / 4)
    # A step reads the keys and values of the whole batch.
    cached = replace(decoding, cache_bytes=bytes_per_s / 4)
    assert prior(cached, num_gpus=1.0, batch_size=4).seconds.mean == pytest.approx(21 / 4)
    # Layers of a model on several GPUs work in turn; an engine's work together.
    assert prior(decoding, num_gpus=4.0, batch_size=4).seconds.mean == pytest.approx(11 / 4)
    drawing = Work(flops=FigureRange(flops, flops / 2, flops * 2))
    seconds = prior(drawing, num_gpus=1.0, batch_size=4).seconds
    assert seconds.mean == pytest.approx(1.0)
    assert seconds.low == pytest.approx(0.5 * h100.reached / MOST_REACHED)
    assert seconds.high == pytest.approx(2 * h100.reached / LEAST_REACHED)
    fused = replace(drawing, compiled=True)
    assert prior(fused, num_gpus=1.0).seconds.mean < 0.8
    assert prior(drawing, num_gpus=0.5).seconds.mean == pytest.approx(2.0)
    assert prior(Work(weight_bytes=1e9), num_gpus=0.0).seconds is None


def test_loading_takes_the_weights_from_disk() -> None:
    loaded = prior(Work(weight_bytes=3e9), num_gpus=1.0).load_s
    assert (loaded.low, loaded.high) == (PROCESS_S.low + 1, PROCESS_S.high + 10)


def test_what_was_measured_goes_before_the_prior(tmp_path: Path) -> None:
    spec = LVLMS["qwen2-vl-7b"].spec("lvlm", "dummy")
    machine = Machine.of("8xH100")
    hardware = {"cpus": 32, "gpus": ["NVIDIA H100 80GB HBM3, 550"] * 8}
    new = Sources.at(tmp_path / "new", machine)
    assert new.rates(spec, 9).origin is Origin.PRIOR
    measured(tmp_path / "a", spec, [(1, 3.0)] * 4, hardware=hardware)
    rates = Sources.at(tmp_path / "new", machine).rates(spec, 9)
    assert (rates.origin, rates.seconds.mean) == (Origin.BESIDE, 3.0)
    assert rates.load_s == StageRates.prior(spec, machine).load_s
    assert rates.usage["disk_bytes"].low == rates.usage["disk_bytes"].high
    unknown = Sources.at(tmp_path / "other", Machine.of("8xB300")).rates(spec, 9)
    assert (unknown.origin, unknown.seconds) == (Origin.UNKNOWN, None)


def test_a_forecast_without_measurements_has_ranges_of_hours_disk_and_money(
    tmp_path: Path,
) -> None:
    settings = LVLMS["qwen2-vl-72b"]
    plan = writing(settings.spec("lvlm", "dummy"), 1000)
    made = forecast_of(plan, tmp_path / "new", Machine.of("4x8xA100"), price_per_gpu_hour=2)
    assert not made.missing
    for name in ("input_tokens", "output_tokens", "disk_bytes", "money"):
        span, known = made.total(name)
        assert known
        assert span.low < span.mean < span.high
    assert made.total("money")[0] == made.gpu_hours * 2
    assert made.as_json["stages"][plan.stages[0].folder]["origin"] == Origin.PRIOR
    assert "?" not in str(made.table.rows)
    small = forecast_of(plan, tmp_path / "new", Machine.of("8xRTX 4090"))
    assert len(small.notes) == len(made.notes) + 1  # it does not fit
    unknown = forecast_of(plan, tmp_path / "new", Machine.of("8xH1000"))
    assert any("'H1000'" in note and "H100, H200" in note for note in unknown.notes)
    paid = LVLMS["gpt-6.1-sol"].model_copy(update=dict.fromkeys(PRICES, 2.0))
    asked = forecast_of(writing(paid.spec("paid", "dummy"), 10), tmp_path / "p", TWO_CPUS)
    tokens = [asked.total(name)[0] for name in ("input_tokens", "output_tokens")]
    money, known = asked.total("money")
    assert known
    assert money.high == pytest.approx(2e-6 * (tokens[0].high + tokens[1].high))


PRICES = ("price_per_million_input", "price_per_million_output")


if __name__ == "__main__":
    print(table({p: predicted(p) for p in PUBLISHED}))
