"""Weights without a checkpoint: full-size architectures, toy ones, small tokenizers."""

from __future__ import annotations

import pytest
import torch
from diffusers import FluxPipeline, StableDiffusion3Pipeline
from diffusion_helpers import CPU, tiny_pipeline

from generators.architectures import config_of
from generators.diffusion.builds import (
    build_pipeline,
    empty_module,
    materialise,
    module_class,
    tiny_modules,
)
from generators.diffusion.designs import DESIGNS, PUBLISHED
from generators.diffusion.tokenizers import CLIP_IDS, small_tokenizer
from pipelines.presets import T2IS

pytestmark = pytest.mark.models

CLIP_L_TEXT, CLIP_BIG_G_TEXT, T5_XXL = 123.060480, 694.659840, 4762.310656
VAE, VAE_16 = 83.653863, 83.819683
UNET_XL = 2567.463684
QWEN3_4B = 4022.468096
COUNTS = {
    "sd15": {
        "vae": VAE,
        "text_encoder": CLIP_L_TEXT,
        "unet": 859.520964,
        "safety_checker": 303.981588,
    },
    "sd21": {"vae": VAE, "text_encoder": 340.387840, "unet": 865.910724},
    "sdxl": {
        "vae": VAE,
        "text_encoder": CLIP_L_TEXT,
        "text_encoder_2": CLIP_BIG_G_TEXT,
        "unet": UNET_XL,
    },
    "emu2": {"vae": VAE, "unet": 2525.520644},
    "sd3": {
        "vae": VAE_16,
        "text_encoder": 123.650304,
        "text_encoder_2": CLIP_BIG_G_TEXT,
        "text_encoder_3": T5_XXL,
        "transformer": 2028.328000,
    },
    "flux": {
        "vae": VAE_16,
        "text_encoder": CLIP_L_TEXT,
        "text_encoder_2": T5_XXL,
        "transformer": 11901.408320,
    },
    # The files of Qwen3-4B, Z-Image-Turbo and DC-AE hold as many; the others are theirs to
    # the digits that the sizes of the published files give.
    "flux2-klein": {
        "vae": 84.046115,
        "text_encoder": QWEN3_4B,
        "transformer": 3875.544576,
    },
    "z-image": {
        "vae": VAE_16,
        "text_encoder": QWEN3_4B,
        "transformer": 6154.908736,
    },
    "qwen-image": {
        "vae": 126.892531,
        "text_encoder": 8292.166656,
        "transformer": 20430.401088,
    },
    "pixart-sigma": {"vae": VAE, "text_encoder": T5_XXL, "transformer": 610.856096},
    "sana": {
        "vae": 312.250275,
        "text_encoder": 2614.341888,
        "transformer": 1604.462752,
    },
}
"""Millions of parameters in the published checkpoints."""
COUNTS["sdxl-turbo"] = COUNTS["sdxl"]
COUNTS["sd3.5-medium"] = {**COUNTS["sd3"], "transformer": 2243.171520}
COUNTS["sd3.5-large"] = {**COUNTS["sd3"], "transformer": 8056.627520}


@pytest.fixture
def no_positions(monkeypatch):
    """Tables of positions, which are no parameters, take gigabytes to compute."""

    def table(width, side, **_):
        return torch.empty(side * side, width, device="meta")

    monkeypatch.setattr("diffusers.models.embeddings.get_2d_sincos_pos_embed", table)


@pytest.mark.parametrize("architecture", DESIGNS)
def test_full_size_has_the_published_parameter_counts(architecture, no_positions):
    design = DESIGNS[architecture]
    counted = {}
    for name in design.modules:
        parameters = list(empty_module(design, name).parameters())
        assert {p.device.type for p in parameters} == {"meta"}
        counted[name] = sum(p.numel() for p in parameters) / 1e6
    assert counted == pytest.approx(COUNTS[architecture], rel=1e-9)


@pytest.mark.parametrize("name", T2IS)
def test_memory_estimates_are_made_from_the_published_counts(name):
    settings = T2IS[name]
    total = sum(COUNTS[PUBLISHED[settings.model]].values()) / 1e3
    assert settings.params_b == pytest.approx(total, abs=1e-3)


@pytest.fixture
def toy_dummies(monkeypatch):
    """Dummy weights at toy size: the same code on what fits a test."""
    config = type(DESIGNS["sd15"]).config
    monkeypatch.setattr(
        type(DESIGNS["sd15"]), "config", lambda self, name, tiny: config(self, name, True)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "architecture", ["sd15", *(n for n, d in DESIGNS.items() if "transformer" in d.modules)]
)
def test_dummy_weights_draw(architecture, dtype, toy_dummies):
    pipeline = build_pipeline(architecture, "dummy", CPU, dtype)
    pipeline.set_progress_bar_config(disable=True)
    modules = [m for m in pipeline.components.values() if isinstance(m, torch.nn.Module)]
    for tensor in (t for m in modules for t in (*m.parameters(), *m.buffers())):
        assert tensor.device.type == "cpu"
        assert tensor.dtype == dtype or not tensor.is_floating_point()
    generator = [torch.Generator().manual_seed(s) for s in (0, 1)]
    settings = {"height": 64, "width": 64, "num_inference_steps": 2, "output_type": "np"}
    prompts = ["a cat", "rain"]
    pictures = pipeline(prompt=prompts, generator=generator, **settings).images
    assert pictures.shape == (2, 64, 64, 3)
    assert 0.02 < pictures.std() < 0.5


