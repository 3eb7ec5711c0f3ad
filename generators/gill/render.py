"""The rendering stage of GILL: states of image tokens in, images out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from generators.architectures import config_of, stored
from generators.base import Weights
from generators.gill.models import (
    CHECKPOINT,
    MAPPER,
    SEED,
    VISUAL,
    VOKENS,
    GillCheckpoint,
)
from generators.gill.settings import GillRenderSettings
from generators.loading.files import Files, shape_of
from generators.loading.strict import device_of, fill, randomised
from generators.vokens.render import (
    VokenMapper,
    VokenRender,
    mapper_layout,
    stored_size,
)


class GillRender(VokenRender):
    """Draws the requests of `GillDraft`; takes the fields of `GillRenderSettings`."""

    def __init__(self, *, weights: Weights = "pretrained", **settings: Any) -> None:
        render = GillRenderSettings(**settings)
        mapper, shape = load_mapper(weights, render)
        super().__init__(render.drawing(), weights, mapper, shape)


def load_mapper(
    weights: Weights, settings: GillRenderSettings
) -> tuple[VokenMapper, tuple[int, int]]:
    """Return the mapper in float32, and the (vokens, width) of the states it reads.

    Raises CheckpointError when a published checkpoint does not fit.
    """
    device = device_of(settings.device)
    if weights == "pretrained":
        checkpoint = GillCheckpoint(Files(settings.model, settings.revision))
        return _published(checkpoint, device)
    sizes = config_of("gill", tiny=weights == "tiny")
    mapper = empty_mapper(sizes["mapper"])
    randomised(mapper, device=device, dtype=torch.float32, seed=SEED)
    return mapper, (sizes["vokens"], sizes["mapper"]["states"])


def empty_mapper(size: Mapping[str, int]) -> VokenMapper:
    """Return the mapper on the meta device; `size` as in `architectures/gill.json`."""
    width = size["width"]
    with torch.device("meta"):
        first, last = nn.Linear(size["states"], width), nn.Linear(width, size["out"])
        return VokenMapper(size, first, last)


def _published(
    checkpoint: GillCheckpoint, device: torch.device
) -> tuple[VokenMapper, tuple[int, int]]:
    names = {"first": "fc", "transformer": "tfm", "queries": "query_embs"}
    names = {part: f"{MAPPER}.{name}" for part, name in names.items()}
    tensors, last = checkpoint.tensors, f"{MAPPER}.model"
    source = f"{CHECKPOINT} of {checkpoint.source}"
    size = stored_size(tensors, source, **names)
    size["out"] = shape_of(tensors, f"{last}.weight", source, 2)[0]
    # As in `TextFcLayer` (gill/layers.py).
    size["heads"] = stored("gill")["mapper"]["heads"]
    mapper = empty_mapper(size)
    put = partial(fill, device=device, dtype=torch.float32)
    layout = mapper_layout(mapper, **names, last=last)
    checkpoint.fill(mapper, layout, (VOKENS, VISUAL), put)
    return mapper, (checkpoint.argument("num_tokens"), size["states"])
