"""What pipelines return, and what they draw without the picture's generator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusers.pipelines.flux import FluxPipelineOutput
from diffusers.pipelines.kandinsky5.pipeline_output import (
    KandinskyImagePipelineOutput,
    KandinskyPipelineOutput,
)
from diffusion_helpers import furthest, pixels, tiny_pipeline
from PIL import Image
from transformers import GlmConfig, GlmModel

from generators.base import Failure, Result
from generators.diffusion import calls, drawer
from generators.diffusion.drawer import Drawer
from generators.diffusion.outputs import pictures_of
from generators.diffusion.randomness import UNSEEDED, global_generators
from generators.diffusion.settings import DiffusionSettings
from generators.diffusion.tokenizers import small_tokenizer

BYTES = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 3)).astype(np.uint8)
FLOATS = (BYTES / 255).astype(np.float32)
TENSOR = torch.from_numpy(FLOATS).permute(0, 3, 1, 2)
PICTURES = [Image.fromarray(b) for b in BYTES]


@pytest.mark.parametrize(
    "output",
    [
        FluxPipelineOutput(images=FLOATS),
        FluxPipelineOutput(images=PICTURES),
        FluxPipelineOutput(images=BYTES),
        FluxPipelineOutput(images=list(TENSOR)),
        FluxPipelineOutput(images=list(FLOATS)),
        KandinskyImagePipelineOutput(image=FLOATS),
        KandinskyImagePipelineOutput(image=TENSOR),
        KandinskyImagePipelineOutput(image=TENSOR.to(torch.float64)),
        (FLOATS, [False, False]),
    ],
)
def test_every_form_of_pictures(output):
    read = pictures_of(output, 2)
    assert (read.shape, read.dtype) == ((2, 4, 6, 3), np.float32)
    np.testing.assert_allclose(read, FLOATS, atol=1e-6)


@pytest.mark.parametrize(
    "image", [PICTURES[0], [PICTURES[0]], FLOATS[0], TENSOR[0], [FLOATS[:1]]]
)
def test_one_picture(image):
    output = KandinskyImagePipelineOutput(image=image)
    np.testing.assert_allclose(pictures_of(output, 1), FLOATS[:1], atol=1e-6)


def test_pictures_of_other_modes_become_rgb():
    grey = Image.new("L", (6, 4), 51)
    read = pictures_of(SimpleNamespace(images=[grey]), 1)
    np.testing.assert_allclose(read, np.full((1, 4, 6, 3), 0.2), atol=1e-6)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (KandinskyPipelineOutput(frames=FLOATS), "no pictures.*'images'.*has frames"),
        (SimpleNamespace(images=None), "no pictures"),
        (SimpleNamespace(images=[]), "a list holds no pictures"),
        (SimpleNamespace(images="a.png"), "a str holds no pictures"),
        (SimpleNamespace(images=FLOATS[None]), r"shape \(1, 2, 4, 6, 3\)"),
        (SimpleNamespace(images=FLOATS[..., :1]), r"shape \(2, 4, 6, 1\)"),
        (SimpleNamespace(images=FLOATS[:1]), "1 pictures for 2"),
    ],
)
def test_anything_else_is_refused(output, message):
    with pytest.raises(ValueError, match=message):
        pictures_of(output, 2)


class Custom:
    """A pipeline that is not diffusers', and draws noise from its generators."""

    def __init__(self, shared: Any = None) -> None:
        self.shared = shared
        """Draws from global generators, as a language model inside a pipeline does."""
        self.config: dict[str, Any] = {}
        self.components: dict[str, Any] = {}
        self.sizes: list[int] = []

    def __call__(self, prompt, num_inference_steps=1, generator=None):
        generators = generator if isinstance(generator, list) else [generator]
        self.sizes.append(len(generators))
        noise = torch.stack([torch.rand(3, 8, 8, generator=g) for g in generators])
        if self.shared is not None:
            noise = (noise + self.shared(len(generators))) / 2
        return SimpleNamespace(image=noise)


def one_by_one(self, prompt: str, num_inference_steps=1, generator=None):
    assert isinstance(prompt, str)
    assert isinstance(generator, torch.Generator)
    return Custom.__call__(self, prompt, num_inference_steps, generator)


def tokens(count: int) -> torch.Tensor:
    """As of a language model that samples."""
    return torch.multinomial(torch.ones(count, 64), 3).reshape(count, 3, 1, 1) / 64


def with_numpy(count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.rand(count, 3, 1, 1)).float()


