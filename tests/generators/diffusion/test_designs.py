"""What every published architecture must do without a checkpoint, `dummy` and `tiny`."""

from __future__ import annotations

import functools
import inspect
import math

import pytest
import torch
from diffusion_helpers import CPU, INPUT_PIXELS, pipeline_of
from PIL import Image as Pillow

from plait.generators.diffusion.builds import (
    CLIP_IDS,
    build_pipeline,
    empty_module,
    materialise,
    small_tokenizer,
    tiny_modules,
)
from plait.generators.diffusion.designs import DESIGNS, PipelineDesign
from plait.generators.diffusion.inputs import SEEING
from plait.pipelines.presets import t2i

pytestmark = pytest.mark.models

VAE, VAE_16, CLIP_BIG_G, T5_XXL = 83.653863, 83.819683, 694.659840, 4762.310656
CLIP_L, QWEN3_4B = 123.060480, 4022.468096
FLUX2_VAE = 84.046115
QWEN_IMAGE = {"vae": 126.892531, "text_encoder": 8292.166656, "transformer": 20430.401088}
TEXTS_3 = {"text_encoder": 123.650304, "text_encoder_2": CLIP_BIG_G}
SDXL = {"vae": VAE, "text_encoder": CLIP_L, "text_encoder_2": CLIP_BIG_G}
SD3 = {"vae": VAE_16, **TEXTS_3, "text_encoder_3": T5_XXL}
COUNTS = {
    "sd15": {"vae": VAE, "text_encoder": CLIP_L, "unet": 859.520964}
    | {"safety_checker": 303.981588},
    "sd21": {"vae": VAE, "text_encoder": 340.387840, "unet": 865.910724},
    "sdxl": {**SDXL, "unet": 2567.463684},
    "sdxl-turbo": {**SDXL, "unet": 2567.463684},
    "emu2": {"vae": VAE, "unet": 2525.520644},
    "sd3": {**SD3, "transformer": 2028.328000},
    "sd3.5-medium": {**SD3, "transformer": 2243.171520},
    "sd3.5-large": {**SD3, "transformer": 8056.627520},
    "flux": {"vae": VAE_16, "text_encoder": CLIP_L, "text_encoder_2": T5_XXL}
    | {"transformer": 11901.408320},
    # The files of Qwen3-4B, Z-Image-Turbo and DC-AE hold as many; the others are theirs to
    # the digits that the sizes of the published files give.
    "flux2-klein": {"vae": FLUX2_VAE, "text_encoder": QWEN3_4B}
    | {"transformer": 3875.544576},
    "flux2-klein-9b": {"vae": FLUX2_VAE, "text_encoder": 8190.735360}
    | {"transformer": 9078.581248},
    # Of Mistral Small 3.2 and of a file of 64.4 GB.
    "flux2-dev": {"vae": FLUX2_VAE, "text_encoder": 24011.361280}
    | {"transformer": 32223.281152},
    "z-image": {"vae": VAE_16, "text_encoder": QWEN3_4B, "transformer": 6154.908736},
    "z-image-base": {"vae": VAE_16, "text_encoder": QWEN3_4B}
    | {"transformer": 6154.908736},
    "instruct-pix2pix": {"vae": VAE, "text_encoder": CLIP_L, "unet": 859.532484}
    | {"safety_checker": 303.981588},
    "qwen-image": QWEN_IMAGE,
    "qwen-image-2512": QWEN_IMAGE,
    "qwen-image-edit": QWEN_IMAGE,
    "qwen-image-edit-2511": QWEN_IMAGE,
    "pixart-sigma": {"vae": VAE, "text_encoder": T5_XXL, "transformer": 610.856096},
    "sana": {"vae": 312.250275, "text_encoder": 2614.341888, "transformer": 1604.462752},
}
"""Millions of parameters in the published checkpoints."""


@functools.cache
def counted(kind_and_config: tuple[str, str]) -> float:
    """Millions of parameters of a full-size module; none of them takes memory."""
    named = (d for d in DESIGNS.items() if kind_and_config in d[1].modules.values())
    _, design = next(named)
    name = next(n for n, made_of in design.modules.items() if made_of == kind_and_config)
    parameters = list(empty_module(design, name).parameters())
    assert {p.device.type for p in parameters} == {"meta"}
    return sum(p.numel() for p in parameters) / 1e6


SIZED = [name for name, design in DESIGNS.items() if not design.unsized]


@pytest.mark.parametrize("architecture", SIZED)
def test_full_size_has_the_published_parameter_counts(architecture, monkeypatch):
    """Tables of positions, which are no parameters, take gigabytes to compute."""
    monkeypatch.setattr(
        "diffusers.models.embeddings.get_2d_sincos_pos_embed",
        lambda width, side, **_: torch.empty(side * side, width, device="meta"),
    )
    design, published = DESIGNS[architecture], COUNTS[architecture]
    full = {name: counted(made_of) for name, made_of in design.modules.items()}
    assert full == pytest.approx(published, rel=1e-9)
    if design.preset is not None:
        total = sum(published.values()) / 1e3
        assert t2i(design.preset).params_b == pytest.approx(total, abs=1e-3)


@pytest.fixture
def toy_dummies(monkeypatch):
    """Dummy weights at toy size: the same code on what fits a test."""
    config = PipelineDesign.config
    monkeypatch.setattr(
        PipelineDesign, "config", lambda self, name, tiny: config(self, name, True)
    )


