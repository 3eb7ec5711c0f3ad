"""Attention kernels that are really in use, compilation, and several devices."""

from __future__ import annotations

import math

import pytest
import torch
from diffusers import CogView4Transformer2DModel
from diffusion_helpers import REQUESTS, furthest, pixels, shared, stage, tiny_pipeline

from generators.diffusion import placing
from generators.diffusion.placing import (
    AttentionError,
    attention_choices,
    attention_in_use,
    compile_denoiser,
    denoiser_of,
    spread,
    use_attention,
)

pytestmark = pytest.mark.models
CPU = torch.device("cpu")


def denoiser(architecture):
    return denoiser_of(tiny_pipeline(architecture))


def kernels(model, name):
    use_attention(model, name, CPU, torch.float32)
    return attention_in_use(model)


NEWER = ["flux2-klein", "z-image", "qwen-image", "pixart-sigma", "sana"]


@pytest.mark.parametrize("architecture", ["sd15", "sdxl", "sd3", "flux", *NEWER])
def test_torch_attention_is_in_use(architecture):
    assert kernels(denoiser(architecture), "sdpa") == {"sdpa"}


@pytest.mark.parametrize("architecture", ["sd15", "sdxl", "sd3", "flux"])
def test_xformers_that_cannot_run_is_refused(architecture):
    """On a CPU it imports and has no operation to run."""
    with pytest.raises(AttentionError, match=r"cannot run on cpu.*choose one of sdpa"):
        kernels(denoiser(architecture), "xformers")


def test_stage_says_why_xformers_cannot_run():
    with pytest.raises(
        AttentionError, match=r"'xformers' cannot run on cpu in torch\.float32"
    ):
        stage("sdxl", attention="xformers")


ATTENDED = []


def attend(query, key, value, attn_bias=None, op=None, scale=None):
    """xformers' memory_efficient_attention on (batch, tokens, width)."""
    ATTENDED.append(query.shape)
    weights = query @ key.transpose(-1, -2) * (scale or 1 / math.sqrt(query.shape[-1]))
    return torch.softmax(weights if attn_bias is None else weights + attn_bias, -1) @ value


@pytest.fixture
def like_a_gpu(monkeypatch):
    """xformers runs, in plain arithmetic, and diffusers believes that there is a GPU."""
    normal = torch.randn
    monkeypatch.setattr("xformers.ops.memory_efficient_attention", attend)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(torch, "randn", lambda *size, device=None, **k: normal(*size, **k))


@pytest.mark.parametrize("name", ["openjourney", "sdxl", "sd3"])
def test_xformers_is_in_use_where_the_setter_does_nothing(name, like_a_gpu):
    drawing = stage(name, attention="xformers", device="cpu")
    assert attention_in_use(denoiser_of(drawing.drawer.pipeline)) == {"xformers"}
    ATTENDED.clear()
    drawn = pixels(drawing(REQUESTS[:2]))
    assert ATTENDED
    assert furthest(drawn, pixels(stage(name, device="cpu")(REQUESTS[:2]))) <= 1


@pytest.mark.parametrize("architecture", ["sdxl", "sd3"])
def test_a_switch_that_changes_nothing_is_noticed(architecture, like_a_gpu, monkeypatch):
    """What `set_attention_backend` does on these models in diffusers 0.42.1."""
    model = denoiser(architecture)
    model.set_attention_backend("xformers")
    assert attention_in_use(model) == {"sdpa"}
    monkeypatch.setattr(placing, "_switch", lambda m, n: m.set_attention_backend(n))
    with pytest.raises(AttentionError, match=r"not in use.*uses sdpa; choose one of"):
        kernels(model, "xformers")
    denoiser("flux").set_attention_backend("native")


@pytest.mark.parametrize("name", ["flux", "flux2-klein", "z-image-turbo", "qwen-image"])
def test_native_kernels_of_a_model_that_dispatches(name):
    drawing = stage(name, attention="_native_math")
    assert attention_in_use(drawing.drawer.pipeline.transformer) == {"_native_math"}
    expected = pixels(shared(name)(REQUESTS[:2]))
    assert furthest(pixels(drawing(REQUESTS[:2])), expected) <= 1


