"""The rendering stage of GILL: states of image tokens in, pictures out."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from generators.base import Weights
from generators.gill.published import (
    MAPPER,
    RETRIEVAL,
    VISUAL,
    VOKENS,
    GillCheckpoint,
)
from generators.gill.settings import GillRenderSettings
from generators.gill.sizes import FULL, HEADS, SEED, TINY, MapperSize
from generators.loading.files import Files
from generators.loading.strict import device_of, randomised
from generators.vokens.mapper import VokenMapper, mapper_layout, pre_norm_transformer
from generators.vokens.render import VokenRender


def load_mapper(
    weights: Weights, model: str, revision: str | None, device: torch.device
) -> tuple[VokenMapper, tuple[int, int]]:
    """The mapper in float32, and the (vokens, width) of the states it reads.

    Raises CheckpointError when a published checkpoint does not fit.
    """
    if weights == "pretrained":
        return _published(GillCheckpoint(Files(model, revision)), device)
    size = TINY if weights == "tiny" else FULL
    mapper = empty_mapper(size.mapper)
    randomised(mapper, device=device, dtype=torch.float32, seed=SEED)
    return mapper, (size.vokens, size.mapper.states)


def empty_mapper(size: MapperSize) -> VokenMapper:
    """The mapper on the meta device."""
    with torch.device("meta"):
        return VokenMapper(
            nn.Linear(size.states, size.width),
            pre_norm_transformer(size.width, HEADS, size.layers, size.inner),
            (size.queries, size.width),
            nn.Linear(size.width, size.out),
        )


def _published(
    checkpoint: GillCheckpoint, device: torch.device
) -> tuple[VokenMapper, tuple[int, int]]:
    size = checkpoint.mapper_size()
    mapper = empty_mapper(size)
    layout = mapper_layout(
        mapper,
        first=f"{MAPPER}.fc",
        transformer=f"{MAPPER}.tfm",
        queries=f"{MAPPER}.query_embs",
        last=f"{MAPPER}.model",
    )
    checkpoint.fill(mapper, layout, (VOKENS, VISUAL, *RETRIEVAL), device, torch.float32)
    return mapper, (checkpoint.argument("num_tokens"), size.states)


class GillRender(VokenRender):
    """Draws the requests of `GillDraft`; takes the fields of `GillRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        render = GillRenderSettings(**settings)
        device = device_of(render.device)
        mapper, shape = load_mapper(weights, render.model, render.revision, device)
        super().__init__(render.drawing(), weights, mapper, shape)
