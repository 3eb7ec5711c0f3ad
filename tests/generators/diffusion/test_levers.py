"""Levers that change images: beside diffusers' own, named, keyed, and refused."""

from __future__ import annotations

from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusion_helpers import (
    REQUESTS,
    arguments,
    furthest,
    pixels,
    shared,
    stage,
    tiny_pipeline,
)
from pydantic import ValidationError

from plait.generators.base import Result
from plait.generators.diffusion.levers import _is_in_blocks, _multiply_in_fp8
from plait.generators.errors import UsageError
from plait.pipelines.presets import TextToImageSettings, t2i

pytestmark = pytest.mark.models
STEPS = 12
LENIENT = {"threshold": 0.5}
"""At the published threshold, random weights change too much from step to step."""
PUBLISHED = {
    "first-block-cache": diffusers.FirstBlockCacheConfig(**LENIENT),
    "taylorseer-cache": diffusers.TaylorSeerCacheConfig(
        cache_interval=5,
        max_order=1,
        disable_cache_before_step=3,
        taylor_factors_dtype=torch.float32,
    ),
    "magcache": diffusers.MagCacheConfig(
        threshold=0.24,
        max_skip_steps=5,
        retention_ratio=0.1,
        num_inference_steps=STEPS,
        mag_ratios=diffusers.hooks.mag_cache.FLUX_MAG_RATIOS,
    ),
}


def fast(speed: str, **changes: Any) -> Any:
    keyed = t2i("flux").model_copy(update={"speed": speed}).cache_parameters()
    if speed == "first-block-cache":
        assert keyed == {"threshold": 0.08}
        keyed = LENIENT
    told = {"speed": speed, "speed_parameters": keyed, "steps": STEPS}
    return stage("flux", **told, **changes)


def their_images(config: Any) -> np.ndarray:
    pipeline = tiny_pipeline("flux")
    pipeline.set_progress_bar_config(disable=True)
    pipeline.transformer.enable_cache(config)
    own = arguments("flux")
    images = [
        pipeline(
            prompt=r.prompt,
            num_inference_steps=STEPS,
            guidance_scale=own["guidance"],
            height=own["height"],
            width=own["width"],
            max_sequence_length=own["max_sequence_length"],
            generator=torch.Generator().manual_seed(r.seed),
        ).images[0]
        for r in REQUESTS[:3]
    ]
    return np.stack([np.asarray(image) for image in images]).astype(np.int16)


@pytest.mark.parametrize("speed", PUBLISHED)
def test_images_of_a_cache_are_those_of_diffusers_and_say_what_was_skipped(speed):
    outcomes = fast(speed)(REQUESTS[:3])
    drawn = pixels(outcomes)
    assert furthest(drawn, their_images(PUBLISHED[speed])) <= 1
    exact = pixels(stage("flux", steps=STEPS)(REQUESTS[:3]))
    assert furthest(drawn, exact) > 0
    for outcome in outcomes:
        assert isinstance(outcome, Result)
        assert 0 < outcome.notes["skipped_steps"] < 1
        skipped = outcome.notes["skipped_steps"] * STEPS
        assert outcome.usage["skipped_steps"] == pytest.approx(skipped)
    (plain,) = shared("flux")(REQUESTS[:1])
    assert "skipped_steps" not in {**plain.notes, **plain.usage}


def test_taylorseer_skips_as_many_steps_as_its_interval_says():
    """Three steps at first, then every fifth: of 12, steps 0-2, 3 or so, and each fifth."""
    (outcome,) = fast("taylorseer-cache")(REQUESTS[:1])
    skipped = outcome.notes["skipped_steps"] * STEPS
    assert skipped == pytest.approx(round(skipped), abs=1e-2)
    # At least four of each five steps after the third, but for the last interval's end.
    assert 6 <= round(skipped) <= 8


def test_a_cache_keeps_images_of_a_batch_apart():
    together = pixels(fast("first-block-cache")(REQUESTS[:3]))
    again = fast("first-block-cache")
    alone = np.concatenate([pixels(again([r])) for r in REQUESTS[2::-1]])[::-1]
    assert furthest(together, alone) == 0


def spec(**changes: Any) -> Any:
    told = t2i("flux").model_dump() | changes
    return TextToImageSettings(**told).spec("flux", "tiny")


def test_a_lever_is_named_and_keyed():
    plain = spec()
    assert plain.name == "flux"
    assert "speed" not in plain.settings
    levers = [spec(speed=speed) for speed in ("fp8", *PUBLISHED)]
    levers.append(spec(speed="magcache", speed_parameters={"threshold": 0.1}))
    assert len({s.digest for s in [plain, *levers]}) == 1 + len(levers)
    assert [s.name for s in levers[:2]] == ["flux fp8", "flux first-block-cache"]
    given = spec(speed="first-block-cache", speed_parameters={"threshold": 0.08})
    assert given.digest == levers[1].digest, "the published parameters are the key's"