def test_no_value_is_made_in_another_precision(toy_dummies, monkeypatch):
    """Every allocation has the requested dtype: no float32 copy comes first."""
    module = empty_module(DESIGNS["flux"], "transformer")
    dtypes = []
    empty = torch.empty

    def counting(*shape, **named):
        dtypes.append(named["dtype"])
        return empty(*shape, **named)

    monkeypatch.setattr(torch, "empty", counting)
    materialise(module, CPU, torch.bfloat16)
    assert set(dtypes) == {torch.bfloat16}
    assert len(dtypes) == len(list(module.parameters()))


def test_float16_keeps_what_transformers_keeps_exact(toy_dummies):
    """T5's `wo` overflows in float16, so transformers loads it as float32."""
    encoder = materialise(
        empty_module(DESIGNS["sd3"], "text_encoder_3"), CPU, torch.float16
    )
    precise = {n for n, p in encoder.named_parameters() if p.dtype == torch.float32}
    assert precise == {n for n, _ in encoder.named_parameters() if ".wo." in n}
    assert precise


def test_shared_tensors_stay_shared(toy_dummies):
    encoder = materialise(
        empty_module(DESIGNS["flux"], "text_encoder_2"), CPU, torch.float32
    )
    assert encoder.shared.weight is encoder.encoder.embed_tokens.weight
    assert encoder.shared.weight.std() > 0


def test_buffers_have_their_computed_values(toy_dummies):
    """Positions are not weights: they must be those of the published model."""
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


@pytest.mark.parametrize("architecture", DESIGNS)
def test_tiny_and_published_have_the_same_classes(architecture):
    design = DESIGNS[architecture]
    pipeline = tiny_pipeline(architecture)
    assert type(pipeline).__name__ == design.pipeline
    for name, (kind, _) in design.modules.items():
        assert type(pipeline.components[name]) is module_class(kind)
    assert type(pipeline.scheduler).__name__ == design.scheduler["_class_name"]


def test_schedulers_are_the_published_ones():
    """Sigmas of the published schedules, by hand."""
    flow: StableDiffusion3Pipeline = tiny_pipeline("sd3")
    flow.scheduler.set_timesteps(2)
    # sigma' = 3 sigma / (1 + 2 sigma) at sigma = 1 and at the least, 1/1000 shifted.
    least = 3 * 0.001 / (1 + 2 * 0.001)
    shifted = 3 * least / (1 + 2 * least)
    expected = torch.tensor([1.0, shifted, 0.0])
    torch.testing.assert_close(flow.scheduler.sigmas, expected, atol=1e-6, rtol=0)
    dynamic: FluxPipeline = tiny_pipeline("flux")
    assert dynamic.scheduler.config.use_dynamic_shifting
    turbo = tiny_pipeline("sdxl-turbo").scheduler
    turbo.set_timesteps(1)
    assert turbo.timesteps.tolist() == [999]
    betas = torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2
    last = torch.cumprod(1 - betas, 0)[-1]
    sigma = float(((1 - last) / last) ** 0.5)
    assert float(turbo.sigmas[0]) == pytest.approx(sigma, rel=1e-5)


@pytest.mark.parametrize("kind", ["clip", "t5", "qwen", "gemma"])
def test_small_tokenizers_have_fewer_entries_than_tiny_tables(kind):
    rows = config_of("t5-xxl", tiny=True)["vocab_size"]
    assert max(small_tokenizer(kind).get_vocab().values()) < rows


@pytest.mark.parametrize("kind", ["qwen", "gemma"])
def test_small_tokenizers_of_language_models_read_any_text(kind):
    """One token per byte, `a cat` by hand, and Gemma's start token."""
    tokenizer = small_tokenizer(kind)
    text = "a cat, \u4f60\u597d"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert len(ids) == len(text.encode()) + (kind == "gemma")
    assert tokenizer.pad_token_id is not None


def test_small_tokenizer_of_qwen_chats():
    tokenizer = small_tokenizer("qwen")
    messages = [{"role": "user", "content": "a cat"}]
    text = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    start, end = "<|im_start|>", "<|im_end|>"
    assert text == f"{start}user\na cat{end}\n{start}assistant\n"
    ids = tokenizer(text)["input_ids"]
    assert ids.count(tokenizer.convert_tokens_to_ids(start)) == 2
    assert ids.count(tokenizer.convert_tokens_to_ids(end)) == 1


def test_clip_pools_at_the_end_token_of_the_small_tokenizer():
    tokenizer = small_tokenizer("clip")
    ids = {
        f"{k}_token_id": getattr(tokenizer, f"{k}_token_id") for k in ("bos", "eos", "pad")
    }
    assert ids == CLIP_IDS