def drawer_of(pipeline: Any, monkeypatch: Any, **settings: Any) -> Drawer:
    monkeypatch.setattr(drawer, "load_pipeline", lambda *given: pipeline)
    monkeypatch.setattr(calls, "IN_BATCHES", calls.IN_BATCHES | {"Custom"})
    return Drawer(DiffusionSettings(model="a/b", **settings), "pretrained")


PROMPTS = {"prompt": ["a", "b", "c"]}
SEEDS = [5, 6, 7]


def test_own_generators_are_enough_for_most(monkeypatch):
    drawn = drawer_of(pipeline := Custom(), monkeypatch)(PROMPTS, SEEDS)
    assert pipeline.sizes == [3]
    assert all("unseeded" not in o.notes for o in drawn if isinstance(o, Result))


@pytest.mark.parametrize("part", [tokens, with_numpy])
def test_global_generators_are_seeded_by_the_picture(part, monkeypatch):
    """Alone, in any batch and after any other draws, a seed gives the same picture."""
    together = drawer_of(pipeline := Custom(part), monkeypatch)
    pictures = together(PROMPTS, SEEDS)
    assert pipeline.sizes == [3, 1, 1, 1], "a first batch shows it, and is drawn again"
    assert [o.notes["unseeded"] for o in pictures if isinstance(o, Result)] == [
        UNSEEDED
    ] * 3
    torch.manual_seed(99)
    np.random.seed(99)
    later = drawer_of(Custom(part), monkeypatch)
    alone = [later({"prompt": ["a"]}, [seed])[0] for seed in reversed(SEEDS)]
    assert furthest(pixels(pictures), pixels(alone[::-1])) == 0
    assert furthest(pixels(pictures[:1]), pixels(pictures[1:2])) > 0
    without = drawer_of(Custom(), monkeypatch)(PROMPTS, SEEDS)
    assert furthest(pixels(pictures), pixels(without)) > 0, "the part must matter"


def test_global_generators_are_left_as_they_were():
    torch.manual_seed(3)
    np.random.seed(3)
    before = torch.random.get_rng_state(), np.random.get_state()[2]
    with global_generators(1) as used:
        assert not used()
        torch.rand(2)
        assert used()
    with global_generators(2**63 - 1) as used:
        np.random.rand(2)
        assert used()
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.random.get_state()[2] == before[1]


def test_other_pipelines_are_called_once_for_each_picture(monkeypatch):
    kind = type("OneByOne", (Custom,), {"__call__": one_by_one})
    drawn = drawer_of(pipeline := kind(), monkeypatch)(PROMPTS, SEEDS)
    assert pipeline.sizes == [1, 1, 1]
    expected = drawer_of(Custom(), monkeypatch)(PROMPTS, SEEDS)
    assert furthest(pixels(drawn), pixels(expected)) == 0


@pytest.fixture(scope="module")
def cogview4():
    """A tiny CogView4, whose text encoder and transformer read the padding."""
    torch.manual_seed(0)
    tokenizer = small_tokenizer("gemma")
    text = GlmConfig(
        vocab_size=640,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.2,
        pad_token_id=tokenizer.pad_token_id,
    )
    pipeline = diffusers.CogView4Pipeline(
        tokenizer=tokenizer,
        text_encoder=GlmModel(text).eval(),
        vae=tiny_pipeline("flux").vae,
        transformer=diffusers.CogView4Transformer2DModel(
            in_channels=16,
            out_channels=16,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            text_embed_dim=32,
            time_embed_dim=8,
            condition_dim=4,
            rope_axes_dim=(8, 8),
        ),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def test_a_pipeline_that_mixes_the_prompts_of_a_batch(cogview4, monkeypatch):
    prompts = {"prompt": ["rain", "a long pier in the fog by the sea " * 9]}
    size = {"steps": 2, "height": 64, "width": 64}
    drawn = drawer_of(cogview4, monkeypatch, **size)
    together = pixels(drawn(prompts, SEEDS[:2]))
    alone = [
        drawn({"prompt": prompts["prompt"][i : i + 1]}, SEEDS[i : i + 1]) for i in (0, 1)
    ]
    assert furthest(together, pixels([picture for (picture,) in alone])) == 0
    drawn.alone = False
    mixed = pixels(drawn(prompts, SEEDS[:2]))
    assert furthest(mixed, together) > 1, "it could draw in batches"


def test_values_beyond_white_are_not_wrapped_around(monkeypatch):
    class Bright(Custom):
        def __call__(self, prompt, num_inference_steps=1, generator=None):
            return SimpleNamespace(images=np.full((1, 8, 8, 3), 1.5, np.float32))

    for outcome in drawer_of(Bright(), monkeypatch)(PROMPTS, SEEDS):
        assert isinstance(outcome, Failure)
        assert "values from 1.5 to 1.5" in outcome.reason
