"""The rendering stage of MiniGPT-5: voken states in, images out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from generators.architectures import config_of, stored
from generators.base import Weights
from generators.diffusion.designs import DESIGNS
from generators.diffusion.settings import architecture_of
from generators.loading.files import Files
from generators.loading.strict import device_of, fill, randomised
from generators.minigpt5.models import STAGE_1, StageCheckpoints
from generators.minigpt5.settings import MiniGPT5RenderSettings
from generators.minigpt5.tokens import VOKENS
from generators.vokens.render import (
    VokenMapper,
    VokenRender,
    mapper_layout,
    stored_size,
)

_SEED = 20_231_004
"""Seed of the random weights."""


class MiniGPT5Render(VokenRender):
    """Draws the requests of `MiniGPT5Draft`; takes the fields of `MiniGPT5RenderSettings`.

    Guidance leads away from the mapper's output for states that are all zero
    (`USE_CFG` of `MiniGPT5_Model.generate`, model.py).
    """

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        render = MiniGPT5RenderSettings(**settings)
        device = device_of(render.device)
        if weights == "pretrained":
            mapper = _published(render, device)
        else:
            mapper = empty_mapper(random_size(render, weights == "tiny"))
            randomised(mapper, device=device, dtype=torch.float32, seed=_SEED)
        shape = (VOKENS, mapper.get_parameter("first.0.weight").shape[1])
        super().__init__(render.drawing(), weights, mapper, shape, torch.zeros(shape))


def empty_mapper(size: Mapping[str, int]) -> VokenMapper:
    """Return the mapper on the meta device; its width is that of what it gives."""
    heads, width = stored("minigpt5")["mapper"]["heads"], size["width"]
    with torch.device("meta"):
        layers = (nn.Linear(size["states"], width), nn.GELU(), nn.Linear(width, width))
        return VokenMapper({**size, "heads": heads}, nn.Sequential(*layers))


def random_size(settings: MiniGPT5RenderSettings, tiny: bool) -> dict[str, int]:
    """Return the dimensions of a mapper for a language model and a UNet."""
    sizes = config_of("minigpt5", tiny=tiny)
    unet = DESIGNS[architecture_of(settings)].config("unet", tiny=tiny)
    width, states = unet["cross_attention_dim"], sizes["language"]["hidden_size"]
    return {**sizes["mapper"], "states": states, "width": width, "inner": 4 * width}


def _published(settings: MiniGPT5RenderSettings, device: torch.device) -> VokenMapper:
    stages = StageCheckpoints(Files(settings.model, settings.revision), settings.finetuned)
    stored_1, stored_2 = stages.stage_1(), stages.stage_2()
    source = f"{STAGE_1} of {stages.files.describe()}"
    names = {"transformer": "llm_to_t2i_mapping", "queries": "t2i_decoder_prompt"}
    mapper = empty_mapper(stored_size(stored_1, source, first="fc.0", **names))
    layout = mapper_layout(mapper, first="fc", **names)
    put = partial(fill, device=device, dtype=torch.float32, tolerated=("model",))
    put(mapper, stored_1.items(), layout, source=source)
    if stored_2 is not None:
        prefix = f"{names['transformer']}."
        later = {k: place for k, place in layout.items() if k.startswith(prefix)}
        put(mapper, stored_2.items(), later, source=stages.last_source)
    return mapper
