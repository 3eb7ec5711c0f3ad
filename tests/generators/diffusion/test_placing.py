"""Attention kernels, compilation, and several devices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from diffusion_helpers import (
    REQUESTS,
    furthest,
    pipeline_of,
    pixels,
    shared,
    stage,
    tiny_pipeline,
)
from pydantic import ValidationError

from plait.generators.diffusion import placing
from plait.generators.diffusion.designs import DESIGNS
from plait.generators.diffusion.placing import (
    AttentionError,
    attention_choices,
    compile_denoiser,
    denoiser_of,
    spread,
    use_attention,
)
from plait.generators.diffusion.settings import has_repeated_blocks
from plait.generators.errors import UsageError
from plait.pipelines.presets import t2i

pytestmark = pytest.mark.models
CPU = torch.device("cpu")
DISPATCH = {"flux", "flux2-klein", "z-image", "qwen-image", "qwen-image-edit"}
DISPATCH |= {"glm-image", "cosmos3", "flux2-dev", "flux2-klein-9b", "z-image-base"}
DISPATCH |= {"qwen-image-2512", "qwen-image-edit-2511"}


@pytest.mark.parametrize("architecture", DESIGNS)
def test_choices_depend_on_the_model(architecture):
    """diffusers would put xformers in the place of SANA's linear attention."""
    choices = attention_choices(denoiser_of(pipeline_of(architecture)))
    if architecture in DISPATCH:
        assert {"sdpa", "xformers", "_native_math", "own"} < set(choices)
        assert not [name for name in choices if "hub" in name]
    else:
        xformers = [] if architecture == "sana" else ["xformers"]
        assert choices == ["sdpa", *xformers, "own"]


@pytest.mark.parametrize(
    ("architecture", "name"),
    [("sdxl", "_native_math"), ("sd3", "flash"), ("flux", "flash_hub"), ("flux", "quick")]
    # On a CPU it has no operation to run.
    + [(architecture, "xformers") for architecture in ("sd15", "flux")],
)
def test_kernels_that_a_model_cannot_run_are_refused(architecture, name):
    """Kernels of the Hub are code from the network."""
    with pytest.raises(AttentionError, match=f"'{name}'.*sdpa"):
        use_attention(pipeline_of(architecture), name, CPU, torch.float32)


ATTENDED = []


def attend(query, key, value, attn_bias=None, op=None, scale=None):
    """xformers' memory_efficient_attention on (batch, tokens, width)."""
    ATTENDED.append(query.shape)
    weights = query @ key.transpose(-1, -2) * (scale or 1 / math.sqrt(query.shape[-1]))
    return torch.softmax(weights if attn_bias is None else weights + attn_bias, -1) @ value


@pytest.mark.parametrize("name", ["openjourney", "sdxl", "sd3"])
def test_xformers_is_used_where_the_setter_does_nothing(name, monkeypatch):
    """In plain arithmetic; diffusers believes that there is a GPU."""
    pytest.importorskip("xformers")
    normal = torch.randn
    monkeypatch.setattr("xformers.ops.memory_efficient_attention", attend)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(torch, "randn", lambda *size, device=None, **k: normal(*size, **k))
    drawing = stage(name, attention="xformers", device="cpu")
    ATTENDED.clear()
    drawn = pixels(drawing(REQUESTS[:2]))
    assert ATTENDED
    assert furthest(drawn, pixels(stage(name, device="cpu")(REQUESTS[:2]))) <= 1


@pytest.mark.parametrize("name", ["flux", "z-image-turbo"])
def test_a_model_that_dispatches_runs_the_named_kernel(name, monkeypatch):
    used = []
    drawing = stage(name, attention="_native_math")
    kernel = torch.nn.attention.sdpa_kernel
    monkeypatch.setattr(
        torch.nn.attention, "sdpa_kernel", lambda b: used.append(b) or kernel(b)
    )
    drawn = pixels(drawing(REQUESTS[:2]))
    assert torch.nn.attention.SDPBackend.MATH in used
    assert furthest(drawn, pixels(shared(name)(REQUESTS[:2]))) <= 1


@pytest.mark.parametrize(
    ("architecture", "compiled"),
    [
        ("sdxl", {"BasicTransformerBlock"}),
        ("flux", {"FluxTransformerBlock", "FluxSingleTransformerBlock"}),
        ("sd3", {"SD3Transformer2DModel"}),
        ("sana", {"SanaTransformer2DModel"}),
        ("z-image", {"ZImageTransformerBlock"}),
    ],
)
def test_repeated_blocks_are_compiled_where_declared(architecture, compiled, monkeypatch):
    seen = set()
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self: seen.add(type(self).__name__)
    )
    denoiser = denoiser_of(tiny_pipeline(architecture))
    compile_denoiser(denoiser)
    assert seen == compiled
    assert has_repeated_blocks(DESIGNS[architecture]) == (
        type(denoiser).__name__ not in seen
    )