def test_what_cannot_be_is_refused_by_name():
    told = t2i("qwen-image").model_dump() | {"speed": "first-block-cache"}
    with pytest.raises(ValidationError, match="published are those of flux"):
        TextToImageSettings(**told)
    with pytest.raises(ValidationError, match="exclude each other"):
        spec(speed="magcache", compile=True)
    with pytest.raises(ValidationError, match="those of a cache"):
        spec(speed="fp8", speed_parameters={"threshold": 1.0})
    parameters = {"speed": "first-block-cache", "speed_parameters": {"threshold": 0.1}}
    with pytest.raises(UsageError, match="no caches for UNet2DConditionModel"):
        stage("openjourney", **parameters)
    with pytest.raises(UsageError, match="unexpected keyword argument 'treshold'"):
        stage("flux", speed="first-block-cache", speed_parameters={"treshold": 0.1})


def test_fp8_is_refused_without_its_package_and_without_its_gpu(monkeypatch):
    monkeypatch.setattr("plait.generators.extras.is_installed", lambda module: False)
    with pytest.raises(UsageError, match=r"plait\[fp8\]"):
        stage("flux", speed="fp8")
    monkeypatch.undo()
    pytest.importorskip("torchao")
    with pytest.raises(UsageError, match=r"compute capability 9\.0.*a CPU with float32"):
        stage("flux", speed="fp8")


def blockwise_product(
    read: torch.Tensor,
    read_scale: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    block_size: int,
) -> torch.Tensor:
    """What torchao's kernel of a GPU computes, in float32, of what it accepts."""
    for tensor in (read, read_scale, weight, weight_scale):
        assert tensor.is_contiguous()
    assert read.dtype == weight.dtype == torch.float8_e4m3fn
    # The kernel reads them in the order of memory; torchao gives them another shape.
    columns = read_scale.view(len(read), -1).repeat_interleave(block_size, dim=1)
    blocks = weight_scale.repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)
    product = (read.float() * columns) @ (weight.float() * blocks).T
    return product.bfloat16()


@pytest.mark.parametrize("shape", [(1, 256), (3, 7, 256)])
def test_fp8_multiplies_whole_blocks_as_its_kernel_takes_them(shape, monkeypatch):
    """All but the kernel, which needs a GPU: of it a product in float32 takes the place."""
    torchao = pytest.importorskip("torchao")
    from torchao.float8 import inference
    from torchao.quantization.quantize_.workflows.float8 import float8_tensor

    monkeypatch.setattr(inference, "is_sm_at_least_89", lambda: True)
    monkeypatch.setattr(float8_tensor, "blockwise_fp8_gemm", blockwise_product)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 384), torch.nn.SiLU(), torch.nn.Linear(384, 64)]
    denoiser = torch.nn.Sequential(*layers).to(torch.bfloat16)
    plain = denoiser[0].weight.detach().clone()
    read = torch.randn(shape).to(torch.bfloat16)
    expected = denoiser(read)
    _multiply_in_fp8(denoiser, torch.device("cuda"), torch.bfloat16)
    quantised, kept = denoiser[0].weight, denoiser[2].weight
    assert isinstance(quantised, torchao.quantization.Float8Tensor)
    assert (quantised.qdata.dtype, quantised.scale.shape) == (torch.float8_e4m3fn, (3, 2))
    assert type(kept) is torch.nn.Parameter
    # Eight bits have three of a mantissa: half a unit in 16 at most.
    error = (quantised.dequantize() - plain).abs().max() / plain.abs().max()
    assert 0 < error < 1 / 16
    made = denoiser(read)
    assert made.dtype == torch.bfloat16
    assert (made - expected).abs().max() < 0.1 * expected.abs().max()
    assert set(denoiser.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_fp8_is_refused_of_weights_that_are_quantised():
    pytest.importorskip("torchao")
    layer = torch.nn.Linear(256, 128)
    packed = torch.zeros(128, 272, dtype=torch.uint8)
    layer.weight = torch.nn.Parameter(packed, requires_grad=False)
    denoiser = torch.nn.Sequential(torch.nn.SiLU(), layer)
    with pytest.raises(UsageError, match="those of 1 in Sequential are quantised already"):
        _multiply_in_fp8(denoiser, torch.device("cpu"), torch.bfloat16)


@pytest.mark.parametrize(("sides", "fits"), [((256, 128), True), ((256, 64), False)])
def test_fp8_leaves_layers_that_have_no_whole_blocks(sides, fits):
    assert _is_in_blocks(torch.nn.Linear(*sides), "any") == fits
    assert not _is_in_blocks(torch.nn.LayerNorm(128), "any")