FAMILIES = {DESIGNS[name].pipeline: name for name in SIZED if DESIGNS[name].preset}


@pytest.mark.parametrize("architecture", FAMILIES.values())
def test_dummy_weights_draw(architecture, toy_dummies, monkeypatch):
    monkeypatch.setattr(INPUT_PIXELS, 64 * 64)
    pipeline = build_pipeline(architecture, "dummy", CPU, torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    settings = {"height": 64, "width": 64, "num_inference_steps": 2, "output_type": "np"}
    if getattr(SEEING.get(DESIGNS[architecture].pipeline), "needed", False):
        settings["image"] = Pillow.new("RGB", (64, 64), "red")
    taken = inspect.signature(pipeline.__call__).parameters
    settings = {name: value for name, value in settings.items() if name in taken}
    generator = torch.Generator().manual_seed(0)
    images = pipeline(prompt="a cat", generator=generator, **settings).images
    assert images.shape == (1, 64, 64, 3)
    assert 0.02 < images.std() < 0.5


def test_dummy_values_are_made_once_in_the_precision_of_published_ones(
    toy_dummies, monkeypatch
):
    """No float32 copy comes first, but T5's `wo` overflows in float16: it stays float32.

    What several layers share is one tensor, and positions are not random.
    """
    encoder = empty_module(DESIGNS["sd3"], "text_encoder_3")
    made, empty = [], torch.empty
    half = materialise(empty_module(DESIGNS["sd3"], "transformer"), CPU, torch.bfloat16)
    tensors = (*half.parameters(), *half.buffers())
    assert {t.dtype for t in tensors if t.is_floating_point()} == {torch.bfloat16}
    for weight in (p for p in half.parameters() if p.ndim >= 2 and p.numel() > 4000):
        gain = float(weight.float().std()) * math.prod(weight.shape[1:]) ** 0.5
        assert gain == pytest.approx(1, rel=0.1)
    monkeypatch.setattr(
        torch, "empty", lambda *s, **k: made.append(k["dtype"]) or empty(*s, **k)
    )
    encoder = materialise(encoder, CPU, torch.float16)
    assert len(made) == len(list(encoder.parameters()))
    precise = {n for n, p in encoder.named_parameters() if p.dtype == torch.float32}
    assert precise == {n for n, _ in encoder.named_parameters() if ".wo." in n} != set()
    assert made.count(torch.float32) == len(precise)
    assert encoder.shared.weight is encoder.encoder.embed_tokens.weight
    module = materialise(empty_module(DESIGNS["sd3"], "transformer"), CPU, torch.float32)
    expected = tiny_modules(DESIGNS["sd3"])["transformer"]
    torch.testing.assert_close(module.pos_embed.pos_embed, expected.pos_embed.pos_embed)


def test_tiny_weights_are_always_the_same():
    one = tiny_modules(DESIGNS["sdxl"])
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    two = tiny_modules(DESIGNS["sdxl"])
    assert torch.equal(torch.random.get_rng_state(), before)
    for name in one:
        for a, b in zip(one[name].parameters(), two[name].parameters(), strict=True):
            assert torch.equal(a, b)
            assert a.dtype == torch.float32


def test_schedulers_are_the_published_ones():
    """Sigmas of the published schedules, by hand."""
    flow = pipeline_of("sd3").scheduler
    flow.set_timesteps(2)
    # sigma' = 3 sigma / (1 + 2 sigma) at sigma = 1 and at the least, 1/1000 shifted.
    least = 3 * 0.001 / (1 + 2 * 0.001)
    shifted = 3 * least / (1 + 2 * least)
    assert flow.sigmas.tolist() == pytest.approx([1.0, shifted, 0.0], abs=1e-6)
    assert pipeline_of("flux").scheduler.config.use_dynamic_shifting
    turbo = pipeline_of("sdxl-turbo").scheduler
    turbo.set_timesteps(1)
    assert turbo.timesteps.tolist() == [999]
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
    last = torch.cumprod(1 - betas, 0)[-1]
    sigma = float(((1 - last) / last) ** 0.5)
    assert float(turbo.sigmas[0]) == pytest.approx(sigma, rel=1e-5)


def test_small_tokenizers_read_any_text_and_have_the_special_tokens_that_models_look_for():
    """CLIP pools at its end token; Qwen's chats are begun and ended by tokens.

    Language models have one token per byte, and Gemma its start token.
    """
    text = "a cat, \u4f60\u597d"
    for kind in ("qwen", "gemma"):
        tokenizer = small_tokenizer(kind)
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
        assert len(ids) == len(text.encode()) + (kind == "gemma")
        assert tokenizer.pad_token_id is not None
    clip, qwen = small_tokenizer("clip"), small_tokenizer("qwen")
    assert {name: getattr(clip, name) for name in CLIP_IDS} == CLIP_IDS
    messages = [{"role": "user", "content": "a cat"}]
    text = qwen.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    start, end = "<|im_start|>", "<|im_end|>"
    assert text == f"{start}user\na cat{end}\n{start}assistant\n"
    ids = qwen(text)["input_ids"]
    marks = [ids.count(qwen.convert_tokens_to_ids(mark)) for mark in (start, end)]
    assert marks == [2, 1]
