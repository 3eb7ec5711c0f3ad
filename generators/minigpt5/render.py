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
from generators.loading.files import Files, shape_of
from generators.loading.strict import device_of, fill, randomised
from generators.minigpt5.models import STAGE_1, StageCheckpoints
from generators.minigpt5.settings import MiniGPT5RenderSettings
from generators.minigpt5.tokens import VOKENS
from generators.vokens.render import (
    VokenMapper,
    VokenRender,
    mapper_layout,
    pre_norm_transformer,
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
            mapper, width = _published_mapper(render, device)
        else:
            mapper, width = _random_mapper(render, weights == "tiny", device)
        shape = (VOKENS, width)
        super().__init__(render.drawing(), weights, mapper, shape, torch.zeros(shape))


def empty_mapper(
    width: int, out: int, layers: int, inner: int, queries: int
) -> VokenMapper:
    """Return the mapper on the meta device, from states of `width` to vectors of `out`."""
    heads = stored("minigpt5")["mapper"]["heads"]
    with torch.device("meta"):
        first = nn.Sequential(nn.Linear(width, out), nn.GELU(), nn.Linear(out, out))
        transformer = pre_norm_transformer(out, heads, layers, inner)
        return VokenMapper(first, transformer, (queries, out))


def _random_mapper(
    settings: MiniGPT5RenderSettings, tiny: bool, device: torch.device
) -> tuple[VokenMapper, int]:
    sizes = config_of("minigpt5", tiny=tiny)
    unet = DESIGNS[architecture_of(settings)].config("unet", tiny=tiny)
    width, out = sizes["language"]["hidden_size"], unet["cross_attention_dim"]
    layers, queries = sizes["mapper"]["layers"], sizes["mapper"]["queries"]
    mapper = empty_mapper(width, out, layers, 4 * out, queries)
    randomised(mapper, device=device, dtype=torch.float32, seed=_SEED)
    return mapper, width


def _published_mapper(
    settings: MiniGPT5RenderSettings, device: torch.device
) -> tuple[VokenMapper, int]:
    stages = StageCheckpoints(Files(settings.model, settings.revision), settings.finetuned)
    first, second = stages.stage_1(), stages.stage_2()
    source = f"{STAGE_1} of {stages.files.describe()}"
    mapper, width = _sized_mapper(first, source)
    transformer = "llm_to_t2i_mapping"
    names = {"first": "fc", "transformer": transformer, "queries": "t2i_decoder_prompt"}
    layout = mapper_layout(mapper, **names)
    put = partial(fill, device=device, dtype=torch.float32, tolerated=("model",))
    put(mapper, first.items(), layout, source=source)
    if second is not None:
        later = {k: p for k, p in layout.items() if k.startswith(f"{transformer}.")}
        put(mapper, second.items(), later, source=stages.last_source)
    return mapper, width


def _sized_mapper(tensors: Mapping[str, Any], source: str) -> tuple[VokenMapper, int]:
    """Return an empty mapper of the stored one's size, and the width of its states."""
    layer = "llm_to_t2i_mapping.encoder.layers.{}.linear1.weight"
    out, width = shape_of(tensors, "fc.0.weight", source, 2)
    layers = sum(layer.format(i) in tensors for i in range(len(tensors)))
    inner = shape_of(tensors, layer.format(0), source, 2)[0]
    queries = shape_of(tensors, "t2i_decoder_prompt", source, 3)[1]
    return empty_mapper(width, out, layers, inner, queries), width