def test_xformers_never_replaces_another_kind_of_attention():
    """diffusers would put it in the place of SANA's linear attention."""
    assert attention_choices(denoiser("sana")) == ["sdpa", "own"]
    assert attention_choices(torch.nn.Linear(2, 2)) == ["sdpa", "own"]
    for architecture in ("sd15", "sdxl", "sd3", "sd3.5-medium", "pixart-sigma"):
        assert "xformers" in attention_choices(denoiser(architecture))


def test_processor_written_for_torch_alone_counts_as_torch():
    """CogView4's name does not say so, and it could not be loaded at the default."""
    model = CogView4Transformer2DModel(
        in_channels=4,
        out_channels=4,
        num_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        text_embed_dim=8,
        time_embed_dim=8,
        rope_axes_dim=(8, 8),
    )
    assert kernels(model, "sdpa") == {"sdpa"}
    assert attention_choices(model) == ["sdpa", "own"]


@pytest.mark.parametrize(
    ("architecture", "name"),
    [("sdxl", "_native_math"), ("sd3", "flash"), ("flux", "flash_hub"), ("flux", "quick")],
)
def test_kernels_that_a_model_does_not_support_are_refused(architecture, name):
    """Kernels of the Hub are code from the network."""
    with pytest.raises(
        AttentionError, match=f"'{name}' is not available.*choose one of sdpa"
    ):
        kernels(denoiser(architecture), name)


def test_choices_depend_on_the_model():
    assert attention_choices(denoiser("sdxl")) == ["sdpa", "xformers", "own"]
    assert {"sdpa", "xformers", "_native_math", "own"} < set(
        attention_choices(denoiser("flux"))
    )


def test_other_processors_are_left_alone_only_when_asked():
    from diffusers.models.attention_processor import AttnProcessor

    model = denoiser("sd15")
    model.set_attn_processor(AttnProcessor())
    with pytest.raises(AttentionError, match="uses AttnProcessor"):
        kernels(model, "sdpa")
    assert kernels(model, "own") == {"AttnProcessor"}


@pytest.mark.parametrize(
    ("architecture", "compiled"),
    [
        ("sdxl", {"BasicTransformerBlock"}),
        ("flux", {"FluxTransformerBlock", "FluxSingleTransformerBlock"}),
        ("sd3", {"SD3Transformer2DModel"}),
    ],
)
def test_repeated_blocks_are_compiled_where_declared(architecture, compiled, monkeypatch):
    seen = set()
    monkeypatch.setattr(
        torch.nn.Module, "compile", lambda self: seen.add(type(self).__name__)
    )
    compile_denoiser(denoiser(architecture))
    assert seen == compiled


def test_text_encoders_go_to_further_devices(monkeypatch):
    homes = {}
    monkeypatch.setattr(
        "generators.diffusion.placing.dispatch_model",
        lambda module, where, force_hooks: homes.update({id(module): where[""].index}),
    )
    pipeline = tiny_pipeline("sd3")
    spread(pipeline, [torch.device("cuda", i) for i in range(3)])
    placed = {n: homes.get(id(m)) for n, m in pipeline.components.items()}
    assert placed["transformer"] == placed["vae"] == 0
    assert placed["text_encoder_3"] == 1, "the largest first"
    assert placed["text_encoder"] == placed["text_encoder_2"] == 2


@pytest.mark.parametrize("name", ["openjourney", "sdxl", "sd3", "flux"])
def test_spread_pipeline_draws_the_same(name):
    drawing = stage(name)
    spread(drawing.drawer.pipeline, [CPU, CPU])
    assert furthest(pixels(drawing(REQUESTS[:3])), pixels(shared(name)(REQUESTS[:3]))) <= 1


def test_pipeline_without_denoiser():
    pipeline = tiny_pipeline("sd15")
    pipeline.unet = None
    with pytest.raises(ValueError, match="set attention to 'own'"):
        denoiser_of(pipeline)