def images_of(drawing: Any, requests: Any = REQUESTS[:2]) -> np.ndarray:
    """Between 0 and 1, (images, height, width, 3), before they are rounded."""
    drawer = drawing.drawer
    each: dict[str, Any] = {"prompt": [r.prompt for r in requests]}
    each["generator"] = [torch.Generator().manual_seed(r.seed) for r in requests]
    each |= drawer.encoder.conditions(each)
    return drawer.pipeline(**{**each, **drawer.arguments}).images


@pytest.mark.parametrize("name", ["openjourney", "sdxl", "sd3", "flux"])
@pytest.mark.parametrize("lever", ["fuse_qkv", "channels_last"])
def test_exact_levers_draw_the_same_and_keep_the_key(name, lever):
    """To 1e-5 of the range of values."""
    drawing = stage(name, **{lever: True})
    np.testing.assert_allclose(
        images_of(drawing), images_of(shared(name)), rtol=0, atol=1e-5
    )
    fused = [m for m in drawing.drawer.pipeline.components.values() if is_fused(m)]
    assert bool(fused) == (lever == "fuse_qkv")
    vae = drawing.drawer.pipeline.vae.decoder.conv_in.weight
    last = vae.is_contiguous(memory_format=torch.channels_last)
    assert last == (lever == "channels_last")
    keyed = t2i(name).model_copy(update={lever: True}).spec(name, "tiny")
    assert keyed.digest == t2i(name).spec(name, "tiny").digest


def is_fused(module: Any) -> bool:
    """Whether a module has attention whose queries, keys and values are one product."""
    modules = module.modules() if isinstance(module, torch.nn.Module) else ()
    return any(getattr(m, "fused_projections", False) for m in modules)


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        # diffusers would put softmax in the place of its linear attention.
        ("sana", {"fuse_qkv": True}, "SanaTransformer2DModel.*UNet2DConditionModel"),
        ("flux", {"fuse_qkv": True, "speed": "magcache"}, "exclude each other"),
        ("qwen-image", {"channels_last": True}, "AutoencoderKLQwenImage"),
    ],
)
def test_exact_levers_that_a_model_cannot_do_are_refused(name, changes, named):
    with pytest.raises((UsageError, ValidationError), match=named):
        stage(name, **changes)


def test_attention_is_chosen_by_the_gpu_and_tried_with_one_operation(monkeypatch):
    """Of kernels that the model, the device and the packages allow, the first one."""
    plain = stage("flux", attention="auto")
    assert "attention" not in plain.drawer.notes, "on a CPU there is nothing to choose"
    monkeypatch.setattr(placing, "_fastest", lambda device: ("flash", "_native_math"))
    drawing = stage("flux", attention="auto")
    assert drawing.drawer.notes["attention"] == "_native_math"
    drawn = pixels(drawing(REQUESTS[:2]))
    assert furthest(drawn, pixels(shared("flux")(REQUESTS[:2]))) <= 1
    monkeypatch.setattr(placing, "_fastest", lambda device: ("flash",))
    assert stage("flux", attention="auto").drawer.notes["attention"] == "sdpa"
    wrong = lambda *given, **named: given[0] + 1  # noqa: E731
    monkeypatch.setattr(placing, "dispatch_attention_fn", wrong)
    monkeypatch.setattr(placing, "_fastest", lambda device: ("_native_math",))
    assert stage("flux", attention="auto").drawer.notes["attention"] == "sdpa"


@pytest.mark.parametrize(
    ("capability", "first"), [((9, 0), "_flash_3"), ((10, 0), "_native_cudnn")]
)
def test_kernels_of_a_gpu_are_tried_by_its_generation(capability, first, monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    tried = placing._fastest(torch.device("cuda"))
    assert tried[0] == first
    assert set(tried) < set(attention_choices(denoiser_of(pipeline_of("flux"))))


def test_text_encoders_go_to_further_devices(monkeypatch):
    homes = {}
    monkeypatch.setattr(
        "plait.generators.diffusion.placing.dispatch_model",
        lambda module, where, force_hooks: homes.update({id(module): where[""].index}),
    )
    pipeline = tiny_pipeline("sd3")
    spread(pipeline, [torch.device("cuda", i) for i in range(3)])
    placed = {n: homes.get(id(m)) for n, m in pipeline.components.items()}
    assert placed["transformer"] == placed["vae"] == 0
    assert placed["text_encoder_3"] == 1, "the largest first"
    assert placed["text_encoder"] == placed["text_encoder_2"] == 2


def test_pipeline_without_denoiser():
    pipeline = tiny_pipeline("sd15")
    pipeline.unet = None
    with pytest.raises(UsageError, match="attention"):
        denoiser_of(pipeline)
