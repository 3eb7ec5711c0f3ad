"""What pipelines return, and what they draw without the image's generator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.kandinsky5.pipeline_output import KandinskyPipelineOutput
from diffusion_helpers import furthest, pixels

from plait.generators.base import Failure
from plait.generators.diffusion import calls, drawer
from plait.generators.diffusion.drawer import Drawer, images_of
from plait.generators.diffusion.settings import DiffusionSettings

pytestmark = pytest.mark.models
FLOATS = np.random.default_rng(0).random((2, 4, 6, 3), np.float32)


def test_images_of_any_pipeline_and_of_nothing_else():
    """Most have `images`, Kandinsky 5 has `image`."""
    for images in (FLOATS, FLOATS.astype(np.float64), list(FLOATS)):
        for field in ("images", "image"):
            read = images_of(SimpleNamespace(**{field: images}), 2)
            assert read.dtype == np.float32
            np.testing.assert_array_equal(read, FLOATS)
    wrong = (None, [], "a.png", FLOATS[None], FLOATS[..., :1], FLOATS[:1])
    outputs = [SimpleNamespace(images=i) for i in wrong]
    for output in (*outputs, KandinskyPipelineOutput(frames=FLOATS)):
        with pytest.raises(ValueError, match=type(output).__name__):
            images_of(output, 2)


class Custom:
    """A pipeline that is not diffusers', and draws noise from its generators."""

    def __init__(self, shared: bool = False, bright: float = 0.0) -> None:
        self.shared, self.bright = shared, bright
        """The first: it also samples from torch's global generator."""
        self.config: dict[str, Any] = {}
        self.components: dict[str, Any] = {}
        self.sizes: list[int] = []

    def __call__(self, prompt, num_inference_steps=1, generator=None):
        generators = generator if isinstance(generator, list) else [generator]
        assert isinstance(prompt, list) == isinstance(generator, list)
        self.sizes.append(len(generators))
        noise = torch.stack([torch.rand(8, 8, 3, generator=g) for g in generators])
        if self.shared:
            tokens = torch.multinomial(torch.ones(len(generators), 64), 3)
            noise = (noise + tokens.reshape(-1, 1, 1, 3) / 64) / 2
        return SimpleNamespace(images=noise.numpy() + self.bright)


def drawer_of(pipeline: Any, monkeypatch: Any, batched: bool = False, **settings) -> Drawer:
    monkeypatch.setattr(drawer, "load_pipeline", lambda *given: pipeline)
    monkeypatch.setattr(calls, "IN_BATCHES", {"Custom"} if batched else set())
    return Drawer(DiffusionSettings(model="a/b", **settings), "pretrained")


PROMPTS = {"prompt": ["a", "b", "c"]}
SEEDS = [5, 6, 7]


def test_pipelines_that_are_not_known_draw_one_at_a_time(monkeypatch):
    drawn = drawer_of(alone := Custom(), monkeypatch)(PROMPTS, SEEDS)
    known = drawer_of(together := Custom(), monkeypatch, batched=True)(PROMPTS, SEEDS)
    assert (alone.sizes, together.sizes) == ([1, 1, 1], [3])
    assert furthest(pixels(drawn), pixels(known)) == 0


def test_global_generators_are_seeded_by_the_image(monkeypatch):
    """In any order and after any other draws, a seed gives the same image."""
    torch.manual_seed(98)
    images = pixels(drawer_of(Custom(shared=True), monkeypatch)(PROMPTS, SEEDS))
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    later = drawer_of(Custom(shared=True), monkeypatch)
    alone = [later({"prompt": ["a"]}, [seed])[0] for seed in reversed(SEEDS)]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert furthest(images, pixels(alone[::-1])) == 0
    assert furthest(images[:1], images[1:2]) > 0
    later({"prompt": ["a"]}, [2**63 - 1])


def test_values_beyond_white_are_not_wrapped_around(monkeypatch):
    for outcome in drawer_of(Custom(bright=1.0), monkeypatch)(PROMPTS, SEEDS):
        assert isinstance(outcome, Failure)
        assert "values from 1" in outcome.reason
