"""The voken renderer: states and noise, the unconditional branch, both checkpoints."""

import functools

import numpy as np
import pytest
import torch
from natives import EXACT, SMALL
from torch import nn

from plait.generators.base import Result
from plait.generators.decoding.payloads import pack
from plait.generators.diffusion.settings import DiffusionSettings
from plait.generators.document import ImageRequest
from plait.generators.loading.strict import randomise
from plait.generators.minigpt5.settings import MiniGPT5RenderSettings
from plait.generators.vokens.render import VokenMapper, VokenRender
from plait.generators.vokens.settings import VokenRenderSettings

pytestmark = pytest.mark.models

SHAPE = (8, 24)


def mapper(out: int = 32) -> VokenMapper:
    with torch.device("meta"):
        size = {"width": 16, "heads": 4, "layers": 2, "inner": 32, "queries": 77}
        empty = VokenMapper(size, nn.Linear(SHAPE[1], 16), nn.Linear(16, out))
    randomise(empty, device=torch.device("cpu"), dtype=torch.float32, seed=0)
    return empty


def drawing(**settings) -> DiffusionSettings:
    required = {"model": "here", "architecture": "sd15", **EXACT}
    return DiffusionSettings(**required | SMALL | {"guidance": 7.5} | settings)


@functools.cache
def render(guided: bool = False, **settings) -> VokenRender:
    """`guided`: away from unconditional states."""
    away = torch.zeros(SHAPE) if guided else None
    return VokenRender(drawing(**settings), "tiny", mapper(), SHAPE, away)


def states(seed: int) -> torch.Tensor:
    return 3 * torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def request(seed: int, noise: int | None = 5) -> ImageRequest:
    return ImageRequest(payload=pack(states=states(seed)), seed=noise)


def pixels(outcome) -> np.ndarray:
    assert isinstance(outcome, Result), outcome
    return outcome.value.pixels.astype(int)


def pixels_by_hand(stage: VokenRender, index: int, **conditions) -> np.ndarray:
    """The pipeline called as its own documentation says."""
    generator = torch.Generator().manual_seed(5)
    with torch.inference_mode():
        embeddings = stage.map_states(states(index))
        image = stage.drawer.pipeline(
            prompt_embeds=embeddings,
            generator=generator,
            num_inference_steps=2,
            guidance_scale=7.5,
            height=64,
            width=64,
            output_type="np",
            **conditions,
        ).images[0]
    return np.rint(image * 255).astype(int)


def test_guidance_leads_away_from_the_negative_prompt():
    usual = pixels(render()([request(1)])[0])
    ours = pixels(render(negative_prompt="a grey wall")([request(1)])[0])
    by_hand = pixels_by_hand(render(), 1, negative_prompt=["a grey wall"])
    assert abs(ours - by_hand).max() <= 1
    assert abs(ours - usual).max() > 3


def test_guidance_leads_away_from_states_of_the_models_own():
    stage = render(guided=True)
    ours = pixels(stage([request(1)])[0])
    away = stage.map_states(torch.zeros(SHAPE))
    assert abs(ours - pixels_by_hand(stage, 1, negative_prompt_embeds=away)).max() <= 1
    assert abs(ours - pixels(render()([request(1)])[0])).max() > 3
    with pytest.raises(ValueError, match="negative_prompt"):
        MiniGPT5RenderSettings(negative_prompt="a grey wall")


def test_a_pipeline_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"vectors of 40.*'here' reads vectors of 32"):
        VokenRender(drawing(), "tiny", mapper(40), SHAPE)


def test_settings_of_the_pipeline_alone():
    settings = VokenRenderSettings(model="us/native", diffusion="them/sd@abc", steps=7)
    alone = settings.drawing()
    assert type(alone) is DiffusionSettings
    assert (alone.model, alone.revision) == ("them/sd", "abc")
    assert (alone.steps, alone.guidance, alone.height) == (7, 7.5, 512)
    assert (alone.dtype, alone.architecture) == ("float16", "sd15")
